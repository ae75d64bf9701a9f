"""`python -m qod_magics compare LIVE.jsonl SIMULATED.jsonl`: how far a simulated run is from the live one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qod_magics.arguments.parser import Parser
from qod_magics.commands.report import FAILED, PASSED
from qod_magics.controller.record import Records
from qod_magics.recordings.comparison import Comparison, compare, format_comparison
from qod_magics.recordings.phases import DEFAULT_SETTLE_S
from qod_magics.recordings.reading import load


def _parser() -> Parser:
    parser = Parser(
        prog="python -m qod_magics compare",
        description="Compare two recordings of the same scenario, aligned at the start of the first phase, "
        "and print how far apart they are.",
        allow_abbrev=False,
    )
    parser.add_argument("live", type=Path, metavar="LIVE.jsonl", help="recording of the live run")
    parser.add_argument("simulated", type=Path, metavar="SIMULATED.jsonl", help="recording of the simulated one")
    parser.add_argument("--out", type=Path, metavar="REPORT.html", help="charts of both runs, in one HTML file")
    parser.add_argument(
        "--settle",
        type=float,
        default=DEFAULT_SETTLE_S,
        metavar="S",
        help="seconds after a change until a run must have settled (default: %(default)g)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `compare`. Exit status 0 when the runs are alike, 1 when they are not;
    invalid arguments or input raise QodError."""
    words = _parser().parse_args(argv)
    live, simulated = load(words.live, say=print), load(words.simulated, say=print)
    found = compare(live, simulated, words.settle)
    print(format_comparison(found))
    if words.out is not None:
        _write(words.out, live, simulated, found)
        print(f"report: {words.out}")
    return PASSED if all(criterion.passed for criterion in found.criteria) else FAILED


def _write(out: Path, live: Records, simulated: Records, found: Comparison) -> None:
    from qod_magics.reports.page import comparison_report  # imports Altair and pandas

    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(comparison_report(live, simulated, found, "Live and simulated"), encoding="utf-8")
