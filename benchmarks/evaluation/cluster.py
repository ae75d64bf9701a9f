"""A cluster for one run of the evaluation, and loads that ask of it a given multiple of what it has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from qod_magics.kafka.injector import Injector
from qod_magics.kafka.topics import create_topics
from qod_magics.session import Session

CALM_CYCLES = 4  #: in a row without a drop, before a calm load is said to be measured
LOOK_S = 0.25

Say = Callable[[str], None]


class NotCalm(RuntimeError):
    """The load that was to be calm fell behind for too long: something else takes the machine."""


@dataclass
class Run:
    """A session under way, with what its loads are measured by.

    The task managers have a core each, the first ones of the machine; broker and injector stay on the last.
    """

    session: Session
    record: Path
    idle_cpu: float = 0.0  #: of the tasks without input, % of one core
    cpu_per_row: float = 0.0  #: % of one core for a row/s of all inputs together
    for_tasks: float = 0.0  #: of the first task manager in calm, % of one core
    injected: list[Path] = field(default_factory=list)  #: what the injectors achieved

    @property
    def last_core(self) -> int:
        """The core of broker and injector."""
        return max(os.sched_getaffinity(0))

    @property
    def first_cores(self) -> set[int]:
        """Those of the first task manager."""
        manager = next(iter(self.session.runtime.task_managers.values()))
        assert manager.server is not None
        return set(manager.server.options.cpus or ())

    def phase(self, name: str | None) -> None:
        """Name the recording's lines from now on."""
        self.session.annotate(phase=name)

    def inject(self, scenario: Mapping[str, Any]) -> Injector:
        """Send a scenario beside what is sent already."""
        path = self.record.with_suffix(f".load{len(self.injected) + 1}.jsonl")
        self.injected.append(path)
        return self.session.inject(scenario, cpus={self.last_core}, record=path)

    def wait(self, seconds: float) -> None:
        """Let the cluster work for so long."""
        time.sleep(seconds)

    def until_settled(self, at_least_s: float, quiet_s: float = 30.0, at_most_s: float = 180.0) -> bool:
        """As `Session.until_settled`, without a notebook."""
        import asyncio

        return asyncio.run(self.session.until_settled(at_least_s, quiet_s, at_most_s, show=lambda _: None))

    def calibrate(self, calm: Mapping[str, Any], rows_per_s: float) -> Injector:
        """Measure the tasks idle, then under a calm load of `rows_per_s` of all inputs together, which goes on.
        Nothing is shed meanwhile.

        Raises:
            NotCalm: the calm load fell behind for 100 s.

        """
        self._cycles(2)
        self.idle_cpu = self._tasks_cpu()
        self.session.pause(open_shedders=True)
        load = self.inject(calm)
        self.phase("calm")
        found: list[tuple[float, float]] = []
        for _ in range(20):
            self._cycles(1)
            last = self.session.last
            assert last is not None
            assert last.measured is not None
            accuracy = last.measured.accuracy
            full = bool(accuracy) and all(share is not None and share > 0.9 for share in accuracy.values())
            waits = max(last.measured.lag.values(), default=0) > last.period_s * rows_per_s
            found = [*found, (self._tasks_cpu(), self._cpu_for_tasks())] if full and not waits else []
            if len(found) == CALM_CYCLES:
                self.session.resume()
                used, self.for_tasks = (median(values) for values in zip(*found, strict=True))
                self.cpu_per_row = max(used - self.idle_cpu, 0.1) / rows_per_s
                return load
        raise NotCalm("the calm load fell behind for 100 s: is something else at work on this machine?")

    def rows_for(self, times: float) -> float:
        """Rows/s of all inputs together for which the tasks would need `times` what the first task manager has."""
        return max(times * self.for_tasks - self.idle_cpu, 0.0) / self.cpu_per_row

    def _cycles(self, count: int) -> None:
        seen = 0 if self.session.last is None else self.session.last.number
        while self.session.last is None or self.session.last.number < seen + count:
            time.sleep(LOOK_S)

    def _tasks_cpu(self) -> float:
        assert self.session.last is not None
        assert self.session.last.snapshot is not None
        return sum(i.cpu for i in self.session.last.snapshot.instances)

    def _cpu_for_tasks(self) -> float:
        """Of the first task manager."""
        assert self.session.last is not None
        snapshot = self.session.last.snapshot
        assert snapshot is not None
        first = snapshot.task_managers[0]
        tasks = sum(i.cpu for i in snapshot.instances if i.task_manager == first.id)
        return 100 * first.cores - max(first.cpu - tasks, 0)


@contextmanager
def running(record: Path, topics: Mapping[str, int], **options: Any) -> Iterator[Run]:
    """A broker and one task manager of one core; the topics have these numbers of partitions."""
    record.parent.mkdir(parents=True, exist_ok=True)
    for old in record.parent.glob(f"{record.stem}*.jsonl"):
        old.unlink()
    last_core = max(os.sched_getaffinity(0))
    with Session.up(task_managers=1, cores=1, kafka_cpus={last_core}, record=record, **options) as session:
        create_topics(session.kafka, topics)
        yield Run(session, record)
