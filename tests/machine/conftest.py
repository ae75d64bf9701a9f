"""What the tests about cores share."""

from __future__ import annotations

import uuid

import pytest

from qod_magics.machine import cores


@pytest.fixture(autouse=True)
def claims(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of sockets that no session of this machine has."""
    own = f"qod-test-{uuid.uuid4().hex}-"
    monkeypatch.setattr(cores, "NAME", f"\0{own}")
    return own
