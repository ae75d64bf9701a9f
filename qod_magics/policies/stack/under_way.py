"""Disruptive actions under way: when they are done, when they have failed, and how they are judged. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qod_magics.core.freshness import is_moving
from qod_magics.core.fusion import fused_into
from qod_magics.core.plan import Action, AddNode, Fuse, Move, ReleaseNode, Scale, Stop, Unfuse
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.henge.guard import GuardState, Proposal, Verdict, guard
from qod_magics.policies.henge.jobs import maximum_utility
from qod_magics.policies.henge.utility import Parameters, Utility, latency_utility
from qod_magics.policies.stack.stage import View, latency

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
        """Whether what runs is disturbed, so that measurements take a while to settle."""
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
            proposal = Proposal(names, judged, _inverse(judged, view.snapshot))
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
