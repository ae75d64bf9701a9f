"""The files that a query has written, cut into slices of time. A slice is identified by its files and
the columns that are read of them.

Spark lists the files of each ended batch in a log beside them. Files that are not in it are of a batch that did not
end, and hold rows that another file has, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

#: Where Spark's file sink keeps its log, in a directory of a run.
LOG = "_spark_metadata"
_COMPACT = ".compact"
#: A slice changes no more once its time is over for this long, seconds: a batch may have to end.
CLOSES_AFTER_S = 5.0
#: Slices of one query at most; of more, neighbours are one.
MOST_SLICES = 64
#: Begins the names of the views of slices.
VIEW = "qod_slice_"


@dataclass(frozen=True, slots=True)
class File:
    """A file with rows of a query."""

    path: str
    size: int  #: bytes
    written_ns: int  #: since the epoch


@dataclass(frozen=True, slots=True)
class Slice:
    """The files that were written within a span of time."""

    id: str  #: of its query, its columns and its files: others make another slice
    query: str
    files: tuple[File, ...]
    closed: bool  #: whether its time is over

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def view(self) -> str:
        """The name of its view on a task manager."""
        return f"{VIEW}{self.id}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A slice of which task managers have copies in memory."""

    query: str
    written_s: float  #: when the first of its files was written, seconds since the epoch
    bytes: Mapping[str, int | None]  #: by task manager with a copy: its size in memory; None: not known yet


def committed(path: str) -> list[File]:
    """Return the files of all ended batches of all runs under the directory of a sink, in the order of their names."""
    return [file for run in sorted(Path(path).glob("run=*")) for file in _of_run(run)]


def _of_run(run: Path) -> Iterator[File]:
    for name in sorted(logged(run / LOG)):
        try:
            found = (run / name).stat()
        except OSError:  # it was deleted since
            continue
        yield File(str(run / name), found.st_size, found.st_mtime_ns)


def logged(log: Path) -> set[str]:
    """Return the names of the files in a log of Spark's file sink: those of the newest entry that holds all before it,
    and of the entries behind it."""
    entries = {entry.name: int(entry.name.removesuffix(_COMPACT)) for entry in log.glob("*") if _is_entry(entry.name)}
    first = max((number for name, number in entries.items() if name.endswith(_COMPACT)), default=-1)
    found: set[str] = set()
    for name, number in sorted(entries.items(), key=lambda each: each[1]):
        if number < first or (number == first and not name.endswith(_COMPACT)):
            continue
        try:
            lines = (log / name).read_text("utf-8").splitlines()[1:]  # the first one is its version
        except FileNotFoundError:  # it has just become part of another
            return logged(log)
        for entry in map(json.loads, lines):
            file = unquote(entry["path"].rpartition("/")[2])
            (found.discard if entry.get("action") == "delete" else found.add)(file)
    return found


def _is_entry(name: str) -> bool:
    return name.removesuffix(_COMPACT).isdigit()


def sliced(query: str, columns: str, files: Sequence[File], slice_s: float, now_s: float) -> tuple[Slice, ...]:
    """Return the slices of these files, oldest first: each of `slice_s` seconds, or of twice, four times... as many,
    where there would be more than `MOST_SLICES`. `columns` tells names and types of what is read of the files."""
    span_ns = max(int(slice_s * 1e9), 1)
    spans: dict[int, list[File]] = {}
    for file in files:
        spans.setdefault(file.written_ns // span_ns, []).append(file)
    while len(spans) > MOST_SLICES:
        span_ns *= 2
        wider: dict[int, list[File]] = {}
        for number, there in spans.items():
            wider.setdefault(number // 2, []).extend(there)
        spans = wider
    return tuple(
        Slice(_id(query, columns, there), query, tuple(there), (number + 1) * span_ns < (now_s - CLOSES_AFTER_S) * 1e9)
        for number, there in sorted(spans.items())
    )


def _id(query: str, columns: str, files: Sequence[File]) -> str:
    told = "\n".join([query, columns, *(f"{file.path} {file.size} {file.written_ns}" for file in files)])
    return sha1(told.encode(), usedforsecurity=False).hexdigest()[:16]


#: By column, in lower case: the lowest and the highest value, microseconds since the epoch; None: all are null.
Ranges = Mapping[str, tuple[int, int] | None]


class Limit(NamedTuple):
    """A condition that all rows of a result meet: a column compared with a time."""

    column: str  #: in lower case
    operator: str  #: <, <=, >, >= or =
    value: int | None  #: microseconds since the epoch; None is null, and the condition holds of no row


def may_hold(ranges: Ranges, limits: Sequence[Limit]) -> bool:
    """Return whether rows of these ranges may meet all limits. Columns without a range may have any value."""
    return all(_may_meet(ranges[each.column], each) for each in limits if each.column in ranges)


def _may_meet(found: tuple[int, int] | None, limit: Limit) -> bool:
    if found is None or limit.value is None:
        return False
    low, high = found
    return {
        "<": low < limit.value,
        "<=": low <= limit.value,
        ">": high > limit.value,
        ">=": high >= limit.value,
        "=": low <= limit.value <= high,
    }[limit.operator]
