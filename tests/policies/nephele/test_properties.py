"""What holds for any job, any placement and any measurement."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import fsum
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import S
from qod_magics.core.job_graph import (
    Channel,
    ChannelSample,
    JobConstraint,
    JobEdge,
    JobGraph,
    JobSequence,
    Report,
    Resize,
    RuntimeGraph,
    Task,
)
from qod_magics.policies.nephele import Parameters, nephele
from qod_magics.policies.nephele.latency import Weighed, anchor, paths, setup
from qod_magics.policies.nephele.manager import TaskFacts, longest_chain, step
from tests.policies.nephele.exact import owner

LIMITS = Parameters()
VERTICES = "ABCDE"


@given(
    st.integers(LIMITS.epsilon, LIMITS.omega),
    st.none() | st.floats(0, 1e5),
    st.none() | st.floats(0, 1e4),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_a_step_stays_within_the_limits_and_goes_one_way(
    size: int, life: float | None, sender: float | None, min_factor: float
) -> None:
    found = step(size, life, sender, Parameters(min_factor=min_factor)).bytes
    assert LIMITS.epsilon <= found <= LIMITS.omega
    waits = None if life is None else life / 2
    if waits is None or waits > LIMITS.zero_obl_ms:
        assert found <= size
    if waits is None or waits <= LIMITS.min_obl_ms:
        assert found >= size
    assert found >= min(size, int(min_factor * size))


@st.composite
def graphs(draw: Any) -> RuntimeGraph:
    """A line of vertices, now and then with a fork that no path goes along; tasks on any worker."""
    count = draw(st.integers(2, len(VERTICES)))
    names, parallelism, edges = list(VERTICES[:count]), [draw(st.integers(1, 3))], []
    for sender, receiver in pairwise(names):
        pattern = draw(st.sampled_from(["all-to-all", "pointwise"]))
        parallelism.append(parallelism[-1] if pattern == "pointwise" else draw(st.integers(1, 3)))
        edges.append(JobEdge(sender, receiver, pattern))
    if draw(st.booleans()):
        names.append("Z")
        parallelism.append(1)
        edges.append(JobEdge(names[0], "Z", "all-to-all"))
    worker = st.sampled_from(["w1", "w2", "w3"])
    workers = {name: tuple(draw(worker) for _ in range(n)) for name, n in zip(names, parallelism, strict=True)}
    return RuntimeGraph(JobGraph(tuple(names), tuple(edges)), workers)


def line(graph: RuntimeGraph) -> list[str]:
    return [vertex for vertex in graph.job.vertices if vertex != "Z"]


@st.composite
def constrained(draw: Any) -> tuple[RuntimeGraph, list[JobConstraint]]:
    """A graph and constraints on parts of its line."""
    graph = draw(graphs())
    vertices, found = line(graph), []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, len(vertices) - 2))
        last = draw(st.integers(first + 1, len(vertices) - 1))
        found.append(JobConstraint(JobSequence(tuple(vertices[first : last + 1])), 100))
    return graph, found


def every(graph: RuntimeGraph, path: tuple[str, ...]) -> Iterator[tuple[Task, ...]]:
    """Each runtime sequence along a path, by its tasks."""
    for tasks in product(*(graph.tasks(vertex) for vertex in path)):
        if all(b in graph.receivers(a, b.vertex) for a, b in pairwise(tasks)):
            yield tasks


@given(constrained())
def test_each_sequence_has_one_owner_whose_graph_has_its_channels(
    case: tuple[RuntimeGraph, list[JobConstraint]],
) -> None:
    graph, constraints = case
    constrained_paths = paths(graph, constraints)
    managers = setup(graph, constrained_paths)
    assert set(managers) == {graph.worker(t) for path in constrained_paths for t in graph.tasks(anchor(graph, path))}
    owned = dict.fromkeys(managers, 0)
    for path in constrained_paths:
        for tasks in every(graph, path):
            owners = [
                (worker, role)
                for worker, manager in managers.items()
                for role in manager.roles
                if role.path == path and set(role.tasks) & set(tasks)
            ]
            ((worker, role),) = owners
            assert worker == owner(graph, path, tasks)
            assert {Channel(*pair) for pair in pairwise(tasks)} <= set(role.subgraph.channels())
            owned[worker] += 1
    assert owned == {worker: manager.constraints for worker, manager in managers.items()}
    for manager in managers.values():
        for role in manager.roles:
            assert len(list(role.subgraph.channels())) == role.subgraph.channel_count
            needed = {task for tasks in every(graph, role.path) if set(role.tasks) & set(tasks) for task in tasks}
            assert {task for tasks in role.subgraph.tasks for task in tasks} == needed


@st.composite
def weighed(draw: Any) -> tuple[RuntimeGraph, JobSequence, dict[Task, float], dict[Channel, float]]:
    """A graph, a sequence along its line, and the latencies of some elements."""
    graph = draw(graphs())
    sequence = JobSequence(tuple(line(graph)), draw(st.booleans()), draw(st.booleans()))
    ms = st.integers(0, 50).map(float)
    tasks = {t: draw(ms) for v in sequence.path for t in graph.tasks(v) if draw(st.integers(0, 5))}
    channels = {
        c: draw(ms) for c in graph.all_channels() if c.receiver.vertex in sequence.path and draw(st.integers(0, 5))
    }
    return graph, sequence, tasks, channels


@settings(max_examples=50)
@given(weighed(), st.integers(0, 200), st.sets(st.sampled_from([(a, b) for a in "ABCD" for b in (0, 1)])))
def test_violations_are_those_that_a_list_of_all_sequences_has(
    case: tuple[RuntimeGraph, JobSequence, dict[Task, float], dict[Channel, float]],
    limit: int,
    wanted: set[tuple[str, int]],
) -> None:
    graph, sequence, tasks, channels = case
    listed: dict[tuple[Task, ...], float] = {}
    for each in every(graph, sequence.path):
        crossed = [channels.get(Channel(*pair)) for pair in pairwise(each)]
        worked = [tasks.get(task) for i, task in enumerate(each) if sequence.is_element(i)]
        known = [ms for ms in (*crossed, *worked) if ms is not None]
        if len(known) == len(crossed) + len(worked):
            listed[each] = sum(known)
    roles = [role for manager in setup(graph, [sequence.path]).values() for role in manager.roles]
    found = [Weighed(sequence, role.subgraph, tasks, channels) for role in roles]
    violated = {channel for each in found for channel in each.violated(limit)}
    above = {each: ms for each, ms in listed.items() if ms > limit}
    assert violated == {Channel(*pair) for each in above for pair in pairwise(each)}
    worst = [each.worst() for each in found]
    assert max((each[0] for each in worst if each), default=None) == max(listed.values(), default=None)
    assert all(listed[each[1]] == each[0] for each in worst if each)
    for top in [max(listed.values())] if listed else []:  # a latency at the limit meets it
        assert not any(each.violated(top) or each.worst_with(top, lambda _: True) for each in found)

    def is_wanted(channel: Channel) -> bool:
        return tuple(channel.sender) in wanted

    best = [each.worst_with(limit, is_wanted) for each in found]
    with_wanted = [ms for each, ms in above.items() if any(is_wanted(Channel(*pair)) for pair in pairwise(each))]
    assert max((each[0] for each in best if each), default=None) == max(with_wanted, default=None)
    for each in best:
        if each:
            assert listed[each[1]] == each[0]
            assert any(is_wanted(Channel(*pair)) for pair in pairwise(each[1]))


facts = st.builds(
    TaskFacts,
    st.sampled_from(["p1", "p1", "p1", "p2"]),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, None]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([True, True, True, False]),
)


def can_chain(run: list[TaskFacts]) -> bool:
    """The five conditions, each by itself."""
    return (
        len(run) > 1
        and len({each.process for each in run}) == 1
        and not any(each.is_chained for each in run)
        and all(each.may_chain for each in run)
        and all(each.cpu_cores is not None for each in run)
        and fsum(each.cpu_cores or 0.0 for each in run) < 0.9 - 1e-9
        and all(each.incoming == 1 for each in run[1:])
        and all(each.outgoing == 1 for each in run[:-1])
    )


@given(st.lists(facts, max_size=6))
def test_a_chain_is_the_first_of_the_longest_runs_that_meet_the_conditions(tasks: list[TaskFacts]) -> None:
    runs = [(first, last) for first, last in product(range(len(tasks)), repeat=2) if first < last]
    fitting = [run for run in runs if can_chain(tasks[run[0] : run[1] + 1])]
    expected = max(fitting, key=lambda run: (run[1] - run[0], -run[0]), default=None)
    found = longest_chain(range(len(tasks)), tasks.__getitem__, 0.9)
    assert found == (() if expected is None else tuple(range(expected[0], expected[1] + 1)))


@settings(max_examples=40)
@given(constrained(), st.data())
def test_nothing_is_done_while_every_violated_sequence_has_an_unknown_or_frozen_element(
    case: tuple[RuntimeGraph, list[JobConstraint]], data: st.DataObject
) -> None:
    graph, constraints = case
    channels = list(graph.all_channels())
    silent = data.draw(st.sets(st.sampled_from(channels)))
    managers = nephele().managers(graph, constraints)
    for manager in managers:
        told = [c for c in manager.interests()[1] if c not in silent]
        tasks = [(task, 10.0) for task in manager.interests()[0]]
        samples = [ChannelSample(c, 1000.0, 0) for c in told]
        manager.receive(Report(samples, samples, tasks), 0)
        changed = {i.channel for i in manager.check(0) if isinstance(i, Resize)}
        known = [
            tasks
            for path in paths(graph, constraints)
            for tasks in every(graph, path)
            if owner(graph, path, tasks) == manager.worker
            and not any(Channel(*pair) in silent for pair in pairwise(tasks))
        ]
        assert bool(changed) == bool(known)
        assert changed <= {Channel(*pair) for tasks in known for pair in pairwise(tasks)}
        # now all of these are frozen; what is new of the others makes a sequence known only if it has no frozen channel
        later = [ChannelSample(c, 1000.0, 1 if c in changed else 0) for c in told]
        manager.receive(Report(later, later, tasks), 14 * S)
        assert manager.check(14 * S) == []
        assert bool(manager.check(15 * S)) == bool(known)
