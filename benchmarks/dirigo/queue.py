"""Operations on queues of 1000 to 2000 messages: a measurement of our own (figure 6.21b)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median
from time import process_time_ns
from typing import Any

from benchmarks.dirigo.setup import DIRIGO
from benchmarks.dirigo.staircase import StaircaseQueue
from benchmarks.findings import NOT_DECIDABLE, Row
from qod_magics.policies.dirigo.queues import LaxityQueue

LENGTHS = (10, 100, 1000, 2000, 5000)


class PlainQueue:
    """In order of deadlines, without laxities: a check walks through."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []
        self._number = 0

    def check(self, deadline: int, cost: int, free_at: int) -> bool:
        end = free_at
        new = True
        for due, _, each in self._entries:
            if new and due > deadline:
                end += cost
                if end > deadline:
                    return False
                new = False
            end += each
            if not new and end >= due:
                return False
        return not new or end + cost <= deadline

    def add(self, deadline: int, cost: int, item: int) -> None:
        del item
        self._number += 1
        insort(self._entries, (deadline, self._number, cost))

    def poll(self) -> None:
        self._entries.pop(0)


QUEUES: dict[str, Callable[[], Any]] = {
    "plain": PlainQueue,
    "Algorithm 6.1": StaircaseQueue,
    "blocks": LaxityQueue,
}
ACTIONS = ("check", "add", "poll", "check and insert")


def microseconds(make: Callable[[], Any], length: int, repeats: int) -> dict[str, float]:
    """CPU per operation: the median over repeats of 50 operations each, at about this length."""
    draw = Random(length)
    queue = make()
    horizon = length * 1_500_000
    number = 0

    def message() -> tuple[int, int]:
        return draw.randrange(horizon // 2, 2 * horizon), draw.randrange(500_000, 1_500_000)

    def fill(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            queue.add(*message(), number)

    fill(length)
    found: dict[str, list[float]] = {action: [] for action in ACTIONS}
    batch = 50 if length >= 100 else 5
    for _ in range(repeats):
        probes = [message() for _ in range(batch)]
        found["check"].append(_timed(partial(_check_all, queue, probes), batch))
        found["add"].append(_timed(lambda: fill(batch), batch))
        found["poll"].append(_timed(lambda: [queue.poll() for _ in range(batch)], batch))

        def both() -> None:
            for _ in range(batch):
                queue.check(*message(), 0)
                fill(1)

        found["check and insert"].append(_timed(both, batch))
        for _ in range(batch):
            queue.poll()
    return {action: median(times) for action, times in found.items()}


def _check_all(queue: Any, probes: list[tuple[int, int]]) -> None:
    for each in probes:
        queue.check(*each, 0)


def _timed(action: Callable[[], object], count: int) -> float:
    begin = process_time_ns()
    action()
    return (process_time_ns() - begin) / count / 1000


def table(repeats: int = 20) -> str:
    """CPU per operation by length and queue, as Markdown."""
    lines = [
        "| length | queue | " + " | ".join(f"{action}, us" for action in ACTIONS) + " |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for length in LENGTHS:
        for name, make in QUEUES.items():
            found = microseconds(make, length, repeats)
            lines.append(f"| {length} | {name} | " + " | ".join(f"{found[action]:.1f}" for action in ACTIONS) + " |")
    return "\n".join(lines)


def operations(scale: float = 1.0) -> list[Row]:
    """Figure 6.21b."""
    repeats = max(round(20 * scale), 2)
    found = {name: microseconds(make, 1500, repeats) for name, make in QUEUES.items()}
    source = {"check": "48x faster", "check and insert": "2x faster", "add": "91x slower", "poll": "109x slower"}
    rows = []
    for action, words in source.items():
        ours = "; ".join(f"{name} {_words(found['plain'][action], found[name][action])}" for name in list(QUEUES)[1:])
        rows.append(
            DIRIGO.row(
                "6.21b",
                f"{action}, 1,500 queued, with over without laxities",
                words,
                ours,
                NOT_DECIDABLE,
                "of another language and another plain queue; ours are measured CPU times",
            )
        )
    return rows


def _words(plain: float, other: float) -> str:
    return f"{plain / other:.1f}x faster" if other < plain else f"{other / plain:.1f}x slower"
