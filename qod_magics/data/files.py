"""Rows from files: the TLC's Parquet files, streamed by row group, and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from qod_magics.data.schema import COORDINATE_TYPES, TRIP_STREAM_COLUMNS, TRIP_TYPES
from qod_magics.errors import ScenarioError, nearest

BATCH_ROWS = 16_384
_ARROW = {"INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string(), "TIMESTAMP": pa.timestamp("us")}
_TYPES = {**TRIP_TYPES, **COORDINATE_TYPES}


def read_trips(path: str | Path, columns: Sequence[str] = TRIP_STREAM_COLUMNS) -> Iterator[pa.RecordBatch]:
    """Return the trips of a TLC Parquet file: these columns, in this order, in batches of at most 16,384 rows.

    Only one row group at a time is in memory. Column names match in any case, which differs between years. Columns of
    `TRIP_SCHEMA` are cast to its types (counts are floats in some years); others keep theirs. Works for any Parquet
    file, given its `columns`.

    Raises ScenarioError at the call: the file can't be read or lacks columns. While iterating: a value does not fit
    the column's type.
    """
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise ScenarioError(
            f"{path} does not exist: give the path of a Parquet file, such as one of the TLC's"
        ) from None
    except (OSError, pa.ArrowInvalid) as problem:
        raise ScenarioError(f"{path} can't be read as Parquet ({_first_line(problem)}): give another file") from None
    try:
        names = _names_in_file(path, file.schema_arrow.names, columns)
    except ScenarioError:
        file.close()
        raise
    return _batches(path, file, names)


def read_jsonl(path: str | Path, rows: int) -> list[dict[str, Any]]:
    """Return the first `rows` JSON objects of a file with one per line; empty lines do not count.

    Raises ScenarioError: the file can't be read, or a line is no object.
    """
    found = []
    try:
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                found.append(_object(path, number, line))
                if len(found) == rows:
                    break
    except OSError as problem:
        raise ScenarioError(
            f"{path} can't be read ({problem.strerror}): give the path of a file of JSON lines"
        ) from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is not UTF-8 text: give a file of JSON lines") from None
    return found


def first_rows(batches: Iterator[pa.RecordBatch], rows: int) -> pa.Table | None:
    """Return the first `rows` rows of the batches as one table; None if there is no row."""
    taken, missing = [], rows
    for batch in batches:
        if missing <= 0:
            break
        taken.append(batch.slice(0, missing))
        missing -= taken[-1].num_rows
    return pa.Table.from_batches(taken) if sum(batch.num_rows for batch in taken) else None


def _names_in_file(path: str | Path, have: Sequence[str], columns: Sequence[str]) -> Mapping[str, str]:
    """Requested column -> its name in the file."""
    by_lower = {name.lower(): name for name in have}
    names = {column: column if column in have else by_lower.get(column.lower()) for column in columns}
    missing = [column for column, name in names.items() if name is None]
    if missing:
        hint = nearest(missing[0], have)
        raise ScenarioError(
            f"{path} lacks {'the column' if len(missing) == 1 else 'the columns'} {', '.join(missing)}: "
            f"choose others in `columns`, or another file.{hint}"
        )
    return {column: name for column, name in names.items() if name is not None}


def _batches(path: str | Path, file: pq.ParquetFile, names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    with file:
        for batch in file.iter_batches(BATCH_ROWS, columns=list(names.values()), use_threads=False):
            yield pa.record_batch({column: _typed(path, column, batch[name]) for column, name in names.items()})


def _typed(path: str | Path, column: str, values: pa.Array) -> pa.Array:
    if column not in _TYPES:
        return values
    try:
        return values.cast(_ARROW[_TYPES[column]])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise ScenarioError(
            f"{path}: column {column} can't be read as {_TYPES[column]} ({_first_line(problem)}): give another file"
        ) from None


def _object(path: str | Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as problem:
        raise ScenarioError(f"{path}, line {number}, is not JSON ({problem}): correct it there") from None
    if not isinstance(value, dict):
        raise ScenarioError(f"{path}, line {number}, is no JSON object: write one object a line")
    return value


def _first_line(problem: Exception) -> str:
    return next(islice(iter(str(problem).splitlines()), 1), type(problem).__name__)
