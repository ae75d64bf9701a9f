"""Find the paths whose latency `nephele` limits in a snapshot: tasks, channels, constraints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Annotated

from qod_magics.core import job_graph
from qod_magics.core.job_graph import Channel, JobEdge, JobGraph, JobSequence, RuntimeGraph
from qod_magics.core.snapshot import Instance, Snapshot, Task, is_moving
from qod_magics.policies.nephele.latency import Subgraph, Weighed
from qod_magics.policies.nephele.manager import Chaining
from qod_magics.policies.nephele.manager import Parameters as Sizing
from qod_magics.policies.parameters import Parameter, check

#: The vertex from which sources read.
OUTSIDE = ""
#: Paths of a query that are looked at, at most.
MOST_PATHS = 1000
#: A gap up to this multiple of a batch can't be shrunk to any effect.
WORTH_SHRINKING = 2.0
#: The longest gap that a runtime can keep, seconds.
LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """Raises UsageProblem, one line, for values out of range."""

    share: Annotated[
        float, Parameter("share of a target of latency that the gaps along a path take at first", above=0, most=1)
    ] = 0.5
    floor_s: Annotated[float, Parameter("shortest gap between batches, seconds", least=0.01, most=LONGEST_S)] = 0.1
    longest_s: Annotated[float, Parameter("longest gap between batches, seconds", least=0.01, most=LONGEST_S)] = (
        LONGEST_S
    )
    r: Annotated[
        float,
        Parameter("gaps on late paths shrink by this factor for each ms of mean waiting", above=0, most=0.99999),
    ] = 0.9995
    s: Annotated[float, Parameter("factor by which a gap grows", least=1.001, most=10)] = 1.1
    min_wait_s: Annotated[float, Parameter("gaps for which rows wait less are not shrunk, seconds", least=0)] = 0.05
    cap_cores: Annotated[float, Parameter("CPU that the tasks of a chain use in all, cores", above=0, most=1)] = 0.9
    chaining: Annotated[
        Chaining, Parameter("chain tasks once gaps can give no more, in the same pass as these, or never")
    ] = "after_buffers"
    span_s: Annotated[float, Parameter("seconds after a change in which a path is not judged", least=0)] = 10.0
    relax_below: Annotated[
        float, Parameter("gaps grow while latencies are below this share of their targets; 0: never", least=0, most=1)
    ] = 0.6

    def __post_init__(self) -> None:
        check(self)

    @property
    def sizing(self) -> Sizing:
        """Return the parameters of `manager.step`, with ms of a gap for bytes of a buffer."""
        wait_ms = 1e3 * self.min_wait_s
        longest_ms = max(round(1e3 * self.longest_s), 1)
        floor_ms = min(max(round(1e3 * self.floor_s), 1), longest_ms)
        return Sizing(
            longest_ms, floor_ms, longest_ms, self.r, self.s, wait_ms, min(wait_ms, 1.0), cap_cores=self.cap_cores
        )


DEFAULTS = Parameters()


@dataclass(frozen=True, slots=True)
class Element:
    """A task and the channels to it, by its slowest instance. Times in ms; None: not known now."""

    life_ms: float | None  #: interval of its batches
    wait_ms: float | None  #: mean time that a row waits for its batch, or longer where a queue has formed
    batch_ms: float | None
    is_paced: bool  #: whether its gap can be set
    settled: bool  #: whether none of its instances starts, moves or has failed


def is_shortest(gap_s: float, element: Element, floor_s: float) -> bool:
    """Return whether to shrink a gap would not bring batches nearer to each other."""
    return gap_s <= floor_s or (element.batch_ms is not None and 1e3 * gap_s <= WORTH_SHRINKING * element.batch_ms)


def element(instances: Sequence[Instance]) -> Element:
    """Return the element of a task with these instances."""
    settled = bool(instances) and not any(
        each.warming_up or is_moving(each) or each.state not in (None, "running") for each in instances
    )
    if any(each.batch_interval_s is None and each.mode != "micro-batch" for each in instances):  # in real-time mode
        return Element(0.0, 0.0, 0.0, False, settled)
    lives, waits, batches = [], [], []
    for each in instances:
        if each.batch_interval_s is None or each.busy is None or each.missing:
            return Element(None, None, None, bool(instances), settled)
        if each.batch_interval_s == 0.0:  # no row comes
            continue
        life = 1e3 * each.batch_interval_s
        queued = 1e3 * (each.waiting or 0) / each.in_rate if each.in_rate > 0 else 0.0
        lives.append(life)
        waits.append(max(life / 2, queued - life / 2))
        batches.append(each.busy * life)
    return Element(
        max(lives, default=0.0), max(waits, default=0.0), max(batches, default=0.0), bool(instances), settled
    )


@dataclass(frozen=True, slots=True)
class Path:
    """A way from a source to a query, by tasks, with its latency by the elements; None: one of them is not known."""

    tasks: tuple[str, ...]
    weighed: Weighed
    estimate_ms: float | None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A query with a target of its latency."""

    query: str
    limit_s: float
    measured_s: float | None  #: the 95th percentile, or the age of the oldest row if that is more; None: unknown
    paths: tuple[Path, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return all tasks that lead to it, and itself."""
        return tuple(dict.fromkeys(task for path in self.paths for task in path.tasks))

    @property
    def worst(self) -> Path | None:
        """Return the path with the greatest estimate; None while no path is known."""
        known = [path for path in self.paths if path.estimate_ms is not None]
        return max(known, key=lambda path: path.estimate_ms or 0.0, default=None)

    @property
    def is_late(self) -> bool:
        """Return whether the target is missed."""
        return self.measured_s is not None and self.measured_s > self.limit_s

    @property
    def limit_ms(self) -> float:
        """Return the limit on estimates: they may be off, so that of the worst path is taken for the measured
        latency."""
        worst = self.worst
        if worst is None or not worst.estimate_ms or not self.measured_s:
            return 1e3 * self.limit_s
        return 1e3 * self.limit_s * worst.estimate_ms / (1e3 * self.measured_s)


@dataclass(frozen=True, slots=True)
class Seen:
    """The elements and the constraints of a snapshot."""

    elements: Mapping[str, Element]
    constraints: Mapping[str, Constraint]  #: by query
    paced: frozenset[str]  #: tasks of which every query has a target

    @classmethod
    def of(cls, snapshot: Snapshot) -> Seen:
        """Return them, computed once for each snapshot."""
        return snapshot.derived("nephele", lambda: cls._of(snapshot))

    @classmethod
    def _of(cls, snapshot: Snapshot) -> Seen:
        hosted: dict[str, list[Instance]] = {task.id: [] for task in snapshot.tasks}
        for instance in snapshot.instances:
            hosted[instance.task].append(instance)
        elements = {name: element(here) for name, here in hosted.items()}
        tasks = {task.id: task for task in snapshot.tasks}
        queries = [task for task in snapshot.tasks if not snapshot.downstream[task.id]]
        graph = _graph(snapshot)
        found = {
            query.id: Constraint(
                query.id,
                query.max_latency_s,
                _measured(query),
                tuple(_weighed(path, graph, elements) for path in islice(_paths(query.id, tasks), MOST_PATHS)),
            )
            for query in queries
            if query.max_latency_s is not None
        }
        free = {task for query in queries if query.id not in found for task in _ancestors(query.id, tasks)}
        paced = {task for each in found.values() for task in each.tasks if elements[task].is_paced}
        return cls(elements, found, frozenset(paced - free))

    def first_gap_s(self, task: str, parameters: Parameters) -> float:
        """Return the gap of a task at first, seconds: a share of the target by the longest path through it."""
        shares = [
            parameters.share * each.limit_s / len(path.tasks)
            for each in self.constraints.values()
            for path in each.paths
            if task in path.tasks
        ]
        return min(max(min(shares), parameters.floor_s), parameters.longest_s)


def _measured(query: Task) -> float | None:
    known = [each for each in (query.latency_p95_s, query.oldest_s) if each is not None]
    return max(known, default=None)


def _graph(snapshot: Snapshot) -> RuntimeGraph:
    """Return the graph of tasks, one for each job vertex: gaps and chains are set for all instances of a task alike."""
    edges = [JobEdge(source, task.id, "pointwise") for task in snapshot.tasks for source in task.upstream or (OUTSIDE,)]
    vertices = (OUTSIDE, *(task.id for task in snapshot.tasks))
    return RuntimeGraph(JobGraph(vertices, tuple(edges)), dict.fromkeys(vertices, ("",)))


def _paths(query: str, tasks: Mapping[str, Task]) -> Iterator[tuple[str, ...]]:
    """Yield the ways from a source to a query."""
    upstream = tasks[query].upstream
    if not upstream:
        yield (query,)
    for source in upstream:
        for path in _paths(source, tasks):
            yield (*path, query)


def _ancestors(query: str, tasks: Mapping[str, Task]) -> set[str]:
    found, left = {query}, [query]
    while left:
        new = [each for each in tasks[left.pop()].upstream if each not in found]
        found.update(new)
        left += new
    return found


def _weighed(path: tuple[str, ...], graph: RuntimeGraph, elements: Mapping[str, Element]) -> Path:
    whole = (OUTSIDE, *path)
    known = {task: elements[task] for task in path}
    weighed = Weighed(
        JobSequence(whole, ends_with_task=True),
        Subgraph(graph, whole, tuple((job_graph.Task(vertex, 0),) for vertex in whole)),
        {job_graph.Task(task, 0): each.batch_ms for task, each in known.items() if each.batch_ms is not None},
        {
            _channel(sender, receiver): ms
            for sender, receiver in pairwise(whole)
            if (ms := known[receiver].wait_ms) is not None
        },
    )
    worst = weighed.worst()
    return Path(path, weighed, None if worst is None else worst[0])


def _channel(sender: str, receiver: str) -> Channel:
    return Channel(job_graph.Task(sender, 0), job_graph.Task(receiver, 0))
