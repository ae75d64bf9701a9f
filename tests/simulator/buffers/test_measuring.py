"""Samples of task latency and CPU that QoS managers receive, also of tasks slower than the measurement interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import MS, S
from qod_magics.core.job_graph import CannotBeMet, JobConstraint, Report, RuntimeGraph, Task
from qod_magics.policies.nephele import Parameters, QosManager
from qod_magics.policies.nephele.latency import paths, setup
from qod_magics.simulator.buffers import BufferScenario, BufferSimulation, Results
from qod_magics.simulator.buffers.scenario import streams
from qod_magics.simulator.buffers.tasks import Mailbox, TaskMeter
from tests.simulator.buffers.jobs import video

INTERVAL_S = 1


class Listening(QosManager):
    """Writes down what it is told."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard: list[tuple[int, Report]] = []

    def receive(self, report: Report, now: int) -> None:
        self.heard.append((now, report))
        super().receive(report, now)


class Flushing:
    """Buffers are shipped after each item, so that times are simple. Managers listen, and can do nothing but report."""

    name = "flushing"
    flushes = True
    initial_bytes = 1000

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Listening]:
        placed = setup(graph, paths(graph, constraints))
        parameters = Parameters(self.initial_bytes, chaining="never")
        self.made = [Listening(graph, each, constraints, parameters) for each in placed.values()]
        return self.made


def ran(limit_ms: float = 1e9, items_per_s: float = 0.2, **work_us: float) -> tuple[Results, list[Listening]]:
    """One pipeline, two streams that are merged."""
    value = video(
        duration_s=60,
        interval_s=INTERVAL_S,
        workers=1,
        streams={"count": 2, "items_per_s": items_per_s, "spread": 0, "item_spread": 0, "start_s": 1},
    )
    for vertex in value["vertices"]:
        vertex["parallelism"] = 1
        vertex["work_us"] = work_us.get(vertex["name"], vertex.get("work_us", 0))
    value["constraints"][0] |= {"limit_ms": limit_ms, "span_s": INTERVAL_S}
    policy = Flushing()
    results = BufferSimulation(BufferScenario.from_json(value), policy).run()
    return results, policy.made


def samples(managers: Sequence[Listening], vertex: str) -> list[tuple[float, float]]:
    """When they arrived, s, and what they say, ms."""
    return [
        (now / S, ms)
        for manager in managers
        for now, report in manager.heard
        for task, ms in report.task_latencies
        if task.vertex == vertex
    ]


def test_a_merger_that_waits_longer_than_an_interval_is_sampled() -> None:
    results, managers = ran()
    first, second = (stream.start / MS for stream in streams(results.scenario))
    waits = abs(second - first)
    assert waits > 1000 * INTERVAL_S
    found = [ms for _, ms in samples(managers, "M")]
    assert len(found) >= 16
    # one item enters in an interval at most, so that each is sampled: one that waits, and the one it waits for
    own = 0.1
    assert found[::2] == pytest.approx([waits + own] * len(found[::2]), abs=0.01)
    assert found[1::2] == pytest.approx([own] * len(found[1::2]), abs=0.01)
    exact = [each.elements["M"] for each in results.intervals if "M" in each.elements]
    assert exact == pytest.approx([waits / 2 + own] * len(exact), abs=0.01)


def test_a_constraint_that_a_slow_merger_violates_is_seen_to_be_violated() -> None:
    assert ran(limit_ms=1000)[0].actions == []
    results, _ = ran(limit_ms=500)  # the mean of the sequence is between the two
    (action,) = results.actions
    assert isinstance(action.instruction, CannotBeMet)
    assert action.instruction.latency_ms == pytest.approx(results.mean_latency_ms, rel=0.02)


@settings(max_examples=3, deadline=None)
@given(st.sampled_from([1_500_000, 2_300_000, 4_000_000]))
def test_a_task_that_works_longer_than_an_interval_is_sampled_once_items_have_left(work_us: float) -> None:
    results, managers = ran(E=work_us)
    found = samples(managers, "E")
    assert [ms for _, ms in found] == pytest.approx([work_us / 1000] * len(found))
    (task,) = (run for run in results.tasks.values() if run.vertex.name == "E")
    assert task.emitted >= 8
    assert task.emitted - 2 <= len(found) <= task.emitted  # the last ones are not reported yet
    entered = [s - work_us / 1e6 for s, _ in found]
    starts = sorted(stream.start / S for stream in streams(results.scenario))
    assert entered[0] >= starts[1]  # it is not told of before it has left


@settings(max_examples=3, deadline=None)
@given(st.sampled_from([1_500_000, 2_300_000, 4_000_000]))
def test_the_cpu_of_a_slow_task_counts_when_it_is_used(work_us: float) -> None:
    results, managers = ran(E=work_us)
    cores = [
        used for manager in managers for _, report in manager.heard for task, used in report.cpu if task.vertex == "E"
    ]
    assert 0.9 < max(cores) <= 1 + 1e-9
    (task,) = (run for run in results.tasks.values() if run.vertex.name == "E")
    in_all = task.entered * work_us / 1e6
    assert in_all - work_us / 1e6 - 2 * INTERVAL_S < sum(cores) * INTERVAL_S < in_all + 1e-9


def test_one_item_an_interval_is_remembered_until_an_item_leaves() -> None:
    box, task = Mailbox(), Task("M", 0)
    meter = TaskMeter([box])
    for second in (0, 1, 15, 16, 30):
        if second % 15 == 0:
            meter.sample_due = True  # an interval begins
        meter.enter(second * S)
    meter.leave(task, 40 * S)
    assert [ms for _, ms in box.task_latencies] == [40_000, 25_000, 10_000]
    meter.enter(41 * S)  # the interval of 30 s has had its item
    meter.leave(task, 42 * S)
    assert len(box.task_latencies) == 3
    meter.sample_due = True
    meter.enter(50 * S)
    meter.leave(task, 50 * S)
    assert box.task_latencies[-1] == (task, 0)


def test_work_across_the_end_of_an_interval_counts_on_both_sides() -> None:
    meter = TaskMeter()
    meter.work(10 * S, 3 * S)
    assert [meter.take_busy(at * S) for at in (11, 12, 13, 14)] == [S, S, S, 0]
    meter.work(14 * S, S)
    assert meter.take_busy(20 * S) == S
