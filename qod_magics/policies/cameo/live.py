"""The policy `cameo` on a cluster of micro-batches: they start in the order of their deadlines. Pure.

A query is an operator, its next micro-batch a message, a core a worker. A batch is to start at t + L - C - C_path at
the latest: t is when its oldest row came, L the target of the query's latency, C the CPU time of a batch, C_path that
of the tasks behind it. The kernel measures all of it, so nothing travels with rows. A task manager has as many batches
under way as it has cores; when one ends, the waiting one with the earliest start deadline begins.

What differs from the source, and why:

- A batch is not interrupted and may take seconds, so one with a target waits for a part of its laxity only (`margin`),
  and then starts beside those under way, with which it shares the cores.
- There is always a next batch, and each has a fixed cost: back to back, urgent ones would leave no time to the others.
  Where a task yields to them, there is a gap between them: half of that part of their target, for all tasks of a path.
- A task that leads to no query with a target has no deadline. Its batches yield for `patience_s`, and start then.
- With `yield_s`, there is a gap between its batches while a query beside it is late all the same. That may leave a core
  idle while rows wait, so there is none by default. It shrinks again while all are well within their targets.
- Deadlines of windows are not extended to their ends: a snapshot says nothing of windows (equation 2, not 3).
- Without a target on a task manager nothing is asked for there. Tokens, quanta of a millisecond, the order of single
  messages and real-time mode have no counterpart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from qod_magics.core.plan import Plan, SetBatch, keeping_all
from qod_magics.core.policy import Reasons, ReasonsOfPlan
from qod_magics.core.snapshot import Snapshot, is_out
from qod_magics.policies.cameo.contexts import URGENCY
from qod_magics.policies.nephele.paths import Constraint, Seen
from qod_magics.policies.parameters import Parameter, check

#: The longest time for which a batch can wait for its turn, and the longest gap between batches, seconds.
MOST_PATIENCE_S, MOST_GAP_S = 60.0, 10.0
#: A gap is multiplied by `SHRINKS` each cycle; below `NONE_S` seconds it becomes 0.
SHRINKS, NONE_S = 0.5, 0.2


@dataclass(frozen=True, slots=True)
class Parameters:
    """Raises UsageProblem, one line, for values out of range."""

    order: Annotated[
        Literal["llf", "edf"],
        Parameter("first is the batch with the earliest start deadline (llf), or that due to end first (edf)"),
    ] = "llf"
    margin: Annotated[
        float, Parameter("share of its laxity for which a batch with a target waits at most", least=0, most=1)
    ] = 0.5
    patience_s: Annotated[
        float,
        Parameter("seconds for which a batch without a target waits for its turn", least=0, most=MOST_PATIENCE_S),
    ] = 10.0
    yield_s: Annotated[
        float,
        Parameter(
            "gap between batches without a target while a query beside them is late, seconds", least=0, most=MOST_GAP_S
        ),
    ] = 0.0
    relax_below: Annotated[
        float, Parameter("that gap shrinks while latencies are below this share of their targets", least=0, most=1)
    ] = 0.6

    def __post_init__(self) -> None:
        check(self)


DEFAULTS = Parameters()


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the batches of a task are due, seconds after their oldest row, and what that was derived from."""

    due_s: float  #: by the policy's order, without the margin; below 0: late already
    query: str  #: the one by whose target it is
    target_s: float
    batch_s: float  #: C: what a batch of the task costs; 0: not known yet
    after_s: float  #: C_path: what batches cost on the longest way from there to the query
    tasks: int  #: on that path, from its source

    @property
    def laxity_s(self) -> float:
        """Return the time that a batch can wait after its oldest row came."""
        return max(self.due_s, 0.0)


def costs(snapshot: Snapshot, seen: Seen) -> Mapping[str, int]:
    """Return what a batch of each task costs, ms: its CPU time, since it lasts longer the more others there are; its
    duration where the CPU is not known; 0 where nothing is."""
    cpu = dict.fromkeys(seen.elements, 0.0)
    for each in snapshot.instances:
        if not each.missing and each.batch_interval_s:
            cpu[each.task] = max(cpu[each.task], 10.0 * each.cpu * each.batch_interval_s)
    return {
        task: round(min(ms, cpu[task]) if cpu[task] else ms)
        for task, ms in ((task, each.batch_ms or 0.0) for task, each in seen.elements.items())
    }


def deadlines(snapshot: Snapshot, order: str = "llf") -> Mapping[str, Deadline]:
    """Return the strictest deadline of each task that leads to a query with a target."""
    found: dict[str, Deadline] = {}
    seen = Seen.of(snapshot)
    cost_ms = costs(snapshot, seen)
    for constraint in seen.constraints.values():
        for task, deadline in _of_query(constraint, cost_ms, order):
            if task not in found or deadline.due_s < found[task].due_s:
                found[task] = deadline
    return found


def _of_query(constraint: Constraint, cost_ms: Mapping[str, int], order: str) -> Iterable[tuple[str, Deadline]]:
    """Yield the deadlines along each path to a query; the cost of a path is that of all tasks behind (equation 4)."""
    target_ms = round(1e3 * constraint.limit_s)
    for path in constraint.paths:
        after_ms = 0
        for task in reversed(path.tasks):
            due_s = URGENCY[order](0, target_ms, cost_ms[task], after_ms) / 1e3
            yield (
                task,
                Deadline(
                    due_s, constraint.query, constraint.limit_s, cost_ms[task] / 1e3, after_ms / 1e3, len(path.tasks)
                ),
            )
            after_ms += cost_ms[task]


def beside(snapshot: Snapshot, seen: Seen) -> Mapping[str, tuple[Constraint, ...]]:
    """Return the queries with a target of which a task runs on a task manager, by task manager."""
    found: dict[str, dict[str, Constraint]] = {manager.id: {} for manager in snapshot.task_managers}
    for instance in snapshot.instances:
        if is_out(instance):
            continue
        for constraint in seen.constraints.values():
            if instance.task in constraint.tasks:
                found[instance.task_manager][constraint.query] = constraint
    return {id: tuple(each.values()) for id, each in found.items() if each}


def yielding(snapshot: Snapshot, seen: Seen, due: Container[str]) -> frozenset[str]:
    """Return the task managers where batches without a deadline yield to others: there are rows for them, and the task
    is in micro-batches and was neither given up nor stopped."""
    return frozenset(
        each.task_manager
        for each in snapshot.instances
        if each.task not in due
        and seen.elements[each.task].is_paced
        and each.batch_interval_s != 0.0
        and not is_out(each)
    )


class Cameo:
    """Starts batches in the order of their deadlines where a query with a target runs. Sheds nothing."""

    def __init__(self, name: str = "cameo", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Parameters, name: str) -> Cameo:
        """See `core.policy.ParameterizedPolicy`."""
        return Cameo(name, parameters)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: when the batches of each task on a shared task manager are due.

        `state`: the gaps of yielding tasks by task manager, seconds, as the last call returned them.
        """
        seen, p = Seen.of(snapshot), self.parameters
        near = beside(snapshot, seen)
        gaps = self._gaps(snapshot, near, state if isinstance(state, Mapping) else {})
        due = deadlines(snapshot, p.order)
        shared = yielding(snapshot, seen, due)
        hosts: dict[str, set[str]] = {task.id: set() for task in snapshot.tasks}
        for instance in snapshot.instances:
            hosts[instance.task].add(instance.task_manager)
        actions = []
        for task, element in seen.elements.items():
            if not element.is_paced or not hosts[task] & near.keys():
                continue
            if task in due:
                due_s = p.margin * due[task].laxity_s
                apart_s = p.margin * due[task].target_s / due[task].tasks / 2
                gap_s = min(apart_s, due_s, MOST_GAP_S) if hosts[task] & shared else 0.0
                actions.append(SetBatch(task, round(gap_s, 3), _why(due[task]), round(due_s, 3)))
            else:
                gap_s = max(gaps.get(id, 0.0) for id in hosts[task])
                patient_s = (element.batch_ms or 0.0) / 1e3 + p.patience_s  # from the end of its last batch on
                actions.append(SetBatch(task, round(gap_s, 3), _yields(task, near, hosts[task]), round(patient_s, 3)))
        return keeping_all(snapshot, tuple(actions)), gaps

    def _gaps(
        self, snapshot: Snapshot, near: Mapping[str, Sequence[Constraint]], before: Mapping[str, float]
    ) -> Mapping[str, float]:
        """Return the gap of yielding tasks by task manager: the longest as soon as a query is late, other than one that
        stays late whatever yields, as a task on its way was given up or stopped."""
        ended = {each.task for each in snapshot.instances if is_out(each)}
        found = {}
        for id, queries in near.items():
            constraints = [each for each in queries if ended.isdisjoint(each.tasks)]
            gap_s = before.get(id, 0.0)
            if any(each.is_late for each in constraints):
                gap_s = self.parameters.yield_s
            elif all((each.measured_s or 0.0) <= self.parameters.relax_below * each.limit_s for each in constraints):
                gap_s = SHRINKS * gap_s if SHRINKS * gap_s > NONE_S else 0.0
            found[id] = min(gap_s, self.parameters.yield_s)
        return found

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return CameoReasons(snapshot, plan, self.name)


def _why(deadline: Deadline) -> str:
    return (
        f"start deadline {deadline.due_s:.2g} s after its oldest row: target {deadline.target_s:.2g} s of "
        f"{deadline.query}, less {deadline.batch_s:.2g} s of its batch and {deadline.after_s:.2g} s behind it"
    )


def _yields(task: str, near: Mapping[str, Sequence[Constraint]], hosts: Iterable[str]) -> str:
    names = dict.fromkeys(each.query for id in sorted(hosts) for each in near.get(id, ()))
    return f"{task} has no target, so it yields to {', '.join(names)}"


class CameoReasons(ReasonsOfPlan):
    """The `core.policy.Reasons` of a plan that orders batches, for the snapshot that it was decided on."""

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: of a query its latency and target."""
        constraint = Seen.of(self.snapshot).constraints.get(id)
        if constraint is None:
            return []
        if constraint.measured_s is None:
            return [f"its latency is not known yet, target {constraint.limit_s:.2g} s"]
        verdict = "late" if constraint.is_late else "within its target"
        return [f"its latency is {constraint.measured_s:.2g} s, target {constraint.limit_s:.2g} s: {verdict}"]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: the order of the batches there."""
        here = {instance.task for instance in self.snapshot.instances if instance.task_manager == id}
        asked = [each for each in self.plan.actions if isinstance(each, SetBatch) and each.task in here]
        due = sorted((each.due_s, each.task) for each in asked if each.due_s is not None)
        if not due:
            return ["batches start as soon as their rows are there"]
        return [f"batches take turns, due after their oldest row: {', '.join(f'{t} {s:.2g} s' for s, t in due)}"]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: there are none of a task manager."""
        return {}


# --- What it is compared with -----------------------------------------------------------------------------------------

#: So long after its oldest row a batch is due under `fifo`, seconds: the same for all, so the oldest row goes first.
FIFO_S = MOST_PATIENCE_S


class Fifo:
    """Starts batches in the order in which their oldest rows came, as many at a time as there are cores. Sheds
    nothing."""

    def __init__(self, name: str = "fifo") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot."""
        paced = [task for task, each in Seen.of(snapshot).elements.items() if each.is_paced]
        turns = tuple(SetBatch(task, 0.0, "in the order of arrival", FIFO_S) for task in paced)
        return keeping_all(snapshot, turns), state

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return CameoReasons(snapshot, plan, self.name)


class Orleans:
    """Keeps no order: each query's batches follow one another, and all share the cores, as where Spark runs them
    without a policy. Sheds nothing."""

    def __init__(self, name: str = "orleans") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: no turns and no gaps."""
        return keeping_all(snapshot), state

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return CameoReasons(snapshot, plan, self.name)


__all__ = ["DEFAULTS", "Cameo", "CameoReasons", "Deadline", "Fifo", "Orleans", "Parameters", "deadlines"]
