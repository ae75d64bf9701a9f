"""Files of results: what `%qod show --save FILE` shows, as JSON lines, to be shown again without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from qod_magics.errors import UsageProblem
from qod_magics.results.columns import Row
from qod_magics.results.result import Result, from_json, to_json


def write_sample(path: Path, result: Result, rows: Sequence[Row]) -> None:
    """Write a result with only these rows: its query, columns and accuracy first, then a line for each row. A file that
    is there is replaced at once, so that readers never see a part. Raises UsageProblem: it can't be written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        lines = (json.dumps(line, ensure_ascii=False) for line in to_json(result, rows))
        beside.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageProblem(f"--save {path}: it can't be written: {error.strerror or error}") from error


def read_sample(path: Path) -> Result:
    """The result in a file. Raises UsageProblem: it can't be read, or is no such file."""
    try:
        return from_json([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    except OSError as error:
        raise UsageProblem(f"--from {path}: it can't be read: {error.strerror or error}") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageProblem(
            f"--from {path}: it holds no results; `%qod show QUERY --save FILE` writes such a file"
        ) from error
