"""Conditions that somebody should hear about: begun in one cycle, over in a later one. Pure.

`ALARMS` is the one list of kinds. Hooks are called with them, `alerts.yaml` has a rule for each, and `Session.run` ends
with some of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from qod_magics.controller.log import Cycle
from qod_magics.controller.status import duration
from qod_magics.core.plan import Stop
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Snapshot, is_given_up, is_suspended, nothing

STARVED, GIVEN_UP, TARGET_MISSED = "starved", "given-up", "target-missed"
SUSPENDED, ROWS_DELETED, SILENT = "suspended", "rows-deleted", "controller-silent"

#: The kinds of alarms, and what each says.
ALARMS: Mapping[str, str] = MappingProxyType(
    {
        STARVED: "the minimum accuracies of the queries on a task manager don't fit on it",
        GIVEN_UP: "an instance of a query has failed too often and starts again only when asked to",
        SUSPENDED: "a plan has stopped an instance of a query, as it has no place; its rows wait",
        TARGET_MISSED: "the 95th percentile of a query's latency has exceeded its target for some cycles",
        ROWS_DELETED: "a topic's retention deleted rows before they were read",
        SILENT: "the controller has decided nothing for long",
    }
)
#: Cycles in a row in which a target must be missed until the alarm begins, and met until it is over.
MISSES = 3
#: The controller is silent once it has decided nothing for this many periods and for this many seconds.
SILENT_PERIODS, SILENT_S = 6.0, 30.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition that has begun, or is over."""

    kind: str  #: one of `ALARMS`
    subject: str  #: the task manager, instance, query, topic, or "controller"
    words: str  #: why, with the numbers; one line
    at: datetime  #: UTC
    over: bool = False  #: whether it has ended; `rows-deleted` is never over
    detail: Mapping[str, Any] = field(default_factory=nothing)  #: JSON values

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as webhooks receive it."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "words": self.words,
            "at": self.at.isoformat(),
            "over": self.over,
            "detail": dict(self.detail),
        }

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} {self.kind}{' is over' if self.over else ''}: {self.words}"


@dataclass(frozen=True, slots=True)
class Open:
    """An alarm that is not over."""

    alarm: Alarm
    since: float  #: seconds of the clock given


class Alarms:
    """Finds alarms in cycles, each once when it begins and once when it is over.

    At any given time `open` holds the alarms that have begun and are not over. All methods are safe from any thread.

    Args:
        now: when the session begins, seconds of any one clock, which all methods are given.

    """

    def __init__(self, now: float) -> None:
        self._decided = now
        self._period_s = 0.0
        self._open: Mapping[tuple[str, str], Open] = {}
        self._missed: Mapping[str, int] = {}  #: by query: cycles in a row with a missed target; below 0: with a met one
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"alarms: {', '.join(f'{kind} {subject}' for kind, subject in self.open) or 'none'}"

    @property
    def open(self) -> Mapping[tuple[str, str], Open]:
        """Return the open alarms, by kind and subject."""
        return self._open

    def take(self, cycle: Cycle, now: float) -> tuple[Alarm, ...]:
        """Return the alarms that begin or are over with a cycle. One without a decision tells nothing but its events:
        what was open before it stays open."""
        with self._lock:
            told = [alarm for event in cycle.events if (alarm := _deleted(event, cycle.at)) is not None]
            self._period_s = cycle.period_s
            if cycle.decision is None:
                return tuple(told)
            self._decided = now
            found = {(SILENT, "controller"): None} | {key: None for key in self._open if key[0] != SILENT}
            present = {(each.kind, each.subject): each for each in self._present(cycle)}
            return (*told, *self._change({**found, **present}, cycle.at, now))

    def tick(self, now: float, at: datetime) -> tuple[Alarm, ...]:
        """Return the alarm that begins if the controller has decided nothing for long."""
        with self._lock:
            silent_s = now - self._decided
            if silent_s <= max(SILENT_PERIODS * self._period_s, SILENT_S):
                return ()
            words = f"the controller has decided nothing for {silent_s:.0f} s"
            return self._change({(SILENT, "controller"): Alarm(SILENT, "controller", words, at)}, at, now)

    def _change(self, found: Mapping[tuple[str, str], Alarm | None], at: datetime, now: float) -> tuple[Alarm, ...]:
        """Open what is found and close what is not (None); returns the news."""
        news, after = [], dict(self._open)
        for key, alarm in found.items():
            before = after.get(key)
            if alarm is None and before is not None:
                del after[key]
                news.append(replace(before.alarm, at=at, over=True))
            elif alarm is not None:
                after[key] = Open(alarm, before.since if before is not None else now)
                news += [alarm] if before is None else []
        self._open = after
        return tuple(news)

    def _present(self, cycle: Cycle) -> Iterator[Alarm]:
        decision, snapshot = cycle.decision, cycle.snapshot
        assert decision is not None
        assert snapshot is not None
        for name in decision.plan.starved:
            yield Alarm(STARVED, name, decision.reasons.starved(name), cycle.at, detail=_numbers(cycle, name))
        for instance in snapshot.instances:
            if is_given_up(instance):
                yield self._given_up(cycle, instance.id, instance.task)
            elif is_suspended(instance):
                yield self._suspended(cycle, instance.id, instance.task)
        yield from self._targets(snapshot, cycle.at)

    def _given_up(self, cycle: Cycle, instance: str, task: str) -> Alarm:
        """Return the alarm of an instance that was given up, with the reason in its event."""
        before = self._open.get((GIVEN_UP, instance))
        told = [e for e in cycle.events if e.detail.get("gave_up") and e.detail.get("instance") == instance]
        if not told and before is not None:
            return before.alarm
        why = str(told[-1].detail.get("why", "")) if told else ""
        words = f"{instance} was given up{f': {why}' if why else ''}"
        return Alarm(GIVEN_UP, instance, words, cycle.at, detail={"query": task, "why": why})

    def _suspended(self, cycle: Cycle, instance: str, task: str) -> Alarm:
        """Return the alarm of an instance that a plan has stopped, with the reason in the event that told of it, or in
        the plan of now."""
        before = self._open.get((SUSPENDED, instance))
        told = [e.detail.get("why") for e in cycle.events if e.kind == "stop" and e.detail.get("instance") == instance]
        if not told and before is not None:
            return before.alarm
        actions = () if cycle.decision is None else cycle.decision.plan.actions
        told = told or [each.why for each in actions if isinstance(each, Stop) and each.instance == instance]
        why = str(told[-1] or "") if told else ""
        words = f"{instance} is suspended, and its rows wait{f': {why}' if why else ''}"
        return Alarm(SUSPENDED, instance, words, cycle.at, detail={"query": task, "why": why})

    def _targets(self, snapshot: Snapshot, at: datetime) -> Iterator[Alarm]:
        counts: dict[str, int] = {}
        for task in snapshot.tasks:
            p95, target = task.latency_p95_s, task.max_latency_s
            if target is None:
                continue
            open_ = (TARGET_MISSED, task.id) in self._open
            before = self._missed.get(task.id, 0)
            if p95 is None:
                counts[task.id] = before
            elif p95 > target:
                counts[task.id] = max(before, 0) + 1
            else:
                counts[task.id] = min(before, 0) - 1
            if counts[task.id] >= MISSES or (open_ and counts[task.id] > -MISSES):
                shown = "unknown" if p95 is None else duration(p95)
                words = (
                    f"95 % of the rows of {task.id} are in a result within {shown}; its target is {duration(target)}"
                )
                yield Alarm(TARGET_MISSED, task.id, words, at, detail={"p95_s": p95, "target_s": target})
        self._missed = counts


def _numbers(cycle: Cycle, task_manager: str) -> dict[str, Any]:
    """Return the queries below their minimum with an instance on this task manager: what they get."""
    decision, snapshot = cycle.decision, cycle.snapshot
    assert decision is not None
    assert snapshot is not None
    here = {instance.task for instance in snapshot.instances if instance.task_manager == task_manager}
    minimum = {t.id: t.min_accuracy for t in snapshot.tasks if t.id in here and t.min_accuracy is not None}
    return {"minimum": minimum, "planned": {t: d for t in minimum if (d := decision.plan.desired.get(t)) is not None}}


def _deleted(event: Event, at: datetime) -> Alarm | None:
    if event.kind != ROWS_DELETED:
        return None
    return Alarm(ROWS_DELETED, str(event.detail.get("topic")), str(event.detail.get("why")), at, detail=event.detail)
