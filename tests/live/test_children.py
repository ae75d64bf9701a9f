"""Children end with the kernel, whatever becomes of it, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from qod_magics.errors import SetupError
from qod_magics.machine import child as module
from qod_magics.machine.child import Child
from tests.live import elsewhere

#: What a user may have to wait for in vain; the tests wait no longer than it takes.
PATIENCE_S = 60.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

#: A kernel that starts a child with a grandchild in a process group of its own, as Spark's Python workers are.
KERNEL = """\
import os, signal, sys, time
from pathlib import Path
from qod_magics.machine import child as module
from qod_magics.machine.child import Child

module._WATCHDOG = Path(sys.argv[2])
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run behind a shell, it is ignored
directory = Path(sys.argv[1])
grandchild = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
script = f"'{sys.executable}' -c '{grandchild}' & trap '' TERM; sleep 600 & wait"
child = Child(["bash", "-c", script], log_path=directory / "log", remove=[directory])
while not child.tail():
    time.sleep(0.01)
print(child.pid, child.tail(), child._watchdog.pid, flush=True)
"""


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def directory() -> Path:
    """A directory that the child is to remove; the leak check sees it if it stays."""
    return Path(tempfile.mkdtemp(prefix="qod-child-"))


@pytest.fixture
def sleeper(directory: Path) -> Iterator[Child]:
    child = Child(["sleep", "600"], log_path=directory / "log", remove=[directory])
    yield child
    child.stop()


class Kernel:
    """A Python process that has started a child, and the processes that hang on it."""

    def __init__(self, directory: Path, more: str = "time.sleep(600)", watchdog: Path = module._WATCHDOG) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL + more, str(directory), str(watchdog)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.child, self.grandchild, self.watchdog = map(int, self.process.stdout.readline().split())

    def all_gone(self) -> bool:
        pids = (self.child, self.grandchild, self.watchdog)
        return not any(runs(pid) for pid in pids) and not self.directory.exists()

    def end(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def kernel(directory: Path, request: pytest.FixtureRequest) -> Iterator[Kernel]:
    started = Kernel(directory, getattr(request, "param", "time.sleep(600)"))
    yield started
    started.end()


def test_it_runs_with_its_environment_and_its_log(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QOD_OURS", "ours")
    monkeypatch.setenv("QOD_NOT", "not")
    child = Child(
        ["bash", "-c", "echo $QOD_OURS $QOD_ITS ${QOD_NOT-unset}; echo oh >&2; pwd; exit 3"],
        {"QOD_ITS": "its", "QOD_NOT": None},
        log_path=directory / "log",
        cwd=directory,
        remove=[directory],
    )
    assert child.wait(PATIENCE_S) == 3
    assert not child.alive()
    assert child.returncode == 3
    assert child.tail().splitlines() == ["ours its unset", "oh", str(directory)]
    assert child.tail(1) == str(directory)
    child.stop()


def test_a_command_that_isnt_there_is_named(directory: Path) -> None:
    with pytest.raises(SetupError, match="no-such-command"):
        Child(["no-such-command"], log_path=directory / "log", remove=[directory])
    assert not directory.exists()


def test_a_log_that_cant_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="missing"):
        Child(["true"], log_path=tmp_path / "missing" / "log")


@pytest.mark.smoke
def test_stop_asks_first(directory: Path) -> None:
    script = f"trap 'touch {directory}/asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    child = Child(["bash", "-c", script], log_path=directory / "log")
    assert eventually(lambda: child.tail() == "ready")
    child.stop(timeout_s=60)
    assert (directory / "asked").exists()
    assert child.returncode == 0
    (directory / "asked").unlink()
    (directory / "log").unlink()
    directory.rmdir()


def test_what_a_command_starts_to_clean_up_is_left_to_finish(directory: Path) -> None:
    # while the processes of this machine are listed, which takes some hundredths of a second, the trap has begun
    script = f"trap 'sleep 1; touch {directory}/cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    child = Child(["bash", "-c", script], log_path=directory / "log")
    assert eventually(lambda: child.tail() == "ready")
    child.end(timeout_s=60)
    assert (directory / "cleaned").exists()
    assert child.returncode == 0
    child.stop()
    (directory / "cleaned").unlink()
    (directory / "log").unlink()
    directory.rmdir()


@pytest.mark.smoke
def test_stop_kills_what_does_not_listen(directory: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    child = Child(["bash", "-c", script], log_path=directory / "log", remove=[directory])
    assert eventually(lambda: child.tail() == "ready")
    child.stop(timeout_s=0.2)
    assert child.returncode == -signal.SIGKILL
    assert not directory.exists()


def test_stop_may_be_repeated(sleeper: Child) -> None:
    sleeper.stop()
    sleeper.stop()
    sleeper.kill()
    assert not sleeper.alive()


def test_kill_keeps_the_directories_until_stop(sleeper: Child, directory: Path) -> None:
    sleeper.kill()
    assert sleeper.returncode == -signal.SIGKILL
    assert "SIGKILL" in sleeper.ending
    assert not runs(sleeper.pid)
    assert directory.exists()
    sleeper.stop()
    assert not directory.exists()


def test_release_leaves_the_directories(directory: Path) -> None:
    first = Child(["sleep", "600"], log_path=directory / "log", remove=[directory])
    first.end()
    second = Child(["sleep", "600"], log_path=directory / "log", remove=[directory])
    first.release()
    assert directory.exists()
    assert second.alive()
    second.stop()
    assert not directory.exists()


def test_its_end_is_seen_without_asking_the_system(sleeper: Child) -> None:
    os.kill(sleeper.pid, signal.SIGTERM)
    assert sleeper.wait(PATIENCE_S) == -signal.SIGTERM


@linux
@pytest.mark.smoke
def test_it_stays_on_its_cores(directory: Path) -> None:
    core = max(os.sched_getaffinity(0))
    child = Child(["sleep", "600"], log_path=directory / "log", cpus={core}, remove=[directory])
    assert child.pinned
    assert os.sched_getaffinity(child.pid) == {core}
    child.stop()


@linux
def test_cores_that_arent_there_are_told(directory: Path) -> None:
    child = Child(["sleep", "600"], log_path=directory / "log", cpus={100_000}, remove=[directory])
    assert child.alive()
    assert not child.pinned
    child.stop()


def test_ctrl_c_does_not_reach_it(kernel: Kernel) -> None:
    assert os.getpgid(kernel.child) != os.getpgid(kernel.process.pid)
    assert os.getsid(kernel.child) != os.getsid(kernel.process.pid)
    os.kill(kernel.watchdog, signal.SIGINT)
    time.sleep(0.2)
    assert runs(kernel.watchdog)
    assert runs(kernel.child)


@pytest.mark.smoke
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_kernel(kernel: Kernel, number: signal.Signals) -> None:
    assert all(runs(pid) for pid in (kernel.child, kernel.grandchild, kernel.watchdog))
    kernel.process.send_signal(number)
    assert eventually(kernel.all_gone)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_kernel_on_a_system_that_is_not_linux(directory: Path, number: signal.Signals) -> None:
    kernel = Kernel(directory, watchdog=Path(elsewhere.__file__))
    try:
        assert all(runs(pid) for pid in (kernel.child, kernel.grandchild, kernel.watchdog))
        kernel.process.send_signal(number)
        assert eventually(kernel.all_gone)
    finally:
        kernel.end()


@pytest.mark.parametrize("kernel", ["pass", "raise SystemExit(1)", "os._exit(0)"], indirect=True)
def test_nothing_outlives_a_kernel_that_ends_by_itself(kernel: Kernel) -> None:
    assert eventually(kernel.all_gone)


@pytest.mark.parametrize(
    "kernel", ["if os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)\ntime.sleep(600)"], indirect=True
)
def test_a_fork_that_holds_the_pipe_does_not_keep_it(kernel: Kernel) -> None:
    def forked() -> list[psutil.Process]:
        return [p for p in psutil.Process(kernel.process.pid).children() if p.pid != kernel.watchdog]

    assert eventually(lambda: len(forked()) == 1)
    (fork,) = forked()
    try:
        kernel.process.kill()
        assert eventually(kernel.all_gone)
        assert fork.is_running(), "the fork was to outlive what is tested"
    finally:
        fork.kill()


@pytest.mark.parametrize(
    "kernel",
    ["if os.fork() == 0:\n    child.stop()\n    (directory / 'stopped').touch()\n    os._exit(0)\ntime.sleep(600)"],
    indirect=True,
)
def test_a_fork_does_not_end_what_is_not_its_own(kernel: Kernel) -> None:
    assert eventually((kernel.directory / "stopped").exists)
    assert runs(kernel.child)


@linux
def test_it_dies_with_a_killed_watchdog(kernel: Kernel) -> None:
    below = {process.pid for process in psutil.Process(kernel.child).children(recursive=True)}
    os.kill(kernel.watchdog, signal.SIGKILL)
    assert eventually(lambda: not runs(kernel.child))
    os.kill(kernel.grandchild, signal.SIGKILL)  # in a group of its own; what is in the child's, the kernel kills
    assert eventually(lambda: not any(runs(pid) for pid in below))
    for file in kernel.directory.iterdir():
        file.unlink()
    kernel.directory.rmdir()


def test_the_owner_sees_that_the_watchdog_was_killed(sleeper: Child) -> None:
    sleeper._watchdog.kill()
    assert sleeper.wait(PATIENCE_S) == -signal.SIGKILL
    assert eventually(lambda: not runs(sleeper.pid))
