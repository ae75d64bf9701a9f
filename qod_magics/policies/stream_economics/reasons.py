"""The reasons of Stream Economics: which task managers limit which tasks, and their CPU and needs. Pure.

The figures are those of the model (thesis, section 3.4), with learned costs where the snapshot has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf

from qod_magics.core.dag import Dag, above, queries_of, restrictions
from qod_magics.core.load import load_of, warming_up
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot, TaskManager, column
from qod_magics.errors import counted, listed
from qod_magics.policies.stream_economics.requirements import FULL_CORE, known_requirements, minimums


@dataclass(frozen=True, slots=True)
class Need:
    """CPU figures of one task manager, % of one core."""

    available: float  #: aCpu(tm): what it has for its tasks
    at_minimum: float  #: sum of minReq over its instances
    at_full: float  #: sum of rCpu(t, 1) over its instances
    trust: float = 1.0  #: CPU that plans give its tasks / aCpu(tm); infinite where it runs open

    @property
    def short(self) -> float:
        """Return CPU lacking for the minimum accuracies; 0 when they fit."""
        return max(self.at_minimum - self.available, 0.0)

    @property
    def is_open(self) -> bool:
        """Return whether plans shed nothing for its CPU."""
        return self.trust == inf

    @property
    def is_tight(self) -> bool:
        """Return whether not all of its tasks can run at full accuracy."""
        return self.at_full > self.trust * self.available + 0.05


def needs(snapshot: Snapshot) -> Mapping[str, Need]:
    """Return CPU that each task manager of the snapshot has and needs, by id."""
    topology = Dag.of(snapshot).topology
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    at_minimum = [0.0] * len(snapshot.task_managers)
    at_full = [0.0] * len(snapshot.task_managers)
    least = minimums(snapshot, topology, required)
    full = required.all_of([1.0] * len(least))
    for task, manager in load.of_needing():
        at_minimum[manager] += least[task]
        at_full[manager] += full[task]
    return {
        manager.id: Need(required.available[i], at_minimum[i], at_full[i], _trust(manager))
        for i, manager in enumerate(snapshot.task_managers)
    }


def _trust(manager: TaskManager) -> float:
    return inf if manager.open_s is not None else manager.trust or 1.0


def shortage(name: str, need: Need) -> str:
    """Return why instances have to leave a task manager: "tm1 needs 12.4 % more than it has at minimum accuracies"."""
    if need.short > 0:
        return f"{name} needs {need.short:.1f} % more than it has at minimum accuracies"
    return f"{name} needs {need.at_minimum:.1f} % of a core at minimum accuracies and has {need.available:.1f} %"


def supply(name: str, need: Need) -> str:
    """Return CPU that a task manager has and needs, in words."""
    return (
        f"{name} has {need.available:.1f} % of a core for its tasks, "
        f"needs {need.at_minimum:.1f} % at minimum accuracies and {need.at_full:.1f} % at full accuracy"
    )


class StreamEconomicsReasons:
    """The `core.policy.Reasons` of a Stream Economics plan for a snapshot: the one that it was decided on."""

    def __init__(self, snapshot: Snapshot, plan: Plan, *, excludes_all: bool = True) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.excludes_all = excludes_all  #: whether a warm-up excludes all instances of its task manager from sharing

    def __repr__(self) -> str:
        return f"reasons of a plan for {len(self.snapshot.tasks)} tasks"

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `core.policy.Reasons`: the task managers that limit a task, each with its CPU and needs; without any,
        the tasks whose instances can't use more."""
        dag = Dag.of(self.snapshot)
        position = dag.topology.position
        wanted = dag.tasks.values(self.plan.desired)
        limited = self._limits([position[task] for task in tasks])
        words: dict[tuple[str, ...], str] = {}  #: by the task managers that limit a task
        found = {}
        for task in tasks:
            hosts = _limiting(dag, wanted, position[task], limited)
            if hosts not in words:
                words[hosts] = "; ".join(map(self._pressure, hosts))
            found[task] = words[hosts] or self._narrow(position[task]) or "no task manager is short of CPU"
        return found

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`."""
        snapshot, plan = self.snapshot, self.plan
        asked = restrictions(snapshot)
        related = {name for query in queries_of(snapshot, id) for name in above(snapshot, query.id)}
        task_of = {instance.id: instance.task for instance in snapshot.instances}
        parts = []
        moved = [name for name in plan.leaving if task_of.get(name) in related]
        if moved:
            parts.append(f"to be moved: {listed(moved)}, so its queries run at their minimum meanwhile")
        dag = Dag.of(snapshot)
        t = dag.topology.position[id]
        hosts = _limiting(dag, dag.tasks.values(plan.desired), t, self._limits([t]))
        for host in hosts:
            here = {i.task for i in snapshot.instances if i.task_manager == host}
            first = sorted(other for other in here - above(snapshot, id) if asked[other][0] > asked[id][0])
            parts.append(self._pressure(host, [f"{other} (priority {asked[other][0]})" for other in first]))
        narrow = "" if hosts else self._narrow(t)
        return [*parts, narrow] if narrow else parts

    def supply(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return supply(id, self._needs[id])

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: whether a warm-up there excludes it from sharing, whether it runs open, or how
        far its cost estimates are trusted."""
        if id in self._warming and self.excludes_all:
            excluded = ["until that is over, it takes no part in sharing and nothing is moved away from it"]
            return excluded + self._trust(id)
        return self._trust(id)

    def starved(self, id: str) -> str:
        """See `core.policy.Reasons`."""
        return f"{shortage(id, self._needs[id])}, and there is nowhere to move a task to: add a task manager"

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: CPU of a task manager, % of one core."""
        need = self._needs[id]
        return {"available": need.available, "at_minimum": need.at_minimum, "at_full": need.at_full}

    @cached_property
    def _needs(self) -> Mapping[str, Need]:
        return needs(self.snapshot)

    @cached_property
    def _managers(self) -> Mapping[str, TaskManager]:
        return {manager.id: manager for manager in self.snapshot.task_managers}

    @cached_property
    def _warming(self) -> Mapping[str, list[str]]:
        """Return the instances that warm up on task managers that shed, by task manager."""
        found = warming_up(self.snapshot)
        return {host: there for host, there in found.items() if not self._needs[host].is_open}

    def _trust(self, id: str) -> list[str]:
        manager = self._managers[id]
        if (limit_s := manager.open_s) is not None:
            return [f"it runs open: nothing is shed for its CPU until its backlog exceeds {limit_s:g} s of input"]
        trust = manager.trust
        if trust is None or round(trust, 2) == 1.0:
            return []
        fewer = "more" if trust > 1.0 else "less"
        return [f"plans give its tasks {abs(trust - 1.0):.0%} {fewer} CPU than it has, judged by its backlog"]

    def _pressure(self, host: str, first: Sequence[str] = ()) -> str:
        """Return CPU and needs of a task manager that limits a task, whom it serves `first`, how far its cost estimates
        are trusted, and its instances that are warming up."""
        words = supply(host, self._needs[host])
        if host in self._warming:
            there = listed(self._warming[host])
            if self.excludes_all:
                return f"{words}; warming up there: {there}, so its queries run at their minimum until that is over"
            words += f"; {there} warms up there, at its minimum until that is over"
        if first:
            words += f", and serves {listed(first)} first"
        return "; ".join([words, *self._trust(host)])

    def _narrow(self, t: int) -> str:
        """Return the tasks, of this one (by position) and its ancestors, of which an instance needs more CPU than it
        can use, in words; "" without any."""
        dag = Dag.of(self.snapshot)
        required = known_requirements(self.snapshot, dag.topology)
        found, seen, waiting = [], {t}, [t]
        while waiting:
            each = waiting.pop()
            needed, usable = required.base[each] + required.cost(each), required.usable[each]
            if (carried := self.snapshot.tasks[each].keeps_up) is not None:
                found.append(
                    f"batches of {dag.names[each]} keep up with its input at an accuracy of {carried:.2f}: its backlog "
                    "did not fall while cores were idle, so they wait for something other than CPU"
                )
            elif needed > usable + 0.05:
                cores = counted(round(usable / FULL_CORE), "core")
                found.append(
                    f"an instance of {dag.names[each]} can use {cores}, one for each partition that it reads, and "
                    f"needs {needed:.1f} % of a core at full accuracy: more instances or partitions would keep more"
                )
            inputs = [source for source in dag.topology.upstream[each] if source not in seen]
            seen.update(inputs)
            waiting += inputs
        return "; ".join(found)

    def _limits(self, tasks: Iterable[int]) -> Mapping[int, tuple[str, ...]]:
        """Return the task managers that limit each of these tasks, their descendants and all ancestors of those: they
        run the task or an ancestor of it, and are short of CPU or have an instance that warms up. Tasks by position."""
        snapshot = self.snapshot
        scarce = {name for name, need in self._needs.items() if need.is_tight}
        if self.excludes_all:
            scarce |= self._warming.keys()
        warming = set(chain.from_iterable(self._warming.values()))
        dag = Dag.of(snapshot)
        upstream = dag.topology.upstream
        hosts: dict[int, tuple[str, ...]] = dict.fromkeys(dag.around(tasks), ())
        of = load_of(snapshot, dag.topology).task_of
        homes, names = column(snapshot.instances, "task_manager"), column(snapshot.instances, "id")
        for t, host, name in zip(of, homes, names, strict=True):
            if t in hosts and (host in scarce or name in warming):
                hosts[t] += (host,)
        for t, mine in hosts.items():  # inputs come before their readers
            inputs = [hosts[source] for source in upstream[t]]
            if len(mine) > 1 or any(inputs):
                hosts[t] = tuple(dict.fromkeys(chain(mine, *inputs)))
        return hosts


def _limiting(dag: Dag, desired: Sequence[float], t: int, limited: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the task managers that limit a task's desired accuracy: for a query its own, for another task those of its
    query with the highest, since that is the accuracy it runs at. `desired`: by position, as is `t`."""
    downstream = dag.topology.downstream
    while downstream[t]:
        t = max(downstream[t], key=desired.__getitem__)
    return limited[t]
