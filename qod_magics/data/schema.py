"""The columns of the data sets and their schemas for Spark. Pure and light: no numpy, no pyarrow.

Trips are the New York TLC's yellow taxi trip records. The files of 2009 to mid-2016 have coordinates where later ones
have zones; the generator can give both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from qod_magics.errors import ScenarioError, nearest

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
            raise ScenarioError(f"there is no column {column!r}.{nearest(column, types)}")
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
