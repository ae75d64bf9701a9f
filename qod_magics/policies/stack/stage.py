"""Stages of a stack: which levers they own, and what they see of a cycle (demand, pressure). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from qod_magics.core.dag import Dag
from qod_magics.core.fusing import CORE, fused_into
from qod_magics.core.load import load_of
from qod_magics.core.plan import (
    Action,
    AddNode,
    Fuse,
    Lend,
    Move,
    Pair,
    Plan,
    ReleaseNode,
    Scale,
    SetBatch,
    Stop,
    Unfuse,
)
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot, Task, column, is_down, is_moving
from qod_magics.policies.henge.jobs import maximum_utility
from qod_magics.policies.henge.utility import (
    GuardState,
    Intervention,
    Parameters,
    Utility,
    Verdict,
    guard,
    latency_utility,
)
from qod_magics.policies.stream_economics.requirements import known_requirements


class Lever(Enum):
    """What a stage may change. Each has one owner in a stack."""

    SHEDDING = "shedding"
    BATCHES = "batches"
    PLACEMENT = "placement"
    FUSION = "fusion"
    PARALLELISM = "parallelism"
    NODES = "nodes"
    LENDING = "lending"


LEVER_OF: Mapping[type[Action], Lever] = {
    Move: Lever.PLACEMENT,
    Stop: Lever.PLACEMENT,
    SetBatch: Lever.BATCHES,
    Fuse: Lever.FUSION,
    Unfuse: Lever.FUSION,
    Scale: Lever.PARALLELISM,
    AddNode: Lever.NODES,
    ReleaseNode: Lever.NODES,
    Lend: Lever.LENDING,
}


@dataclass(frozen=True, slots=True)
class Demand:
    """CPU in % of one core; instances and task managers by their positions in the snapshot."""

    instance: Sequence[float]  #: needed at accuracy 1 and the present input rates; above 100: more than one core
    home: Sequence[int]  #: by instance: its task manager
    available: Sequence[float]  #: by task manager: CPU for its tasks; 0 where it stands by
    hosted: Sequence[Sequence[int]]  #: by task manager: its instances
    needed: Sequence[float]  #: by task manager: the sum over its instances

    @classmethod
    def of(cls, snapshot: Snapshot) -> Demand:
        """Return the demand by learned costs where the snapshot has them, else in proportion to accuracy (thesis, Eq.
        3.9). Trust, which compares costs with backlogs, corrects the CPU available; it takes none where an instance
        needs more than a core, whose backlog says nothing of the other cores."""
        topology = Dag.of(snapshot).topology
        load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
        by_task = [base + cost for base, cost in zip(required.base, required.costs(), strict=True)]
        instance = [0.0] * len(load.task_of)
        for i in load.needing:
            instance[i] = by_task[load.task_of[i]]
        trust = [manager.trust or 1.0 for manager in snapshot.task_managers]
        for i, home in enumerate(load.manager_of):
            if instance[i] > CORE:
                trust[home] = max(trust[home], 1.0)
        available = [cpu * t for cpu, t in zip(required.available, trust, strict=True)]
        hosted: list[list[int]] = [[] for _ in snapshot.task_managers]
        for i, home in enumerate(load.manager_of):
            hosted[home].append(i)
        for m, manager in enumerate(snapshot.task_managers):
            if not hosted[m] and not takes_instances(manager):
                available[m] = 0.0
        needed = [sum(instance[i] for i in here) for here in hosted]
        return cls(instance, load.manager_of, available, hosted, needed)

    def by_instance(self, snapshot: Snapshot) -> dict[str, float]:
        """Return `instance` by the ids of the snapshot that it was measured in."""
        return dict(zip(column(snapshot.instances, "id"), self.instance, strict=True))

    def over(self, manager: int) -> float:
        """Return the CPU that its instances need beyond what it has; 0 where all fit."""
        return max(self.needed[manager] - self.available[manager], 0.0)

    def room(self, manager: int) -> float:
        """Return the CPU left there at full accuracy; 0 where none is."""
        return max(self.available[manager] - self.needed[manager], 0.0)

    @property
    def short(self) -> float:
        """Return CPU that all task managers lack together."""
        return sum(map(self.over, range(len(self.available))))

    @property
    def beyond(self) -> float:
        """Return CPU that task managers lack beyond the room on the others: no move gains it. 0 where all would fit."""
        return max(self.short - sum(map(self.room, range(len(self.available)))), 0.0)

    def holds_without(self, managers: Collection[int], headroom: float) -> bool:
        """Return whether all but these task managers have the CPU, and `headroom` of it to spare."""
        left = sum(cpu for m, cpu in enumerate(self.available) if m not in managers)
        return sum(self.needed) <= (1.0 - headroom) * left

    def is_roomy(self, headroom: float) -> bool:
        """Return whether the largest task manager could be missed: the others have the CPU, and `headroom` of it to
        spare."""
        most = sum(self.available) - max(self.available, default=0.0)
        return len(self.available) > 1 and sum(self.needed) <= (1.0 - headroom) * most


#: Accuracy from which on a query counts as whole.
WHOLE = 0.98


@dataclass(frozen=True, slots=True)
class Pressure:
    """A query that is shed, or late."""

    query: str
    since_s: float  #: on the clock of the snapshots
    accuracy: float  #: planned, fraction of 1
    latency_s: float | None  #: the 95th percentile; None: unmeasured, or within its target

    @property
    def words(self) -> str:
        """Return the pressure as one clause."""
        late = "" if self.latency_s is None else f", late ({self.latency_s:.1f} s)"
        return f"{self.query} at {self.accuracy:.2f}{late}"


def pressures(snapshot: Snapshot, plan: Plan, now_s: float, before: Mapping[str, Pressure]) -> Mapping[str, Pressure]:
    """Return the queries under pressure, by name; one that was so `before` keeps its beginning. One that has failed is
    late for another reason than a lack of CPU."""
    found = {}
    failed = {instance.task for instance in snapshot.instances if is_down(instance)}
    for task in snapshot.tasks:
        if snapshot.downstream[task.id] or task.id in failed:
            continue
        accuracy, late_s = plan.desired[task.id], exceeding_latency(task)
        if accuracy >= WHOLE and late_s is None:
            continue
        known = before.get(task.id)
        found[task.id] = Pressure(task.id, now_s if known is None else known.since_s, accuracy, late_s)
    return found


def exceeding_latency(task: Task) -> float | None:
    """Return the latency of a query beyond its target, seconds. None: within the target, or without one."""
    target = task.max_latency_s
    return latency(task) if target is not None and latency(task) > target else None


def latency(task: Task) -> float:
    """Return the latency of a query, seconds: the 95th percentile, or the age of its oldest row where that is greater;
    0 where neither is measured."""
    return max(task.latency_p95_s or 0.0, task.oldest_s or 0.0)


@dataclass(frozen=True, slots=True)
class View:
    """The input of a stage."""

    snapshot: Snapshot
    now_s: float  #: on the clock of the snapshots
    plan: Plan  #: of the shedding stage, for this snapshot
    demand: Demand
    pressures: Mapping[str, Pressure]  #: queries that are shed or late, by name
    eased_since_s: float | None  #: since when no query is under pressure; None while one is
    roomy_since_s: float | None = None  #: since when one task manager fewer would have the CPU; None while it would not
    together: Mapping[Pair, float] = field(default_factory=dict)  #: since when neighbours could be one query
    proposed: tuple[Action, ...] = ()  #: by the stages before it, for this snapshot
    refused: Collection[str] = ()  #: subjects of actions that failed or did not help, and are left alone for a while

    def pressed_s(self) -> float:
        """Return how long the query that has been under pressure longest is so, seconds; 0 without one."""
        return max((self.now_s - each.since_s for each in self.pressures.values()), default=0.0)

    def eased_s(self) -> float:
        """Return how long no query has been under pressure, seconds."""
        return 0.0 if self.eased_since_s is None else self.now_s - self.eased_since_s

    def roomy_s(self) -> float:
        """Return how long that has been so while one task manager fewer would have had the CPU, too, seconds."""
        return 0.0 if self.roomy_since_s is None else min(self.now_s - self.roomy_since_s, self.eased_s())


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer of a stage: actions that are carried out together, and one clause that says why, or why none."""

    actions: tuple[Action, ...] = ()
    note: str = ""


class Stage(Protocol):
    """A part of a policy that pulls some of the levers."""

    name: str
    owns: frozenset[Lever]

    def propose(self, view: View) -> Proposal:
        """Return the proposal for a view. Pure: the same view always gives the same proposal."""
        ...


# --- Actions under way ------------------------------------------------------------------------------------------------
# Disruptive actions under way: when they are done, when they have failed, and how they are judged. Pure.

#: Time after which an action that has had no effect counts as failed, seconds: starting a task manager takes longest.
TIMEOUT_S = 90.0
#: Time within which instances that are to be fused or unfused have stopped, seconds: their successor is checked first.
_BEGUN_S = 30.0
#: Time for which a failed action is not tried again, seconds.
BACK_OFF_S = 120.0


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Actions of one stage that were asked for together."""

    stage: str
    actions: tuple[Action, ...]
    since_s: float  #: on the clock of the snapshots
    managers: frozenset[str]  #: the task managers in use at that time
    for_minimums: bool = False  #: moves of Stream Economics, which go on while such are under way

    @property
    def disturbs(self) -> bool:
        """Return whether what runs is disturbed, so that measurements take a while to settle."""
        return not all(isinstance(action, AddNode | ReleaseNode) for action in self.actions)

    def is_done(self, snapshot: Snapshot) -> bool:
        """Return whether all of them have had their effect."""
        return not self.not_done(snapshot)

    def not_done(self, snapshot: Snapshot) -> tuple[Action, ...]:
        """Return the actions without effect so far; of the task managers to start, as many as have not joined."""
        instances = {each.id: each for each in snapshot.instances}
        width = Counter(each.task for each in snapshot.instances)
        there = {each.id for each in snapshot.task_managers}
        joined = len(in_use(snapshot) - self.managers)
        found: list[Action] = []
        for action in self.actions:
            match action:
                case Move(instance, to):
                    moved = instances.get(instance)
                    done = moved is None or (moved.task_manager == to and not is_moving(moved))
                case Scale(task, parallelism):
                    done = width[task] == parallelism
                case AddNode():
                    joined -= 1
                    done = joined >= 0
                case ReleaseNode(id):
                    done = id not in there
                case Fuse(edge):
                    done = not any((each.source, each.target) == edge for each in snapshot.streams)
                case Unfuse(edge):
                    done = edge not in fused_into(snapshot)
                case _:
                    done = True
            if not done:
                found.append(action)
        return tuple(found)

    def has_failed(self, snapshot: Snapshot, now_s: float) -> bool:
        """Return whether they took too long, or what is to be fused or unfused runs on as if not asked for."""
        waited_s = now_s - self.since_s
        return waited_s > TIMEOUT_S or (
            waited_s > _BEGUN_S and not any(_may_have_begun(each, snapshot) for each in self.not_done(snapshot))
        )


def _may_have_begun(action: Action, snapshot: Snapshot) -> bool:
    """Return whether an action that has had no effect yet may still have one. Fuse and unfuse begin with a stop of
    the instances that read the input; where they are known to run, it was refused, or given up."""
    if not isinstance(action, Fuse | Unfuse):
        return True
    stops = action.edge[0] if isinstance(action, Fuse) else fused_into(snapshot).get(action.edge)
    return any(each.state != "running" for each in snapshot.instances if each.task == stops)


def in_use(snapshot: Snapshot) -> frozenset[str]:
    """Return the task managers that instances may run on: all but those that stand by."""
    return frozenset(each.id for each in snapshot.task_managers if takes_instances(each))


def subject(action: Action) -> tuple[str, str]:
    """Return what an action is about, for its back-off: its kind, and the instance, task, stream, task manager or
    kind of one."""
    match action:
        case Move(instance, to):
            return "move", f"{instance} to {to}"
        case Scale(task, parallelism):
            return "scale", f"{task} to {parallelism}"
        case AddNode(kind):
            return "add-node", kind
        case ReleaseNode(id):
            return "release-node", id
        case Fuse((source, target)):
            return "fuse", f"{source}>{target}"
        case Unfuse((source, target)):
            return "unfuse", f"{source}>{target}"
        case Stop(instance):
            return "stop", instance
        case Lend(_, instance, to):
            return "lend", f"{instance} to {to}"
        case _:
            return type(action).__name__, repr(action)


#: Ratio by which the load may differ from that before an action for the action to be judged.
_SAME_LOAD = 0.2
#: A stack lets actions settle by itself.
PARAMETERS = Parameters(settle_s=0.0, skip_s=300.0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What the judge knows between cycles."""

    guard: GuardState = field(default_factory=GuardState)
    load: float = 0.0  #: CPU needed at full accuracy before the action that is to be judged, % of one core


@dataclass(frozen=True, slots=True)
class Judge:
    """Moves and rescales are judged by the utility of all queries once they have settled. One that did harm is taken
    back; one that did not help is not proposed again for a while. Where the load has changed meanwhile, or an instance
    or a task manager has gone so that nothing can be taken back, nothing is judged. Task managers that join or leave
    are not judged: by themselves they change no query."""

    parameters: Parameters = PARAMETERS

    name = "judge"

    def weighed(self, trial: Trial, view: View, actions: Sequence[Action]) -> tuple[Verdict | None, Trial]:
        """Return the verdict on actions of a stage, or on those before. None: they are not for the judge. Call it only
        when the last action has settled; `actions` is empty where none is proposed."""
        judged = tuple(actions) if all(isinstance(action, Move | Scale) for action in actions) else ()
        load = sum(view.demand.needed)
        known = trial.guard
        if known.trial is not None and (
            abs(load - trial.load) > _SAME_LOAD * trial.load
            or not _can_be_taken_back(known.trial.proposal.inverse, view.snapshot)
        ):
            known = replace(known, trial=None)
        proposal = None
        if judged:
            names = ", ".join(" ".join(subject(action)) for action in judged)
            proposal = Intervention(names, judged, _inverse(judged, view.snapshot))
        verdict, known = guard(known, view.now_s, utilities(view), proposal, self.parameters)
        trial = Trial(known, load if known.trial is not trial.guard.trial else trial.load)
        return (verdict if judged or verdict.actions else None), trial


def utilities(view: View) -> Mapping[str, Utility]:
    """Return by query its maximum utility times its planned accuracy, and times target / latency where it is late
    (Henge, equations 1 and 2)."""
    found = {}
    for task in view.snapshot.tasks:
        if view.snapshot.downstream[task.id]:
            continue
        most = maximum_utility(task)
        current = most * view.plan.desired[task.id]
        target = task.max_latency_s
        found[task.id] = Utility(latency_utility(latency(task), target, current) if target else current, most)
    return found


def _can_be_taken_back(inverse: Sequence[Action], snapshot: Snapshot) -> bool:
    """Return whether all that these actions name is there still."""
    instances, tasks = ({each.id for each in rows} for rows in (snapshot.instances, snapshot.tasks))
    managers = in_use(snapshot)
    return all(
        (action.instance in instances and action.to in managers)
        if isinstance(action, Move)
        else isinstance(action, Scale) and action.task in tasks
        for action in inverse
    )


def _inverse(actions: Sequence[Action], snapshot: Snapshot) -> tuple[Action, ...]:
    """Return what undoes moves and rescales."""
    homes = {instance.id: instance.task_manager for instance in snapshot.instances}
    undone: list[Action] = []
    for action in actions:
        why = f"{' '.join(subject(action))} did harm"
        if isinstance(action, Move):
            undone.append(Move(action.instance, homes[action.instance], why))
        elif isinstance(action, Scale):
            width = sum(instance.task == action.task for instance in snapshot.instances)
            undone.append(Scale(action.task, width, (), why))
    return tuple(undone)
