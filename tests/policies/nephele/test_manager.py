"""What a manager does over time, and how it is told that something is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from qod_magics.core.engines import S
from qod_magics.core.job_graph import (
    BufferSize,
    CannotBeMet,
    Chain,
    Channel,
    ChannelSample,
    Instruction,
    JobConstraint,
    JobSequence,
    Report,
    Resize,
    RuntimeGraph,
    Task,
)
from qod_magics.errors import UsageProblem
from qod_magics.policies.nephele import Parameters, nephele
from qod_magics.policies.nephele.manager import QosManager
from qod_magics.policies.of_engines import channel_policy, channel_policy_names
from tests.policies.nephele.oracles import ELEMENTS, PIPELINE, even
from tests.raising import breaks

LINE = [[*edge[:2], "pointwise"] for edge in PIPELINE]
CONSTRAINT = JobConstraint(JobSequence.parse(ELEMENTS), 300)
#: below 0.9 of a core in all
CORES = {"D": 0.3, "M": 0.05, "O": 0.2, "E": 0.3}


def manager_of(graph: RuntimeGraph, *constraints: JobConstraint, **parameters: Any) -> QosManager:
    (found,) = nephele(Parameters(**parameters)).managers(graph, constraints or (CONSTRAINT,))
    assert isinstance(found, QosManager)
    return found


def report(
    graph: RuntimeGraph,
    ms: float,
    epoch: int = 0,
    chains: tuple[tuple[Task, ...], ...] = (),
    life: float = 4.0,
    cores: dict[str, float] = CORES,
) -> Report:
    """Every channel takes `ms`, every task 1 ms."""
    inside = {Channel(*pair) for chain in chains for pair in pairwise(chain)}
    channels = [c for c in graph.all_channels() if c not in inside]
    tasks = [task for vertex in "DMOE" for task in graph.tasks(vertex)]
    return Report(
        [ChannelSample(c, ms, epoch) for c in channels],
        [ChannelSample(c, life, epoch) for c in channels],
        [(task, 1.0) for task in tasks],
        [(task, cores[task.vertex]) for task in tasks],
        {},
        chains,
    )


def kinds(instructions: list[Instruction]) -> list[type]:
    return [type(each) for each in instructions]


def test_a_limit_that_cannot_be_met_is_reported_once_until_it_is_met_again() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, never_chain=frozenset("DMOE"))
    told = []
    for turn, ms in enumerate([100, 100, 100, 10, 100, 100]):
        manager.receive(report(graph, ms), turn * 15 * S)
        told.append(kinds(manager.check(turn * 15 * S)))
    assert told == [[CannotBeMet], [], [], [], [CannotBeMet], []]


def test_a_report_names_the_worst_sequence() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, never_chain=frozenset("M"), chaining="never")
    manager.receive(report(graph, 100), 0)
    (found,) = manager.check(0)
    assert found == CannotBeMet(CONSTRAINT, tuple(Task(vertex, 0) for vertex in "PDMOER"), 504.0)


def test_a_missing_sample_is_no_proof_that_a_limit_is_met_again() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, chaining="never")
    manager.receive(report(graph, 100), 0)
    assert kinds(manager.check(0)) == [CannotBeMet]
    assert manager.check(20 * S) == []  # all samples are too old
    manager.receive(report(graph, 100), 30 * S)
    assert manager.check(30 * S) == []


@pytest.mark.parametrize(
    ("chaining", "expected"),
    [("after_buffers", [Resize] * 5), ("together", [Resize] * 5 + [Chain]), ("never", [Resize] * 5)],
)
def test_chains_come_after_buffers_or_with_them(chaining: str, expected: list[type]) -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, chaining=chaining)
    manager.receive(report(graph, 100, life=100), 0)
    assert kinds(manager.check(0)) == expected


def test_a_constraint_waits_after_a_chain_and_then_counts_it_as_nothing() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, replace(CONSTRAINT, limit_ms=205))
    manager.receive(report(graph, 100), 0)
    (chain,) = manager.check(0)
    assert isinstance(chain, Chain)
    assert [task.vertex for task in chain.tasks] == ["D", "M", "O", "E"]
    assert chain.queued == "drop"
    manager.receive(report(graph, 1000, chains=(chain.tasks,)), 14 * S)
    assert manager.check(14 * S) == []
    assert dict(manager.estimates(14 * S)) == {replace(CONSTRAINT, limit_ms=205): None}
    manager.receive(report(graph, 100, chains=(chain.tasks,)), 30 * S)
    assert dict(manager.estimates(30 * S)) == {replace(CONSTRAINT, limit_ms=205): 204.0}
    assert manager.check(30 * S) == []
    manager.receive(report(graph, 110, chains=(chain.tasks,)), 45 * S)
    assert kinds(manager.check(45 * S)) == [CannotBeMet]  # nothing is chained twice


def test_another_managers_chain_is_waited_for_too() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, chaining="never")
    manager.receive(report(graph, 100, life=100), 0)
    assert manager.check(0)
    chain = tuple(Task(vertex, 0) for vertex in "DM")
    manager.receive(report(graph, 100, epoch=1, chains=(chain,)), 20 * S)
    assert dict(manager.estimates(20 * S)) == {CONSTRAINT: None}
    assert manager.check(20 * S) == []
    manager.receive(report(graph, 100, epoch=1, chains=(chain,)), 35 * S)
    assert dict(manager.estimates(35 * S)) == {CONSTRAINT: 404.0}


def test_a_chained_channel_is_not_resized_whatever_is_still_reported_of_it() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph)
    manager.receive(report(graph, 100), 0)
    (chain,) = manager.check(0)
    assert isinstance(chain, Chain)
    manager.receive(report(graph, 200, chains=(chain.tasks,)), 20 * S)
    inner = Channel(*chain.tasks[:2])
    manager.receive(Report(life_times=[ChannelSample(inner, 100.0, 0)]), 20 * S)
    assert kinds(manager.check(20 * S)) == [CannotBeMet]


def test_tasks_whose_cpu_is_unknown_are_not_chained() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph)
    manager.receive(replace(report(graph, 100), cpu=[]), 0)
    assert kinds(manager.check(0)) == [CannotBeMet]


def test_the_source_and_the_sink_of_a_sequence_are_not_chained() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph, JobConstraint(JobSequence.parse(["e(P,D)", "D", "e(D,M)"]), 100))
    manager.receive(report(graph, 100), 0)
    assert kinds(manager.check(0)) == [CannotBeMet]  # P and M are no elements of it


def test_where_the_worst_sequence_has_no_chain_the_next_worse_is_tried() -> None:
    graph = even(LINE, 2, 1)
    manager = manager_of(graph)
    cores = [(Task(vertex, 0), 0.5) for vertex in "DMOE"] + [(Task(vertex, 1), 0.1) for vertex in "DMOE"]
    first = report(graph, 100)
    slower = [s._replace(ms=200.0) if s.channel.sender.number == 0 else s for s in first.latencies]
    manager.receive(replace(first, latencies=slower, cpu=cores), 0)
    (found,) = manager.check(0)
    assert isinstance(found, Chain)
    assert found.tasks == tuple(Task(vertex, 1) for vertex in "DMOE")


def test_samples_of_an_older_size_do_not_count() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph)
    manager.receive(report(graph, 100, life=100), 0)
    found = manager.check(0)
    assert all(isinstance(each, Resize) and each.epoch == 0 for each in found)
    manager.receive(report(graph, 1000, epoch=0), 16 * S)
    assert manager.check(16 * S) == []
    manager.receive(report(graph, 1000, epoch=1, life=40), 17 * S)
    again = manager.check(17 * S)
    assert again
    assert all(isinstance(each, Resize) and each.epoch == 1 for each in again)


def test_another_managers_update_is_taken_over() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph)
    first = next(graph.all_channels())
    manager.receive(report(graph, 100), 0)
    manager.receive(Report(sizes={first: BufferSize(5000, 1)}), S)
    assert manager.check(2 * S) == []  # the constraint waits
    latest = report(graph, 100, epoch=1, life=100)
    manager.receive(latest, 17 * S)
    sizes = {each.channel: each for each in manager.check(17 * S) if isinstance(each, Resize)}
    assert sizes[first].epoch == 1
    assert sizes[first].bytes == int(5000 * 0.98**50)


def test_the_size_of_the_update_that_came_first_is_the_one_that_counts() -> None:
    graph = even(LINE, 1, 1)
    manager = manager_of(graph)
    manager.receive(report(graph, 100, life=100), 0)
    channel = next(each.channel for each in manager.check(0) if isinstance(each, Resize))
    manager.receive(Report(sizes={channel: BufferSize(8000, 1)}), S)  # and not ours of epoch 1
    manager.receive(report(graph, 100, epoch=1, life=20), 15 * S)
    found = next(each for each in manager.check(15 * S) if isinstance(each, Resize) and each.channel == channel)
    assert found == Resize(channel, int(8000 * 0.98**10), 1)


def test_a_channel_that_two_constraints_share_is_resized_once_a_pass() -> None:
    graph = even(LINE, 1, 1)
    inner = JobConstraint(JobSequence.parse(["D", "e(D,M)", "M", "e(M,O)"]), 50)
    manager = manager_of(graph, inner, CONSTRAINT)
    manager.receive(report(graph, 100, life=100), 0)
    channels = [each.channel for each in manager.check(0) if isinstance(each, Resize)]
    assert len(channels) == len(set(channels)) == 2  # the longer one has a channel that has just changed
    assert {str(channel) for channel in channels} == {"D1-M1", "M1-O1"}


@pytest.mark.parametrize("name", channel_policy_names())
def test_policies_are_chosen_by_name(name: str) -> None:
    found = channel_policy(name, {"initial_bytes": 1000})
    assert found.name == name
    assert found.initial_bytes == 1000
    assert found.flushes == (name == "nephele-flush")
    assert bool(found.managers(even(LINE, 1, 1), [CONSTRAINT])) == (name == "nephele")
    with pytest.raises(UsageProblem, check=breaks("has a latency", name="P")):
        found.managers(even(LINE, 1, 1), [JobConstraint(JobSequence.parse(["P", "e(P,D)"]), 1)])


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(UsageProblem, check=breaks("exists", name="nefele")):
        channel_policy("nefele")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"r": 1}, "r: 1 is out of range"),
        ({"s": 1.0}, "s: 1.0 is out of range"),
        ({"epsilon": 0}, "epsilon: 0"),
        ({"omega": 100}, "omega: 100"),
        ({"min_factor": 2}, "min_factor: 2"),
        ({"cap_cores": 0}, "cap_cores: 0"),
        ({"zero_obl_ms": 6}, "zero_obl_ms: 6"),
        ({"epsilon": 1.5}, "epsilon: 1.5 is not such a number as 200"),
        ({"r": "0.9"}, 'r: "0.9"'),
        ({"chaining": "always"}, "after_buffers, together, never"),
        ({"queued": "lose"}, "drop, drain"),
        ({"gamma": 1}, '"gamma" is unknown'),
    ],
)
def test_parameters_out_of_range_are_named(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        Parameters.of(given)
    assert says in str(caught.value)


@pytest.mark.parametrize(("initial_bytes", "omega"), [(32768, 32768), (65536, 65536), (100, 200)])
def test_buffers_grow_up_to_the_initial_size(initial_bytes: int, omega: int) -> None:
    assert Parameters(initial_bytes=initial_bytes).omega == omega
    assert Parameters(initial_bytes=initial_bytes, omega=300).omega == 300


def test_parameters_of_json() -> None:
    assert Parameters.of({"never_chain": ["M"], "r": 0.9}) == Parameters(never_chain=frozenset("M"), r=0.9)
    assert Parameters.of(None) == Parameters()
