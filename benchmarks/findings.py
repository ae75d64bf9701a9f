"""Figures of a source beside ours, with a verdict; and the command that prints them: `python -m benchmarks.cameo` etc.

One rule decides what counts as reproduced:

- a factor, if its gain (factor - 1) is 0.5 to 1.5 times the source's (one below 1 is inverted first: 0.67 is as 1.5;
  one of exactly 1, if ours is within 10 % of it),
- any other number, if ours is 0.5 to 1.5 times the source's,
- a statement or an exact figure, if it holds here.

Rows with a rule of their own say it: `benchmarks.cameo.rows.up_to` is of a largest factor whose load is not given. A
figure that a parameter of the model was fitted to gets its verdict by the same rule, and is marked as calibrated: it
proves nothing. Not decidable is what the source says too little of for a model.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Literal, get_args

Verdict = Literal["reproduced", "refuted", "not decidable"]
REPRODUCED, REFUTED, NOT_DECIDABLE = VERDICTS = get_args(Verdict)
#: Of a factor's gain, or of another number: largest relative difference from the source's.
TOLERANCE = 0.5
ALIKE = 0.1  #: relative difference up to which two figures are alike

HEAD = "| experiment | figure | source | ours | verdict | why |\n|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a source."""

    system: str
    experiment: str  #: as its command names it
    figure: str  #: what was measured
    source: str  #: its value in the source
    ours: str
    verdict: Verdict
    why: str = ""
    calibrated: bool = False  #: a parameter of our model was fitted to this figure

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    def line(self) -> str:
        """The line of a Markdown table below `HEAD`."""
        verdict = f"{self.verdict} (calibrated)" if self.calibrated else self.verdict
        return f"| {self.experiment} | {self.figure} | {self.source} | {self.ours} | {verdict} | {self.why} |"


def table(rows: Iterable[Row]) -> str:
    """As Markdown."""
    return "\n".join([HEAD, *(row.line() for row in rows)])


def counted(rows: Sequence[Row]) -> str:
    """How many rows have which verdict, in words."""
    count = Counter(row.verdict for row in rows)
    words = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS)
    held = sum(row.calibrated and row.verdict == REPRODUCED for row in rows)
    return (
        f"{len(rows)} figures: {words}; {sum(row.calibrated for row in rows)} calibrated, of which {held} "
        f"count{'s' if held == 1 else ''} as reproduced"
    )


# --- verdicts ---------------------------------------------------------------------------------------------------------


def is_factor(source: float, ours: float) -> bool:
    """Whether a factor is within half of the source's, both taken as their excess over 1."""
    if source == 1:
        return abs(ours - 1) <= ALIKE
    if source < 1:
        source, ours = 1 / source, 1 / ours if ours else inf
    return 1 - TOLERANCE <= (ours - 1) / (source - 1) <= 1 + TOLERANCE


def is_near(source: float, ours: float) -> bool:
    """Whether a number that is no factor is within half of the source's."""
    return abs(ours - source) <= TOLERANCE * abs(source)


def decided(holds: bool) -> Verdict:
    """Of a statement."""
    return "reproduced" if holds else "refuted"


def shown(factor: float) -> str:
    """A factor in short; infinite stands for one whose numerator had no result."""
    return "no result" if factor == inf else f"{factor:.2f}x"


@dataclass(frozen=True, slots=True)
class Source:
    """What a system's source says: makes the rows about it."""

    system: str

    def row(
        self,
        experiment: str,
        figure: str,
        source: str,
        ours: str,
        verdict: Verdict,
        why: str = "",
        *,
        calibrated: bool = False,
    ) -> Row:
        """A row with a verdict of its own."""
        return Row(self.system, experiment, figure, source, ours, verdict, why, calibrated)

    def held(
        self,
        experiment: str,
        figure: str,
        source: str,
        ours: str,
        holds: bool,
        why: str = "",
        *,
        calibrated: bool = False,
    ) -> Row:
        """A statement, which holds here or not."""
        return self.row(experiment, figure, source, ours, decided(holds), why, calibrated=calibrated)

    def factor(
        self, experiment: str, figure: str, source: float, ours: float, why: str = "", *, calibrated: bool = False
    ) -> Row:
        """A ratio of two policies, systems or settings."""
        holds = is_factor(source, ours)
        if not holds and ours != inf:
            same = (source - 1) * (ours - 1) > 0
            reason = (
                "less than half as much, or more than half again" if same else "no such difference, or the opposite"
            )
            if source == 1:
                reason = f"differs by more than {ALIKE:.0%}"
            why = f"{reason}; {why}" if why else reason
        return self.held(experiment, figure, f"{source:.4g}x", shown(ours), holds, why, calibrated=calibrated)


# --- the command ------------------------------------------------------------------------------------------------------

#: quick -> the rows. Quick: short runs, whose figures and verdicts mean nothing.
Experiment = Callable[[bool], Iterable[Row]]


def command(
    package: str,
    description: str | None,
    experiments: Mapping[str, Experiment],
    words: Sequence[str] | None = None,
) -> None:
    """Run experiments, or "all", and print their rows."""
    names = list(experiments)
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{package}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiments", nargs="+", choices=[*names, "all"], metavar="EXPERIMENT", help=", ".join(names))
    parser.add_argument(
        "--quick", action="store_true", help="short runs, to see that all works: no figures to judge by"
    )
    parser.add_argument("--json", action="store_true", help="the rows as JSON, and nothing else")
    given = parser.parse_args(words)
    chosen = list(dict.fromkeys(names if "all" in given.experiments else given.experiments))
    begun = cpu_s()
    found: list[Row] = []
    for name in chosen:
        rows = list(experiments[name](given.quick))
        found += rows
        if not given.json:
            print(f"{table(rows)}\n", flush=True)
    if given.json:
        print(json.dumps([row.to_json() for row in found], indent=1))
    else:
        print(f"{counted(found)}. {cpu_s() - begun:.0f} s of CPU")


def cpu_s() -> float:
    """Of this process and of its children that ended, s."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
