"""What the contract needs of a cluster, and what it looks at.

The application is always the same: `src` reads the topic, `left` and `right` read `src`, one instance each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest

from qod_magics.core.plan import Action, Edge, Move, Plan
from qod_magics.core.runtime import Count, Dials, Event, Observation, Runtime
from qod_magics.core.snapshot import Instance
from qod_magics.core.validation import check_snapshot

SOURCE, LEFT, RIGHT = "src", "left", "right"
TASKS = (SOURCE, LEFT, RIGHT)
STREAMS = ((SOURCE, LEFT), (SOURCE, RIGHT))
EDGES: tuple[Edge, ...] = ((None, SOURCE), *STREAMS)
PRIORITY = {LEFT: 2, RIGHT: 1}
MIN_ACCURACY = {LEFT: 0.2, RIGHT: 0.1}
ACCOUNTS = (SOURCE, f"{SOURCE}>{LEFT}", f"{SOURCE}>{RIGHT}")


class Harness(Protocol):
    """A cluster without a controller, with two task managers at the beginning of each test and nothing on them."""

    runtime: Runtime
    period_s: float
    look_s: float  #: between two looks
    start_s: float  #: that a start, a restart or a move takes at most, its first report included
    rate: float  #: rows/s that the cluster carries with ease

    def start(self, meanwhile: Callable[[], object]) -> None:
        """Start the application, with all dials at 1; `meanwhile` is called while that takes its time."""
        ...

    def feed(self, rate: float) -> None:
        """Send this number of rows/s from now on."""
        ...

    @property
    def sent(self) -> int:
        """Rows that have been sent to the topic."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def now(self) -> float:
        """Seconds since some instant."""
        ...

    def fail(self, instance: str) -> None:
        """Its query fails, soon and once."""
        ...

    def lose(self, task_manager: str) -> None:
        """It is killed."""
        ...

    def add_task_manager(self) -> str:
        """Another one joins: its id."""
        ...

    def remove_task_manager(self, task_manager: str) -> None:
        """It leaves in good order."""
        ...


class Watch:
    """Looks at a cluster. Whatever is promised of every observation is checked at every look."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.events: list[Event] = []
        self.first: dict[str, tuple[bool, Instance]] = {}  #: whether it was fresh when it was first seen, and what was
        self.measured_0: list[Instance] = []  #: those that were fresh with an in_rate of 0
        self.widths: dict[str, set[int]] = {task: {1} for task in TASKS}  #: numbers of instances that a task may have
        self._before: Mapping[str, Count] = {}
        self._dropped: Mapping[str, int] = {}

    def look(self) -> Observation:
        """Observe, and check what always holds."""
        seen = self.harness.runtime.observe()
        self.events += seen.events
        self.measured_0 += [i for i in seen.snapshot.instances if seen.fresh[i.id] and i.in_rate == 0.0]
        check_snapshot(seen.snapshot)
        self._check_complete(seen)
        self._check_books(seen)
        return seen

    def start(self) -> None:
        """Start the application, looking at it all the time."""
        self.harness.start(self.look)
        assert [task.id for task in self.look().snapshot.tasks] == list(TASKS)

    def wait(self, seconds: float) -> Observation:
        """Look again and again while so many seconds pass."""
        end = self.harness.now() + seconds
        seen = self.look()
        while self.harness.now() < end:
            self.harness.sleep(self.harness.look_s)
            seen = self.look()
        return seen

    def until(self, condition: Callable[[Observation], object], timeout_s: float, what: str) -> Observation:
        """Look until the condition holds; the test fails when it does not within so many seconds."""
        end = self.harness.now() + timeout_s
        while True:
            seen = self.look()
            if condition(seen):
                return seen
            if self.harness.now() >= end:
                pytest.fail(f"not within {timeout_s:g} s: {what}; events {self.events}; {seen}")
            self.harness.sleep(self.harness.look_s)

    def event(self, kind: str, timeout_s: float, **detail: Any) -> Mapping[str, Any]:
        """The first such event since the start of the test, waiting for it."""
        self.until(lambda _: self.of(kind, **detail), timeout_s, f"{kind} {detail}")
        return self.of(kind, **detail)[0]

    def of(self, kind: str, **detail: Any) -> list[Mapping[str, Any]]:
        """Details of such events so far."""
        return [
            e.detail for e in self.events if e.kind == kind and all(e.detail.get(k) == v for k, v in detail.items())
        ]

    def fresh(self) -> Observation:
        """What is seen once every instance is measured."""
        return self.until(lambda o: all(o.fresh.values()), 2 * self.harness.start_s, "all are fresh")

    def drained(self) -> Mapping[str, Count]:
        """The books once nothing more is sent and nothing waits."""
        self.harness.feed(0.0)

        def done(seen: Observation) -> bool:
            counts = seen.measured.counts
            return counts[SOURCE].arrived == self.harness.sent and not any(c.waiting for c in counts.values())

        seen = self.until(done, 2 * self.harness.start_s, f"{self.harness.sent} rows are read")
        return seen.measured.counts

    def turn(
        self,
        source: float = 1.0,
        left: float = 1.0,
        right: float = 1.0,
        accept: float = 1.0,
        *,
        move_left: str | None = None,
        why: str = "",
    ) -> None:
        """Turn the dials of the source, of the two streams and of what `left` accepts; move `left` elsewhere,
        and say `why`."""
        keep: dict[Edge, float] = {(None, SOURCE): source, (SOURCE, LEFT): left, (SOURCE, RIGHT): right}
        desired = {SOURCE: 1.0, LEFT: accept, RIGHT: 1.0}
        plan = Plan(desired, keep, actions=() if move_left is None else (Move(f"{LEFT}.1", move_left, why),))
        self.harness.runtime.apply(plan, Dials(keep, desired))

    def act(self, *actions: Action) -> None:
        """Have the cluster carry out actions, with all dials at 1."""
        open_ = Dials(dict.fromkeys(EDGES, 1.0), dict.fromkeys(TASKS, 1.0))
        self.harness.runtime.apply(Plan(open_.accept, open_.keep, actions), open_)

    def _check_complete(self, seen: Observation) -> None:
        there = {task.id for task in seen.snapshot.tasks}
        assert seen.fresh.keys() == {instance.id for instance in seen.snapshot.instances}
        assert seen.measured.accuracy.keys() == there
        assert seen.measured.lag.keys() == seen.measured.counts.keys() == seen.measured.dropped.keys()
        assert seen.measured.input_rate.keys() <= seen.measured.counts.keys()
        assert there <= set(TASKS)
        for task in there:
            mine = [i.id for i in seen.snapshot.instances if i.task == task]
            assert mine == [f"{task}.{n + 1}" for n in range(len(mine))]
            assert len(mine) in self.widths[task]
        assert {i.task for i in seen.snapshot.instances} == there
        assert {(s.source, s.target) for s in seen.snapshot.streams} == {s for s in STREAMS if s[1] in there}
        assert seen.measured.counts.keys() == {name for name in ACCOUNTS if name.rpartition(">")[2] in there}
        for instance in seen.snapshot.instances:
            self.first.setdefault(instance.id, (seen.fresh[instance.id], instance))
            missing = instance.missing
            assert seen.fresh[instance.id] == (not missing and not instance.stale), instance
            if missing:
                assert set(missing) <= {"in_rate", "cpu"}
            if instance.stale:
                assert instance.age_s >= 0
        for share in seen.measured.accuracy.values():
            assert share is None or 0 <= share <= 1

    def _check_books(self, seen: Observation) -> None:
        measured = seen.measured
        for name, count in measured.counts.items():
            assert count.arrived == count.processed + count.dropped + count.waiting + count.unreported, (name, count)
            assert min(count.processed, count.dropped, count.waiting, count.unreported) >= 0, (name, count)
            assert measured.dropped[name] >= count.dropped
            assert measured.lag[name] >= 0
            before = self._before.get(name, Count(0, 0, 0, 0))
            assert count.arrived >= before.arrived, (name, before, count)
            assert count.processed >= before.processed, (name, before, count)
            assert count.dropped >= before.dropped, (name, before, count)
            assert count.unreported >= before.unreported, (name, before, count)
            assert measured.dropped[name] >= self._dropped.get(name, 0)
        self._before, self._dropped = dict(measured.counts), dict(measured.dropped)


def instance(seen: Observation, name: str) -> Instance:
    """The instance of that name."""
    return next(i for i in seen.snapshot.instances if i.id == name)


def home(seen: Observation, name: str) -> str:
    """The task manager that an instance is on."""
    return instance(seen, name).task_manager


def managers(seen: Observation) -> list[str]:
    """The task managers there are."""
    return [manager.id for manager in seen.snapshot.task_managers]
