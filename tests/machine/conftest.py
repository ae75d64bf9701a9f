"""What the tests about cores share."""

from __future__ import annotations

import pytest

from tests.machine.fakes import unclaimed


@pytest.fixture(autouse=True)
def claims(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of sockets that no session of this machine has."""
    return unclaimed(monkeypatch)
