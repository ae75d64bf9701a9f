"""Rows as JSON bytes, encoded once from a scenario's data; only their timestamps are filled in when they are sent.

A row is kept as the pieces of its JSON text around its timestamps. Sending it joins the pieces with the send time, and
with timestamps as far from it as they were in the data (a trip's pick-up before its drop-off): about a microsecond,
where encoding again takes ten.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from qod_magics.data.generators import generate_points, generate_trips
from qod_magics.data.spec import COORDINATE_TYPES, TRIP_STREAM_COLUMNS, TRIP_TYPES, Data, GeneratedData, JsonlData
from qod_magics.errors import ScenarioError, nearest

# --- Rows from files --------------------------------------------------------------------------------------------------

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
            f"{path} does not exist: give the path of a Parquet file, such as one of the TLC's",
            rule="exists",
        ) from None
    except (OSError, pa.ArrowInvalid) as problem:
        raise ScenarioError(
            f"{path} can't be read as Parquet ({_first_line(problem)}): give another file", rule="Parquet"
        ) from None
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
            f"choose others in `columns`, or another file.{hint}",
            name=", ".join(missing),
            rule="columns",
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
            f"{path}: column {column} can't be read as {_TYPES[column]} ({_first_line(problem)}): give another file",
            name=column,
            rule="type",
        ) from None


def _object(path: str | Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as problem:
        raise ScenarioError(
            f"{path}, line {number}, is not JSON ({problem}): correct it there", value=number, rule="JSON lines"
        ) from None
    if not isinstance(value, dict):
        raise ScenarioError(
            f"{path}, line {number}, is no JSON object: write one object a line", value=number, rule="JSON lines"
        )
    return value


def _first_line(problem: Exception) -> str:
    return next(islice(iter(str(problem).splitlines()), 1), type(problem).__name__)


#: placeholder of a timestamp; JSON has no raw control characters, so it can't be part of a row
_GAP = "\x00"
_SECONDS_KEPT = 50_000


class Clockface:
    """Formats instants as ISO 8601 in UTC, up to the second; caches the results."""

    def __init__(self) -> None:
        self._written: dict[int, bytes] = {}

    def second(self, epoch_s: int) -> bytes:
        """Return the part up to the seconds, 19 bytes."""
        text = self._written.get(epoch_s)
        if text is None:
            if len(self._written) >= _SECONDS_KEPT:
                self._written.clear()
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch_s)).encode()
            self._written[epoch_s] = text
        return text


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """A ring of rows, sent cyclically: row `n` is row `n % len(rows)`."""

    #: by row, the bytes before, between and after its timestamps: one more than `ages_s` has
    pieces: tuple[tuple[bytes, ...], ...]
    #: by row, seconds of each timestamp before the event time (0 for that itself); () for rows sent unchanged
    ages_s: tuple[tuple[int, ...], ...]
    keys: tuple[bytes, ...] | None  #: by row, the record's key
    _clock: Clockface = field(default_factory=Clockface, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.pieces)

    def values(self, first: int, count: int, epoch_ms: int) -> list[bytes]:
        """Return the JSON of `count` rows from number `first` on, as of an instant (milliseconds since 1970, UTC)."""
        now_s, ms = divmod(epoch_ms, 1000)
        fraction = b".%03dZ" % ms
        second, length = self._clock.second, len(self.pieces)
        made = []
        for number in range(first, first + count):
            index = number % length
            pieces, ages = self.pieces[index], self.ages_s[index]
            if len(ages) == 2:  # trips
                before, between, after = pieces
                times = second(now_s - ages[0]), second(now_s - ages[1])
                made.append(b"".join((before, times[0], fraction, between, times[1], fraction, after)))
                continue
            parts = [pieces[0]]
            for age, piece in zip(ages, pieces[1:], strict=True):
                parts += (second(now_s - age), fraction, piece)
            made.append(b"".join(parts))
        return made

    def key(self, number: int) -> bytes | None:
        """Return the key of row `number`."""
        return None if self.keys is None else self.keys[number % len(self.keys)]


def encode_table(table: pa.Table, event_time: str | None, key: str | None = None) -> EncodedRows:
    """Encode a table. With an event time, all its timestamps keep their distance to that one, in whole seconds.

    Nulls and non-finite floats become null. Raises ScenarioError: a column type without a JSON form, a wrong event
    time, a null in a timestamp or in the key.
    """
    times = [name for name in table.column_names if pa.types.is_timestamp(table.schema.field(name).type)]
    if event_time is None:
        times = []
    elif event_time not in times:
        raise ScenarioError(
            f"event_time is {event_time!r}, which is no timestamp.{nearest(event_time, times)}",
            value=event_time,
            rule="timestamp",
        )
    texts: list[Any] = [pa.repeat("", table.num_rows)]  # one column at least, even if all are timestamps
    for name in table.column_names:
        column = table[name]
        texts.append(f"{'{' if name == table.column_names[0] else ','}{json.dumps(name)}:")
        texts.append(f'"{_GAP}"' if name in times else _json_texts(name, column))
    joined = pc.binary_join_element_wise(*texts, "}", "")
    gap = _GAP.encode()
    pieces = tuple(tuple(row.split(gap)) for row in joined.cast(pa.binary()).to_pylist())
    keys = None if key is None else _keys(key, table[key])
    return EncodedRows(pieces, _ages(table, times, event_time), keys)


def encode_objects(objects: Sequence[Mapping[str, Any]], event_time: str | None, key: str | None = None) -> EncodedRows:
    """Encode JSON objects. With an event time, this field becomes the send time, and comes last.

    Raises ScenarioError: a row lacks the event time or the key.
    """
    pieces: list[tuple[bytes, ...]] = []
    keys: list[bytes] = []
    for number, row in enumerate(objects):
        for name in (event_time, key):
            if name is not None and row.get(name) is None:
                raise ScenarioError(f"row {number} has no {name!r}.{nearest(name, row)}")
        text = json.dumps(
            {name: value for name, value in row.items() if name != event_time},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        if event_time is None:
            pieces.append((text.encode(),))
        else:
            comma = "," if len(row) > 1 else ""
            pieces.append((f'{text[:-1]}{comma}{json.dumps(event_time)}:"'.encode(), b'"}'))
        if key is not None:
            value = row[key]
            keys.append((value if isinstance(value, str) else json.dumps(value)).encode())
    ages = tuple((0,) * (len(row) - 1) for row in pieces)
    return EncodedRows(tuple(pieces), ages, None if key is None else tuple(keys))


def _ages(table: pa.Table, times: list[str], event_time: str | None) -> tuple[tuple[int, ...], ...]:
    if event_time is None:
        return ((),) * int(table.num_rows)
    seconds: dict[str, NDArray[np.int64]] = {}
    for name in times:
        if table[name].null_count:
            raise ScenarioError(f"column {name} has {table[name].null_count} nulls: leave it out of `columns`")
        seconds[name] = table[name].cast(pa.timestamp("s"), safe=False).cast(pa.int64()).to_numpy()
    event = seconds[event_time]
    ages: list[list[int]] = np.stack([event - seconds[name] for name in times], axis=1).tolist()
    return tuple(tuple(row) for row in ages)


def _keys(name: str, column: pa.ChunkedArray) -> tuple[bytes, ...]:
    if column.null_count:
        raise ScenarioError(f"key {name} is null in {column.null_count} rows: choose another column as key, or none")
    return tuple(str(value).encode() for value in column.to_pylist())


def _json_texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json_texts(name, column.cast(kind.value_type))
    if pa.types.is_timestamp(kind):
        utc = column.cast(pa.timestamp("ms"), safe=False)
        texts = pc.binary_join_element_wise('"', pc.strftime(utc, "%Y-%m-%dT%H:%M:%S"), 'Z"', "")
    elif pa.types.is_floating(kind):
        texts = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind)).cast(pa.string())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        words = column.cast(pa.string()).combine_chunks().dictionary_encode()
        written = pa.array([json.dumps(word, ensure_ascii=False) for word in words.dictionary.to_pylist()], pa.string())
        texts = written.take(words.indices)
    else:
        raise ScenarioError(
            f"column {name} has the type {kind}, which JSON rows do not have: leave it out of `columns`"
        )
    return pc.fill_null(texts, "null")


def mean_bytes(rows: EncodedRows) -> float:
    """Return the mean length of a row's JSON, bytes."""
    sample = rows.values(0, min(len(rows), 1000), 0)
    return math.fsum(map(len, sample)) / max(1, len(sample))


def _generate(data: GeneratedData, seed: int) -> pa.Table:
    """Return the table of generated data; `seed` applies where the data has none of its own."""
    own = seed if data.seed is None else data.seed
    if data.generator == "points":
        return generate_points(data.rows, own, data.clusters, data.columns)
    return generate_trips(data.rows, own, data.columns)


def load(data: Data, key: str | None, seed: int) -> EncodedRows:
    """Generate or read the rows and encode them. Raises ScenarioError."""
    if isinstance(data, GeneratedData):
        return encode_table(_generate(data, seed), data.event_time, key)
    if isinstance(data, JsonlData):
        objects = read_jsonl(data.path, data.rows)
        if not objects:
            raise ScenarioError(f"{data.path} has no rows: give a file of JSON lines", rule="rows")
        return encode_objects(objects, data.event_time, key)
    table = first_rows(read_trips(data.path, data.columns), data.rows)
    if table is None:
        raise ScenarioError(f"{data.path} has no rows: give another Parquet file", rule="rows")
    return encode_table(table, data.event_time, key)
