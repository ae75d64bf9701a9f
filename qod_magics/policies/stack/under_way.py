"""A disruptive action under way: when it is done, and when it has failed. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from qod_magics.core.actions import Action, AddNode, Fuse, Move, ReleaseNode, Scale, Stop, Unfuse
from qod_magics.core.freshness import is_moving
from qod_magics.core.fusion import fused_into
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Snapshot

#: Time after which an action that has had no effect counts as failed, seconds: starting a task manager takes longest.
TIMEOUT_S = 90.0
#: Time within which instances that are to be fused or parted have stopped, seconds: their successor is checked first.
BEGUN_S = 30.0
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
        """Whether all of them have had their effect."""
        return not self.not_done(snapshot)

    def not_done(self, snapshot: Snapshot) -> tuple[Action, ...]:
        """Those that have not had their effect yet; of the task managers to start, as many as have not joined."""
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
        """Whether they took too long, or what is to be fused or parted runs on as if nobody had asked for it."""
        waited_s = now_s - self.since_s
        return waited_s > TIMEOUT_S or (
            waited_s > BEGUN_S and not any(_may_have_begun(each, snapshot) for each in self.not_done(snapshot))
        )


def _may_have_begun(action: Action, snapshot: Snapshot) -> bool:
    """Whether an action that has had no effect yet may still have one. Fusing and parting begin with a stop of the
    instances that read the input; where they are known to run, it was refused, or given up."""
    if not isinstance(action, Fuse | Unfuse):
        return True
    stops = action.edge[0] if isinstance(action, Fuse) else fused_into(snapshot).get(action.edge)
    return any(each.extra.get("state") != "running" for each in snapshot.instances if each.task == stops)


def in_use(snapshot: Snapshot) -> frozenset[str]:
    """The task managers that instances may run on: all but those that stand by."""
    return frozenset(each.id for each in snapshot.task_managers if takes_instances(each))


def subject(action: Action) -> tuple[str, str]:
    """What an action is about, for its back-off: its kind, and the instance, task, stream, task manager or
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
