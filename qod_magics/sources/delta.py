"""Delta tables: the rows that are appended to a table, by the files that its log lists.

Each version of a table is a file of its log, `_delta_log/00000000000000000007.json`, which names the Parquet files that
it has added and how many rows each has. So rows are numbered in the order of the log, from the first one of version 0,
in each kernel alike. The files are linked and read as those of a directory are (`files.py`): it takes no package of
Delta's, and the backlog is in rows.

A version that changes or deletes rows is not read, and that is said; what only puts rows together (OPTIMIZE) adds none.
Tables whose files do not have the columns by their names are refused: partitioned ones, and those with column mapping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from qod_magics.errors import ApplicationError
from qod_magics.sources.files import File, Listing, ParquetFiles
from qod_magics.sources.source import EARLIEST, Part, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

LOG = "_delta_log"
DIGITS = 20  #: of a version in the name of its file
#: What a reader has to know of a table whose files are read as they are: that rows are marked as deleted, which only
#: versions do that are not read; and what is not about rows.
READABLE = frozenset({"deletionVectors", "timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class Version:
    """What a version of a table does."""

    file: Path
    added: Mapping[str, int | None]  #: by path, as the log has it: rows of a file; None: the log does not say
    changes: str = ""  #: which operation changes rows that were there; "": none does


@dataclass(slots=True)
class Table:
    """A table, as far as its log was read."""

    place: Path
    next: int = 0  #: the version to read next
    schema: Mapping[str, Any] = field(default_factory=dict)  #: of its rows, as Spark writes it

    def version(self) -> Version | None:
        """Return the version to read next; None: it is yet to come. Raises ApplicationError: it is no table, the
        version is gone, or files can't be read as they are."""
        log = self.place / LOG
        file = log / f"{self.next:0{DIGITS}d}.json"
        try:
            text = file.read_text("utf-8")
        except OSError:
            self._check_next(log)
            return None
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        self._take(actions)
        return _version(file, actions)

    def _check_next(self, log: Path) -> None:
        """Raise ApplicationError where the next version is not one that is yet to come."""
        try:
            there = [int(each.stem) for each in log.iterdir() if each.suffix == ".json" and each.stem.isdigit()]
        except OSError as error:
            raise ApplicationError(
                f"{self.place} must be a Delta table, got: {LOG}: {error.strerror}; make it first", rule="table"
            ) from error
        if not there and self.next == 0:
            raise ApplicationError(
                f"{self.place} must be a Delta table, got an empty {LOG}; make it first", rule="table"
            )
        if (first := min((each for each in there if each > self.next), default=None)) is not None:
            raise ApplicationError(
                f"the log of {self.place} must have version {self.next}, by which rows are numbered, got those from "
                f"{first} on; keep the log of a table that is read longer: delta.logRetentionDuration",
                value=self.next,
                rule="log",
            )

    def _take(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if "protocol" in action and (other := _unreadable(action["protocol"])):
                raise ApplicationError(
                    f"the Delta table {self.place} must be readable by its files alone, got {other}; copy its rows to "
                    "another table",
                    rule="features",
                )
            if "metaData" not in action:
                continue
            told = action["metaData"]
            if told.get("partitionColumns"):
                names = ", ".join(told["partitionColumns"])
                raise ApplicationError(
                    f"the Delta table {self.place} must have no partitions, got those by {names}; copy its rows to "
                    "another table",
                    rule="partitions",
                )
            if told.get("configuration", {}).get(_MAPPING, "none") != "none":
                raise ApplicationError(
                    f"the Delta table {self.place} must have its columns in its files by their names, got column "
                    "mapping; copy its rows to another table",
                    rule="columns",
                )
            self.schema = json.loads(told["schemaString"])


def _unreadable(protocol: Mapping[str, Any]) -> str:
    """Return what of a table's protocol files alone can't give; "": nothing."""
    features = protocol.get("readerFeatures") or ()
    # 2 is column mapping, which the table's settings tell, and 3 a list of features
    return ", ".join(sorted(set(features) - READABLE - {"columnMapping"}))


def _version(file: Path, actions: list[dict[str, Any]]) -> Version:
    added: dict[str, int | None] = {}
    changes, operation = False, "an operation that its log does not name"
    for action in actions:
        if "commitInfo" in action:
            operation = action["commitInfo"].get("operation", operation)
        elif "remove" in action:
            changes = changes or action["remove"].get("dataChange", True)
        elif "add" in action and action["add"].get("dataChange", True):
            each = action["add"]
            changes = changes or bool(each.get("deletionVector"))
            added[each["path"]] = json.loads(each.get("stats") or "{}").get("numRecords")
    return Version(file, {} if changes else added, operation if changes else "")


class DeltaTable(ParquetFiles):
    """Rows that are appended to a Delta table in a local directory."""

    unit: ClassVar[str] = "Delta table"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._tables: dict[str, Table] = {}

    def begin(self, place: str, starting: str) -> Position:
        """Return the first row, or the one behind the last version. Raises ApplicationError: rows of earlier versions
        were changed since, so that their files do not have what is in the table."""
        listing = self._look(place, all_files=True)
        if starting == EARLIEST and listing.refused:
            raise ApplicationError(
                f"--starting must be latest where rows of {place} were changed, got {starting}: "
                f"{next(iter(listing.refused.values()))}",
                value=starting,
                option="--starting",
                rule="appended",
            )
        if starting == EARLIEST and (gone := next((each for each in listing.files if not each.path.exists()), None)):
            raise ApplicationError(
                f"--starting must be latest where files of {place} were vacuumed, got {starting}: {gone.path.name} is "
                "gone",
                value=starting,
                option="--starting",
                rule="there",
            )
        return super().begin(place, starting)

    def columns(self, spark: SparkSession, place: str, part: Part) -> str | StructType:
        """Return the columns that are declared, or else those of the table. Raises ApplicationError."""
        from pyspark.sql.types import StructType

        self._look(place, all_files=True)
        return part.schema if part.schema is not None else StructType.fromJson(dict(self._tables[place].schema))

    def _look(self, place: str, *, all_files: bool = False) -> Listing:
        """Read new versions of the log: all, or as many as one look has time for."""
        until = None if all_files else self._clock() + self._limits.look_s
        with self._lock:
            listing = self._listings.setdefault(place, Listing())
            table = self._tables.setdefault(place, Table(Path(place)))
            while (version := table.version()) is not None:
                files = []
                end = listing.end
                for path, told in version.added.items():
                    file = table.place / unquote(path)
                    rows = self._counted(file) if told is None else told
                    files.append(File(file, end, end + rows))
                    end += rows
                listing.files += files
                table.next += 1
                if version.changes:
                    listing.refused[version.file] = (
                        f"version {int(version.file.stem)} changes rows that were there ({version.changes}), and only "
                        "rows that are appended are read"
                    )
                if until is not None and self._clock() > until:
                    break
            return listing

    def _counted(self, file: Path) -> int:
        """Return the rows of a file of which the log does not say how many it has. Raises ApplicationError."""
        try:
            return self.count(file)
        except Exception as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise ApplicationError(
                f"{file} must be readable, as the log of its Delta table has no number of its rows, got: {why}; read a "
                "table whose statistics are kept",
                rule="statistics",
            ) from error
