"""A load that rises in steps, each a multiple of a core's capacity, sent by one injector without a gap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.evaluation.cluster import Run
from benchmarks.evaluation.recipes import scenario

PERIODS = 6  #: of a step at full length
SETTLED_AFTER_S = 15.0  #: of a step at full length; its rest counts
WARM_S, LEAST_WARM_S = 30.0, 10.0  #: at full length and at least, under the load of the first step
MOST_ROWS_S = 180_000.0  #: of the injector
BACK = "back"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the load. Seconds are since the load's first row."""

    name: str  #: "3x"
    times: float  #: multiple of a core's capacity
    rows_s: float  #: of all topics together
    begin: float
    settled: float  #: from here on it counts
    end: float


def fitting(loads: Sequence[float], carried: float, most: float = MOST_ROWS_S) -> list[float]:
    """The loads that the injector can send; the highest multiple that it can send replaces the others."""
    highest = math.floor(10 * most / carried) / 10
    fit = [times for times in loads if times <= highest]
    if len(fit) < len(loads) and (not fit or highest > 1.2 * max(fit)):
        fit.append(highest)
    return fit


def staircase(
    loads: Iterable[float], carried: float, period_s: float, scale: float, back: float | None = None
) -> list[Step]:
    """Consecutive steps at these multiples of `carried` (rows/s), then one at `back`, which has its full length at any
    scale: a recovery takes what it takes."""
    named = [(f"{times:g}x", times, scale) for times in loads] + ([] if back is None else [(BACK, back, 1.0)])
    begin, steps = max(WARM_S * scale, LEAST_WARM_S), []
    for name, times, share in named:
        length = PERIODS * period_s * share
        settled = begin + min(SETTLED_AFTER_S, length / 2)
        steps.append(Step(name, times, times * carried, begin, settled, begin + length))
        begin += length
    return steps


def rates(steps: Sequence[Step]) -> list[tuple[float, float]]:
    """(second, rows/s) points; the first step's rate also before it."""
    points = [(0.0, steps[0].rows_s)]
    for before, step in zip([steps[0], *steps], steps, strict=False):
        points += [(step.begin, before.rows_s), (step.begin, step.rows_s)]
    return [*points, (steps[-1].end, steps[-1].rows_s)]


def climb(
    run: Run, topics: Sequence[str], steps: Sequence[Step], at_step: Callable[[Step, bool], None] = lambda *_: None
) -> float:
    """Send the steps and wait for their end. `at_step` is called when a step begins (True) and when it ends (False).
    Returns when the first row was sent, seconds since 1970."""
    injector = run.inject(scenario(topics, rates(steps), steps[-1].end))
    zero = time.time() - injector.position()
    for step in steps:
        _until(zero + step.begin)
        run.phase(step.name)
        at_step(step, True)
        _until(zero + step.end)
        at_step(step, False)
    run.phase(None)
    injector.stop()
    return zero


def _until(at: float) -> None:
    time.sleep(max(at - time.time(), 0.0))
