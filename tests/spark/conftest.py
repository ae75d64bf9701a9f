"""Fixtures of tests that start no server."""

from __future__ import annotations

import pytest

from qod_magics.lifecycle import query


@pytest.fixture
def back_off(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    waits = (1.0, 2.0, 4.0)
    monkeypatch.setattr(query, "BACK_OFF_S", waits)
    return waits
