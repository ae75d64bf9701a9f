"""The data source of a topic, as a scenario specifies it. Pure: nothing is generated or opened here.

    {"generator": "taxi-trips", "rows": 50000, "seed": 3, "columns": ["PULocationID", ...], "event_time": "..."}
    {"generator": "points", "rows": 50000, "seed": 3, "clusters": 8}
    {"parquet": "yellow_tripdata_2024-05.parquet", "rows": 50000, "columns": [...], "event_time": "..."}
    {"jsonl": "rows.jsonl", "rows": 50000, "event_time": "ts"}

`rows` is the length of the ring that is encoded once and sent cyclically. `event_time` names the column that holds the
send time; other timestamps of the row keep their distance to it. Null: timestamps are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from qod_magics.data.forms import Count, Form, Name, Names, Whole, read, refuse
from qod_magics.errors import ScenarioError, nearest

# --- Columns and schemas ----------------------------------------------------------------------------------------------
# Trips are the New York TLC's yellow taxi trip records. The files of 2009 to mid-2016 have coordinates where later ones
# have zones; the generator can give both.

#: column -> Spark type, in the order of the TLC's files
TRIP_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "VendorID": "INT",
        "tpep_pickup_datetime": "TIMESTAMP",
        "tpep_dropoff_datetime": "TIMESTAMP",
        "passenger_count": "INT",
        "trip_distance": "DOUBLE",  # miles
        "RatecodeID": "INT",
        "store_and_fwd_flag": "STRING",
        "PULocationID": "INT",
        "DOLocationID": "INT",
        "payment_type": "INT",
        "fare_amount": "DOUBLE",  # this one and all below: dollars
        "extra": "DOUBLE",
        "mta_tax": "DOUBLE",
        "tip_amount": "DOUBLE",
        "tolls_amount": "DOUBLE",
        "improvement_surcharge": "DOUBLE",
        "total_amount": "DOUBLE",
        "congestion_surcharge": "DOUBLE",
        "airport_fee": "DOUBLE",
    }
)
TRIP_COLUMNS: tuple[str, ...] = tuple(TRIP_TYPES)

#: columns that only some years' files have
COORDINATE_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "pickup_longitude": "DOUBLE",
        "pickup_latitude": "DOUBLE",
        "dropoff_longitude": "DOUBLE",
        "dropoff_latitude": "DOUBLE",
    }
)
COORDINATE_COLUMNS: tuple[str, ...] = tuple(COORDINATE_TYPES)

#: a scenario's default columns: rows of about 190 bytes of JSON instead of 480
TRIP_STREAM_COLUMNS: tuple[str, ...] = (
    "tpep_pickup_datetime",
    "tpep_dropoff_datetime",
    "PULocationID",
    "DOLocationID",
    "trip_distance",
    "total_amount",
)

#: a trip is reported when it ends: the event time of its row
TRIP_EVENT_TIME = "tpep_dropoff_datetime"

#: 3-D points to classify; `id` is the point's number in its set, which gives its hidden label
POINT_TYPES: Mapping[str, str] = MappingProxyType(
    {"id": "INT", "ts": "TIMESTAMP", "x": "DOUBLE", "y": "DOUBLE", "z": "DOUBLE"}
)
POINT_COLUMNS: tuple[str, ...] = tuple(POINT_TYPES)
POINT_EVENT_TIME = "ts"


def ddl(types: Mapping[str, str], columns: Iterable[str] | None = None) -> str:
    """Return a Spark DDL schema ("a INT, b DOUBLE") of these columns, or of all.

    Raises ScenarioError for a column that `types` does not have.
    """
    chosen = tuple(types) if columns is None else tuple(columns)
    for column in chosen:
        if column not in types:
            raise ScenarioError(f"there is no column {column!r}.{nearest(column, types)}", name=column, rule="exists")
    return ", ".join(f"{column} {types[column]}" for column in chosen)


def trip_schema(columns: Iterable[str] | None = None) -> str:
    """Return the schema of trips for Spark: of these columns (TRIP_COLUMNS, COORDINATE_COLUMNS), or of TRIP_COLUMNS."""
    if columns is None:
        return ddl(TRIP_TYPES)
    return ddl({**TRIP_TYPES, **COORDINATE_TYPES}, columns)


#: all columns of a TLC file: `from_json` gives null for those that were not sent
TRIP_SCHEMA = trip_schema()
#: a scenario's default columns
TRIP_STREAM_SCHEMA = trip_schema(TRIP_STREAM_COLUMNS)
POINT_SCHEMA = ddl(POINT_TYPES)

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


class _Generated(Form, frozen=True):
    """`data` of a generator."""

    generator: Literal["taxi-trips", "points"]
    rows: Count = RING_ROWS
    seed: Whole | None = None
    columns: Names | None = None
    clusters: Count | UnsetType = UNSET
    event_time: Name | UnsetType | None = UNSET


class _Parquet(Form, frozen=True):
    """`data` of a Parquet file."""

    parquet: Name
    rows: Count = RING_ROWS
    columns: Names | None = None
    event_time: Name | UnsetType | None = UNSET


class _Jsonl(Form, frozen=True):
    """`data` of a file of JSON objects."""

    jsonl: Name
    rows: Count = RING_ROWS
    event_time: Name | None = None


#: The forms of `data`, by the field that only one of them has.
FORMS: Mapping[str, type[_Generated | _Parquet | _Jsonl]] = {
    "generator": _Generated,
    "parquet": _Parquet,
    "jsonl": _Jsonl,
}


def data_from_json(value: Any, where: str) -> Data:
    """Return the `data` of a topic. Raises ScenarioError, which begins with `where`."""
    kinds = [kind for kind in FORMS if isinstance(value, Mapping) and kind in value]
    if len(kinds) != 1:
        have = " and ".join(kinds) or "none"
        raise ScenarioError(
            f"{where} must have one of {', '.join(FORMS)}, it has {have}: keep one", name=where, rule="one kind"
        )
    form = read(FORMS[kinds[0]], value, where)
    if isinstance(form, _Generated):
        return _generated(form, where)
    if isinstance(form, _Parquet):
        columns = _different(form, where) or TRIP_STREAM_COLUMNS
        return ParquetData(form.parquet, columns, _event_time(form, where, columns, TRIP_EVENT_TIME), form.rows)
    return JsonlData(form.jsonl, form.event_time, form.rows)


def data_columns(data: Data) -> tuple[str, ...] | None:
    """Return the columns of the rows; None where only the file knows."""
    return None if isinstance(data, JsonlData) else data.columns


def at_folder(data: Data, folder: Path) -> Data:
    """Return this data with a relative path resolved against `folder`."""
    return data if isinstance(data, GeneratedData) else replace(data, path=str(folder / data.path))


def _generated(form: _Generated, where: str) -> GeneratedData:
    name = form.generator
    if name != "points" and form.clusters is not UNSET:
        raise refuse(form, where, "clusters", "go with the generator 'points' only", "leave it out")
    columns = _different(form, where) or _SENT[name]
    for column in columns:
        if column not in GENERATORS[name]:
            hint = nearest(column, GENERATORS[name])
            raise ScenarioError(
                f"{where}.columns has {column!r}, which {name} does not have.{hint}", name=column, rule="exists"
            )
    clusters = 8 if form.clusters is UNSET else form.clusters
    event_time = _event_time(form, where, columns, _EVENT_TIMES[name])
    return GeneratedData(name, columns, event_time, form.rows, form.seed, clusters)


def _different(form: _Generated | _Parquet, where: str) -> tuple[str, ...] | None:
    if form.columns is not None and len(set(form.columns)) < len(form.columns):
        raise refuse(form, where, "columns", "be a list of different names")
    return form.columns


def _event_time(form: _Generated | _Parquet, where: str, columns: tuple[str, ...], default: str) -> str | None:
    if form.event_time is UNSET:
        return default if default in columns else None
    if form.event_time is not None and form.event_time not in columns:
        hint = nearest(form.event_time, columns)
        raise refuse(form, where, "event_time", "be one of the columns sent, or null", hint)
    return form.event_time
