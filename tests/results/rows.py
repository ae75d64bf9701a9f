"""Results as queries have them: their columns, and rows as Spark's JSON writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from qod_magics.results.result import Accuracy, Column, Kind, Newest, Result, Row

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = Column("w", Kind.WINDOW)
ZONE = Column("zone", Kind.NUMBER)
NAME = Column("name", Kind.TEXT)
AT = Column("at", Kind.TIME)
TRIPS = Column("trips", Kind.ESTIMATE)
FARES = Column("fares", Kind.NUMBER)
ACCURACY = Accuracy(0.62, 0.6, 0.4)
PER_ZONE = (WINDOW, ZONE, TRIPS, FARES)


def at(seconds: float) -> str:
    """A time as Spark's JSON writes it."""
    return (BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def window(number: int) -> dict[str, str]:
    """The window of ten seconds of this number."""
    return {"start": at(10 * number), "end": at(10 * number + 10)}


def estimate(value: float, half: float | None = None) -> dict[str, float]:
    """An estimate; without half a width its ends are null, which Spark's JSON leaves out."""
    return {"value": value} if half is None else {"value": value, "low": value - half, "high": value + half}


def per_zone(number: int, zone: int, trips: float, half: float | None = 1.0) -> dict[str, Any]:
    """A row of a count per window and zone."""
    return {"w": window(number), "zone": zone, "trips": estimate(trips, half), "fares": 2.5 * trips}


def result(
    columns: tuple[Column, ...],
    keys: tuple[str, ...] | None,
    rows: Iterable[Row],
    accuracy: Accuracy = ACCURACY,
    labels: Mapping[str, str] | None = None,
    missing: str | None = None,
) -> Result:
    """What has been written so far, as it is shown."""
    newest = Newest(keys)
    newest.add(rows)
    return Result("per_zone", columns, keys, newest.rows, BEGAN, accuracy, labels or {}, missing)
