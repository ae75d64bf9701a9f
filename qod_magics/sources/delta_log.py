"""The log of a Delta table, read a version at a time: which files each has added, or why it is not read.

Versions are never written again, so the one that was read last tells whether the table is still the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from qod_magics.errors import ApplicationError

LOG = "_delta_log"
DIGITS = 20  #: of a version in the name of its file
#: What a reader has to know of a table whose files are read as they are: that rows are marked as deleted, which only
#: versions do that are not read; and what is not about rows.
READABLE = frozenset({"deletionVectors", "timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})
LIST_S = 60.0  #: seconds between two looks at the names of all versions, which are many
_MAPPING = "delta.columnMapping.mode"
#: Of a file: inode, size, and time of the last change, ns.
Stat = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Version:
    """What a version of a table does."""

    file: Path
    added: Mapping[Path, int | None]  #: rows of its files; None: the log does not say
    changes: str = ""  #: which operation changes rows that were there; "": none does
    unread: int = 0  #: rows in the files of one that changes rows, as far as the log says
    text: int = 0  #: a hash of what its file says
    stat: Stat | None = None  #: of its file


@dataclass(slots=True)
class Table:
    """A table, as far as its log was read."""

    place: Path
    next: int = 0  #: the version to read next
    id: str = ""  #: which Delta gives a table when it is made
    schema: Mapping[str, Any] = field(default_factory=dict)  #: of its rows, as Spark writes it
    begun: Mapping[str, Any] | None = None  #: the schema that readers have begun with
    _last: Version | None = None  #: the version that was taken last
    _stat: Stat | None = None  #: of its file
    _listed: float | None = None  #: when the versions were last listed

    def version(self, now_s: float) -> Version | None:
        """Return the version to read next, until it is taken; None: it is yet to come. Raises ApplicationError: it is
        no table or another one, the version is gone or can't be read, or files can't be read as they are."""
        self._check_same()
        file = self._file(self.next)
        try:
            text, stat = _text(file)
        except FileNotFoundError:
            if self.next == 0 or self._listed is None or now_s - self._listed >= LIST_S:
                self._listed = now_s
                self._check_next()
            return None
        except (OSError, ValueError) as error:
            raise self._unreadable(self.next, error) from error
        try:
            actions = [dict(json.loads(line)) for line in text.split("\n") if line.strip()]
            version = replace(self._version(file, actions), text=hash(text), stat=stat)
            self._check(actions)
        except ApplicationError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._unreadable(self.next, error) from error
        return version

    def take(self, version: Version) -> None:
        """Go on behind this version, whose rows are known."""
        self._last, self._stat = version, version.stat
        self.next += 1

    def _file(self, version: int) -> Path:
        return self.place / LOG / f"{version:0{DIGITS}d}.json"

    def _unreadable(self, version: int, error: Exception) -> ApplicationError:
        why = error.strerror if isinstance(error, OSError) else next(iter(str(error).splitlines()), "")
        return ApplicationError(
            f"version {version} of {self.place} must be readable, as Delta writes it, got "
            f"{type(error).__name__}: {why}; see {self._file(version)}",
            value=version,
            rule="version",
        )

    def _check_same(self) -> None:
        """Raise ApplicationError where the version that was taken last is another one now."""
        if self._last is None:
            return
        try:
            if _stat(self._last.file) == self._stat:
                return
            text, stat = _text(self._last.file)
        except FileNotFoundError:
            self._check_next()  # the table may be gone
            if self._file(self.next).exists():  # the log was cleaned up to here
                return
            raise self._other() from None
        except (OSError, ValueError) as error:
            raise self._unreadable(self.next - 1, error) from error
        if hash(text) != self._last.text:
            raise self._other()
        self._stat = stat  # it was copied

    def _other(self) -> ApplicationError:
        return ApplicationError(
            f"{self.place} must stay the Delta table that it was, got one that was made again, whose rows have other "
            "numbers; read it in a new session",
            rule="same",
        )

    def _check_next(self) -> None:
        """Raise ApplicationError where the next version is not one that is yet to come."""
        try:
            names = [each for each in (self.place / LOG).iterdir() if each.suffix == ".json" and each.stem.isdigit()]
        except OSError as error:
            raise ApplicationError(
                f"{self.place} must be a Delta table, got: {LOG}: {error.strerror}; make it first", rule="table"
            ) from error
        there = {int(each.stem) for each in names}
        if not there and self.next == 0:
            raise ApplicationError(
                f"{self.place} must be a Delta table, got an empty {LOG}; make it first", rule="table"
            )
        if self.next in there:  # it has come meanwhile
            return
        if (first := min((each for each in there if each > self.next), default=None)) is not None:
            raise ApplicationError(
                f"the log of {self.place} must have version {self.next}, by which rows are numbered, got those from "
                f"{first} on; keep the log of a table that is read longer: delta.logRetentionDuration",
                value=self.next,
                rule="log",
            )

    def _check(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if "protocol" in action and (other := _unknown(action["protocol"])):
                raise ApplicationError(
                    f"the Delta table {self.place} must be readable by its files alone, got {other}; copy its rows to "
                    "another table",
                    rule="features",
                )
            if "metaData" in action:
                self._check_metadata(action["metaData"])

    def _check_metadata(self, told: Mapping[str, Any]) -> None:
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
        if self.id and told.get("id", self.id) != self.id:
            raise self._other()
        schema = json.loads(told["schemaString"])
        if self.begun is not None and (changed := changed_column(self.begun, schema)):
            raise ApplicationError(
                f"the Delta table {self.place} must keep the columns that its streams have begun with, got {changed} "
                f"in version {self.next}; stop them, and declare them again",
                value=self.next,
                rule="schema",
            )
        self.id, self.schema = told.get("id", self.id), schema

    def _version(self, file: Path, actions: list[dict[str, Any]]) -> Version:
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
        if changes:
            return Version(file, {}, operation, sum(rows or 0 for rows in added.values()))
        return Version(file, {self._path(path): rows for path, rows in added.items()})

    def _path(self, told: str) -> Path:
        """Return the path of a file: relative to the table, or absolute, as in a shallow clone. Raises
        ApplicationError: it is on another machine."""
        parts = urlsplit(told)
        if parts.scheme not in ("", "file"):
            raise ApplicationError(
                f"the Delta table {self.place} must have its files on a local path, got {told}; copy the files to one",
                value=told,
                rule="local",
            )
        return self.place / unquote(parts.path if parts.scheme else told)


def changed_column(before: Any, now: Any, name: str = "") -> str:
    """Return which column of a type, as Spark writes it, another type lacks or has with another type; "": none."""
    if isinstance(before, dict) and isinstance(now, dict) and before["type"] == now["type"]:
        if before["type"] == "struct":
            there = {each["name"]: each["type"] for each in now["fields"]}
            for each in before["fields"]:
                inner = f"{name}.{each['name']}".lstrip(".")
                if each["name"] not in there:
                    return f"no column {inner}"
                if changed := changed_column(each["type"], there[each["name"]], inner):
                    return changed
            return ""
        parts = [part for part in ("elementType", "keyType", "valueType") if part in before]
        if parts:
            return next(filter(None, (changed_column(before[part], now[part], name) for part in parts)), "")
    return "" if before == now else f"another type of {name}"


def _unknown(protocol: Mapping[str, Any]) -> str:
    """Return what of a table's protocol files alone can't give; "": nothing."""
    features = protocol.get("readerFeatures") or ()
    # 2 is column mapping, which the table's settings tell, and 3 a list of features
    return ", ".join(sorted(set(features) - READABLE - {"columnMapping"}))


def _stat(file: Path) -> Stat:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _text(file: Path) -> tuple[str, Stat]:
    """Return what is in a file, and which one it is, as `_stat` does. Raises OSError, UnicodeDecodeError."""
    stat = _stat(file)
    return file.read_text("utf-8"), stat
