"""Cores that sessions hold against each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from qod_magics.machine import cores
from qod_magics.machine.cores import CoreClaim, choosing, claimed
from tests.machine.fakes import FakeMachine, on

HOLDER = """
import sys, time
from qod_magics.machine import cores
cores.NAME = "\\0" + sys.argv[1]
held = cores.CoreClaim([int(cpu) for cpu in sys.argv[2:]])
print("holds", flush=True)
time.sleep(600)
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux pins processes")


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    on(FakeMachine(), monkeypatch)


@pytest.fixture
def holder(claims: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds cores 0 and 2."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, claims, "0", "2"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_cores_of_another_session_come_last(holder: subprocess.Popen[str]) -> None:
    assert claimed([0, 1, 2, 5]) == {0, 2}
    assert cores.core_sets(2, 1) == [frozenset({1}), frozenset({5})]
    assert cores.core_sets(3, 1) == [frozenset({1}), frozenset({5}), frozenset({0})]
    assert cores.free_cores(1, {1}) == frozenset({5})
    assert cores.free_cores(None, ()) == frozenset({1, 5})


def test_what_two_sessions_share_is_known(holder: subprocess.Popen[str]) -> None:
    both = CoreClaim({1, 2})
    assert both.shared == {2}
    both.release()
    assert claimed([1, 2]) == {2}


STARTING = """
import sys, time
from qod_magics.machine import cores
cores.NAME = "\\0" + sys.argv[1]
cores.HERE.cores, cores.HERE.quota = lambda: [0, 1, 2, 5], lambda: None
print("ready", flush=True)
sys.stdin.readline()
with cores.choosing():
    (chosen,) = cores.core_sets(1, 1)
    time.sleep(0.2)
    held = cores.CoreClaim(chosen)
print(sorted(held.cpus), sorted(held.shared), flush=True)
sys.stdin.readline()
"""


def test_sessions_that_start_at_once_take_different_cores(claims: str) -> None:
    command = [sys.executable, "-c", STARTING, claims]
    starting = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        pipes = [(each.stdin, each.stdout) for each in starting if each.stdin and each.stdout]
        assert [answers.readline() for _, answers in pipes] == ["ready\n"] * 4
        for begin, _ in pipes:
            begin.write("\n")
            begin.flush()
        assert sorted(answers.readline() for _, answers in pipes) == ["[0] []\n", "[1] []\n", "[2] []\n", "[5] []\n"]
    finally:
        for each in starting:
            each.kill()
            each.communicate()


def test_a_session_that_gets_no_turn_goes_on() -> None:
    with choosing(), choosing(timeout_s=0.1):
        assert claimed([0, 1]) == frozenset()


def test_a_killed_session_holds_nothing(holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert claimed([0, 1, 2, 5]) == frozenset()


def test_two_sessions_of_one_kernel_hold_against_each_other() -> None:
    one = CoreClaim({0})
    assert claimed([0, 1]) == {0}
    assert CoreClaim({0}).shared == {0}
    one.release()
    one.release()
    assert claimed([0, 1]) == frozenset()
