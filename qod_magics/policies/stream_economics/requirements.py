"""Compute the CPU that each task needs by accuracy, and propagate accuracies from queries to sources. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.dag import Topology
from qod_magics.core.load import Load, current_accuracies, load_of
from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Keys, Snapshot, Task, TaskManager, column

# --- CPU by accuracy --------------------------------------------------------------------------------------------------
# `proportional` and `learned` compute it. `paper_requirements`, `known_requirements` and `minimums` do so once per
# snapshot, for decisions and their explanations: their `topology` is always that of the snapshot's tasks, and their
# results are shared, so do not change them. Accuracies are fractions of 1, CPU is % of one core.

#: Other programs that use more than this share of the cores give the rest to tasks that need it: the operating system
#: divides a core evenly among those that want it. A backlog shows where they don't.
FAIR = 0.5
FULL_CORE = 100.0  #: % of one core: the paper's instances are threads, which can't use more than one core


def required_cpu(accuracy: float, cpu: float, current: float, usable: float = FULL_CORE) -> float:
    """Return rCpu(t, a): the % of one core that a task needs for `accuracy`, given its current CPU and accuracy (Eq.
    3.9); at most `usable`."""
    if current == 0.0:
        return 0.0 if accuracy == 0.0 else FULL_CORE
    needed = accuracy * cpu / current
    return needed if needed < usable else usable


def obtained_accuracy(share: float, cpu: float, current: float) -> float:
    """Return obtAc(t, c): the accuracy that `share` % of one core buys, given the current CPU and accuracy (Eq.
    3.12)."""
    if current == 0.0:
        return 0.0 if share == 0.0 else 1.0
    if cpu == 0.0:
        return current if share == 0.0 else 1.0
    accuracy = current * share / cpu
    return accuracy if accuracy < 1.0 else 1.0


@dataclass(frozen=True, slots=True)
class Requirements:
    """By position. An instance of task t at accuracy a needs `base[t] + a * cpu[t] / at[t]`, at most `usable[t]`."""

    base: list[float]  #: CPU at accuracy 0, % of one core
    cpu: list[float]  #: CPU beyond that at accuracy `at`, % of one core
    at: Sequence[float]  #: fraction of 1; where it is 0, any accuracy above 0 needs a whole core (Eq. 3.9)
    available: list[float]  #: by task manager, aCpu: CPU for its tasks, in % of a core on which cost estimates hold
    usable: Sequence[float]  #: CPU that an instance can use, % of one core: one core in the paper

    def of(self, t: int, accuracy: float) -> float:
        """Return CPU that an instance of the task needs for an accuracy, % of one core."""
        return min(self.base[t] + required_cpu(accuracy, self.cpu[t], self.at[t], self.usable[t]), self.usable[t])

    def all_of(self, accuracies: Sequence[float]) -> list[float]:
        """Return CPU that an instance of each task needs for the task's accuracy, % of one core."""
        if any(self.base):
            return [self.of(t, accuracy) for t, accuracy in enumerate(accuracies)]
        return list(map(required_cpu, accuracies, self.cpu, self.at, self.usable))

    def cost(self, t: int) -> float:
        """Return CPU that accuracy 1 adds to that of accuracy 0, % of one core."""
        if self.at[t] <= 0.0:
            return FULL_CORE
        return self.cpu[t] / self.at[t]

    def costs(self) -> list[float]:
        """Return the same for every task."""
        return [FULL_CORE if at <= 0.0 else cpu / at for cpu, at in zip(self.cpu, self.at, strict=True)]

    def most(self, t: int) -> float:
        """Return the accuracy at which an instance uses all CPU that it can; 1 or more where it never does."""
        if self.base[t] == 0.0 or self.cpu[t] <= 0.0 or self.at[t] <= 0.0:  # without a base, `share` handles it
            return 1.0
        return max(self.usable[t] - self.base[t], 0.0) * self.at[t] / self.cpu[t]


def proportional(snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
    """Return requirements that are proportional to accuracy (model items 2 to 5, Eq. 3.9)."""
    current = current_accuracies(snapshot, topology)
    one = [FULL_CORE] * len(current)
    return Requirements([0.0] * len(current), load.cpu, current, load.available, one)


def learned(snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
    """Return CPU by learned costs: fixed + read * rows read + work * rows kept, at the input rates of full accuracy.

    A source reads all of its input, whatever its accuracy; another task only the rows sent to it. Input rates at full
    accuracy follow from the sources' rates and the selectivities, not from the present shedding, so a plan's effect on
    the measurements does not feed back into the next plan. A task whose costs or input rate are unknown follows the
    paper's model. A task manager whose tasks take more CPU than their costs predict, because it is slower or the costs
    are wrong, counts as that much smaller; CPU of micro-batches that it can do without counts as available, and what
    other programs use there beyond half of the cores. An instance can use a core for each partition that it reads at
    the same time, and what its batches carry at an accuracy where they wait for something other than CPU.
    """
    at = list(current_accuracies(snapshot, topology))
    full = full_rates(snapshot, topology, load)
    base = [0.0] * len(at)
    cpu = list(load.cpu)
    usable = [FULL_CORE] * len(at)
    for t, task in enumerate(snapshot.tasks):
        if (partitions := task.concurrency) is not None:
            usable[t] = FULL_CORE * max(partitions, 1.0)
        rate = full[t]
        fixed, read, work = task.fixed_cpu, task.read_us, task.work_us
        if rate is None:
            continue
        if fixed is None or read is None or work is None:
            if rate > 0.0:
                at[t] = min(load.least_in_rate[t] * load.width[t] / rate, 1.0)
            continue
        each = 1e-4 * rate / load.width[t]  # rows/s times microseconds, as % of one core
        base[t] = min(fixed if task.upstream else fixed + read * each, usable[t])
        cpu[t] = (read + work if task.upstream else work) * each
        at[t] = 1.0
        if task.keeps_up is not None:
            usable[t] = min(usable[t], base[t] + task.keeps_up * cpu[t])
    costs = [manager.cost or 1.0 for manager in snapshot.task_managers]
    yielded = [
        max((manager.neighbours_cpu or 0.0) - FAIR * 100.0 * manager.cores, 0.0) for manager in snapshot.task_managers
    ]
    elastic = [manager.elastic_cpu or 0.0 for manager in snapshot.task_managers]
    left = [cpu + more for cpu, more in zip(load.available, yielded, strict=True)]
    available = [(cpu + spare) / cost for cpu, spare, cost in zip(left, elastic, costs, strict=True)]
    return Requirements(base, cpu, at, available, usable)


def full_rates(snapshot: Snapshot, topology: Topology, load: Load) -> list[float | None]:
    """Return the rows/s that reach each task at full accuracy, by position; None where that is unknown."""
    found: list[float | None] = [None] * len(snapshot.tasks)
    for t in topology.order:
        task = snapshot.tasks[t]
        if not task.upstream:
            found[t] = task.external_rate
            continue
        total = 0.0
        for source in topology.upstream[t]:
            rate, ratio = found[source], snapshot.tasks[source].selectivity
            if rate is None or ratio is None:
                break
            total += rate * ratio
        else:
            found[t] = total
    return found


def paper_requirements(snapshot: Snapshot, topology: Topology) -> Requirements:
    """Return the CPU that each task needs by accuracy, in the paper's model."""
    return snapshot.derived("paper", lambda: proportional(snapshot, topology, load_of(snapshot, topology)))


def known_requirements(snapshot: Snapshot, topology: Topology) -> Requirements:
    """Return the CPU that each task needs by accuracy: by learned costs where they are known, else by the paper's
    model."""
    return snapshot.derived("known", lambda: _known(snapshot, topology))


def _known(snapshot: Snapshot, topology: Topology) -> Requirements:
    if any(map(_is_learned_there, snapshot.task_managers)) or any(map(_is_learned, snapshot.tasks)):
        return learned(snapshot, topology, load_of(snapshot, topology))
    return paper_requirements(snapshot, topology)


def _is_learned_there(manager: TaskManager) -> bool:
    return any(value is not None for value in (manager.cost, manager.trust, manager.open_s, manager.neighbours_cpu))


def _is_learned(task: Task) -> bool:
    return any(value is not None for value in (task.fixed_cpu, task.selectivity, task.concurrency))


def minimums(snapshot: Snapshot, topology: Topology, required: Requirements) -> list[float]:
    """Return minReq(t) by task position, % of one core."""
    first = snapshot.derived("minimums", lambda: (required, required.all_of(topology.min_accuracy)))
    return first[1] if first[0] is required else required.all_of(topology.min_accuracy)


# --- Propagation of accuracies ----------------------------------------------------------------------------------------
# Desired accuracies propagated from queries to sources, and the non-drop probabilities (Eqs. 3.15, 3.16).


def propagate(desired: list[float], topology: Topology) -> None:
    """Raise `desired` of every task that has consumers (0 so far) to the highest of its consumers (Eq. 3.15)."""
    upstream = topology.upstream
    for t in reversed(topology.order):
        asked = desired[t]
        for source in upstream[t]:
            if asked > desired[source]:
                desired[source] = asked


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges with shedders: at the sources (from None), and on the streams. Positions are those of tasks."""

    keys: Keys[Edge]  #: the inputs of sources, then the streams
    sources: list[int]
    streams_from: list[int]
    streams_to: list[int]

    @classmethod
    def of(cls, starts: Sequence[str], ends: Sequence[str], topology: Topology) -> Edges:
        """Return the edges of valid tasks; `starts` and `ends` are the source and target tasks of the streams."""
        position, upstream = topology.position, topology.upstream
        keys = Keys[Edge](
            [*((None, task) for task, t in position.items() if not upstream[t]), *zip(starts, ends, strict=True)]
        )
        sources = [t for t, reads_from in enumerate(upstream) if not reads_from]
        return cls(keys, sources, [position[name] for name in starts], [position[name] for name in ends])


def non_drop(snapshot: Snapshot, desired: Mapping[str, float]) -> dict[Edge, float]:
    """Return the d of every source (from None) and stream: the probability that a row is kept (Eq. 3.16), fraction of
    1."""
    topology = Topology.of(snapshot.tasks)
    edges = Edges.of(column(snapshot.streams, "source"), column(snapshot.streams, "target"), topology)
    return kept_shares([desired[task] for task in topology.position], edges)


def kept_shares(desired: Sequence[float], edges: Edges) -> dict[Edge, float]:
    """Return the same for desired accuracies by task position and known edges."""
    kept = [desired[t] for t in edges.sources]
    ends = zip(edges.streams_from, edges.streams_to, strict=True)
    kept += [desired[b] / desired[a] if desired[a] > 0.0 else 0.0 for a, b in ends]
    return edges.keys.mapping(kept)


def actual_accuracy(snapshot: Snapshot, kept: Mapping[Edge, float]) -> dict[str, float]:
    """ac(t) of every task under these probabilities, fraction of 1 (model item 8, Eq. 3.3).

    The share of the application's input that the shedders let through to the task: the mean over its upstream tasks,
    where the outside world counts as 1.
    """
    topology = Topology.of(snapshot.tasks)
    tasks = snapshot.tasks
    actual: dict[str, float] = {}
    for t in topology.order:
        task = tasks[t]
        if task.upstream:
            reaching = sum(actual[upstream] * kept[upstream, task.id] for upstream in task.upstream)
            actual[task.id] = reaching / len(task.upstream)
        else:
            actual[task.id] = kept[None, task.id]
    return actual
