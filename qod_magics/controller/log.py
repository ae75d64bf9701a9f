"""The decision log: what was decided, when, about whom and why, in words with the numbers before and after.

`why` explains the newest decision about a task, an instance or a task manager.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from qod_magics.core.dag import queries_of, restrictions
from qod_magics.core.fusing import fused_streams
from qod_magics.core.plan import (
    Action,
    Edge,
    Fuse,
    Lend,
    Move,
    Plan,
    Refusal,
    ReleaseNode,
    Scale,
    SetBatch,
    Stop,
    Unfuse,
    edge_name,
)
from qod_magics.core.policy import Reasons, SheddingNothing
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task, is_suspended, nothing
from qod_magics.errors import UsageProblem, counted, listed, nearest

# --- Cycles and entries -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision, event or fault."""

    cycle: int  #: number of the cycle; 0: before the first
    at: datetime  #: UTC
    #: shedding, move, starved, warm-up, warm-up-over, a kind of event, or a fault (observe-slow, policy-failed ...)
    kind: str
    names: tuple[str, ...]  #: the tasks, instances, task managers and streams ("from>to") that it is about
    words: str
    numbers: Mapping[str, float] = field(default_factory=nothing)  #: those in the words, by name, at full precision

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} #{self.cycle} {self.kind}: {self.words}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a cycle observed and decided."""

    snapshot: Snapshot  #: as the policy saw it, with the warm-ups marked
    measured: Measured
    plan: Plan
    dials: Dials  #: the settings that carry out the plan
    policy: str  #: the name of the policy
    policy_ms: float  #: time to decide, milliseconds
    current_accuracy: Mapping[str, float]  #: by task, as measured (`core.load`)
    reasons: Reasons  #: the policy's, for the plan
    refused: tuple[Refusal, ...] = ()  #: actions of the plan that are not carried out
    by_hand: Collection[Edge] = frozenset()  #: the shedders that are held by hand

    @property
    def accepted(self) -> Plan:
        """Return the plan without the actions that are refused."""
        if not self.refused:
            return self.plan
        no = {id(refusal.action) for refusal in self.refused}
        return replace(self.plan, actions=tuple(action for action in self.plan.actions if id(action) not in no))


@dataclass(frozen=True, slots=True)
class Cycle:
    """One turn of the loop."""

    number: int  #: 1 is the first
    at: datetime  #: when it began, UTC
    period_s: float
    decision: Decision | None = None  #: None: the cycle was skipped
    applied: bool = False  #: whether the plan is known to be in force
    applied_s: float = 0.0  #: seconds from `at` until it was: observing, deciding, and setting the dials
    paused: bool = False  #: recommend only: the plan was not meant to be applied
    events: tuple[Event, ...] = ()  #: of the cluster and of the controller, since the cycle before
    skipped: str | None = None  #: why there is no decision
    annotations: Mapping[str, Any] = field(default_factory=nothing)  #: more keys for the recording, `phase` for one
    entries: tuple[Entry, ...] = ()  #: its entries in the decision log

    @property
    def snapshot(self) -> Snapshot | None:
        """Return what the policy saw; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.snapshot

    @property
    def plan(self) -> Plan | None:
        """Return what the policy decided; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.plan

    @property
    def measured(self) -> Measured | None:
        """Return what was measured beside the snapshot; None when the cycle was skipped."""
        return None if self.decision is None else self.decision.measured


class DecisionLog:
    """The last `size` entries, and what is needed to say why. Safe to use from several threads.

    It always holds the newest entry of each kind about each name, even after that has left the window.
    """

    def __init__(self, size: int = 2000) -> None:
        self._entries: deque[Entry] = deque(maxlen=size)
        self._newest: dict[str, dict[str, Entry]] = {}  #: by name and kind
        self._decided: Cycle | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        entries = self.entries()
        return f"decision log: {len(entries)} entries" + (f", the last: {entries[-1].words}" if entries else "")

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries, oldest first."""
        with self._lock:
            for entry in entries:
                self._entries.append(entry)
                for name in entry.names:
                    if name not in self._newest:
                        self._newest[name] = {}
                    self._newest[name][entry.kind] = entry

    def decided(self, cycle: Cycle) -> None:
        """Remember the last cycle with a decision, for `why`. Forget names that are gone."""
        snapshot = cycle.snapshot
        if snapshot is None:
            return
        with self._lock:
            self._decided = cycle
            if len(self._newest) > 2 * (len(snapshot.tasks) + len(snapshot.instances)) + 100:
                known = _names(cycle)
                self._newest = {name: kinds for name, kinds in self._newest.items() if name in known}

    def entries(self, name: str | None = None, *, kind: str | None = None) -> tuple[Entry, ...]:
        """Return the entries in the window, oldest first; only those about `name`, or of one `kind`, where given."""
        with self._lock:
            found = tuple(self._entries)
        return tuple(e for e in found if name in (None, *e.names) and kind in (None, e.kind))

    def newest(self, name: str) -> tuple[Entry, ...]:
        """Return the newest entry of each kind about `name`, newest first."""
        with self._lock:
            found = list(self._newest.get(name, {}).values())
        return tuple(sorted(found, key=lambda entry: entry.cycle, reverse=True))

    def why(self, name: str) -> str:
        """Return what was last decided about a stream (task), an instance or a task manager, and why, in words.

        Raises UsageProblem when there is no such name, or when nothing was decided so far.
        """
        with self._lock:
            cycle = self._decided
        if cycle is None:
            raise UsageProblem(
                f"nothing was decided so far, so there is no why for {name!r}; wait for a cycle", rule="decided"
            )
        known = _names(cycle)
        if name not in known:
            raise UsageProblem(
                f"there is no stream, instance or task manager {name!r}.{nearest(name, known)}",
                name=name,
                rule="exists",
            )
        assert cycle.decision is not None
        return why(name, cycle, cycle.decision, {entry.kind: entry for entry in reversed(self.newest(name))})


def _names(cycle: Cycle) -> frozenset[str]:
    """Return the names that `why` knows after `cycle`: tasks, instances, task managers."""
    snapshot = cycle.snapshot
    if snapshot is None:
        return frozenset()
    return frozenset(
        [each.id for each in snapshot.tasks]
        + [each.id for each in snapshot.instances]
        + [each.id for each in snapshot.task_managers]
    )


#: kinds of entries that explain the state of an instance or task manager
_TOLD = (
    *("move", "moved", "scale", "scaled", "fuse", "fused", "unfuse", "unfused", "release-node", "starved"),
    *("stop", "suspended"),
    *("task-manager-lost", "action-refused"),
    *("query-failed", "query-restarted", "query-stalled", "move-waits"),
)


def why(name: str, cycle: Cycle, decision: Decision, newest: Mapping[str, Entry]) -> str:
    """Return what `decision`, that of `cycle`, means for a task, an instance or a task manager, and why.

    `newest` holds the newest entry of each kind about `name`. Raises KeyError when the snapshot has no such name.
    """
    snapshot = decision.snapshot
    for task in snapshot.tasks:
        if task.id == name:
            parts = _task(task, cycle, decision, newest)
            break
    else:
        for instance in snapshot.instances:
            if instance.id == name:
                parts = _instance(instance, decision) + _warmed_up(newest)
                break
        else:
            parts = _manager(name, decision)
    parts += [f"{entry.kind} at {entry.at:%H:%M:%S}: {entry.words}" for k, entry in newest.items() if k in _TOLD]
    if cycle.paused:
        parts.append("the controller is paused: this is recommended, not applied")
    elif not cycle.applied:
        parts.append("the plan could not be applied: the settings from before stay in force")
    return "; ".join(parts)


def _task(task: Task, cycle: Cycle, decision: Decision, newest: Mapping[str, Entry]) -> list[str]:
    snapshot, plan = decision.snapshot, decision.plan
    desired = plan.desired[task.id]
    priority, minimum = restrictions(snapshot)[task.id]
    shed = newest.get("shedding")
    was = f"was {shed.numbers['before']:.2f} until {shed.at:%H:%M:%S}; " if shed and "before" in shed.numbers else ""
    verb = "runs" if cycle.applied else "should run"
    parts = [f"{task.id} {verb} at {desired:.2f} of its input ({was}minimum {minimum:.2f}, priority {priority})"]
    measured = decision.measured.accuracy.get(task.id)
    if measured is not None:
        parts.append(f"measured in this cycle: {measured:.2f}")
    if snapshot.downstream[task.id]:
        wanted = [f"{query.id} {plan.desired[query.id]:.2f}" for query in queries_of(snapshot, task.id)]
        parts.append(f"that is the highest of its queries ({listed(wanted)})")
    if desired < 1:
        causes = decision.reasons.task(task.id)
        parts += causes or [f"policy {decision.policy} decided so, with no task manager short of CPU"]
    elif isinstance(decision.reasons, SheddingNothing):
        parts += decision.reasons.task(task.id)
    parts += _drain(task, decision)
    parts += [_action(each, decision) for each in plan.actions if _concerns(each, task)]
    return parts


def _concerns(action: Action, task: Task) -> bool:
    """Return whether an action is about a whole task."""
    if isinstance(action, Unfuse):
        return action.edge in fused_streams(task)
    return (isinstance(action, Scale | SetBatch | Lend) and action.task == task.id) or (
        isinstance(action, Fuse) and task.id in action.edge
    )


def _drain(task: Task, decision: Decision) -> list[str]:
    lag, dials = decision.measured.lag, decision.dials
    held = [edge for edge in decision.by_hand if edge[1] == task.id and edge in dials.keep]
    if held:
        held.sort(key=edge_name)
        return [f"the shedder {edge_name(edge)} keeps {dials.keep[edge]:.2f}, by hand" for edge in held]
    if not task.upstream:
        given, kept = decision.plan.non_drop.get((None, task.id), 1.0), dials.keep.get((None, task.id), 1.0)
        waiting = lag.get(task.id, 0)
    else:
        given, kept = decision.plan.desired[task.id], dials.accept.get(task.id, 1.0)
        waiting = sum(lag.get(f"{source}>{task.id}", 0) for source in task.upstream)
    if kept >= given - 0.005 or waiting == 0:
        return []
    return [f"it has a backlog of {waiting} rows, so it keeps {kept:.2f} until that is drained"]


def _instance(instance: Instance, decision: Decision) -> list[str]:
    parts = [
        f"{instance.id} is suspended, and its rows wait"
        if is_suspended(instance)
        else f"{instance.id} runs on {instance.task_manager}, reads {instance.in_rate:.0f} rows/s with "
        f"{instance.cpu:.1f} % of a core"
    ]
    parts += [_action(each, decision) for each in decision.plan.actions if _is_about(each, instance.id)]
    if instance.warming_up:
        parts.append("it is warming up")
    parts.append(f"its task {instance.task} is to run at {decision.plan.desired[instance.task]:.2f} of its input")
    supply = decision.reasons.supply(instance.task_manager)
    return [*parts, supply] if supply else parts


def _is_about(action: Action, instance: str) -> bool:
    return isinstance(action, Move | Stop) and action.instance == instance


def _action(action: Action, decision: Decision) -> str:
    refusal = next((each for each in decision.refused if each.action is action), None)
    what = _what(action)
    because = f" ({action.why})" if action.why else ""
    return f"{what}{because}" if refusal is None else f"{what}{because}, which is refused: {refusal.why}"


def batches(gap_s: float, due_s: float | None, begin: str) -> str:
    """Return what a `SetBatch` asks of batches, as a verb and more; `begin`: the verb of those with a gap alone."""
    apart = f"{begin} at least {gap_s:g} s apart"
    if due_s is None:
        return apart
    turns = f"take turns, due {due_s:.2g} s after their oldest row came"
    return f"{turns}, and {apart}" if gap_s else turns


def _what(action: Action) -> str:
    match action:
        case Move():
            return f"it moves to {action.to}"
        case Scale():
            return f"it is to run as {counted(action.parallelism, 'instance')}"
        case SetBatch(_, seconds, _, due_s):
            return f"its batches {batches(seconds, due_s, 'begin')}"
        case Lend(_, lessor, lessee, share):
            return f"{share:.0%} of the rows of {lessor} are to be lent to {lessee}"
        case Fuse((source, target)):
            return f"{source} and {target} are to run as one query"
        case Unfuse((source, target)):
            return f"{source} and {target} are to run as two queries"
        case ReleaseNode():
            return "it is to be released"
        case _:
            return "it is to stop"


def _warmed_up(newest: Mapping[str, Entry]) -> list[str]:
    begun, over = newest.get("warm-up"), newest.get("warm-up-over")
    last = over if over is not None and (begun is None or over.cycle > begun.cycle) else begun
    return [] if last is None else [f"{last.kind} at {last.at:%H:%M:%S}: {last.words.partition(': ')[2]}"]


def _manager(name: str, decision: Decision) -> list[str]:
    snapshot = decision.snapshot
    manager = {each.id: each for each in snapshot.task_managers}[name]
    here = [instance for instance in snapshot.instances if instance.task_manager == name]
    used = sum(instance.cpu for instance in here)
    supply = decision.reasons.supply(name)
    parts = [
        f"{supply or name}; its {manager.cores:g} cores are {manager.cpu:.1f} % busy, "
        f"{used:.1f} % with its {len(here)} instances"
    ]
    if here:
        most = sorted(here, key=lambda instance: -instance.cpu)
        parts.append("it runs " + listed([f"{i.id} ({i.cpu:.1f} %)" for i in most]))
    warming = [instance.id for instance in here if instance.warming_up]
    if warming:
        parts.append(f"warming up: {listed(warming)}")
    parts += decision.reasons.task_manager(name)
    leaving = [instance.id for instance in here if instance.id in decision.plan.leaving]
    if leaving:
        parts.append(f"told to leave it: {listed(leaving)}")
    parts += [_action(each, decision) for each in decision.plan.actions if each == ReleaseNode(name)]
    if name in decision.plan.starved:
        parts.append(f"it is starved: {decision.reasons.starved(name)}")
    return parts
