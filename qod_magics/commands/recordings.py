"""`python -m qod_magics report`, `compare` and `fit`: judge a recording, compare two, fit a simulation to one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics.arguments.parser import Parser
from qod_magics.controller.record import Records
from qod_magics.errors import QodError, UsageProblem
from qod_magics.policies import policy, policy_names
from qod_magics.recordings.criteria import format_verdict
from qod_magics.recordings.reading import DEFAULT_SETTLE_S, load
from qod_magics.recordings.verdict import Comparison, compared, format_comparison, verdict

if TYPE_CHECKING:
    from qod_magics.simulator.rates.fitting import fit as simulations

PASSED, FAILED, BAD_INPUT = 0, 1, 2


def report(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `report` (None: those of the process).

    Exit status: 0 every criterion passes, 1 one fails (the report is written all the same), 2 bad input or a file
    that can't be read or written (one line on standard error).
    """
    try:
        words = _report_parser().parse_args(argv)
        out = words.out or words.run.with_suffix(".html")
        run = load(words.run, say=print)
        off = load(words.off, say=print) if words.off else None
        criteria = verdict(run, off, words.policy, words.settle)
        _write_report(out, run, off, criteria, words.title or f"Run report: {words.run.stem}")
    except (QodError, OSError) as error:
        print(f"qod_magics report: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return BAD_INPUT
    print(format_verdict(criteria))
    print(f"report: {out}")
    return PASSED if all(criterion.passed for criterion in criteria) else FAILED


def _write_report(out: Path, run: Records, off: Records | None, criteria: Sequence[Any], title: str) -> None:
    from qod_magics.reports.page import write_report  # Altair and pandas: slow imports, not for bad input

    out.parent.mkdir(parents=True, exist_ok=True)
    write_report(out, run, off, criteria, title)


def _report_parser() -> Parser:
    parser = Parser("report", "Judge the recording of a run, write its report as one HTML file, and print the verdict.")
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


def _compare_parser() -> Parser:
    parser = Parser(
        "compare",
        "Compare two recordings of the same scenario, aligned at the start of the first phase, "
        "and print how far apart they are.",
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


def compare(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `compare`. Exit status 0 when the runs are alike, 1 when they are not;
    invalid arguments or input raise QodError."""
    words = _compare_parser().parse_args(argv)
    live, simulated = load(words.live, say=print), load(words.simulated, say=print)
    found = compared(live, simulated, words.settle)
    print(format_comparison(found))
    if words.out is not None:
        _write_comparison(words.out, live, simulated, found)
        print(f"report: {words.out}")
    return PASSED if all(criterion.passed for criterion in found.criteria) else FAILED


def _write_comparison(out: Path, live: Records, simulated: Records, found: Comparison) -> None:
    from qod_magics.reports.page import comparison_report  # imports Altair and pandas

    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(comparison_report(live, simulated, found, "Live and simulated"), encoding="utf-8")


def _fit_parser() -> Parser:
    parser = Parser(
        "fit",
        "Fit a simulation to a recording, print the estimates and what could not be estimated, and "
        "write the scenario that `simulate` runs.",
    )
    parser.add_argument("run", type=Path, metavar="RUN.jsonl", help="the recording")
    parser.add_argument("--out", type=Path, metavar="SCENARIO.json", help="the scenario (default: RUN.scenario.json)")
    parser.add_argument("--policy", metavar="NAME", help=f"in place of the recording's: {', '.join(policy_names())}")
    return parser


def fit(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `fit`. Exit status 0; invalid arguments or input raise QodError."""
    words = _fit_parser().parse_args(argv)
    if words.policy is not None:
        policy(words.policy)  # refused before anything is read
    out: Path = words.out or words.run.with_suffix(".scenario.json")
    if out.exists():
        raise UsageProblem(f"{out} is there already: name another file, or remove it")
    from qod_magics.simulator.rates.fitting import fit as simulations  # numpy: slow imports, not for the others

    records = load(words.run, say=print)
    try:
        found = simulations.fit(records, words.policy)
    except ValueError as problem:
        raise UsageProblem(f"{words.run}: {problem}") from None
    out.write_text(json.dumps(found.simulation.to_json(), indent=1) + "\n", encoding="utf-8")
    print(format_fit(found))
    print(f"scenario: {out}")
    return 0


def format_fit(found: simulations.Fit) -> str:
    """Return one line per estimate."""
    return "\n".join(f"{each.what}: {each.value}{f' ({each.note})' if each.note else ''}" for each in found.findings)
