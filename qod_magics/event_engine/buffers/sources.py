"""The input of a job: streams and their items, the same under every policy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from qod_magics.core.nanoseconds import S
from qod_magics.event_engine.buffers.scenario import BufferScenario


class Arrival(NamedTuple):
    """An item that a source has to emit."""

    at: int  #: ns; it is emitted then, or as soon as its sender is no longer held back
    bytes: float  #: before it is rounded


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of items."""

    number: int
    start: int  #: when its first item arrives, ns
    mean_bytes: float  #: of its items


def streams(scenario: BufferScenario) -> Iterator[Stream]:
    """All streams, by number; the same seed gives the same ones."""
    given, draw = scenario.streams, random.Random(scenario.seed)
    for number in range(given.count):
        rate = given.kbit_per_s * draw.lognormvariate(0.0, given.spread)
        if draw.random() < given.slow_share:
            rate = draw.uniform(*given.slow_kbit_per_s)
        start = round(draw.uniform(0, given.start_s + 1 / given.items_per_s) * S) if given.start_s else 0
        yield Stream(number, start, given.item_bytes or rate * 1000 / 8 / given.items_per_s)


def arrivals(scenario: BufferScenario, stream: Stream) -> Iterator[Arrival]:
    """The items of a stream. Each stream draws by itself, so that nothing else that happens in a run plays a part."""
    given, draw = scenario.streams, random.Random(f"items {scenario.seed}/{stream.number}")
    spread = given.item_spread
    shift = -spread * spread / 2  # so that the mean stays
    made = 0
    while given.items is None or made < given.items:
        factor = draw.lognormvariate(shift, spread) if spread else 1.0
        yield Arrival(stream.start + round(made * S / given.items_per_s), stream.mean_bytes * factor)
        made += 1
