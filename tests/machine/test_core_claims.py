"""Cores that sessions hold against each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from qod_magics.machine import cores
from qod_magics.machine.core_claims import CoreClaim, claimed

HOLDER = """
import sys, time
from qod_magics.machine import core_claims
core_claims.NAME = "\\0" + sys.argv[1]
held = core_claims.CoreClaim([int(cpu) for cpu in sys.argv[2:]])
print("holds", flush=True)
time.sleep(600)
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux pins processes")


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "every_core", lambda: [0, 1, 2, 5])
    monkeypatch.setattr(cores, "cpu_quota", lambda: None)


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
