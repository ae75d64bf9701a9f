"""Decide by more than the loads of a snapshot when to shed and move: by nothing, as in the paper, or by backlogs. Pure.

With backlogs as evidence, no load is shed without a backlog, and instances that have just moved have a cool-down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import isfinite
from typing import Any

import msgspec

from qod_magics.core.dag import Topology
from qod_magics.core.load import Load
from qod_magics.core.plan import Limits
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, column, is_moving, is_running, replace
from qod_magics.policies.stream_economics.evidence.elsewhere import limited, limited_elsewhere
from qod_magics.policies.stream_economics.evidence.limits import REST_S, WAITING_S, rest_s
from qod_magics.policies.stream_economics.evidence.regimes import Trust
from qod_magics.policies.stream_economics.evidence.trust import Trusts, trusted
from qod_magics.policies.stream_economics.placing import with_rests
from qod_magics.policies.stream_economics.reach import Situation
from qod_magics.policies.stream_economics.requirements import Requirements

#: CPU assumed for a task manager that runs open, % of one core: no limit.
PLENTY = 1e9
#: Multiple of the planned rate above which to replan early: the cost of a rate is known, so its plan need not wait for
#: the rows to be read.
REACT_ABOVE = 1.4


class Evidence:
    """Hooks with which evidence may change a cycle's decision. Those of this class change nothing."""

    def __repr__(self) -> str:
        return type(self).__name__

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """Return `snapshot` with learned values in its optional fields, and the memory for the next call; None at
        first."""
        return snapshot, memory

    def kept(self, memory: Any) -> Any:
        """Return what of the memory outlives the process, as plain JSON values."""
        return None

    def recalled(self, kept: Any, memory: Any) -> Any:
        """Return the memory completed by what `kept` returned; ValueError: that is of another form."""
        return memory

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot to decide on."""
        return snapshot

    def requirements(self, required: Requirements, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """Return the CPU that tasks need and that task managers have; `required` is what costs alone say."""
        return required

    def is_open(self, snapshot: Snapshot) -> Sequence[bool]:
        """Return by task manager whether its CPU is not limited yet, so that `requirements` do not apply to it."""
        return [False] * len(snapshot.task_managers)

    #: Whether a warm-up excludes all instances of its task manager from sharing, or only the one that warms up.
    warm_ups_exclude_all = True

    def excluded_by_warm_ups(self, situation: Situation) -> Set[int]:
        """Return the instances (positions) that a warm-up excludes from sharing: all on its task manager (section
        3)."""
        warming, homes = situation.load.warming, situation.load.manager_of
        return {i for i, home in enumerate(homes) if warming[home]} if any(warming) else set()

    def movable(self, failed: Sequence[int], situation: Situation) -> Sequence[int]:
        """Return the instances (positions) in `failed`, which were chosen to leave, that may do so."""
        return failed

    def left(self, available: list[float], situation: Situation) -> list[float]:
        """Return the CPU to share by task manager, given the `available` above the minimum accuracies, % of one
        core."""
        return available

    def requests(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Return further requests: fields of the plan."""
        return {}


NO_EVIDENCE = Evidence()


class BacklogEvidence(Evidence):
    """Shed load only with a backlog, or if known costs far exceed the CPU (`trust`); let an instance that has just
    moved stay for a while (`rests`)."""

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """Return `snapshot` with `open_s`, `tolerated_s`, `trust`, `paced_s`, `keeps_up` and `rests_s` where they
        apply."""
        trusts, homes, slows = memory if memory is not None else (None, None, None)
        snapshot, trusts = trusted(snapshot, measured, trusts, limited(slows))
        waiting = trusts.collected.waiting_s(snapshot, measured)
        snapshot, slows = limited_elsewhere(snapshot, waiting, trusts.proved(snapshot), slows)
        snapshot, homes = with_rests(snapshot, homes)
        return snapshot, (trusts, homes, slows)

    def kept(self, memory: Any) -> Any:
        """Return the trust in each task manager, and since when tasks have been measured."""
        trusts, *_ = memory
        managers = {
            name: {key: value for key, value in msgspec.to_builtins(trust).items() if isfinite(value)}
            for name, trust in trusts.managers.items()
        }
        # the rest is about runs that will have ended
        return {"managers": managers, "first": dict(trusts.first), "declared": dict(trusts.declared)}

    def recalled(self, kept: Any, memory: Any) -> Any:
        """Return the trust of before in each task manager that has had no rows since. Called again, as more tasks go
        on, it keeps what was learned since."""
        earlier = msgspec.convert(kept, Trusts)
        trusts, *others = memory if memory is not None else (Trusts(), None, None)
        none = Trust()
        fresh = {
            name: trust
            for name, trust in trusts.managers.items()
            if trust.seen_at > earlier.managers.get(name, none).seen_at
        }
        declared = {**earlier.declared, **trusts.declared}
        same = {task: at for task, at in earlier.first.items() if declared.get(task) == earlier.declared.get(task)}
        return replace(
            trusts,
            managers={**earlier.managers, **fresh},
            first={**trusts.first, **same},
            declared=declared,
        ), *others

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without the warm-ups of instances whose cool-down is over. Where minimums do not fit,
        they are never reached, and waiting for them would block every change. A moving instance still warms up: the CPU
        that it uses on its old task manager is about to be freed."""
        if True not in column(snapshot.instances, "warming_up"):
            return snapshot
        instances = [
            replace(i, warming_up=i.warming_up and (i.rests_s is not None or is_moving(i))) for i in snapshot.instances
        ]
        return replace(snapshot, instances=tuple(instances))

    def requirements(self, required: Requirements, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """Return the requirements by learned costs. A task manager that runs open has no limit, and tasks that run only
        on such ones need no CPU, but for those that something other than CPU limits."""
        is_open = self.is_open(snapshot)
        # moves are decided by costs: a backlog of a cycle or two moves nothing
        trust = [max(manager.trust or 1.0, 1.0) for manager in snapshot.task_managers]
        available = [PLENTY if o else cpu * t for o, cpu, t in zip(is_open, required.available, trust, strict=True)]
        if not any(is_open):
            return replace(required, available=available)
        scarce = {t for t, manager in load.of_needing() if not is_open[manager]}
        scarce |= {t for t, task in enumerate(snapshot.tasks) if task.keeps_up is not None}
        base = [needed if t in scarce else 0.0 for t, needed in enumerate(required.base)]
        cpu = [needed if t in scarce else 0.0 for t, needed in enumerate(required.cpu)]
        at = [accuracy if t in scarce else 1.0 for t, accuracy in enumerate(required.at)]
        return replace(required, base=base, cpu=cpu, at=at, available=available)

    def is_open(self, snapshot: Snapshot) -> Sequence[bool]:
        """Return by task manager whether it sheds no load without a backlog."""
        return [manager.open_s is not None for manager in snapshot.task_managers]

    warm_ups_exclude_all = False

    def excluded_by_warm_ups(self, situation: Situation) -> Set[int]:
        """Return the instances that warm up on task managers that shed load. They run at their minimums until the
        warm-up is over, and exclude no other instance."""
        instances = situation.snapshot.instances
        sheds = [manager.open_s is None for manager in situation.snapshot.task_managers]
        homes = situation.load.manager_of
        return {i for i, home in enumerate(homes) if instances[i].warming_up and sheds[home]}

    def movable(self, failed: Sequence[int], situation: Situation) -> Sequence[int]:
        """Return the instances that run and are not in their cool-down."""
        instances = situation.snapshot.instances
        return [i for i in failed if instances[i].rests_s is None and is_running(instances[i])]

    def left(self, available: list[float], situation: Situation) -> list[float]:
        """Return the CPU to share, less what a trust below 1 takes away."""
        trust = [manager.trust or 1.0 for manager in situation.snapshot.task_managers]
        less = [max(1.0 - t, 0.0) * cpu for t, cpu in zip(trust, situation.required.available, strict=True)]
        return [max(cpu - gone, 0.0) for cpu, gone in zip(available, less, strict=True)]

    def requests(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Return the rate above which to replan, the tolerated backlogs, and where micro-batches are to be paced."""
        pace_s = {m.id: m.paced_s for m in snapshot.task_managers if m.paced_s is not None}
        return {"react_above": REACT_ABOVE, "backlog_s": _tolerated(snapshot), "pace_s": pace_s}


def _tolerated(snapshot: Snapshot) -> Limits | Mapping[str, Limits]:
    """Return the ordinary backlog, and the tolerated one, seconds of input: by task where task managers differ, since
    long batches on one of them excuse no backlog on another."""
    by_manager = {}
    for manager in snapshot.task_managers:
        rests = rest_s(manager)
        limit_s = manager.tolerated_s or manager.open_s or 0.0
        by_manager[manager.id] = (rests, max(2 * rests, limit_s, WAITING_S))
    found = list(by_manager.values()) or [(REST_S, WAITING_S)]
    if all(limits == found[0] for limits in found):
        return found[0]
    by_task: dict[str, Limits] = {}
    for instance in snapshot.instances:
        limits = by_manager[instance.task_manager]
        known = by_task.get(instance.task, limits)
        by_task[instance.task] = max(limits[0], known[0]), max(limits[1], known[1])
    return by_task
