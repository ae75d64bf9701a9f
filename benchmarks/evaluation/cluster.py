"""A cluster for one run of the evaluation, calibrated so that loads can be given as multiples of its capacity."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from qod_magics.core.policy import Policy
from qod_magics.core.snapshot import Instance, Snapshot
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import PAPER_POLICY
from qod_magics.session.session import Session

BUSY = 4.0  #: times the calm load, while the cost of a row is measured
BUSY_CYCLES = 8
MEASURED_CYCLES = 3  #: the last ones, whose median is taken
STEADY_CYCLES = 3
DRAIN_CYCLES = 30
LOOK_S = 0.25

Say = Callable[[str], None]


class NotCalm(RuntimeError):
    """The calm load had a backlog for too long: something else uses the machine."""


@dataclass
class Run:
    """A running session, with the calibration of its loads.

    The task managers have a core each, the first ones of the machine; broker and injector stay on the last.
    """

    session: Session
    record: Path
    idle_cpu: float = 0.0  #: of the tasks without input, % of one core
    cpu_per_row: float = 0.0  #: % of one core for a row/s of all inputs together
    for_tasks: float = 0.0  #: CPU for tasks on the first task manager in calm, % of one core
    injected: list[Path] = field(default_factory=list)  #: records of the injectors

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
        """Name the phase of the recording's lines from now on."""
        self.session.annotate(phase=name)

    def decide_by(self, policy: Policy) -> None:
        """Have this policy decide, and place what is started from now on."""
        controller = self.session.controller
        self.session.thread.ask(lambda: setattr(controller, "policy", policy), "the policy is not set")

    def place(self, homes: Mapping[str, str]) -> None:
        """Move these instances to these task managers, where they are not yet."""
        runtime = self.session.runtime
        for instance, home in homes.items():
            if runtime.instances[instance].task_manager is not runtime.task_managers[home]:
                self.session.move(instance, home)

    def inject(self, scenario: Mapping[str, Any]) -> Injector:
        """Send a scenario in addition to those running."""
        path = self.record.with_suffix(f".load{len(self.injected) + 1}.jsonl")
        self.injected.append(path)
        return self.session.inject(scenario, cpus={self.last_core}, record=path)

    def wait(self, seconds: float) -> None:
        """Let the cluster run for `seconds`."""
        time.sleep(seconds)

    def cycles(self, count: int) -> None:
        """Wait until `count` more cycles are over."""
        seen = 0 if self.session.last is None else self.session.last.number
        while self.session.last is None or self.session.last.number < seen + count:
            time.sleep(LOOK_S)

    def until_settled(self, at_least_s: float, quiet_s: float = 30.0, at_most_s: float = 180.0) -> bool:
        """As `Session.until_settled`, without a notebook."""
        import asyncio

        return asyncio.run(self.session.until_settled(at_least_s, quiet_s, at_most_s, show=lambda _: None))

    def until_steady(self, at_most_s: float, near: float = 0.05) -> bool:
        """Wait until no query's planned accuracy has changed by more than `near` for `STEADY_CYCLES`; False: timed
        out."""
        end = time.monotonic() + at_most_s
        before: Mapping[str, float] = {}
        same = 0
        while same < STEADY_CYCLES and time.monotonic() < end:
            self.cycles(1)
            assert self.session.last is not None
            plan = self.session.last.plan
            desired = dict(plan.desired) if plan is not None else {}
            same = same + 1 if desired and all(abs(a - before.get(q, 2.0)) <= near for q, a in desired.items()) else 0
            before = desired
        return same == STEADY_CYCLES

    def calibrate(self, at: Callable[[float], Mapping[str, Any]], calm: float) -> Injector:
        """Measure the CPU of idle tasks; then of busy ones, whose code is warm and whose idle CPU matters little; then
        what else the first task manager uses, under a calm load, which keeps running. Nothing is shed meanwhile.
        `at` makes the scenario for a rate, rows/s of all inputs together; `calm` is the rate of the calm load.

        Raises:
            NotCalm: the backlog did not drain within 150 s of calm load.

        """
        self.cycles(2)
        idle = self._by_task(lambda i: i.cpu)
        self.idle_cpu = sum(idle.values())
        self.session.pause(open_shedders=True)
        busy = self.inject(at(BUSY * calm))
        self.cycles(BUSY_CYCLES - MEASURED_CYCLES)
        found = []
        for _ in range(MEASURED_CYCLES):
            self.cycles(1)
            found.append(self._row_cpu(idle))
        self.cpu_per_row = median(found)
        busy.stop()
        for _ in range(DRAIN_CYCLES):  # under the calm load, draining would take a slow machine several times as long
            if self._waiting() <= calm:
                break
            self.cycles(1)
        load = self.inject(at(calm))
        self.phase("calm")
        seen: list[float] = []
        for _ in range(30):
            self.cycles(1)
            last = self.session.last
            assert last is not None
            waits = self._waiting() > last.period_s * calm
            seen = [] if waits else [*seen, self._cpu_for_tasks()]
            if len(seen) == MEASURED_CYCLES:
                self.for_tasks = median(seen)
                self.session.resume()
                return load
        raise NotCalm("the backlog did not drain within 150 s of calm load: is something else running on this machine?")

    def rows_for(self, times: float) -> float:
        """Rows/s of all inputs together that need `times` the first task manager's capacity for tasks."""
        return max(times * self.for_tasks - self.idle_cpu, 0.0) / self.cpu_per_row

    def _waiting(self) -> float:
        """The largest lag, rows; infinite if unknown."""
        last = self.session.last
        return inf if last is None or last.measured is None else max(last.measured.lag.values(), default=0)

    def _snapshot(self) -> Snapshot:
        assert self.session.last is not None
        assert self.session.last.snapshot is not None
        return self.session.last.snapshot

    def _by_task(self, what: Callable[[Instance], float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for instance in self._snapshot().instances:
            found[instance.task] = found.get(instance.task, 0.0) + what(instance)
        return found

    def _row_cpu(self, idle: Mapping[str, float]) -> float:
        """% of one core for a row/s of all inputs together: each task's CPU per row read, times the share of rows it
        reads: a source those of its topic (topics have equal rates), a query all, even directly from the topics."""
        used, rows = self._by_task(lambda i: i.cpu), self._by_task(lambda i: i.in_rate)
        sources = [task.id for task in self._snapshot().tasks if not task.upstream and task.priority is None]
        share = {task: 1 / len(sources) if task in sources else 1.0 for task in used}
        return sum(
            share[task] * max(used[task] - idle.get(task, 0.0), 0.0) / rows[task] for task in used if rows[task] > 0
        )

    def _cpu_for_tasks(self) -> float:
        """The first task manager's CPU without other work, % of one core."""
        snapshot = self._snapshot()
        first = snapshot.task_managers[0]
        tasks = sum(i.cpu for i in snapshot.instances if i.task_manager == first.id)
        return 100 * first.cores - max(first.cpu - tasks, 0)


def until(done: Callable[[], bool], what: str, patience_s: float = 60.0) -> None:
    """Wait until `done`. Raises TimeoutError."""
    deadline = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience_s:g} s")
        time.sleep(LOOK_S)


@contextmanager
def running(record: Path, topics: Mapping[str, int], **options: Any) -> Iterator[Run]:
    """A broker and task managers of one core each, one unless `task_managers` says otherwise; `topics`: number of
    partitions by name. The policy is the paper's unless `policy_name` is another."""
    record.parent.mkdir(parents=True, exist_ok=True)
    for old in record.parent.glob(f"{record.stem}*.jsonl"):
        old.unlink()
    last_core = max(os.sched_getaffinity(0))
    options = {"policy_name": PAPER_POLICY, "task_managers": 1, **options}
    with Session.up(cores=1, kafka_cpus={last_core}, record=record, warm=True, **options) as session:
        create_topics(session.kafka, topics)
        yield Run(session, record)
