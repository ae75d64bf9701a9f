"""What has been found at a place of files: the files in the order of their rows, and which of them are not read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

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
