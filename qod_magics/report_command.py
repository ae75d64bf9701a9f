"""`python -m qod_magics report RUN.jsonl`: judge a recording, write its report, print the verdict."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from qod_magics.controller.recording import RecordingError, read
from qod_magics.core.snapshot_json import snapshot_from_json
from qod_magics.errors import QodError, UsageProblem
from qod_magics.phases import DEFAULT_SETTLE_S, Lines
from qod_magics.verdict import format_verdict, verdict
from qod_magics.words import Parser

PASSED, FAILED, BAD_INPUT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the words after `report` (None: those of the process).

    Exit status: 0 every criterion passes, 1 one fails (the report is written all the same), 2 bad input or a file
    that can't be read or written (one line on standard error).
    """
    try:
        words = _parser().parse_args(argv)
        out = words.out or words.run.with_suffix(".html")
        run = load(words.run)
        off = load(words.off) if words.off else None
        criteria = verdict(run, off, words.policy, words.settle)
        _write(out, run, off, criteria, words.title or f"Run report: {words.run.stem}")
    except (QodError, OSError) as error:
        print(f"qod_magics report: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return BAD_INPUT
    print(format_verdict(criteria))
    print(f"report: {out}")
    return PASSED if all(criterion.passed for criterion in criteria) else FAILED


def load(path: Path) -> Lines:
    """The lines of a recording, checked as far as charts and verdict rely on them.

    Raises RecordingError that names file, line and field, OSError when the file can't be read.
    """
    lines: list[dict[str, Any]] = []
    previous: datetime | None = None
    for number, line in enumerate(read(path), 1):
        try:
            previous = _check(line, previous)
        except (QodError, ValueError) as error:
            raise RecordingError(f"{path}, cycle {number}: {error}") from None
        lines.append(line)
    if not lines:
        raise RecordingError(f"{path} is empty; record a run with --record {path}")
    return lines


def report_so_far(recording: Path, out: Path) -> Path:
    """Write the page of a recording that goes on, judged by what it has so far.

    Raises UsageProblem while nothing is recorded, and when the page can't be written.
    """
    from qod_widgets.report import write_report

    lines = tuple(read(recording))
    if not lines:
        raise UsageProblem("nothing is recorded yet: wait for the first cycle")
    try:
        write_report(out, lines, None, verdict(lines))
    except OSError as error:
        raise UsageProblem(f"{out} can't be written ({error.strerror}): name another file") from None
    return out


def _check(line: Mapping[str, Any], previous: datetime | None) -> datetime:
    """The instant of the line; ValueError or SnapshotError for what breaks the format."""
    at = line.get("at")
    try:
        instant = datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"at is {at!r}, not a time such as 2026-11-21T02:00:05.000Z") from None
    if previous is not None:
        if (instant.tzinfo is None) != (previous.tzinfo is None):
            raise ValueError(f"at is {at!r}: either all times name their zone, or none")
        if instant < previous:
            raise ValueError(f"at is {at!r}, before the line above it: one recording holds one run")
    snapshot_from_json(line.get("snapshot"))
    plan = _object(line, "plan")
    for key in ("current_accuracy", "desired"):
        _numbers(_object(plan, key, "plan."), f"plan.{key}")
    for row in _list(plan, "non_drop", "plan."):
        if not isinstance(row, Mapping) or not {"from", "to", "d"} <= row.keys():
            raise ValueError(f"plan.non_drop has {row!r}, not an object with from, to and d")
    measured = _object(line, "measured")
    for key in ("lag", "dropped"):
        _numbers(_object(measured, key, "measured."), f"measured.{key}")
    for key in ("input_rate", "accuracy"):
        _numbers(_object(measured, key, "measured."), f"measured.{key}", unknown=True)
    for name, count in _object(measured, "counts", "measured.").items():
        field = f"measured.counts[{name!r}]"
        _numbers(_object({field: count}, field), field)
        if absent := {"arrived", "processed", "dropped", "waiting"} - count.keys():
            raise ValueError(f"{field} lacks {', '.join(sorted(absent))}")
    for event in _list(line, "events"):
        if not isinstance(event, Mapping) or not isinstance(event.get("kind"), str):
            raise ValueError(f"events has {event!r}, not an object with a kind")
        _numbers({"took_s": event.get("took_s")}, "events", unknown=True)
    _numbers({"period_s": line.get("period_s")}, "the line", unknown=True)
    return instant


def _object(holder: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{prefix}{key} is {str(value)[:40]!r}, not an object")
    return value


def _list(holder: Mapping[str, Any], key: str, prefix: str = "") -> Sequence[Any]:
    value = holder.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{prefix}{key} is {str(value)[:40]!r}, not a list")
    return value


def _numbers(values: Mapping[str, Any], field: str, unknown: bool = False) -> None:
    """ValueError for what is no finite number; null is one where the value may be `unknown`."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not number and not (unknown and value is None):
            raise ValueError(f"{field} has {name}: {value!r}, not a number")


def _write(out: Path, run: Lines, off: Lines | None, criteria: Sequence[Any], title: str) -> None:
    from qod_widgets.report import write_report  # brings Altair and pandas: seconds that bad input need not wait for

    out.parent.mkdir(parents=True, exist_ok=True)
    write_report(out, run, off, criteria, title)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m qod_magics report",
        description="Judge the recording of a run, write its report as one HTML file, and print the verdict.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN.jsonl", help="recording of the controlled run")
    parser.add_argument("--off", type=Path, metavar="OFF.jsonl", help="the same load with the controller off")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the report (default: RUN.html)")
    parser.add_argument("--policy", metavar="NAME", help="that must have made the plans (default: as recorded)")
    parser.add_argument("--title", help="of the report")
    parser.add_argument(
        "--settle",
        type=float,
        default=DEFAULT_SETTLE_S,
        metavar="S",
        help="seconds after a change until the run must have settled (default: %(default)g)",
    )
    return parser
