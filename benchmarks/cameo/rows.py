"""Rows of Cameo's table: a figure of the source, ours, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf, isnan, log
from typing import Any, Literal

Verdict = Literal["reproduced", "refuted", "not decidable"]
#: Of a factor's excess over 1, up to which it counts as reproduced: 1.0x is not within half of 1.5x.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    experiment: str  #: as `python -m benchmarks.cameo` names it
    figure: str  #: what it is of
    source: str
    ours: str
    verdict: Verdict
    why: str

    def to_json(self) -> dict[str, Any]:
        """The JSON form, with the system's name."""
        return {"system": "cameo", **asdict(self)}


def ratio(ours: float, by: float) -> float:
    """A factor; infinite if the numerator had no result."""
    return inf if isnan(ours) else ours / by


def shown(factor: float) -> str:
    """A factor in short."""
    return "no result" if factor == inf else f"{factor:.2f}x"


def is_near(ours: float, source: float) -> bool:
    """Whether a factor is within half of the source's, by their excess over 1."""
    return abs(ours - source) <= HALF * (source - 1)


def held(experiment: str, figure: str, source: str, ours: str, true: bool, why: str) -> Row:
    """A statement, which holds here or not."""
    return Row(experiment, figure, source, ours, "reproduced" if true else "refuted", why)


def at_load(experiment: str, figure: str, source: float, ours: float, where: str) -> Row:
    """A factor at one load: reproduced within half of its excess over 1."""
    verdict: Verdict = "reproduced" if is_near(ours, source) else "refuted"
    return Row(experiment, figure, f"{source:g}x", shown(ours), verdict, where)


def up_to(experiment: str, figure: str, source: float, swept: Mapping[str, float], run: str) -> Row:
    """A largest factor, over a sweep of loads.

    Beyond saturation it grows with the run and with the end of the sweep, which the source does not give. It counts as
    reproduced if the sweep passes it, or comes within half of it. Ours: the nearest factor of the sweep.
    """
    finite = {each: factor for each, factor in swept.items() if 0 < factor < inf}
    near = min(finite, key=lambda each: abs(log(finite[each] / source)), default=None)
    alone = ", ".join(f"{each} {shown(factor)}" for each, factor in swept.items())
    if near is None:
        return Row(experiment, figure, f"up to {source:g}x", "no result", "not decidable", alone)
    passed = min(finite.values()) <= source <= max(swept.values())
    close = is_near(finite[near], source)
    verdict: Verdict = "reproduced" if passed or close else "refuted"
    word = "passed within the sweep" if passed else "never reached" if max(swept.values()) < source else "always above"
    ours = f"{shown(finite[near])} at {near}"
    return Row(experiment, figure, f"up to {source:g}x", ours, verdict, f"{word} ({run}): {alone}")
