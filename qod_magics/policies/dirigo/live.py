"""The policy `dirigo` on a cluster: an instance with a hot key lends rows that it would count late. Pure.

An instance is a worker, the lessor of the keys whose rows are sent to its partitions. Rows that arrive in a part of the
next seconds are a message: due `target` seconds after they arrive, and as long to run as the CPU of their count says.
Of the lessor's queue those are offered that would be late (`queues.violators`); the lessee takes those that fit into
its own queue without making others late (`LaxityQueue.check`). The share of the lessor's rows that the lessee takes is
lent until the next decision.

What differs from the source, and why:

- A message is a range of rows, and who decides is the kernel, once in a period, from what is measured. So there is one
  lessee for each lessor, the one of its range that takes the most, and a share of its rows in the place of messages.
- Rows that have been sent stay where they are: they count in both queues, and can't be offered.
- A lessee that is late takes nothing, so all that would be offered stays with its lessor (`RejectSend` without
  `force_migrate`).
- There are no markers: an instance emits its part of a group each time that it has changed, and whoever reads the
  results merges the newest parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from qod_magics.core.fusing import CORE
from qod_magics.core.plan import Lend, Plan, keeping_all
from qod_magics.core.policy import Reasons, ReasonsOfPlan
from qod_magics.core.snapshot import Instance, Snapshot, Task, is_running
from qod_magics.policies.dirigo.base import neighbours
from qod_magics.policies.dirigo.queues import LaxityQueue
from qod_magics.policies.parameters import Parameter, check

#: Messages into which the rows of the next seconds, or those that wait, are divided.
MESSAGES = 50
#: A smaller share of its rows is not lent.
LEAST_SHARE = 0.01
#: Nor a larger one: how many rows come of an instance's own keys is measured by those that it is left.
MOST_SHARE = 0.9
#: The least part of a core that is left to an instance beside the other work of its task manager.
LEAST_CORE = 0.05
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Parameters:
    """Raises UsageProblem, one line, for values out of range."""

    parallelism_range: Annotated[
        int | None, Parameter("instances that may count the rows of a key, its own included; none: all", least=1)
    ] = None
    target_s: Annotated[
        float, Parameter("seconds within which rows of a query without --max-latency are to be counted", above=0)
    ] = 2.0
    horizon_s: Annotated[float, Parameter("seconds of arriving rows that a decision looks at", above=0)] = 5.0

    def __post_init__(self) -> None:
        check(self)


DEFAULTS = Parameters()

#: What each lessor lends, as the last plan said: lessee and share.
Lent = Mapping[str, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Worker:
    """An instance of a query that may lend."""

    id: str
    own_rate: float  #: rows/s of its own keys, wherever they are counted
    waiting: int  #: rows
    row_s: float  #: time that it takes for a row, beside the other work of its task manager

    @property
    def waits_s(self) -> float:
        """Return the time that the rows take which wait for it."""
        return self.waiting * self.row_s


def workers_of(snapshot: Snapshot, task: Task, lent: Lent) -> tuple[Worker, ...]:
    """Return the instances of a task, in the order of their numbers; () while one does not run or is not measured."""
    mine = [each for each in snapshot.instances if each.task == task.id]
    mine.sort(key=lambda each: (len(each.id), each.id))
    if not mine or any(not is_running(each) or each.missing or each.arrival_rate is None for each in mine):
        return ()
    costs = [each.cpu / CORE / each.in_rate for each in mine if each.in_rate > 0.0 and each.cpu > 0.0]
    if not costs:
        return ()
    row_s = min(costs)  # the busiest has the least fixed cost for a row
    managers = {each.id: each for each in snapshot.task_managers}
    own = {}
    for each in mine:
        _, share = lent.get(each.id, ("", 0.0))
        own[each.id] = each.arrival_rate or 0.0
        if share:
            own[each.id] = own[each.id] / (1.0 - share)
    taken = dict.fromkeys(own, 0.0)
    for each in mine:  # what a lessee gets is not of its own keys
        to, share = lent.get(each.id, ("", 0.0))
        if to in taken:
            taken[to] += own[each.id] * share
    found = []
    for each in mine:
        manager = managers[each.task_manager]
        others = max(manager.cpu - each.cpu, 0.0) / CORE
        core = min(max(manager.cores - others, LEAST_CORE), 1.0)
        rate = max(own[each.id] - taken[each.id], 0.0)
        found.append(Worker(each.id, rate, each.waiting or 0, row_s / core))
    return tuple(found)


def lent_in(actions: Iterable[Lend]) -> Lent:
    """Return what a plan lends, by lessor."""
    return {each.instance: (each.to, each.share) for each in actions}


Queue = LaxityQueue[tuple[str, int]]


def queue_of(worker: Worker, target_s: float, horizon_s: float) -> Queue:
    """Return the messages that a worker has and will get, ns from now: those that wait, and those of its own keys that
    arrive within the horizon."""
    queue: Queue = LaxityQueue()
    waits_s, rate = worker.waits_s, max(worker.own_rate, 1e-9)
    since_s = min(worker.waiting / rate, waits_s + target_s)  # about when the oldest waiting row came
    for number in range(MESSAGES if waits_s else 0):
        came_s = -since_s * (1.0 - (number + 0.5) / MESSAGES)
        queue.add(_ns(came_s + target_s), _ns(waits_s / MESSAGES), ("waits", number))
    for number in range(MESSAGES if worker.own_rate else 0):
        came_s = horizon_s * (number + 0.5) / MESSAGES
        queue.add(_ns(came_s + target_s), _cost_ns(worker, worker.own_rate, horizon_s), ("comes", number))
    return queue


def lent_by(lessor: Worker, lessee: Worker, target_s: float, horizon_s: float) -> float:
    """Return which share of the rows of its keys a worker would count late and the other one would not."""
    offered = queue_of(lessor, target_s, horizon_s).violators(0, lambda each: each[0] == "comes")
    there = queue_of(lessee, target_s, horizon_s)
    cost, taken = _cost_ns(lessee, lessor.own_rate, horizon_s), 0
    for _, number in offered:
        due = _ns(horizon_s * (number + 0.5) / MESSAGES + target_s)
        if there.check(due, cost, 0):
            there.add(due, cost, ("lent", number))
            taken += 1
    return taken / MESSAGES


def why_lent(lessor: Worker, target_s: float, unshed_rate: float = 0.0) -> str:
    """Return why rows of an instance, as it was measured, are lent. `unshed_rate`: rows/s of its keys that would come
    without shedding, where these are more."""
    more = f", {unshed_rate:.0f} rows/s without shedding" if unshed_rate > 1.01 * lessor.own_rate else ""
    return (
        f"{lessor.waiting} rows wait and {lessor.own_rate:.0f} rows/s of its keys come{more}, of which it counts "
        f"{1.0 / lessor.row_s:.0f} rows/s: the others would be older than {target_s:g} s"
    )


def _cost_ns(worker: Worker, rate: float, horizon_s: float) -> int:
    """Return how long a worker runs for one of the messages into which rows of this rate are divided."""
    return max(_ns(rate * horizon_s / MESSAGES * worker.row_s), 1)


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


class DirigoLive:
    """Lends rows of instances that would count them late to others that would not. Sheds nothing."""

    def __init__(self, name: str = "dirigo", parameters: Parameters = DEFAULTS) -> None:
        self.name = name
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Parameters, name: str) -> DirigoLive:
        """See `core.policy.ParameterizedPolicy`."""
        return DirigoLive(name, parameters)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot: what each instance lends, to which other.

        `state`: what each lent so far, as the last call returned it.
        """
        lent: Lent = state if isinstance(state, Mapping) else {}
        actions = [
            each
            for task in snapshot.tasks
            if task.lends
            for each in self.of_task(task, workers_of(snapshot, task, lent))
        ]
        return keeping_all(snapshot, tuple(actions)), lent_in(actions)

    def target_s(self, task: Task) -> float:
        """Return the time within which rows of a task are to be counted."""
        return task.max_latency_s or self.parameters.target_s

    def of_task(self, task: Task, workers: Sequence[Worker]) -> list[Lend]:
        """Return what instances of a task lend: none of them lends and borrows at the same time."""
        p, found, lessees = self.parameters, list[Lend](), set[str]()
        target_s = self.target_s(task)
        for number in sorted(range(len(workers)), key=lambda at: -workers[at].waits_s - workers[at].own_rate):
            lessor = workers[number]
            if lessor.id in lessees:
                continue
            allowed = neighbours(number, p.parallelism_range, len(workers))[1:]
            free = [
                workers[at] for at in allowed if workers[at].id not in {*lessees, *(each.instance for each in found)}
            ]
            shares = {each.id: lent_by(lessor, each, target_s, p.horizon_s) for each in free}
            to = max(shares, key=lambda id: shares[id], default="")
            if to and shares[to] >= LEAST_SHARE:
                lessees.add(to)
                share = round(min(shares[to], MOST_SHARE), 3)
                found.append(Lend(task.id, lessor.id, to, share, why_lent(lessor, target_s)))
        return found

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return DirigoReasons(snapshot, plan, self.name)


class DirigoReasons(ReasonsOfPlan):
    """The `core.policy.Reasons` of a plan that lends rows, for the snapshot that it was decided on."""

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: what its instances lend, or why they lend nothing."""
        task = next(each for each in self.snapshot.tasks if each.id == id)
        if not task.lends and task.priority is None:
            return []
        if not task.lends:
            return ["it lends no rows: that needs --key, --lend and --parallelism 2 or more"]
        lent = [each for each in self.plan.actions if isinstance(each, Lend) and each.task == id]
        if not lent:
            return ["no instance lends rows: none would count them late that another one would count in time"]
        return [f"{each.instance} lends {each.share:.0%} of its rows to {each.to}" for each in lent]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: rows/s that reach the instances of queries that lend."""
        lends = {task.id for task in self.snapshot.tasks if task.lends}
        here = [each for each in self.snapshot.instances if each.task_manager == id and each.task in lends]
        return [_arriving(each) for each in here if each.arrival_rate is not None]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: there are none of a task manager."""
        return {}


def _arriving(instance: Instance) -> str:
    return f"{instance.arrival_rate:.0f} rows/s reach {instance.id}, of which {instance.waiting or 0} rows wait"


__all__ = [
    "DEFAULTS",
    "DirigoLive",
    "DirigoReasons",
    "Lent",
    "Parameters",
    "Worker",
    "lent_by",
    "lent_in",
    "why_lent",
    "workers_of",
]
