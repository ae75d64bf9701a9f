"""Recordings: one JSON object a line, one line a cycle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from qod_magics.errors import QodError


class RecordingError(QodError, ValueError):
    """A recording that can't be read; the message names the file and the line."""


class Recording:
    """Appends to a file; each line is in it, whole, when `append` returns.

    The file and the directories above it are made at the first line. An existing file is continued; an unfinished last
    line is terminated first, so that it can't swallow ours. A path is meant as of now: `~` is the user's home, and
    another working directory later on changes nothing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        self._file: int | None = None

    def __repr__(self) -> str:
        return f"recording that is appended to {self.path}"

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line. Floats keep their full precision; NaN and infinities become null.

        Raises OSError when it can't be written (no space, no permission); nothing of the line is left in the file
        then, and the next call tries again from the start.
        """
        data = dumps(line).encode() + b"\n"
        try:
            file = self._file = self._open() if self._file is None else self._file
            size = os.fstat(file).st_size
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                with suppress(OSError):  # a device has no length
                    os.ftruncate(file, size)
                raise
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
        return file


def dumps(line: Mapping[str, Any]) -> str:
    """`line` as JSON on one line, without NaN and infinities."""
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(line), ensure_ascii=False, allow_nan=False)


def read(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of a recording, in order; empty lines are skipped.

    Raises RecordingError at the line that is no JSON object, after the ones before it, and OSError when the file
    can't be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except ValueError as error:
                cut = "" if text.endswith("\n") else "; the line is cut off: its writer was stopped, remove it"
                raise RecordingError(f"{path} line {number}: no JSON ({error}){cut}") from None
            if not isinstance(found, dict):
                raise RecordingError(f"{path} line {number}: {text.strip()[:40]!r} is no JSON object")
            yield found


def _plain(value: Any) -> Any:
    """What `json` doesn't know: mappings, numbers of numpy, sets; anything else as its `str`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return _finite(_plain(value))
