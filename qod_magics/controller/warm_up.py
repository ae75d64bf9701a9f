"""Find which instances are warming up. Pure.

A warm-up lasts from the (re)placement of an instance until its metrics are fresh and its task reaches its minimum
accuracy, `curAc(t) >= minAc(t)`, or until a timeout (Stream Economics, section 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.dag import minimums
from qod_magics.core.plan import Plan, Scale
from qod_magics.core.runtime import Event, Observation
from qod_magics.core.snapshot import Instance, Snapshot, column, replace
from qod_magics.errors import counted

#: events that name an instance that restarts where it is
RESTARTS = frozenset({"query-restarted"})

#: the event of an action that is not carried out
REFUSED = "action-refused"

#: events that name an instance whose pending move, if any, has failed
FAILURES = frozenset({"query-failed", "query-restarted", REFUSED})

#: events of a task that was rescaled, fused with another or unfused from one: its instances restart
SCALED = frozenset({"scale", "fuse", "unfuse"})

#: share of the minimum accuracy that counts as reached: measurements of a task held at its minimum scatter around it
REACHED = 0.98


@dataclass(frozen=True, slots=True)
class Warming:
    """An instance that is warming up."""

    since: float  #: monotonic seconds
    why: str
    #: target of its pending move, or what its task is rescaled to; until that is seen, its warm-up can't end, except by
    #: the timeout
    bound_for: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A warm-up that begins."""

    instance: Instance
    why: str

    def event(self) -> Event:
        """For the recording and the log."""
        return Event("warm-up", {**_subject(self.instance), "why": self.why})


@dataclass(frozen=True, slots=True)
class Over:
    """A warm-up that ended."""

    instance: Instance
    took_s: float
    timed_out: bool
    accuracy: float  #: curAc of its task, fraction of 1
    minimum: float  #: minAc of its task, fraction of 1

    def event(self) -> Event:
        """For the recording and the log."""
        end = "timed out" if self.timed_out else "is over"
        why = f"it {end} after {self.took_s:.1f} s at accuracy {self.accuracy:.2f} (minimum {self.minimum:.2f})"
        detail = {
            "took_s": self.took_s,
            "timed_out": self.timed_out,
            "accuracy": self.accuracy,
            "minimum": self.minimum,
        }
        return Event("warm-up-over", {**_subject(self.instance), **detail, "why": why})


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The state that passes from one cycle to the next: where instances were, and which are warming up."""

    where: Mapping[str, str] = field(default_factory=dict)  #: instance -> task manager, as last seen
    warming: Mapping[str, Warming] = field(default_factory=dict)  #: by instance
    columns: tuple[Sequence[str], Sequence[str]] = ((), ())  #: `where` as columns: instances, and their task managers
    tasks: Sequence[str] = ()  #: of these instances


def mark(snapshot: Snapshot, warming: Iterable[str]) -> Snapshot:
    """`snapshot` with `warming_up` set on exactly the instances named."""
    names = frozenset(warming)
    ids, marked = column(snapshot.instances, "id"), column(snapshot.instances, "warming_up")
    if not names and True not in marked:
        return snapshot
    wrong = [i for i, (id, is_marked) in enumerate(zip(ids, marked, strict=True)) if is_marked != (id in names)]
    if not wrong:
        return snapshot
    instances = list(snapshot.instances)
    for i in wrong:
        instances[i] = replace(instances[i], warming_up=not instances[i].warming_up)
    return replace(snapshot, instances=tuple(instances))


def _restarted_and_failed(state: WarmUp, observation: Observation) -> tuple[set[Any], set[Any]]:
    """Return the instances that began once more, and those whose start or change failed, by the events."""
    instances = observation.snapshot.instances
    restarted = {e.detail.get("instance") for e in observation.events if e.kind in RESTARTS}
    failed = {e.detail.get("instance") for e in observation.events if e.kind in FAILURES}
    scaled = {e.detail.get("task") for e in observation.events if e.kind in SCALED}
    unscaled = {e.detail.get("task") for e in observation.events if e.kind == REFUSED and "task" in e.detail}
    if scaled or unscaled:
        restarted |= {i.id for i in instances if i.task in scaled and _was_running(i.id, state)}
        failed |= {i.id for i in instances if i.task in unscaled}
    return restarted, failed


def begin(state: WarmUp, observation: Observation, now: float) -> tuple[WarmUp, tuple[Begun, ...]]:
    """Begin the warm-ups of instances that are new, on another task manager than before, or restarted."""
    instances = observation.snapshot.instances
    restarted, failed = _restarted_and_failed(state, observation)
    warming: dict[str, Warming] = {}
    begun = []
    columns = column(instances, "id"), column(instances, "task_manager")
    concerned = restarted | state.warming.keys()
    if not concerned and columns == state.columns:
        return state, ()
    known, where = state.where, dict(zip(*columns, strict=True))
    for instance in instances:
        if known.get(instance.id) == instance.task_manager and instance.id not in concerned:
            continue
        why = _why(instance, known.get(instance.id), instance.id in restarted)
        if why is not None:
            warming[instance.id] = Warming(now, why)
            begun.append(Begun(instance, why))
        elif instance.id in state.warming:
            warm = state.warming[instance.id]
            warming[instance.id] = replace(warm, bound_for=None) if instance.id in failed else warm
    return WarmUp(where, warming, columns, column(instances, "task")), tuple(begun)


def settle(
    state: WarmUp,
    observation: Observation,
    now: float,
    timeout_s: float,
    accuracy: Mapping[str, float],
) -> tuple[WarmUp, tuple[Over, ...]]:
    """End the warm-ups that are over.

    An instance whose `fresh` is False, or which the runtime itself reports as warming up, stays so until the timeout.
    `accuracy`: curAc by task, as measured.
    """
    if not state.warming:
        return state, ()
    minimum = minimums(observation.snapshot)
    candidates = []
    for instance in observation.snapshot.instances:
        warm = state.warming.get(instance.id)
        if warm is None:
            continue
        ready = observation.fresh.get(instance.id, True) and not instance.warming_up and warm.bound_for is None
        timed_out = now - warm.since >= timeout_s
        if timed_out or (ready and now > warm.since):
            candidates.append((instance, now - warm.since, ready, timed_out))
    if not candidates:
        return state, ()
    over = []
    for instance, took_s, ready, timed_out in candidates:
        reached = accuracy.get(instance.task, 0.0) >= REACHED * minimum[instance.task]
        if timed_out or (ready and reached):
            good = ready and reached
            over.append(Over(instance, took_s, not good, accuracy.get(instance.task, 0.0), minimum[instance.task]))
    gone = {each.instance.id for each in over}
    warming = {name: warm for name, warm in state.warming.items() if name not in gone}
    return replace(state, warming=warming), tuple(over)


def told(state: WarmUp, plan: Plan, now: float) -> WarmUp:
    """After `plan` was applied: the instances that it moves, or whose task it rescales, are warming up at once ([C] of
    section 3)."""
    bound = {move.instance: move.to for move in plan.moves if state.where.get(move.instance) not in (None, move.to)}
    whys = {name: f"it moves to {where}" for name, where in bound.items()}
    for action in plan.actions:
        if isinstance(action, Scale):
            mine = [name for name, task in zip(state.columns[0], state.tasks, strict=True) if task == action.task]
            if len(mine) != action.parallelism:
                count = counted(action.parallelism, "instance")
                bound |= dict.fromkeys(mine, count)
                whys |= dict.fromkeys(mine, f"its task is rescaled to {count}")
    if not bound:
        return state
    begun = {
        name: Warming(now, whys[name], what)
        for name, what in bound.items()
        if name not in state.warming or state.warming[name].bound_for != what  # the same again: no new timeout
    }
    return replace(state, warming={**state.warming, **begun})


def _was_running(instance: str, state: WarmUp) -> bool:
    """Return whether it was there before, and not as one that has yet to start."""
    warm = state.warming.get(instance)
    return instance in state.where and (warm is None or warm.bound_for is not None)


def _subject(instance: Instance) -> dict[str, str]:
    return {"instance": instance.id, "task": instance.task, "task_manager": instance.task_manager}


def _why(instance: Instance, was: str | None, restarted: bool) -> str | None:
    if was is None:
        return f"it is new on {instance.task_manager}"
    if was != instance.task_manager:
        return f"it moved from {was} to {instance.task_manager}"
    return f"it was restarted on {instance.task_manager}" if restarted else None
