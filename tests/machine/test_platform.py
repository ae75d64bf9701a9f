"""Systems that can't keep processes on cores, as macOS can't: what is planned with is what was given all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.commands import doctor
from qod_magics.machine import cores, watchdog
from qod_magics.spark.servers import cpu
from qod_magics.spark.servers.cpu import CoreMeter, ProcessMeter
from qod_magics.spark.servers.server import ServerOptions
from qod_magics.spark.servers.task_manager import TaskManager
from tests.machine.fakes import FakeMachine, on
from tests.spark.fakes import BOARD, Spark
from tests.texts import tells


@pytest.fixture
def no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    on(FakeMachine(range(8), pins=False), monkeypatch)


def manager(
    cpus: frozenset[int] | None, *, pinned: bool, asked: bool = True, shared: frozenset[int] = frozenset()
) -> TaskManager:
    child = SimpleNamespace(pid=os.getpid(), pinned=pinned, alive=lambda: True)
    claim = SimpleNamespace(shared=shared)
    server: Any = SimpleNamespace(
        child=child,
        options=ServerOptions(cpus, asked),
        claim=claim,
        no_realtime="",
        no_shedding_source="",
        no_state_jar="",
    )
    return TaskManager("tm1", Spark(), kind="local", cores=0.9, board=BOARD, server=server)  # type: ignore[arg-type]


def test_the_cores_of_the_machine_are_shared_out_by_number(no_affinity: None) -> None:
    assert not cores.can_pin()
    assert cores.every_core() == list(range(8))
    assert cores.core_sets(2, 2) == [frozenset({0, 1}), frozenset({2, 3})]
    assert [len(share or ()) for share in cores.core_sets(2, None)] == [4, 4]
    assert cores.free_cores(1, {0}) == frozenset({1})


def test_the_doctor_says_so_and_finds_nothing_missing(no_affinity: None) -> None:
    finding = doctor._cores()
    assert finding.ok is None
    assert "process" in str(finding)


def test_a_task_manager_that_is_not_pinned_is_measured_by_process_against_its_own_cores(no_affinity: None) -> None:
    tm = manager(frozenset({0, 1}), pinned=False)
    assert isinstance(tm.cpu_meter, ProcessMeter)
    assert (tm.cpu_meter.root, tm.cpu_meter.cores) == (os.getpid(), 2)
    assert "any core" in tm.describe
    assert "core 0" not in tm.describe


def test_one_without_cores_of_its_own_has_all_of_them(no_affinity: None) -> None:
    tm = manager(None, pinned=False)
    assert tm.cpu_meter is not None
    assert tm.cpu_meter.cores == 8


def test_one_under_a_quota_is_measured_by_process() -> None:
    limited = manager(frozenset({0}), pinned=False, asked=False)
    assert isinstance(limited.cpu_meter, ProcessMeter)
    assert limited.cpu_meter.cores == 1
    assert tells(limited.describe, "any core", "quota")
    assert limited.server is not None
    assert limited.server.options.pinned_to is None


def test_a_pinned_one_is_measured_by_its_cores() -> None:
    tm = manager(frozenset({0}), pinned=True)
    assert isinstance(tm.cpu_meter, CoreMeter)
    assert (tm.cpu_meter.cpus, tm.cpu_meter.cores) == ((0,), 1)
    assert tells(tm.describe, "tm1", "core 0")
    shared = manager(frozenset({0, 1}), pinned=True, shared=frozenset({1}))
    assert tells(shared.describe, "cores 0,1", 1)


def test_cores_that_are_counted_by_other_numbers_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In an LXC container cores 2 and 3 of the machine are counted as 0 and 1."""
    (tmp_path / "stat").write_text("cpu  2 0 0 2 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\n")
    monkeypatch.setattr(cpu.SYSTEM, "stat", tmp_path / "stat")
    on(FakeMachine((2, 3)), monkeypatch)
    tm = manager(frozenset({2}), pinned=True)
    assert isinstance(tm.cpu_meter, ProcessMeter)
    assert (tm.cpu_meter.root, tm.cpu_meter.cores) == (os.getpid(), 1)


@contextmanager
def sleeper_in_a_group_of_its_own() -> Iterator[tuple[int, int]]:
    """A session, and a process in it that has left its leader's group, as Spark's Python workers do."""
    below = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
    leader = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
    with subprocess.Popen([sys.executable, "-c", leader], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            yield process.pid, worker
        finally:
            os.kill(worker, 9)


@pytest.mark.parametrize("proc", ["there", "missing", "empty"])
def test_the_members_of_a_session_are_found_without_proc_too(proc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def listing(path: str) -> list[str]:
        assert path == "/proc"
        if proc == "missing":
            raise FileNotFoundError(path)
        return []

    if proc != "there":
        monkeypatch.setattr(watchdog.os, "listdir", listing)  # type: ignore[attr-defined]
    with sleeper_in_a_group_of_its_own() as (session, worker):
        assert set(watchdog.session_members(session)) == {session, worker}
