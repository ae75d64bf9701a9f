"""Directories of files: JSON and CSV by lines, and Parquet. Rows are numbered in the order in which files are found.

Spark's file source numbers batches, not rows, and keeps the list of files read in each checkpoint. So the files are put
in order here: about once a second a directory is looked at, the rows of each new file are counted, and the file is
linked into a directory of each reader under a name that says which rows it has: "000000000000120-000000000000360.json"
has the rows 120 to 359. Spark's own source reads that directory. The smallest and the largest of these names in a
batch, observed before any row is dropped, are its position; a reader with a new checkpoint begins at any file; and no
more is linked than a batch should read, so that a large backlog is not one batch.

A file is taken for complete when it is found, as by Spark: it has to appear at once, by a rename. Names that begin
with "." or "_" are ignored. Directories within are not read, and that is said.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from qod_magics.errors import ApplicationError
from qod_magics.sources.source import Context, GoOn, Identity, Part, Payload, Position, Span, read_on

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


# --- What has been found ----------------------------------------------------------------------------------------------
# What has been found at a place of files: the files in the order of their rows, and which of them are not read.


#: Digits of a row's number in the name of a link: names sort as numbers do.
DIGITS = 15


@dataclass(frozen=True, slots=True)
class File:
    """A file of a directory, and its rows."""

    path: Path
    first: int  #: the number of its first row
    end: int  #: the number after that of its last row

    @property
    def link(self) -> str:
        """Return the name under which it is linked."""
        return f"{self.first:0{DIGITS}d}-{self.end:0{DIGITS}d}{''.join(self.path.suffixes[-2:])}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is not read."""

    why: str
    rows: int = 0  #: rows in it, as far as they are known
    #: the number of the row that comes next and the version of the table: readers that begin behind it are not told;
    #: None: all are
    at: tuple[int, int] | None = None


@dataclass(slots=True)
class Listing:
    """The files of a directory, as far as they have been counted."""

    files: list[File] = field(default_factory=list)  #: in the order of their rows
    known: dict[Path, tuple[int, int]] = field(default_factory=dict)  #: size, and time of the last change, ns
    refused: dict[Path, Refusal] = field(default_factory=dict)  #: files that are not read, or not as they are now
    #: by the row that a reader was to begin with, the version of the table that came next; the latest reader last
    begun: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Return the number of the next row to come."""
        return self.files[-1].end if self.files else 0

    def begin(self, row: int, version: int = 0) -> None:
        """Note that a reader is to begin with this row, before this version of the table."""
        self.begun.pop(row, None)
        self.begun[row] = version

    def told(self, readers: Collection[tuple[int, int]]) -> str:
        """Return which files are not read that readers would have read, and why; "": none. `readers`: the row and the
        version with which each has begun that there is; without any, the one counts that was to begin last."""
        begun = min(readers, default=next(reversed(self.begun.items()), (0, 0)))
        told = [(path, each) for path, each in self.refused.items() if each.at is None or each.at >= begun]
        if not told:
            return ""
        path, newest = told[-1]
        more = f", and {len(told) - 1} more are not" if len(told) > 1 else ""
        rows = sum(each.rows for _, each in told)
        return f"{path.name} is not read: {newest.why}{more}{f'; {rows} rows are in what is not read' if rows else ''}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How far readers are served ahead, and for how long."""

    ahead: int = 2_000_000  #: rows that are linked ahead of a reader at most; one file is linked in any case
    look_s: float = 0.5  #: seconds within which one look counts the rows of new files; it goes on at the next look
    gone_s: float = 120.0  #: seconds after which the directory of a reader that is gone is removed: it may be restarted


LIMITS = Limits()
#: Spark leaves out files that are older than this when they come; by default, a week before the newest.
NEVER = "10000d"
#: What opens compressed files for reading bytes, by their endings.
_OPEN: Mapping[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_BLOCK = 1 << 20


@dataclass(slots=True)
class Reader:
    """A directory of links, which one checkpoint reads."""

    place: str
    directory: Path
    seen: float  #: when an instance was last known to read it
    begun: tuple[int, int] = (0, 0)  #: the row it began with, and the version of its table that came next
    left: bool = False  #: whether no instance read it when readers were looked after last
    linked: set[str] = field(default_factory=set)  #: names of the links that it has


class Files:
    """Files of one format in local directories, which all task managers reach by the same paths."""

    payload: ClassVar[Payload] = "columns"
    identity: ClassVar[Identity] = Identity("_file, _n", "_n", "_at")
    options: ClassVar[frozenset[str]] = frozenset({"schema", "starting", "shed_by"})
    realtime: ClassVar[str] = "real-time mode reads no files"
    every_s: ClassVar[float] = 0.5
    sheds_on_read: ClassVar[bool] = False
    has_gaps: ClassVar[bool] = False
    unit: ClassVar[str] = "directory"
    splits_unit: ClassVar[str] = "sequence of files"
    selected: ClassVar[Sequence[str]] = ("*",)  #: SQL of the columns of the payload

    def __init__(self, context: Context, limits: Limits = LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = context.directory
        self._limits, self._clock = limits, clock
        self._listings: dict[str, Listing] = {}
        self._readers: dict[str, Reader] = {}  #: by run
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"{type(self).__name__} files of {len(self._listings)} directories"

    @staticmethod
    def checked(place: str) -> str:
        """Return an absolute path, or pattern of paths."""
        parts = urlsplit(place)
        local = parts.path if parts.scheme == "file" else place
        if "://" in local:
            raise ApplicationError(f"a source of files must be on a local path, got {place!r}; copy the files to one")
        if not local.strip():
            raise ApplicationError("a source of files must have a path, got none; such as json:/data/in")
        return os.path.abspath(os.path.expanduser(local))

    @staticmethod
    def span(place: str, noted: Mapping[str, Any]) -> Span | None:
        """Return the rows from the first to the last file of a batch."""
        first, last = noted.get("first"), noted.get("last")
        if first is None or last is None:
            return None
        return Span({0: int(str(first)[:DIGITS])}, {0: int(str(last)[DIGITS + 1 : 2 * DIGITS + 1])})

    def noted(self, place: str) -> list[Column]:
        """Return the first and the last file of a batch."""
        from pyspark.sql import functions as F

        return [F.min("_file").alias("first"), F.max("_file").alias("last")]

    def splits(self, place: str) -> int:
        """Return 1: the files are read in their order."""
        self._look(place)
        return 1

    def begin(self, place: str, starting: str) -> Position:
        """Return the first row, or the one behind the last file that is there."""
        listing = self._look(place, all_files=True)
        position = listing.end if starting == "latest" else 0
        listing.begin(position)
        return {0: position}

    def ends(self, places: Collection[str]) -> tuple[Mapping[str, Position], Mapping[str, str]]:
        """Look at directories, and return how many rows have come in each."""
        found: dict[str, Position] = {}
        missing: dict[str, str] = {}
        for place in places:
            try:
                listing = self._look(place)
            except (ApplicationError, OSError) as error:
                missing[place] = str(error)
                continue
            found[place] = {0: listing.end}
            if told := listing.told([reader.begun for reader in self._present(place)]):
                missing[place] = told
        return found, missing

    def read(self, spark: SparkSession, place: str, part: Part) -> DataFrame:
        """Return the rows of the files that are linked for a reader, each with the name of its link."""
        directory = self._opened(place, part)
        rows = self.reader(spark, place, part).option("maxFileAge", NEVER).load(f"file://{directory}")
        return rows.selectExpr(
            *self.selected,
            "_metadata.file_name AS _file",
            "CAST(rand() * 9007199254740992D AS BIGINT) AS _n",  # drawn again when a batch is repeated by another run
            "_metadata.file_modification_time AS _at",
        )

    def reader(self, spark: SparkSession, place: str, part: Part) -> Any:
        """Return Spark's reader of these files, with their format and schema."""
        raise NotImplementedError

    def count(self, path: Path) -> int:
        """Return the rows of a file. Raises what the library raises that reads it."""
        raise NotImplementedError

    def tend(self, parts: Iterable[Part], go_on: GoOn = read_on) -> None:
        """Link the next files for each reader; remove the links to files that were read, and the directories of readers
        that are gone. A reader goes on behind files that are gone once it has read those before. A place that can't be
        looked at now keeps what was found in it: `ends` tells why. Raises OSError, once all readers were looked after:
        the links of one can't be made."""
        now, going = self._clock(), {part.run: part for part in parts}
        failed: list[OSError] = []
        behind: dict[str, int] = {}
        with self._lock:
            for run, reader in list(self._readers.items()):
                reader.left = run not in going
                if run in going:
                    reader.seen = now
                    with suppress(ApplicationError, OSError):
                        self._look(reader.place)
                    try:
                        position = going[run].starting.get(0, 0)
                        self._link(reader, position)
                        if (end := self._behind_gone(reader, position)) > position:
                            behind[run] = end
                    except OSError as error:
                        failed.append(error)
                elif now - reader.seen > self._limits.gone_s:
                    shutil.rmtree(self._readers.pop(run).directory, ignore_errors=True)
        for run, end in behind.items():
            go_on(going[run], {0: end})
        if failed:
            raise failed[0]

    def _present(self, place: str) -> list[Reader]:
        """Return the readers of a place that instances have."""
        with self._lock:
            return [reader for reader in self._readers.values() if reader.place == place and not reader.left]

    def _behind_gone(self, reader: Reader, position: int) -> int:
        """Return the first row from a position on that is in no file that is gone."""
        for file in self._listings[reader.place].files:
            if file.first <= position < file.end:
                if file.link in reader.linked or _is_there(file.path):
                    break
                position = file.end
        return position

    def _opened(self, place: str, part: Part) -> Path:
        """Return the directory of a reader, with links to its next files; an empty one for plans that are only
        inspected."""
        if self._directory is None:
            raise ApplicationError("checkpoints must be on a local path where files are read; see --checkpoints")
        directory = self._directory / (part.run or "none")
        directory.mkdir(parents=True, exist_ok=True)
        if part.run:
            with self._lock:
                position = part.starting.get(0, 0)
                begun = (position, self._look(place).begun.get(position, 0))
                reader = self._readers.setdefault(part.run, Reader(place, directory, self._clock(), begun))
                reader.left = False
                self._link(reader, position)
        return directory

    def _link(self, reader: Reader, position: int) -> None:
        """Link the files that were found from a position on, up to `Limits.ahead` rows behind it and one at least."""
        for name in [name for name in reader.linked if int(name[DIGITS + 1 : 2 * DIGITS + 1]) <= position]:
            (reader.directory / name).unlink(missing_ok=True)  # Spark lists the directory for each batch
            reader.linked.discard(name)
        ahead, listing = False, self._listings[reader.place]
        for file in listing.files:
            if file.end <= position or file.first == file.end:
                continue
            if ahead and file.end - position > self._limits.ahead:
                break
            if file.link not in reader.linked:
                if not _link(file.path, reader.directory / file.link):
                    why, of_all_versions = "it was gone before it could be read", sys.maxsize
                    listing.refused[file.path] = Refusal(why, file.end - file.first, (file.first, of_all_versions))
                    continue
                reader.linked.add(file.link)
            ahead = True

    def _look(self, place: str, *, all_files: bool = False) -> Listing:
        """Find and count new files of a place: all, or as many as one look has time for. Raises ApplicationError: it is
        not there."""
        until = None if all_files else self._clock() + self._limits.look_s
        with self._lock:
            listing = self._listings.setdefault(place, Listing())
            for path, seen in _found(place).items():
                if isinstance(seen, str):
                    if path not in listing.known:  # else it is linked by now, or `_link` tells
                        listing.refused[path] = Refusal(seen)
                    continue
                if path in listing.known:
                    if listing.known[path] != seen:
                        listing.refused[path] = Refusal("it has changed since it was found; files must appear at once")
                    continue
                if until is not None and self._clock() > until:
                    break
                listing.known[path] = seen
                listing.refused.pop(path, None)  # it could not be looked at before
                try:
                    rows = self.count(path)
                except FileNotFoundError:  # it went meanwhile
                    continue
                except Exception as error:
                    listing.refused[path] = Refusal(next(iter(str(error).splitlines()), type(error).__name__))
                    continue
                listing.files.append(File(path, listing.end, listing.end + rows))
            return listing


class _Lines(Files):
    """Files whose lines are rows; a line is parsed behind the shedder."""

    selected: ClassVar[Sequence[str]] = ("value",)

    def reader(self, spark: SparkSession, place: str, part: Part) -> Any:
        """Return the reader of lines."""
        return spark.readStream.format("text").option("lineSep", "\n")

    def count(self, path: Path) -> int:
        """Return the lines of a file."""
        return lines_of(path)


class JsonFiles(_Lines):
    """A JSON value in each line."""

    payload: ClassVar[Payload] = "json"
    options: ClassVar[frozenset[str]] = Files.options | {"malformed", "time_unit", "json_options"}


class CsvFiles(_Lines):
    """Values with commas between them; a line with the names of the columns is a row, and left out."""

    payload: ClassVar[Payload] = "csv"
    options: ClassVar[frozenset[str]] = Files.options | {"malformed"}


class ParquetFiles(Files):
    """Parquet: columns, of which only those are read that a recipe needs."""

    def reader(self, spark: SparkSession, place: str, part: Part) -> Any:
        """Return the reader of columns. Raises ApplicationError: it is not known which there are."""
        return spark.readStream.format("parquet").schema(self.columns(spark, place, part))

    def columns(self, spark: SparkSession, place: str, part: Part) -> str | StructType:
        """Return the columns that are declared, or else those of a file. Raises ApplicationError: there is neither."""
        if part.schema is not None:
            return part.schema
        files = self._look(place, all_files=True).files
        if not files:
            raise ApplicationError(f"{place} must have a file, or the stream a --schema, got neither; give a --schema")
        found: StructType = spark.read.parquet(f"file://{files[0].path}").schema
        return found

    def count(self, path: Path) -> int:
        """Return the rows that a file's footer states."""
        from pyarrow import parquet

        rows: int = parquet.read_metadata(path).num_rows
        return rows


def lines_of(path: Path) -> int:
    """Return the lines of a file, compressed or not; the last one may lack its end."""
    lines, last = 0, b"\n"
    with _OPEN.get(path.suffix, Path.open)(path, "rb") as file:
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


def _found(place: str) -> dict[Path, tuple[int, int] | str]:
    """Return the files of a directory or pattern, the oldest first, with size and time; or why one is not read, as a
    directory within, or what can't be looked at. Raises ApplicationError: there is no such directory."""
    if glob.has_magic(place):
        paths = [Path(each) for each in glob.glob(place)]
    else:
        try:
            paths = list(Path(place).iterdir())
        except OSError as error:
            raise ApplicationError(f"{place} must be a directory, got: {error.strerror}; make it first") from error
    found: list[tuple[int, Path, tuple[int, int] | str]] = []
    for path in paths:
        if path.name[0] in "._":
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:  # such as what a link leads to, in a directory of another user
            found.append((0, path, f"it can't be looked at: {error.strerror}"))
            continue
        if stat.S_ISDIR(status.st_mode):
            found.append((0, path, "it is a directory; a pattern such as DIRECTORY/*/* reads what is in it"))
        elif stat.S_ISREG(status.st_mode):
            found.append((status.st_mtime_ns, path, (status.st_size, status.st_mtime_ns)))
    return {path: seen for _, path, seen in sorted(found, key=lambda each: each[:2])}


def _is_there(path: Path) -> bool:
    """Return whether a file is there, and what it leads to if it is a link. Raises OSError: it can't be looked at."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _link(path: Path, to: Path) -> bool:
    """Link a file so that its rows stay when its directory is cleaned up, or at least so that they can be read. Returns
    False: it is gone, which leaves a gap, whose rows count as unreported. Raises OSError: it may be there, but can't be
    looked at."""
    if not _is_there(path):
        return False
    with suppress(FileExistsError, FileNotFoundError):
        try:
            os.link(path, to)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:  # on another disk, or of another user
            os.symlink(path, to)
    return os.path.lexists(to) or os.path.exists(path)  # the reader's directory may be gone, too
