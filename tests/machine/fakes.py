"""A machine of other cores and limits than the one that the tests run on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import pytest

from qod_magics.machine import cores
from qod_magics.machine.cores import Machine, MemoryLimit


class FakeMachine(Machine):
    """Has these cores and limits; without `pins`, its system tells no process's cores."""

    def __init__(
        self,
        numbers: Sequence[int] = (0, 1, 2, 5),
        quota: float | None = None,
        memory: MemoryLimit | None = None,
        *,
        pins: bool = True,
    ) -> None:
        self.numbers, self.quota_now, self.limit, self._pins = list(numbers), quota, memory, pins

    @property
    def pins(self) -> bool:
        return self._pins

    def cores(self) -> list[int]:
        return self.numbers

    def count(self) -> int:
        return len(self.numbers)

    def quota(self) -> float | None:
        return self.quota_now

    def memory(self) -> MemoryLimit | None:
        return self.limit


def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pooch try a download again without its wait of seconds."""
    monkeypatch.setattr(time, "sleep", lambda _: None)


def with_client(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test as if this release of pyspark were installed."""
    monkeypatch.setattr("qod_magics.machine.releases.installed_spark", lambda: release)


def unclaimed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test as if no session of this machine had claimed a core; return the name of the sockets of claims."""
    own = f"qod-test-{uuid.uuid4().hex}-"
    monkeypatch.setattr(cores, "NAME", f"\0{own}")
    return own


def on(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Run the test as if on this machine."""
    monkeypatch.setattr(cores, "HERE", machine)
    return machine
