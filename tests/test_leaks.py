"""The leak check sees each kind of leak, and only leaks."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests import leaks

SLEEP = "import time; time.sleep(60)"
#: starts a process in a session of its own, prints its pid, and ends: the process is an orphan then
ORPHAN = (
    "import subprocess, sys;"
    f"p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True, stdout=subprocess.DEVNULL);"
    "print(p.pid)"
)


def test_a_child_process_is_seen_until_it_is_gone() -> None:
    before = leaks.look()
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as child:
        (line,) = leaks.leaks(before, grace_s=0).lines()
        child.kill()
    assert line.startswith(f"process {child.pid}: ")
    assert "time.sleep(60)" in line
    assert leaks.leaks(before).lines() == []


def test_an_orphan_is_seen() -> None:
    before = leaks.look()
    made = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, check=True)
    orphan = psutil.Process(int(made.stdout))
    try:
        (line,) = leaks.leaks(before, grace_s=0).lines()
        assert line.startswith(f"orphaned process {orphan.pid}: ")
    finally:
        orphan.kill()
    assert leaks.leaks(before).lines() == []


def test_a_process_below_one_that_was_there_before_belongs_to_it() -> None:
    parent_code = f"import subprocess, sys; input(); subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    with subprocess.Popen([sys.executable, "-c", parent_code], stdin=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        server = psutil.Process(parent.pid)
        before = leaks.look()
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        deadline = time.monotonic() + 30
        while not (workers := server.children()) and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            assert len(workers) == 1
            assert leaks.leaks(before, grace_s=0).lines() == []
            assert len(leaks.leaks(leaks.Holdings(), grace_s=0).processes) >= 2
        finally:
            for process in (*workers, server):
                process.kill()


def test_a_listening_socket_is_seen() -> None:
    before = leaks.look()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert leaks.leaks(before, grace_s=0).lines() == [f"listening socket 127.0.0.1:{port}"]
    assert leaks.leaks(before).lines() == []


@pytest.mark.parametrize("daemon", [True, False])
def test_a_thread_is_a_leak_unless_it_is_a_daemon(daemon: bool) -> None:
    before = leaks.look()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="controller", daemon=daemon)
    thread.start()
    try:
        seen = leaks.leaks(before, grace_s=0).lines()
        assert seen == ([] if daemon else ["thread 'controller', not a daemon"])
    finally:
        stop.set()
        thread.join()
    assert leaks.leaks(before).lines() == []


def test_a_temporary_directory_of_ours_is_seen_and_others_are_not() -> None:
    before = leaks.look()
    with tempfile.TemporaryDirectory(prefix="qod-") as ours, tempfile.TemporaryDirectory(prefix="other-"):
        assert leaks.leaks(before, grace_s=0).lines() == [f"temporary directory {ours}"]
    assert leaks.leaks(before).lines() == []


def test_what_stops_within_the_grace_is_no_leak() -> None:
    before = leaks.look()
    thread = threading.Thread(target=time.sleep, args=(0.3,))
    thread.start()
    assert leaks.leaks(before).lines() == []
    thread.join()


def test_the_temporary_directory_is_this_runs_own() -> None:
    outer = tempfile.gettempdir()
    with leaks.private_temp_dir() as own:
        (own / "qod-left").mkdir()
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(own)
        child = subprocess.run(
            [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert child.stdout.strip() == str(own)
    assert tempfile.gettempdir() == outer
    assert not Path(own).exists()


FIXTURES_AND_TESTS = """
import socket, pytest

def listen():
    return socket.create_server(("127.0.0.1", 0))

@pytest.fixture(scope="module")
def shared():
    with listen():
        yield

@pytest.fixture
def chosen_late(request):
    return request.getfixturevalue("shared")

def test_own_socket_left():
    globals()["kept"] = listen()

def test_own_socket_closed():
    listen().close()

def test_shared_socket_stays(chosen_late):
    pass
"""


def test_the_fixtures_fail_the_test_that_leaks_and_no_other(tmp_path: Path) -> None:
    """A run of its own, with this conftest, over tests of which one leaks."""
    here = Path(__file__).parent
    live = tmp_path / "tests" / "live"
    live.mkdir(parents=True)
    (tmp_path / "tests" / "conftest.py").write_text((here / "conftest.py").read_text())
    impatient, found = re.subn(r"(?m)^GRACE_S = [\d.]+", "GRACE_S = 0.2", (here / "leaks.py").read_text())
    assert found == 1
    (tmp_path / "tests" / "leaks.py").write_text(impatient)
    (live / "test_leaky.py").write_text(FIXTURES_AND_TESTS)
    (tmp_path / "tests" / "test_pure.py").write_text("def test_pure():\n    pass\n")
    command = [
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--rootdir",
        ".",
        "-c",
        os.devnull,
        "tests",
    ]
    options = ["-o", "pythonpath=.", "-o", "markers=live", "--import-mode=importlib"]
    run = subprocess.run(
        [sys.executable, *command, *options], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    outcome = [line for line in run.stdout.splitlines() if "::" in line and "%]" in line]
    assert "test_pure PASSED" in outcome[0], run.stdout
    assert sum("PASSED" in line for line in outcome) == 4, run.stdout
    assert "left behind by this session:\n  listening socket 127.0.0.1:" in run.stdout
    blamed = [line for line in run.stdout.splitlines() if line.startswith("left behind by this function:")]
    assert len(blamed) == 1, run.stdout
    assert "ERROR at teardown of test_own_socket_left" in run.stdout
    assert run.returncode == 1
