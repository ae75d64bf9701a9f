"""Which queue of events carries the engine of messages: `python benchmarks/event_engine.py [--events N]`.

A million timeouts by simpy (callbacks, as the engine uses it; and processes) and by a bare heap; then the engine itself
with its operators, books and the dispatcher `fifo`: CPU a message, over three sizes.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from random import Random
from time import process_time

import simpy

from qod_magics.core.nanoseconds import S
from qod_magics.event_engine.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.event_engine.messages.sources import Arrivals
from qod_magics.policies.dispatchers import dispatcher

#: Timers that are under way at once.
TIMERS = 1_000


def by_callbacks(events: int) -> None:
    """Each timeout starts the next in its callback."""
    clock, random = simpy.Environment(0), Random(1)

    def again(_: simpy.Event) -> None:
        clock.timeout(random.randrange(1, 1_000_000)).callbacks.append(again)

    for _ in range(TIMERS):
        clock.timeout(random.randrange(1, 1_000_000)).callbacks.append(again)
    for _ in range(events):
        clock.step()


def by_processes(events: int) -> None:
    """A generator a timer."""
    clock, random = simpy.Environment(0), Random(1)

    def timer() -> Iterator[simpy.Event]:
        while True:
            yield clock.timeout(random.randrange(1, 1_000_000))

    for _ in range(TIMERS):
        clock.process(timer())
    for _ in range(events):
        clock.step()


def by_heap(events: int) -> None:
    """The least that a queue of events can do in Python."""
    heap = [(n, n) for n in range(TIMERS)]
    random = Random(1)
    for n in range(TIMERS, events):
        at, _ = heapq.heappop(heap)
        heapq.heappush(heap, (at + random.randrange(1, 1_000_000), n))


def run(seconds: int) -> tuple[int, float]:
    """(messages, CPU seconds) of this much virtual time of 24 jobs of 64 clients."""
    stages = (
        Stage("count", ("s",), 4, 50, 0.05, 0.01, 1000, exchange="one"),
        Stage("total", ("count",), 1, 50, 0.05, 1, 1000),
    )
    jobs = [Job(f"j{n}", stages, (Source("s", 64, Arrivals(1, 1000, delay_s=0.1)),), 800) for n in range(24)]
    engine = Engine(Dataflow(jobs, workers=4), dispatcher("fifo"))
    begun = process_time()
    engine.run(seconds * S)
    took = process_time() - begun
    engine.check()
    return engine.books.done, took


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    words = parser.parse_args()
    ways: dict[str, Callable[[int], None]] = {
        "simpy, callbacks": by_callbacks,
        "simpy, processes": by_processes,
        "a bare heap": by_heap,
    }
    for name, way in ways.items():
        begun = process_time()
        way(words.events)
        took = process_time() - begun
        print(f"{name}: {words.events:,} events in {took:.2f} s of CPU, {1e6 * took / words.events:.2f} us each")
    for seconds in (60, 240, 960):
        messages, took = run(seconds)
        print(f"the engine: {messages:,} messages in {took:.1f} s of CPU, {1e6 * took / messages:.1f} us each")


if __name__ == "__main__":
    main()
