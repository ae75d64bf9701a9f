"""`python -m qod_magics report RUN.jsonl`: judge a recording, write its report, print the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qod_magics.arguments.parser import Parser
from qod_magics.controller.record import Records
from qod_magics.errors import QodError
from qod_magics.recordings.criteria import format_verdict
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict

PASSED, FAILED, BAD_INPUT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `report` (None: those of the process).

    Exit status: 0 every criterion passes, 1 one fails (the report is written all the same), 2 bad input or a file
    that can't be read or written (one line on standard error).
    """
    try:
        words = _parser().parse_args(argv)
        out = words.out or words.run.with_suffix(".html")
        run = load(words.run, say=print)
        off = load(words.off, say=print) if words.off else None
        criteria = verdict(run, off, words.policy, words.settle)
        _write(out, run, off, criteria, words.title or f"Run report: {words.run.stem}")
    except (QodError, OSError) as error:
        print(f"qod_magics report: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return BAD_INPUT
    print(format_verdict(criteria))
    print(f"report: {out}")
    return PASSED if all(criterion.passed for criterion in criteria) else FAILED


def _write(out: Path, run: Records, off: Records | None, criteria: Sequence[Any], title: str) -> None:
    from qod_magics.reports.page import write_report  # Altair and pandas: slow imports, not for bad input

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
    parser.add_argument("--policy", metavar="NAME", help="policy that must have made the plans (default: as recorded)")
    parser.add_argument("--title", help="title of the report")
    parser.add_argument(
        "--settle",
        type=float,
        metavar="S",
        help="seconds after a change until the run must have settled (default: four periods of the controller)",
    )
    return parser
