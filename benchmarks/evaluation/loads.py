"""A load in stages, each with its own rates, and the phases of a recording that belong to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation.cluster import Run, until
from benchmarks.evaluation.hashing import DATA
from qod_magics.errors import KafkaError
from qod_magics.kafka.injector import Injector

Bounds = Mapping[str, tuple[float, float]]  #: begin and end of each stage, seconds since 1970
BOOKED_S = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the load with constant rates."""

    name: str
    seconds: float
    rows_s: Mapping[str, float]  #: by topic, the same topics in each stage


def scenario(stages: Sequence[Stage], partitions: int) -> dict[str, Any]:
    """What the injector sends."""
    points: dict[str, list[tuple[float, float]]] = {topic: [] for topic in stages[0].rows_s}
    begin = 0.0
    for stage in stages:
        for topic, rate in stage.rows_s.items():
            points[topic] += [(begin, rate), (begin + stage.seconds, rate)]
        begin += stage.seconds
    topics = [{"topic": t, "partitions": partitions, "data": DATA, "rate": rates} for t, rates in points.items()]
    return {"duration_s": begin, "topics": topics}


def play(run: Run, stages: Sequence[Stage], partitions: int) -> tuple[Bounds, Injector]:
    """Send the stages and wait for their end. The injector has ended then."""
    injector = run.inject(scenario(stages, partitions))
    at = time.time() - injector.position()
    bounds = {}
    for stage in stages:
        run.phase(stage.name)
        bounds[stage.name] = (at, at + stage.seconds)
        at += stage.seconds
        run.wait(max(at - time.time(), 0.0))
    run.phase(None)
    return bounds, injector


def booked(run: Run, injector: Injector, readers: Mapping[str, str]) -> dict[str, int]:
    """End the injector and wait until the books have all rows that it sent, at most `BOOKED_S`; returns the rows sent
    by task. `readers`: the task that reads each topic. Raises KafkaError: the broker has not acknowledged all."""
    counts = injector.stop()
    failed = {topic: each["errors"] for topic, each in counts.items() if each["errors"]}
    if failed:
        raise KafkaError(f"The broker has not acknowledged all rows: {failed}")
    sent = {task: int(counts[topic]["acknowledged"]) for topic, task in readers.items()}

    def are_in_the_books() -> bool:
        last = run.session.last
        found = {} if last is None or last.measured is None else last.measured.counts
        return all(task in found and found[task].arrived >= rows for task, rows in sent.items())

    until(are_in_the_books, f"the rows sent {sent} in the books", BOOKED_S)
    return sent
