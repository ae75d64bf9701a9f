"""The policy `nephele` on a cluster of micro-batches: gaps between batches for buffers, fusing for chaining. Pure.

A topic is the channel to its reader. Rows wait in it until the reader's next batch, as items wait in an output buffer
until it is shipped: so the gap between two batches is the size of the buffer, and their interval is its life time. A
query's maximum latency limits every path from a source to it. Paths, sizes and chains are those of `manager` and
`latency`; there is one manager, since all measurements come to the kernel.

What differs from the source, and why:

- The verdict is the query's measured 95th percentile, or the age of its oldest row if that is more. The estimates of
  the elements (waiting before a task, its batch time) say which share each of them has, and so which paths are late.
- The first gaps are a share of the target, since there is no natural size of a buffer; a task is paced only if every
  query that it leads to has a target.
- A gap that is no longer than twice a batch counts as the shortest: the batches themselves take most of the time.
- A gap that is short of its first size grows again while all its queries are well within their targets.
- Chains grow by one task at a time, and a fused task can be fused again. Nothing is unfused (N18).
- Buffers of bytes, tags on single items, managers on workers and the loss of queued items have no counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from qod_magics.core.fusing import neighbours
from qod_magics.core.job_graph import Channel
from qod_magics.core.plan import Action, Fuse, Plan, SetBatch, keeping_all
from qod_magics.core.policy import Reasons, ReasonsOfPlan
from qod_magics.core.snapshot import Snapshot, nothing
from qod_magics.policies.nephele.manager import TaskFacts, longest_chain, step
from qod_magics.policies.nephele.paths import (
    DEFAULTS,
    LONGEST_S,
    OUTSIDE,
    Constraint,
    Parameters,
    Path,
    Seen,
    is_shortest,
)
from qod_magics.policies.parameters import Parameter, check

#: Seconds from one snapshot to the next where they have no time.
CYCLE_S = 5.0


# --- Decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept between cycles. Times are seconds of the snapshots' clock."""

    now_s: float
    gaps_s: Mapping[str, float] = field(default_factory=nothing)  #: by task
    why: Mapping[str, str] = field(default_factory=nothing)  #: by task, of its gap
    changed_s: Mapping[str, float] = field(default_factory=nothing)  #: by task, when it or its gap changed last


class Nephele:
    """Paces the batches of queries that have a target of latency, and fuses their tasks while they are late. Sheds
    nothing."""

    def __init__(self, name: str = "nephele", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Parameters, name: str) -> Nephele:
        """See `core.policy.ParameterizedPolicy`."""
        return Nephele(name, parameters)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: the gap of each paced task, and at most one fusion."""
        seen, memory = Seen.of(snapshot), self._seeing(snapshot, state)
        gaps, why, changed = dict(memory.gaps_s), dict(memory.why), dict(memory.changed_s)
        fused: Fuse | None = None
        for constraint in seen.constraints.values():
            if not constraint.is_late or self._is_frozen(constraint, seen, memory):
                continue
            resized = self._resized(constraint, seen, memory.gaps_s)  # once a task, however many are late
            for task, gap_s in resized.items():
                gaps[task], changed[task] = gap_s, memory.now_s
                why[task] = f"{_lateness(constraint)}, so its gap shrinks from {memory.gaps_s[task]:.2g} s"
            if fused is None and not (resized and self.parameters.chaining == "after_buffers"):
                fused = self._chain(constraint, seen, snapshot)
                if fused is not None:
                    changed |= dict.fromkeys(fused.edge, memory.now_s)
        for task in sorted(seen.paced):
            if memory.changed_s[task] == changed[task] and self._may_grow(task, seen, memory):
                first_s = seen.first_gap_s(task, self.parameters)
                if gaps[task] < first_s:
                    gaps[task], changed[task] = min(self.parameters.s * gaps[task], first_s), memory.now_s
                    why[task] = "all queries that it leads to are well within their targets, so its gap grows"
        actions: list[Action] = [SetBatch(task, round(gaps[task], 3), why[task]) for task in sorted(gaps)]
        if fused is not None:
            actions.append(fused)
        return keeping_all(snapshot, tuple(actions)), Memory(memory.now_s, gaps, why, changed)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return NepheleReasons(snapshot, plan, self.name, self.parameters.floor_s)

    def _seeing(self, snapshot: Snapshot, state: Any) -> Memory:
        """Return the memory with the tasks of this snapshot; a new one if the clock went back."""
        memory = state if isinstance(state, Memory) else Memory(0.0 if snapshot.at_s is None else snapshot.at_s)
        now_s = memory.now_s + CYCLE_S if snapshot.at_s is None else snapshot.at_s
        if now_s < memory.now_s:
            memory = Memory(now_s)
        seen = Seen.of(snapshot)
        gaps, why, changed = {}, {}, {}
        for task in snapshot.tasks:
            changed[task.id] = memory.changed_s.get(task.id, now_s)
        for name in seen.paced:
            first_s = seen.first_gap_s(name, self.parameters)
            gap_s = memory.gaps_s.get(name, first_s)
            is_first = name not in memory.gaps_s or gap_s > first_s  # a target may be stricter than it was
            gaps[name] = min(gap_s, first_s)
            why[name] = f"{self.parameters.share:.0%} of its strictest target" if is_first else memory.why[name]
        return Memory(now_s, gaps, why, changed)

    def _is_frozen(self, constraint: Constraint, seen: Seen, memory: Memory) -> bool:
        """Return whether its latency says nothing of the present gaps: a task on its paths changed lately (N25)."""
        return any(
            not seen.elements[task].settled or memory.now_s - memory.changed_s[task] < self.parameters.span_s
            for task in constraint.tasks
        )

    def _resized(self, constraint: Constraint, seen: Seen, gaps: Mapping[str, float]) -> Mapping[str, float]:
        """Return the gaps that shrink along its late paths, seconds by task (Eq. 2 and 3)."""
        found: dict[str, float] = {}
        sizing = self.parameters.sizing
        for path in constraint.paths:
            for channel in path.weighed.violated(constraint.limit_ms):
                task, sender = channel.receiver.vertex, channel.sender.vertex
                if task not in gaps or task in found:
                    continue
                if is_shortest(gaps[task], seen.elements[task], self.parameters.floor_s):
                    continue
                sender_ms = None if sender == OUTSIDE else seen.elements[sender].batch_ms
                gap_ms = round(1e3 * gaps[task])
                size = step(gap_ms, seen.elements[task].life_ms, sender_ms, sizing)
                if size.verdict == "shrink":
                    found[task] = size.bytes / 1e3
        return found

    def _chain(self, constraint: Constraint, seen: Seen, snapshot: Snapshot) -> Fuse | None:
        """Return the first step of the longest chain along its worst late path that has one."""
        if self.parameters.chaining == "never":
            return None
        pairs = set(neighbours(snapshot))

        def can_join(channel: Channel) -> bool:
            return (channel.sender.vertex, channel.receiver.vertex) in pairs

        late = [path.weighed.worst_with(constraint.limit_ms, can_join) for path in constraint.paths]
        worst = max((each for each in late if each is not None), key=lambda each: each[0], default=None)
        if worst is None:
            return None
        facts = _facts(snapshot)
        best: tuple[str, ...] = ()
        for run in _runs([task.vertex for task in worst[1] if task.vertex != OUTSIDE], pairs):
            chain = longest_chain(run, facts.__getitem__, self.parameters.cap_cores)
            best = chain if len(chain) > len(best) else best
        if not best:
            return None
        return Fuse((best[0], best[1]), f"{_lateness(constraint)}, and gaps can give no more")

    def _may_grow(self, task: str, seen: Seen, memory: Memory) -> bool:
        """Return whether all queries that a task leads to are well within their targets, and its gap has been so for a
        while."""
        concerned = [each for each in seen.constraints.values() if task in each.tasks]
        return all(
            each.measured_s is not None
            and each.measured_s <= self.parameters.relax_below * each.limit_s
            and not self._is_frozen(each, seen, memory)
            for each in concerned
        )


def _facts(snapshot: Snapshot) -> Mapping[str, TaskFacts]:
    cpu: dict[str, float] = {}
    for instance in snapshot.instances:
        if not instance.missing:
            cpu[instance.task] = max(cpu.get(instance.task, 0.0), instance.cpu / 100.0)
    down = snapshot.downstream
    return {
        task.id: TaskFacts("", cpu.get(task.id), max(len(task.upstream), 1), len(down[task.id]))
        for task in snapshot.tasks
    }


def _runs(path: Sequence[str], pairs: set[tuple[str, str]]) -> list[list[str]]:
    """Return the parts of a path whose neighbours may all be one query."""
    found = [[path[0]]]
    for before, task in pairwise(path):
        if (before, task) in pairs:
            found[-1].append(task)
        else:
            found.append([task])
    return found


def _lateness(constraint: Constraint) -> str:
    return f"{constraint.query} takes {constraint.measured_s or 0.0:.2g} s, target {constraint.limit_s:.2g} s"


class NepheleReasons(ReasonsOfPlan):
    """The `core.policy.Reasons` of a plan of Nephele, for the snapshot that it was decided on."""

    def __init__(self, snapshot: Snapshot, plan: Plan, policy: str, floor_s: float | None = None) -> None:
        super().__init__(snapshot, plan, policy)
        self.floor_s = floor_s  #: the shortest gap; None: gaps do not change

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: of a query its latency, its worst path and the worst element of that."""
        seen = Seen.of(self.snapshot)
        constraint = seen.constraints.get(id)
        if constraint is None:
            if self.snapshot.downstream[id]:
                return []
            return ["it has no target of its latency (--max-latency), so its batches follow one another"]
        measured_s, worst = constraint.measured_s, constraint.worst
        if measured_s is None or worst is None:
            return [f"its latency is not known yet, target {constraint.limit_s:.2g} s"]
        verdict = "late" if constraint.is_late else "within its target"
        found = [f"its latency is {measured_s:.2g} s, target {constraint.limit_s:.2g} s: {verdict}"]
        parts = self._parts(worst, seen)
        name, ms = max(parts.items(), key=lambda each: each[1])
        share = ms / worst.estimate_ms if worst.estimate_ms else 0.0
        found.append(
            f"its worst path is {' > '.join(worst.tasks)}, about {(worst.estimate_ms or 0.0) / 1e3:.2g} s on average; "
            f"most of that, {share:.0%}, is {name}"
        )
        if constraint.is_late and self.floor_s is not None and self._is_exhausted(constraint, seen, self.floor_s):
            found.append("its target can't be met: its gaps are the shortest, and none of its tasks can be fused")
        return found

    def task_manager(self, id: str) -> Sequence[str]:
        """Return the gaps of the tasks there, see `core.policy.Reasons`."""
        here = {instance.task for instance in self.snapshot.instances if instance.task_manager == id}
        told = [each for each in self.plan.actions if isinstance(each, SetBatch) and each.task in here]
        gaps = [f"{each.task} {each.seconds:g} s" for each in told]
        return [f"batches begin at least so far apart: {', '.join(gaps)}"] if gaps else []

    def numbers(self, id: str) -> Mapping[str, float]:
        """Return {}: task managers have no figures, see `core.policy.Reasons`."""
        return {}

    def _parts(self, path: Path, seen: Seen) -> Mapping[str, float]:
        waits = {f"waiting for a batch of {task}": seen.elements[task].wait_ms or 0.0 for task in path.tasks}
        batches = {f"the batches of {task}": seen.elements[task].batch_ms or 0.0 for task in path.tasks}
        return waits | batches

    def _is_exhausted(self, constraint: Constraint, seen: Seen, floor_s: float) -> bool:
        gaps = {each.task: each.seconds for each in self.plan.actions if isinstance(each, SetBatch)}
        fuses = any(isinstance(each, Fuse) for each in self.plan.actions)
        on_way = set(constraint.tasks)
        pairs = any(on_way.issuperset(pair) for pair in neighbours(self.snapshot))
        return (
            not fuses
            and not pairs
            and all(is_shortest(gaps.get(task, 0.0), seen.elements[task], floor_s) for task in on_way)
        )


# --- What it is compared with -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fixed:
    """The parameter of `FixedGaps`."""

    gap_s: Annotated[float, Parameter("gap between the batches of every task, seconds", least=0, most=LONGEST_S)] = 2.0

    def __post_init__(self) -> None:
        check(self)


class FixedGaps:
    """Every task's batches are as far apart as the user says: buffers that keep their size. Sheds nothing."""

    def __init__(self, name: str = "nephele-fixed-buffers", parameters: Fixed | None = None) -> None:
        self.name = name
        self.parameters = parameters or Fixed()

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Fixed, name: str) -> FixedGaps:
        """See `core.policy.ParameterizedPolicy`."""
        return FixedGaps(name, parameters)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot."""
        elements = Seen.of(snapshot).elements
        gaps = [SetBatch(task, self.parameters.gap_s, "fixed") for task, each in elements.items() if each.is_paced]
        return keeping_all(snapshot, tuple(gaps)), state

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return NepheleReasons(snapshot, plan, self.name)


class Flush:
    """Batches follow one another: each buffer is shipped at once. Sheds nothing."""

    def __init__(self, name: str = "nephele-flush") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: no gap."""
        return keeping_all(snapshot), state

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return NepheleReasons(snapshot, plan, self.name)


__all__ = ["DEFAULTS", "FixedGaps", "Flush", "Nephele", "NepheleReasons", "Parameters"]
