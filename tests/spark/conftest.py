"""Fixtures of tests that start no server."""

from __future__ import annotations

import pytest

from qod_magics.spark.changes import lifecycle


@pytest.fixture
def back_off(monkeypatch: pytest.MonkeyPatch) -> tuple[float, ...]:
    waits = (1.0, 2.0, 4.0)
    monkeypatch.setattr(lifecycle, "BACK_OFF_S", waits)
    return waits
