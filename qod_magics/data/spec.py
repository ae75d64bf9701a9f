"""The data source of a topic, as a scenario specifies it. Pure: nothing is generated or opened here.

    {"generator": "taxi-trips", "rows": 50000, "seed": 3, "columns": ["PULocationID", ...], "event_time": "..."}
    {"generator": "points", "rows": 50000, "seed": 3, "clusters": 8}
    {"parquet": "yellow_tripdata_2024-05.parquet", "rows": 50000, "columns": [...], "event_time": "..."}
    {"jsonl": "rows.jsonl", "rows": 50000, "event_time": "ts"}

`rows` is the length of the ring that is encoded once and sent cyclically. `event_time` names the column that holds the
send time; other timestamps of the row keep their distance to it. Null: timestamps are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qod_magics.data.fields import Fields
from qod_magics.data.schema import (
    COORDINATE_COLUMNS,
    POINT_COLUMNS,
    POINT_EVENT_TIME,
    TRIP_COLUMNS,
    TRIP_EVENT_TIME,
    TRIP_STREAM_COLUMNS,
)
from qod_magics.errors import ScenarioError, nearest

RING_ROWS = 50_000

#: generator -> all columns that it offers
GENERATORS: Mapping[str, tuple[str, ...]] = {
    "taxi-trips": TRIP_COLUMNS + COORDINATE_COLUMNS,
    "points": POINT_COLUMNS,
}
_SENT = {"taxi-trips": TRIP_STREAM_COLUMNS, "points": POINT_COLUMNS}
_EVENT_TIMES = {"taxi-trips": TRIP_EVENT_TIME, "points": POINT_EVENT_TIME}


@dataclass(frozen=True, slots=True)
class GeneratedData:
    """Rows from a seeded generator. `seed` None: the scenario's own plus the topic's index."""

    generator: str  #: "taxi-trips" or "points"
    columns: tuple[str, ...]
    event_time: str | None
    rows: int = RING_ROWS
    seed: int | None = None
    clusters: int = 8  #: of points

    def to_json(self) -> dict[str, Any]:
        """Return the form that `data_from_json` reads."""
        return {
            "generator": self.generator,
            "rows": self.rows,
            "columns": list(self.columns),
            "event_time": self.event_time,
            **({} if self.seed is None else {"seed": self.seed}),
            **({"clusters": self.clusters} if self.generator == "points" else {}),
        }


@dataclass(frozen=True, slots=True)
class ParquetData:
    """The first `rows` rows of a Parquet file, such as one of the TLC's."""

    path: str
    columns: tuple[str, ...] = TRIP_STREAM_COLUMNS
    event_time: str | None = TRIP_EVENT_TIME
    rows: int = RING_ROWS

    def to_json(self) -> dict[str, Any]:
        """Return the form that `data_from_json` reads."""
        columns = list(self.columns)
        return {"parquet": self.path, "rows": self.rows, "columns": columns, "event_time": self.event_time}


@dataclass(frozen=True, slots=True)
class JsonlData:
    """The first `rows` lines of a file of JSON objects, one per line."""

    path: str
    event_time: str | None = None
    rows: int = RING_ROWS

    def to_json(self) -> dict[str, Any]:
        """Return the form that `data_from_json` reads."""
        return {"jsonl": self.path, "rows": self.rows, "event_time": self.event_time}


Data = GeneratedData | ParquetData | JsonlData


def data_from_json(value: Any, where: str) -> Data:
    """Return the `data` of a topic. Raises ScenarioError, which begins with `where`."""
    known = ("generator", "parquet", "jsonl", "rows", "seed", "columns", "clusters", "event_time")
    fields = Fields(value, where, known)
    kinds = [kind for kind in ("generator", "parquet", "jsonl") if kind in fields]
    if len(kinds) != 1:
        have = " and ".join(kinds) or "none"
        raise ScenarioError(f"{where} must have one of generator, parquet and jsonl, it has {have}: keep one")
    allowed = {
        "generator": ("rows", "seed", "columns", "clusters", "event_time"),
        "parquet": ("rows", "columns", "event_time"),
        "jsonl": ("rows", "event_time"),
    }[kinds[0]]
    Fields(value, where, (kinds[0], *allowed))
    rows = fields.whole("rows", at_least=1, default=RING_ROWS)
    if kinds[0] == "generator":
        return _generated(fields, rows)
    if kinds[0] == "parquet":
        columns = fields.names("columns") or TRIP_STREAM_COLUMNS
        return ParquetData(fields.text("parquet"), columns, _event_time(fields, columns, TRIP_EVENT_TIME), rows)
    return JsonlData(fields.text("jsonl"), fields.optional_text("event_time"), rows)


def data_columns(data: Data) -> tuple[str, ...] | None:
    """Return the columns of the rows; None where only the file knows."""
    return None if isinstance(data, JsonlData) else data.columns


def at_folder(data: Data, folder: Path) -> Data:
    """Return this data with a relative path resolved against `folder`."""
    return data if isinstance(data, GeneratedData) else replace(data, path=str(folder / data.path))


def _generated(fields: Fields, rows: int) -> GeneratedData:
    name = fields.text("generator")
    if name not in GENERATORS:
        raise ScenarioError(f"{fields.where}.generator is {name!r}: no such generator.{nearest(name, GENERATORS)}")
    if name != "points" and "clusters" in fields:
        fields.refuse("clusters", "go with the generator 'points' only: leave it out")
    columns = fields.names("columns") or _SENT[name]
    for column in columns:
        if column not in GENERATORS[name]:
            hint = nearest(column, GENERATORS[name])
            raise ScenarioError(f"{fields.where}.columns has {column!r}, which {name} does not have.{hint}")
    seed = fields.whole("seed", at_least=0, default=0) if "seed" in fields else None
    clusters = fields.whole("clusters", at_least=1, default=8)
    return GeneratedData(name, columns, _event_time(fields, columns, _EVENT_TIMES[name]), rows, seed, clusters)


def _event_time(fields: Fields, columns: tuple[str, ...], default: str) -> str | None:
    if "event_time" not in fields:
        return default if default in columns else None
    name = fields.optional_text("event_time")
    if name is not None and name not in columns:
        fields.refuse("event_time", f"be one of the columns sent, or null.{nearest(name, columns)}")
    return name
