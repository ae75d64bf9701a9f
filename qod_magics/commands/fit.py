"""`python -m qod_magics fit RUN.jsonl`: fit a simulation to a recording, and print the estimates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from qod_magics.arguments.parser import Parser
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy_names
from qod_magics.recordings.reading import load
from qod_magics.simulator.rates.fitting.fit import Fit, fit


def _parser() -> Parser:
    parser = Parser(
        prog="python -m qod_magics fit",
        description="Fit a simulation to a recording, print the estimates and what could not be estimated, and "
        "write the scenario that `simulate` runs.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN.jsonl", help="the recording")
    parser.add_argument("--out", type=Path, metavar="SCENARIO.json", help="the scenario (default: RUN.scenario.json)")
    parser.add_argument("--policy", metavar="NAME", help=f"in place of the recording's: {', '.join(policy_names())}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `fit`. Exit status 0; invalid arguments or input raise QodError."""
    words = _parser().parse_args(argv)
    if words.policy is not None and words.policy not in policy_names():
        raise UsageProblem(f"there is no policy {words.policy!r}: name one of {', '.join(policy_names())}")
    out: Path = words.out or words.run.with_suffix(".scenario.json")
    if out.exists():
        raise UsageProblem(f"{out} is there already: name another file, or remove it")
    records = load(words.run, say=print)
    try:
        found = fit(records, words.policy)
    except ValueError as problem:
        raise UsageProblem(f"{words.run}: {problem}") from None
    out.write_text(json.dumps(found.simulation.to_json(), indent=1) + "\n", encoding="utf-8")
    print(format_fit(found))
    print(f"scenario: {out}")
    return 0


def format_fit(found: Fit) -> str:
    """One line per estimate."""
    return "\n".join(f"{each.what}: {each.value}{f' ({each.note})' if each.note else ''}" for each in found.findings)
