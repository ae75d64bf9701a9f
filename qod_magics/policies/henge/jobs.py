"""The jobs of a snapshot: the parts of the application that no stream connects, with their operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor

from qod_magics.core.dag import Dag, reachable
from qod_magics.core.optional import BUSY, MAX_LATENCY, MAX_PARALLELISM, UTILITY
from qod_magics.core.placement import takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager
from qod_magics.policies.henge.machine import Job, Operator
from qod_magics.policies.henge.parameters import Parameters
from qod_magics.policies.henge.utility import Utility, hybrid_utility, latency_utility, throughput_utility

Jobs = Mapping[str, tuple[str, ...]]  #: tasks by job, both in the order of the snapshot

#: Of a task of which nobody knows how many it can have, whatever the cores.
MOST_INSTANCES = 1000
#: Priorities beyond count as this one.
HIGHEST = 10**9


def jobs_of(snapshot: Snapshot) -> Jobs:
    """The tasks of each job. A job is named after the first of its queries in the snapshot."""
    topology = Dag.of(snapshot).topology
    neighbours = [(*up, *down) for up, down in zip(topology.upstream, topology.downstream, strict=True)]
    found: dict[str, tuple[str, ...]] = {}
    seen: set[int] = set()
    for start in range(len(snapshot.tasks)):
        if start not in seen:
            part = sorted(reachable([start], neighbours))
            seen.update(part)
            query = next(t for t in part if not topology.downstream[t])
            found[snapshot.tasks[query].id] = tuple(snapshot.tasks[t].id for t in part)
    return found


def measured_jobs(
    snapshot: Snapshot,
    jobs: Jobs,
    juice: Mapping[str, float],
    latency_s: Mapping[str, float],
    parameters: Parameters,
    *,
    margin: float = 1.0,
) -> Mapping[str, Job]:
    """The jobs as the state machine sees them.

    Args:
        snapshot: the cluster.
        jobs: the tasks of each.
        juice: by job; one without is taken to have all.
        latency_s: by query; likewise.
        parameters: the targets' defaults, the curve.
        margin: multiple of each target of latency to judge by.

    """
    tasks = {task.id: task for task in snapshot.tasks}
    hosted: dict[str, list[Instance]] = {name: [] for name in tasks}
    for instance in snapshot.instances:
        hosted[instance.task].append(instance)
    cores = floor(min(sum(manager.cores for manager in working(snapshot.task_managers)), MOST_INSTANCES))
    down = snapshot.downstream
    found = {}
    for name, members in jobs.items():
        queries = [
            _utility(tasks[each], juice.get(name), latency_s.get(each), parameters, margin)
            for each in members
            if not down[each]
        ]
        utility = Utility(sum(each.current for each in queries), sum(each.most for each in queries))
        found[name] = Job(utility, {each: _operator(tasks[each], hosted[each], cores) for each in members})
    return found


def working(managers: Sequence[TaskManager]) -> list[TaskManager]:
    """The task managers that run instances, without those that stand by."""
    return [manager for manager in managers if takes_instances(manager)]


def loads(snapshot: Snapshot) -> Mapping[str, tuple[float, float]]:
    """(cores in use, cores) of each working task manager."""
    return {manager.id: (manager.cpu / 100.0, manager.cores) for manager in working(snapshot.task_managers)}


def maximum_utility(query: Task) -> float:
    """U of a query: its `utility`, else its priority. One of priority 0, the default, or less must count, too: it has
    1 / (2 - priority), which is below 1 and falls with the priority."""
    given = UTILITY.of(query)
    if given is not None:
        return given
    priority = float(max(-HIGHEST, min(query.priority or 0, HIGHEST)))
    return priority if priority >= 1.0 else 1.0 / (2.0 - priority)


def _utility(
    query: Task, juice: float | None, latency_s: float | None, parameters: Parameters, margin: float
) -> Utility:
    """Equation 2 for a query with a target of its latency, equation 1 for another, or the mean of both (`hybrid`)."""
    most = maximum_utility(query)
    target_s = MAX_LATENCY.of(query)
    enough = parameters.juice_target * (1.0 - parameters.juice_slack)
    full = juice is None or juice >= enough
    by_juice = most if full else throughput_utility(juice or 0.0, parameters.juice_target, most, parameters.curve)
    if target_s is None:
        return Utility(by_juice, most)
    by_latency = latency_utility(latency_s or 0.0, margin * target_s, most, parameters.curve)
    return Utility(hybrid_utility(by_latency, by_juice) if parameters.hybrid else by_latency, most)


def _operator(task: Task, instances: Sequence[Instance], cores: int) -> Operator:
    """A task as an operator. Its queue is the topic that it reads, so a source is one like any other: the spout, which
    is left alone, is the outside world. Where nobody knows how many instances it can have, it gets no more than there
    are cores."""
    most = MAX_PARALLELISM.of(task)
    count = len(instances)
    busiest = max((_busy(each) for each in instances), default=0.0)
    return Operator(count, max(count, cores if most is None else int(most)), busiest)


def _busy(instance: Instance) -> float:
    busy = BUSY.of(instance)
    return instance.cpu / 100.0 if busy is None else busy
