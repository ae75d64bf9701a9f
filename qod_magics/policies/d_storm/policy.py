"""D-Storm's loop as a policy: monitor, analyse, plan, and check that the plan took effect (section 2.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qod_magics.core.actions import Action, AddNode, Move, ReleaseNode
from qod_magics.core.optional import PAUSED
from qod_magics.core.placement import Unplaced, takes_instances
from qod_magics.core.plan import Plan, keeping_all
from qod_magics.core.reasons import Reasons
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager
from qod_magics.core.spares import spares
from qod_magics.policies.d_storm.analyser import State, is_due, state_of
from qod_magics.policies.d_storm.first_placement import placed
from qod_magics.policies.d_storm.fusion import Fusing, possible, to_fuse, to_part
from qod_magics.policies.d_storm.memory import Memory, Ordered
from qod_magics.policies.d_storm.monitor import Monitor
from qod_magics.policies.d_storm.observation import Observation, observed, usages, window_of
from qod_magics.policies.d_storm.packing import Packing
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.reasons import DStormReasons, trigger
from qod_magics.policies.d_storm.solver import Solution, solve


class DStorm:
    """Packs instances so that traffic stays inside task managers; starts and releases task managers; fuses co-located
    tasks, and parts what no longer packs. Sheds nothing."""

    def __init__(self, name: str = "d-storm", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan for a valid snapshot: actions at the end of a window at most, after a round or its confirmation."""
        memory = Memory.seeing(snapshot, state, self.parameters)
        if memory.ordered is not None:
            actions, memory = self._continued(memory.ordered, memory, snapshot)
        elif memory.monitor.is_full(memory.now_s, self.parameters):
            actions, memory = self._analysed(memory, snapshot)
        else:
            actions = ()
        plan = keeping_all(snapshot, actions)
        there = {manager.id for manager in snapshot.task_managers}
        return replace(plan, starved=tuple(name for name in memory.starved if name in there)), memory

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """See `core.policy.PlacingPolicy`: by user-given or equal demands, before any metric exists."""
        return placed(unplaced, managers, running, self.parameters)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return DStormReasons(snapshot, plan, self.name)

    def _analysed(self, memory: Memory, snapshot: Snapshot) -> tuple[tuple[Action, ...], Memory]:
        """At the end of a window: release what the last plan emptied, then a round if one is due, or fusing."""
        parameters = self.parameters
        mean = memory.monitor.mean
        memory = replace(memory, asked=memory.asked & possible(snapshot))
        window = window_of(mean, parameters)
        found = state_of(window, parameters)
        memory = replace(memory, monitor=Monitor(memory.now_s, memory.monitor.seen[-1:]))
        released, memory = _released(memory, snapshot, found)
        gone = {release.id for release in released}
        mean = replace(mean, task_managers=tuple(each for each in mean.task_managers if each.id not in gone))
        if not is_due(found, memory.now_s, memory.last_round_s, parameters):
            if found is State.NORMAL:
                memory = replace(memory, starved=())
            if released or found is State.PERFORMANCE or not parameters.fuse:
                return released, memory
            needs = observed(mean, parameters, memory.known).needs
            return _asked(to_fuse(snapshot, needs, memory.asked), memory, snapshot)
        seen = observed(mean, parameters, memory.known)
        memory = replace(memory, known=seen.known, starved=())
        solved = solve(seen, parameters)
        if found is State.PERFORMANCE and parameters.fuse and seen.fits:
            unplaced = solved.unplaced if isinstance(solved, Packing) else ()
            parted = to_part(snapshot, seen.needs, unplaced, memory.asked)
            if parted:  # the round follows once a window has measured the parts
                return _asked(parted, memory, snapshot)
        memory = replace(memory, last_round_s=memory.now_s)
        if isinstance(solved, Packing):
            return released, _alerted(memory, seen, solved)
        if found is State.CONSOLIDATE and not solved.is_cheaper:
            keep = replace(solved, placement=solved.current)
            return released, replace(memory, emptied=_idle(keep, snapshot))
        actions, memory = self._carried_out(solved, memory, snapshot, trigger(found, window, parameters))
        return (*released, *actions), memory

    def _carried_out(
        self, solved: Solution, memory: Memory, snapshot: Snapshot, because: str
    ) -> tuple[tuple[Action, ...], Memory]:
        """The moves of a round; where it needs more task managers, these first."""
        if solved.to_start:
            return self._starting(solved, memory, snapshot, because)
        why = f"{because}; {_effect(solved)}"
        moves = tuple(Move(instance, solved.placement[instance], why) for instance in solved.moving)
        return moves, replace(memory, emptied=_idle(solved, snapshot))

    def _starting(
        self, solved: Solution, memory: Memory, snapshot: Snapshot, because: str
    ) -> tuple[tuple[Action, ...], Memory]:
        kinds = [node.kind for node in solved.to_start if node.kind is not None]
        why = f"{because}; its instances do not pack on the task managers that are up"
        start_s = max((each.start_s for each in spares(snapshot) if each.kind in kinds), default=0.0)
        ordered = Ordered(
            frozenset(manager.id for manager in snapshot.task_managers if takes_instances(manager)),
            len(kinds),
            memory.now_s + start_s + self.parameters.node_patience_s,
            because,
        )
        return tuple(AddNode(kind, why) for kind in kinds), replace(memory, ordered=ordered)

    def _continued(self, ordered: Ordered, memory: Memory, snapshot: Snapshot) -> tuple[tuple[Action, ...], Memory]:
        """Go on with a round that ordered task managers, once they are up or it has waited long enough."""
        up = {manager.id for manager in snapshot.task_managers if takes_instances(manager)}
        if len(up - ordered.before) < ordered.count and memory.now_s < ordered.until_s:
            return (), memory
        memory = replace(memory, ordered=None)
        seen = replace(observed(memory.monitor.mean, self.parameters, memory.known), spares=())
        solved = solve(seen, self.parameters)
        if isinstance(solved, Packing):
            memory = _alerted(memory, seen, solved)
            return (), replace(memory, emptied=tuple(sorted(up - ordered.before)))
        return self._carried_out(solved, memory, snapshot, ordered.why)


def _asked(actions: tuple[Fusing, ...], memory: Memory, snapshot: Snapshot) -> tuple[tuple[Action, ...], Memory]:
    """These actions, which are not asked for again unless they are only recommended now."""
    if snapshot.extra.get(PAUSED):
        return actions, memory
    return actions, replace(memory, asked=memory.asked.union(actions))


def _released(memory: Memory, snapshot: Snapshot, found: State) -> tuple[tuple[ReleaseNode, ...], Memory]:
    """The task managers that the last plan emptied, once a window meets its targets without them."""
    if not memory.emptied or found is State.PERFORMANCE:
        return (), memory
    hosts = {instance.task_manager for instance in snapshot.instances}
    there = [manager.id for manager in snapshot.task_managers if takes_instances(manager)]
    empty = [name for name in there if name in memory.emptied and name not in hosts]
    why = "no instance runs there, and throughput and latency meet their targets without it"
    return tuple(ReleaseNode(name, why) for name in empty), replace(memory, emptied=())


def _idle(solved: Solution, snapshot: Snapshot) -> tuple[str, ...]:
    """The task managers that a placement leaves without instances."""
    used = set(solved.placement.values())
    return tuple(each.id for each in snapshot.task_managers if takes_instances(each) and each.id not in used)


def _alerted(memory: Memory, seen: Observation, packing: Packing) -> Memory:
    """FAILURE: the placement stays, and the task managers that can't hold their instances are starved; where all can,
    those of the instances that fitted nowhere."""
    demands = {demand.id: demand for demand in seen.problem.demands}
    nodes = {node.id: node for node in seen.problem.nodes}
    usage = usages(demands, nodes, seen.current)
    over = [node for node in nodes if usage.get(node, 0.0) > 1.0]
    concerned = over or list(dict.fromkeys(seen.current[instance] for instance in packing.unplaced))
    return replace(memory, starved=tuple(concerned))


def _effect(solved: Solution) -> str:
    then, now = len(solved.used), len(solved.used_now)
    nodes = f"{then} task manager{'' if then == 1 else 's'}, now {now}"
    if solved.total <= 0:
        return f"packed on {nodes}"
    kept, before = solved.traffic / solved.total, solved.traffic_now / solved.total
    return f"{kept:.0%} of the traffic between instances stays between task managers, now {before:.0%}; {nodes}"
