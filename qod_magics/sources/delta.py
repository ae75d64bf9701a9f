"""Delta tables: the rows that are appended to a table, by the files that its log lists.

Each version of a table is a file of its log, `_delta_log/00000000000000000007.json`, which names the Parquet files that
it has added and how many rows each has. So rows are numbered in the order of the log, from the first one of version 0,
in each kernel alike. The files are linked and read as those of a directory are (`files.py`): it takes no package of
Delta's, and the backlog is in rows.

A version that changes or deletes rows is not read, and that is said; what only puts rows together (OPTIMIZE) adds none.
Tables whose files do not have the columns by their names are refused: partitioned ones, and those with column mapping.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError
from qod_magics.sources.delta_log import Table
from qod_magics.sources.files import File, Listing, ParquetFiles, Refusal
from qod_magics.sources.source import EARLIEST, Part, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class DeltaTable(ParquetFiles):
    """Rows that are appended to a Delta table in a local directory."""

    unit: ClassVar[str] = "Delta table"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._tables: dict[str, Table] = {}

    def begin(self, place: str, starting: str) -> Position:
        """Return the first row, or the one behind the last version. Raises ApplicationError: rows of earlier versions
        were changed since, so that their files do not have what is in the table."""
        self._release(place)
        listing = self._look(place, all_files=True)
        if starting == EARLIEST and listing.refused:
            raise ApplicationError(
                f"--starting must be latest where rows of {place} were changed, got {starting}: "
                f"{next(iter(listing.refused.values())).why}",
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
        with self._lock:
            row, version = (0, 0) if starting == EARLIEST else (listing.end, self._tables[place].next)
            listing.begin(row, version)
        return {0: row}

    def columns(self, spark: SparkSession, place: str, part: Part) -> str | StructType:
        """Return the columns that are declared, or else those that the table had when its readers began: a restart
        under the same checkpoint gets no others. Raises ApplicationError."""
        from pyspark.sql.types import StructType

        self._release(place)
        self._look(place, all_files=True)
        table = self._tables[place]
        if table.begun is None:
            table.begun = table.schema
        return part.schema if part.schema is not None else StructType.fromJson(dict(table.begun))

    def _release(self, place: str) -> None:
        """Let a table that nobody reads have other columns."""
        with self._lock:
            if place in self._tables and not self._present(place):
                self._tables[place].begun = None

    def _look(self, place: str, *, all_files: bool = False) -> Listing:
        """Read new versions of the log: all, or as many as one look has time for."""
        until = None if all_files else self._clock() + self._limits.look_s
        with self._lock:
            listing = self._listings.setdefault(place, Listing())
            table = self._tables.setdefault(place, Table(Path(place)))
            while (version := table.version(self._clock())) is not None:
                files = []
                end = listing.end
                for file, told in version.added.items():
                    rows = self._counted(file) if told is None else told
                    files.append(File(file, end, end + rows))
                    end += rows
                listing.files += files
                if version.changes:
                    listing.refused[version.file] = Refusal(
                        f"version {table.next} changes rows that were there ({version.changes}), and only rows that "
                        "are appended are read",
                        version.unread,
                        at=(end, table.next),
                    )
                table.take(version)
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
