"""What is asked: slices of time, and queries over them, the same for every policy."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from qod_magics.core.nanoseconds import S
from qod_magics.event_engine.segments.scenario import SegmentScenario


class Asked(NamedTuple):
    """A query, and what it takes."""

    at: int  #: ns
    kind: int
    newest: int  #: slice, by number; it covers this one and those before it
    work: tuple[int, ...]  #: CPU time of each pair, ns, from the newest slice backwards


class Slices:
    """When each slice ends, when queries may ask for it, and its size. Numbered from 0, the oldest at the start."""

    def __init__(self, scenario: SegmentScenario) -> None:
        self.scenario = scenario
        draw = random.Random(f"sizes {scenario.seed}")
        number = scenario.kept
        if scenario.slice is not None:
            number += -(-scenario.duration // scenario.slice)
        self.size = [draw.randint(*scenario.bytes) for _ in range(number)]

    def name(self, number: int) -> str:
        """As policies know it."""
        return f"slice{number:04d}"

    def newest(self, at: int) -> int:
        """The newest slice that queries may ask for."""
        given = self.scenario
        if given.slice is None or at < given.handoff:
            return given.kept - 1
        return given.kept - 1 + (at - given.handoff) // given.slice


class Weighted:
    """Draws positions by weight."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._until = list(accumulate(weights))

    def draw(self, source: random.Random) -> int:
        """A position."""
        return min(bisect(self._until, source.random() * self._until[-1]), len(self._until) - 1)


def queries(scenario: SegmentScenario) -> Iterator[Asked]:
    """All queries of a run in their order, at random times (Poisson), and those of the burst at its end."""
    draw, slices = random.Random(f"queries {scenario.seed}"), Slices(scenario)
    kinds = Weighted([kind.share for kind in scenario.kinds])
    behind = Weighted(scenario.behind)
    lengths = Weighted([length**-scenario.zipf for length in range(1, scenario.kept + 1)])
    rate = scenario.clients * scenario.queries_per_s / S  # per ns
    at, left = 0.0, scenario.burst
    while True:
        if at < scenario.duration:
            at = min(at + draw.expovariate(rate), scenario.duration)
        if at >= scenario.duration:
            if not left:
                return
            left -= 1
        kind, back = kinds.draw(draw), behind.draw(draw)
        length = min(lengths.draw(draw) + 1, scenario.kept - back)
        mean = scenario.kinds[kind].mean
        work = tuple(1 + round(draw.expovariate(1 / mean)) for _ in range(length))
        yield Asked(round(at), kind, slices.newest(round(at)) - back, work)
