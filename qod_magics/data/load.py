"""From a scenario's data specification to encoded rows."""

from __future__ import annotations

import pyarrow as pa

from qod_magics.data.files import first_rows, read_jsonl, read_trips
from qod_magics.data.points import generate_points
from qod_magics.data.rows import EncodedRows, encode_objects, encode_table
from qod_magics.data.spec import Data, GeneratedData, JsonlData
from qod_magics.data.trips import generate_trips
from qod_magics.errors import ScenarioError


def generate(data: GeneratedData, seed: int) -> pa.Table:
    """The table of generated data; `seed` applies where the data has none of its own."""
    own = seed if data.seed is None else data.seed
    if data.generator == "points":
        return generate_points(data.rows, own, data.clusters, data.columns)
    return generate_trips(data.rows, own, data.columns)


def load(data: Data, key: str | None, seed: int) -> EncodedRows:
    """Generate or read the rows and encode them. Raises ScenarioError."""
    if isinstance(data, GeneratedData):
        return encode_table(generate(data, seed), data.event_time, key)
    if isinstance(data, JsonlData):
        objects = read_jsonl(data.path, data.rows)
        if not objects:
            raise ScenarioError(f"{data.path} has no rows: give a file of JSON lines")
        return encode_objects(objects, data.event_time, key)
    table = first_rows(read_trips(data.path, data.columns), data.rows)
    if table is None:
        raise ScenarioError(f"{data.path} has no rows: give another Parquet file")
    return encode_table(table, data.event_time, key)
