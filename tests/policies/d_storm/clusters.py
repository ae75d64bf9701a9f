"""Clusters that do what plans tell them, from snapshot to snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qod_magics.core.plan import AddNode, Move, Plan, ReleaseNode
from qod_magics.core.policy import Policy
from qod_magics.core.snapshot import Instance, Snapshot, Spare, Stream, Task, TaskManager, replace
from qod_magics.core.validation import check_snapshot


@dataclass(frozen=True)
class Cluster:
    """Tasks in a DAG, listed before their readers, with one or more instances of each.

    All sources have one rate, and a task hands on all that it reads. CPU of an instance is in points, at what it reads.
    """

    cores: Mapping[str, float]  #: by task manager
    cpu: Mapping[str, float]  #: by instance ("task.1"), points
    place: Mapping[str, str]  #: by instance
    upstream: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rate: float = 100.0  #: rows/s that arrive at each source
    read: float = 1.0  #: share of its input that each source reads; tasks after it read all that it hands on
    spare: Spare | None = None
    now_s: float | None = 0.0
    warming: frozenset[str] = frozenset()
    of_manager: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  #: more fields, by task manager
    of_task: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    of_instance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        tasks = list(dict.fromkeys(name.split(".")[0] for name in self.cpu))
        above = {task: tuple(self.upstream.get(task, ())) for task in tasks}
        feeding = {source for sources in above.values() for source in sources}
        width = Counter(name.split(".")[0] for name in self.cpu)
        used = dict.fromkeys(self.cores, 0.0)
        for name, cpu in self.cpu.items():
            used[self.place[name]] += cpu
        flow: dict[str, float] = {}  #: rows/s that each task reads, and hands on
        for task in tasks:
            flow[task] = sum(flow[source] for source in above[task]) if above[task] else self.rate * self.read
        found = Snapshot(
            tuple(TaskManager(m, c, used[m], **self.of_manager.get(m, {})) for m, c in self.cores.items()),
            tuple(
                Task(
                    task,
                    above[task],
                    None if above[task] else self.rate,
                    *((None, None) if task in feeding else (1, 0.1)),
                    **self.of_task.get(task, {}),
                )
                for task in tasks
            ),
            tuple(Stream(source, task, flow[source]) for task in tasks for source in above[task]),
            tuple(
                Instance(
                    name,
                    (task := name.split(".")[0]),
                    self.place[name],
                    flow[task] / width[task],
                    cpu,
                    name in self.warming,
                    **self.of_instance.get(name, {}),
                )
                for name, cpu in self.cpu.items()
            ),
            at_s=self.now_s,
            spare_nodes=(self.spare,) if self.spare is not None else (),
        )
        check_snapshot(found)
        return found

    def after(self, plan: Plan, seconds: float) -> Cluster:
        """What the plan makes of it, that much later."""
        cores, place, spare = dict(self.cores), dict(self.place), self.spare
        for action in plan.actions:
            match action:
                case Move(instance, to):
                    assert to in cores, f"{instance} moves to {to}, which is not up"
                    place[instance] = to
                case AddNode(kind):
                    assert spare is not None
                    assert spare.kind == kind
                    cores[f"{kind}{spare.count}"] = spare.cores
                    spare = replace(spare, count=spare.count - 1)
                case ReleaseNode(name):
                    assert name not in place.values(), f"{name} is released with instances"
                    del cores[name]
                case _:
                    raise AssertionError(f"not expected of this policy: {action}")
        now_s = None if self.now_s is None else self.now_s + seconds
        return replace(self, cores=cores, place=place, spare=spare, now_s=now_s)


@dataclass
class Run:
    """A policy that decides on a cluster again and again."""

    policy: Policy
    cluster: Cluster
    state: Any = None
    log: list[tuple[float | None, Plan]] = field(default_factory=list)  #: the plans with actions, each with its time

    def step(self, seconds: float = 5.0) -> Plan:
        plan, self.state = self.policy.decide(self.cluster.snapshot, self.state)
        if plan.actions:
            self.log.append((self.cluster.now_s, plan))
        self.cluster = self.cluster.after(plan, seconds)
        return plan

    def until(self, end_s: float, seconds: float = 5.0) -> Plan:
        plan = self.step(seconds)
        while self.cluster.now_s is not None and self.cluster.now_s < end_s:
            plan = self.step(seconds)
        return plan
