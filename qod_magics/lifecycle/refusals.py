"""Why a change of tasks can't be made now: what a runtime checks before it begins one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qod_magics.lifecycle.events import State

#: What an instance needs whose checkpoint may be ahead of the row accounting, as a predicate.
ACCOUNTING_DIFFERS = "has to end a batch first, which reports its offsets"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a change can't be made now."""

    why: str  #: a sentence without its period
    rule: str  #: that is broken, a short word for programs
    name: str | None = None  #: the task or instance that it is about


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """An instance of a task that is to be changed."""

    id: str
    home: str | None  #: its task manager
    state: State
    differs: bool = False  #: whether the row accounting may be elsewhere than its checkpoint


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task that is to be changed, and its instances in their order."""

    id: str
    instances: tuple[InstanceFacts, ...]
    keeps_state: bool = False
    inputs: int = 1  #: topics that it reads; 0: a source of its own, which has no offsets


def why_busy(instances: Iterable[InstanceFacts], change: str) -> Objection | None:
    """Return why one of these can't be stopped at a known offset; None if all can. `change` is what to do once they
    run, as a clause."""
    there = tuple(instances)
    busy = next((each for each in there if each.state is not State.RUNNING), None)
    if busy is not None:
        doing = "being moved" if busy.state is State.MOVING else busy.state.value
        return Objection(f"{busy.id} is {doing}: {change} once it runs", "running", busy.id)
    elsewhere = next((each for each in there if each.differs), None)
    if elsewhere is None:
        return None
    return Objection(f"{elsewhere.id} {ACCOUNTING_DIFFERS}: {change} then", "reported", elsewhere.id)


def why_not_scaled(task: TaskFacts, parallelism: object, most: int, bound: str) -> Objection | None:
    """Return why a task can't have this many instances; None if it can.

    Args:
        task: its instances may be left out where what does not run can be rescaled, too.
        parallelism: the number that is asked for.
        most: the largest one.
        bound: why there are not more, as a clause.

    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        return Objection(f"{task.id} can't have {parallelism!r} instances: it needs 1 or more", "at least 1", task.id)
    if parallelism > most:
        return Objection(f"{task.id} can't have {parallelism} instances: {bound}", "maximum", task.id)
    busy = why_busy(task.instances, f"scale {task.id}")
    if busy is not None or not task.keeps_state:
        return busy
    why = (
        f"{task.id} keeps state, which can't be assigned to other instances while it runs: declare it again with "
        f"--parallelism {parallelism} (its state begins empty), or scale the tasks before and after it"
    )
    return Objection(why, "no state", task.id)


def why_not_joined(first: TaskFacts, second: TaskFacts) -> str:
    """Return why the instances of two tasks can't become one query each, as a clause; "" if they can."""
    upper, lower = first.instances, second.instances
    if len(upper) != len(lower):
        return f"{first.id} has {len(upper)} instances, {second.id} {len(lower)}"
    for one, other in zip(upper, lower, strict=True):
        if one.home is None or one.home != other.home:
            where = "no task manager" if one.home is None else one.home
            return f"{one.id} is on {where}, {other.id} on {other.home or 'none'}: move one to the other"
    if not first.inputs:
        return f"{first.id} reads a source of its own, which has no offsets to go on from"
    if first.keeps_state and second.keeps_state:
        return f"{first.id} and {second.id} both keep state, and a checkpoint holds that of one of them"
    if second.keeps_state and first.inputs > 1:
        return f"{first.id} has several inputs, and the checkpoint of {second.id}, which keeps state, one"
    return ""
