"""The loop of D-Storm: observe a window, analyse it, then pack again, start or release task managers, or fuse tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

from qod_magics.core.fusing import CORE, neighbours, separable_streams, within_a_core
from qod_magics.core.plan import Action, AddNode, Fuse, Move, Plan, ReleaseNode, Unfuse, keeping_all
from qod_magics.core.policy import Reasons, ReasonsOfPlan
from qod_magics.core.runtime import Unplaced, takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager, replace
from qod_magics.errors import listed
from qod_magics.policies.d_storm.observation import (
    Monitor,
    Observation,
    State,
    Window,
    falls_behind,
    is_due,
    is_measured,
    observed,
    state_of,
    usages,
    window_of,
)
from qod_magics.policies.d_storm.packing import DEFAULTS, Demand, Node, Packing, Parameters, Requirement
from qod_magics.policies.d_storm.solver import Solution, placed, solve

# --- Reasons ----------------------------------------------------------------------------------------------------------


def trigger(state: State, window: Window, parameters: Parameters) -> str:
    """Return what started a round in this state, in words."""
    if state is State.CONSOLIDATE:
        mean = sum(window.usage.values()) / len(window.usage)
        return f"most of the {len(window.usage)} task managers in use are under-used, {mean:.0%} on average"
    if falls_behind(window, parameters):
        return f"throughput is {window.throughput / window.workload:.0%} of the workload"
    limit = parameters.max_latency_s if window.max_latency_s is None else window.max_latency_s
    return f"latency is {window.latency_s or 0.0:.2g} s, its limit {limit:.2g} s"


class DStormReasons(ReasonsOfPlan):
    """The `core.policy.Reasons` of a plan of D-Storm or a baseline, for the snapshot that it was decided on."""

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: what of it moves."""
        mine = {instance.id for instance in self.snapshot.instances if instance.task == id}
        moving = [f"{move.instance} to {move.to}" for move in self.plan.moves if move.instance in mine]
        return [*self.shedding([id]).values(), *([f"to be moved: {listed(moving)}"] if moving else [])]

    def supply(self, id: str) -> str:
        """See `core.policy.Reasons`: the packing's dimensions, CPU and where known memory."""
        node, load = self._nodes[id], self._loads.get(id, Demand(id, 0.0))
        words = f"{id} has {node.cpu:.1f} % of a core for its tasks, which need {load.cpu:.1f} % at the workload"
        return words if node.memory == float("inf") else f"{words}, and {load.memory:.0f} of {node.memory:.0f} MB"

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: what goes there, and how full it is."""
        coming = [a.instance for a in self.plan.actions if isinstance(a, Move) and a.to == id]
        usage = self._usage.get(id)
        found = [] if usage is None else [f"it is {usage:.0%} full by the resource that it has least of"]
        return [*found, *([f"told to go there: {listed(coming)}"] if coming else [])]

    def starved(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return (
            f"{self.supply(id)}; no packing of all instances was found, so the placement stays: add a task manager, "
            "or a task manager with more cores or memory"
        )

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: CPU of a task manager, % of one core, and its usage, a fraction of 1."""
        load = self._loads.get(id, Demand(id, 0.0))
        return {"available": self._nodes[id].cpu, "needed": load.cpu, "usage": self._usage.get(id, 0.0)}

    @cached_property
    def _seen(self) -> tuple[Mapping[str, Node], Mapping[str, Demand], Mapping[str, str]]:
        seen = observed(self.snapshot)
        nodes = {manager.id: Node(manager.id, 100.0 * manager.cores) for manager in self.snapshot.task_managers}
        nodes |= {node.id: node for node in seen.problem.nodes}  # all but those that stand by
        return nodes, {demand.id: demand for demand in seen.problem.demands}, seen.current

    @property
    def _nodes(self) -> Mapping[str, Node]:
        return self._seen[0]

    @cached_property
    def _loads(self) -> Mapping[str, Demand]:
        """Return the sum of the demands on each task manager."""
        _, demands, current = self._seen
        found: dict[str, Demand] = {}
        for instance, node in current.items():
            before, more = found.get(node, Demand(node, 0.0)), demands[instance]
            found[node] = Demand(node, before.cpu + more.cpu, before.memory + more.memory)
        return found

    @cached_property
    def _usage(self) -> Mapping[str, float]:
        nodes, demands, current = self._seen
        return usages(demands, nodes, current)


#: An action of this module.
Fusing = Fuse | Unfuse


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Task managers that a round ordered and that are not up yet."""

    before: frozenset[str]  #: those that took instances when it was ordered
    count: int
    until_s: float  #: when the policy stops waiting for them
    why: str  #: the round's reason


@dataclass(frozen=True, slots=True)
class Memory:
    """The policy's state. Times are seconds of the snapshots' clock."""

    now_s: float
    monitor: Monitor
    last_round_s: float
    known: Mapping[str, Requirement] = field(default_factory=dict)  #: by instance, CPU for each row as last measured
    ordered: _Ordered | None = None
    emptied: tuple[str, ...] = ()  #: released once the next window confirms that the plan took effect
    starved: tuple[str, ...] = ()  #: task managers concerned by instances that fitted nowhere in the last round
    asked: frozenset[Fusing] = frozenset()  #: of earlier plans, and not yet seen to have taken effect

    @classmethod
    def begun(cls, snapshot: Snapshot) -> Memory:
        """Return the memory of the first cycle. The first deployment counts as a round, from whose time on windows and
        intervals count.

        A snapshot without a time in which everything is measured may be the only one, so it is decided at once.
        """
        if snapshot.at_s is None and all(map(is_measured, snapshot.instances)):
            return cls(0.0, Monitor(-inf), -inf)
        now_s = 0.0 if snapshot.at_s is None else snapshot.at_s
        return cls(now_s, Monitor(now_s), now_s)

    @classmethod
    def seeing(cls, snapshot: Snapshot, state: Any, parameters: Parameters) -> Memory:
        """Return the memory with this snapshot; a new one if the clock went back, as in another recording."""
        if not isinstance(state, cls):
            memory = cls.begun(snapshot)
        else:
            now_s = state.now_s + parameters.cycle_s if snapshot.at_s is None else snapshot.at_s
            memory = replace(state, now_s=now_s) if now_s >= state.now_s else cls.begun(snapshot)
        return replace(memory, monitor=memory.monitor.seeing(snapshot, memory.now_s, parameters))


class DStorm:
    """Packs instances so that traffic stays inside task managers; starts and releases task managers; fuses co-located
    tasks, and separates what no longer packs. Sheds nothing."""

    def __init__(self, name: str = "d-storm", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Parameters, name: str) -> DStorm:
        """See `core.policy.ParameterizedPolicy`."""
        return DStorm(name, parameters)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: actions at the end of a window at most, after a round or its
        confirmation."""
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
        """Act at the end of a window: release what the last plan emptied, then a round if one is due, or fusing."""
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
            separated = to_separate(snapshot, seen.needs, unplaced, memory.asked)
            if separated:  # the round follows once a window has measured the separate tasks
                return _asked(separated, memory, snapshot)
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
        """Return the moves of a round; where it needs more task managers, these first."""
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
        start_s = max((each.start_s for each in snapshot.spares if each.kind in kinds), default=0.0)
        ordered = _Ordered(
            frozenset(manager.id for manager in snapshot.task_managers if takes_instances(manager)),
            len(kinds),
            memory.now_s + start_s + self.parameters.node_patience_s,
            because,
        )
        return tuple(AddNode(kind, why) for kind in kinds), replace(memory, ordered=ordered)

    def _continued(self, ordered: _Ordered, memory: Memory, snapshot: Snapshot) -> tuple[tuple[Action, ...], Memory]:
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
    """Ask for these actions, which are not asked for again unless they are only recommended now."""
    if snapshot.paused:
        return actions, memory
    return actions, replace(memory, asked=memory.asked.union(actions))


def _released(memory: Memory, snapshot: Snapshot, found: State) -> tuple[tuple[ReleaseNode, ...], Memory]:
    """Return the task managers that the last plan emptied, once a window meets its targets without them."""
    if not memory.emptied or found is State.PERFORMANCE:
        return (), memory
    hosts = {instance.task_manager for instance in snapshot.instances}
    there = [manager.id for manager in snapshot.task_managers if takes_instances(manager)]
    empty = [name for name in there if name in memory.emptied and name not in hosts]
    why = "no instance runs there, and throughput and latency meet their targets without it"
    return tuple(ReleaseNode(name, why) for name in empty), replace(memory, emptied=())


def _idle(solved: Solution, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the task managers that a placement leaves without instances."""
    used = set(solved.placement.values())
    return tuple(each.id for each in snapshot.task_managers if takes_instances(each) and each.id not in used)


def _alerted(memory: Memory, seen: Observation, packing: Packing) -> Memory:
    """Handle FAILURE: the placement stays, and the task managers that can't hold their instances are starved; where all
    can, those of the instances that fitted nowhere."""
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


def possible(snapshot: Snapshot) -> frozenset[Fusing]:
    """Return the actions that a snapshot leaves possible: one that is among them still has not taken effect."""
    parts = (Unfuse(stream) for task in snapshot.tasks for stream in separable_streams(task))
    return frozenset([*map(Fuse, neighbours(snapshot)), *parts])


def to_fuse(snapshot: Snapshot, needs: Mapping[str, float], asked: Collection[Fusing]) -> tuple[Fuse, ...]:
    """Return the first two co-located neighbours whose query needs no more than the core that an instance can use, but
    for those `asked` for before; one action at a time. `needs`: by instance, CPU in % of one core."""
    found = [pair for pair in neighbours(snapshot) if Fuse(pair) not in asked]
    why = "they run on one task manager, and throughput and latency meet their targets"
    return tuple(Fuse(pair, why) for pair in within_a_core(found, snapshot, needs)[:1])


def to_separate(
    snapshot: Snapshot, needs: Mapping[str, float], unplaced: Sequence[str], asked: Collection[Fusing]
) -> tuple[Unfuse, ...]:
    """Return the fused task to separate, at its last separable stream, unless `asked` for before: the largest of those
    that need more than the core that an instance can use, or have an instance in `unplaced`."""
    within = {task.id: separable_streams(task) for task in snapshot.tasks}
    found = [
        each
        for each in snapshot.instances
        if within[each.task]
        and Unfuse(within[each.task][-1]) not in asked
        and (each.id in unplaced or needs[each.id] > CORE)
    ]
    if not found:
        return ()
    largest = max(found, key=lambda each: needs[each.id])
    why = (
        f"{largest.id} needs {needs[largest.id]:.0f} % of a core, more than it can use"
        if needs[largest.id] > CORE
        else f"{largest.id} fits on no task manager"
    )
    return (Unfuse(within[largest.task][-1], why),)
