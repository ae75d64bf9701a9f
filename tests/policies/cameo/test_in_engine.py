"""Cameo and its baselines in the engine of messages: books, repetition, results and latencies."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.engines import Dispatcher, S, stream_channel
from qod_magics.policies.cameo import Parameters, with_deadlines
from qod_magics.policies.cameo.contexts import DeadlineContexts, critical_paths
from qod_magics.policies.of_engines import dispatcher
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Arrivals

NAMES = ["cameo", "cameo-edf", "cameo-sjf", "cameo-tokens", "cameo-topology-only", "fifo", "orleans"]


def job(name: str, *, slide_ms: float, latency_ms: float, rows: int, row_us: float = 5.0) -> Job:
    """A regular stage, two windowed ones."""
    return Job(
        name,
        (
            Stage("read", ("rows",), 3, 100, row_us, exchange="one"),
            Stage("count", ("read",), 2, 100, row_us, 0.1, slide_ms, exchange="all"),
            Stage("sum", ("count",), 1, 300, row_us, 1.0, slide_ms),
        ),
        (Source("rows", 6, Arrivals(10, rows, 0.02, poisson=True, pareto=2.0)),),
        latency_ms,
    )


def engine(made: Dispatcher, seed: int = 1) -> Engine:
    """Two machines that are busy for most of the time."""
    jobs = [
        job("tight", slide_ms=200, latency_ms=300, rows=20),
        job("lax", slide_ms=1000, latency_ms=60_000, rows=5_000),
    ]
    return Engine(Dataflow(jobs, machines=2, workers=2, delay_us=300), made, seed=seed)


def outcome(run: Engine) -> list[tuple[list[int], list[int], int]]:
    return [(list(each.produced), list(each.latency), each.rows) for each in run.results.jobs]


@pytest.mark.parametrize("name", NAMES)
def test_every_message_runs_once_and_a_run_repeats(name: str) -> None:
    runs = [engine(dispatcher(name), seed) for seed in (1, 1, 2)]
    for run in runs:
        run.run(2 * S)
        run.check()
        run.run(2 * S, end=60 * S)
        run.check()
        assert run.books.left == 0
        assert run.books.done == run.books.made == sum(run.executed) > 300
    assert outcome(runs[0]) == outcome(runs[1]) != outcome(runs[2])


def test_the_order_changes_latencies_and_no_result() -> None:
    found: dict[str, Any] = {}
    latencies = set()
    for name in NAMES:
        run = engine(dispatcher(name))
        run.run(2 * S, end=60 * S)
        found[name] = [(sorted(each.progress), each.rows) for each in run.results.jobs]
        latencies.add(tuple(run.results.of("tight").latency))
    assert all(each == found["fifo"] for each in found.values())
    assert len(latencies) > 3


def test_replies_teach_all_operators_the_longest_path() -> None:
    """Of constant costs, across machines."""
    cost_us = {"first": 400, "short": 100, "long": 900, "last": 250}
    stages = (
        Stage("first", ("rows",), 1, cost_us["first"], exchange="one"),
        Stage("short", ("first",), 1, cost_us["short"]),
        Stage("long", ("first",), 1, cost_us["long"]),
        Stage("last", ("short", "long"), 1, cost_us["last"]),
    )
    flow = Dataflow([Job("diamond", stages, (Source("rows", 1, Arrivals(50, 10)),), 100)], machines=3, delay_us=500)
    contexts = DeadlineContexts(Parameters())
    made = with_deadlines()
    made.contexts = contexts
    Engine(flow, made).run(S)
    targets = {i: info.targets for i, info in enumerate(flow.topology.operators)}
    cost = {i: 1000 * us for i, us in enumerate(cost_us.values())}
    assert dict(enumerate(contexts.after)) == critical_paths(targets, cost)
    assert contexts.after[0] == 1000 * (900 + 250)
    assert contexts.channels[0][stream_channel(0)].after == contexts.after[0], "and the source"
    assert contexts.channels[0][stream_channel(0)].cost == cost[0]


def test_deadlines_protect_the_tight_job() -> None:
    """Where the workers are busy, Cameo's tight job is faster than under orders that know no deadlines."""
    slow: dict[str, Any] = {}
    for name in ("cameo", "fifo", "orleans"):
        run = engine(dispatcher(name))
        run.run(4 * S)
        assert sum(run.busy) > 0.5 * 4 * 4 * S
        slow[name] = run.results.of("tight").percentile_ms(90)
    assert slow["cameo"] < min(slow["fifo"], slow["orleans"])
