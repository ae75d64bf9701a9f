"""Scenarios of messages: what is read, what is refused, and runs of declared streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qod_magics.application.application import Application
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.core.engines import MS, S
from qod_magics.errors import ScenarioError
from qod_magics.simulator.messages import Dataflow, Engine
from qod_magics.simulator.messages.dataflow import Arrivals
from qod_magics.simulator.messages.declared import Costs, jobs_of
from qod_magics.simulator.messages.engine import summary
from qod_magics.simulator.messages.scenario import MessageScenario
from qod_magics.simulator.messages.scenario import __doc__ as text
from tests.raising import breaks
from tests.simulator.messages.in_order import InOrder
from tests.texts import tells


def example() -> dict[str, Any]:
    """The scenario in the documentation of the format."""
    found = (text or "").partition("\n\n")[2].partition("\n\n")[2]
    value: dict[str, Any] = json.loads(found.partition("\n\n")[0])
    return value


def test_the_documented_scenario_runs(tmp_path: Path) -> None:
    value = example()
    value["duration_s"], value["drain_s"] = 4, 10
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(value))
    scenario = MessageScenario.read(path)
    assert [job.name for job in scenario.jobs] == ["LS1", "LS2", "LS3", "LS4"]
    engine = scenario.run(InOrder())
    assert engine.books.left == 0
    shown = summary(engine, 0.5).splitlines()
    assert len(shown) == 1 + 4
    assert tells(shown[0], f"{engine.now / S:g} s", 4, 20, "in-order", "0.5 s")
    assert "2 results, latency " in shown[1]


class Inconsistent(InOrder):
    """A dispatcher that lost track of its messages."""

    def check(self) -> None:
        raise AssertionError("messages were lost")


def test_a_run_ends_with_the_checks_of_the_engine_and_of_its_dispatcher() -> None:
    value = example()
    value["duration_s"] = 2
    with pytest.raises(AssertionError, match="lost"):
        MessageScenario.from_json(value).run(Inconsistent())


def test_the_state_of_keys_is_read_from_the_store() -> None:
    value = example()
    value["duration_s"] = 5
    value["jobs"][0]["stages"][0].update(stateful=True, exchange="key")
    value["jobs"][0]["sources"][0]["arrivals"].update(keys=8, zipf="inf")
    engine = MessageScenario.from_json(value).run(InOrder())
    assert engine.store is not None
    assert sum(engine.store.fetches) <= 4 * 4 < engine.store.reads  # one key a job, fetched once by each worker
    assert "store" in summary(engine, 1.0)


@pytest.mark.parametrize(
    ("path", "wrong", "name", "rule"),
    [
        (("jobs",), [], "scenario.jobs", "type"),
        (("jobs", 0, "stages", 0, "inputs"), ["trips"], "jobs[0]", "own"),
        (("jobs", 0, "stages", 0, "exchange"), "some", "jobs[0].stages[0].exchange", "type"),
        (("jobs", 0, "stages", 0, "exchange"), "key", "jobs[0]", "own"),
        (("jobs", 0, "stages", 1), {"name": "t", "inputs": ["count"], "width": 2, "exchange": "key"}, "jobs[0]", "own"),
        (("jobs", 0, "stages", 0, "width"), -1, "jobs[0].stages[0].width", "type"),
        (("jobs", 0, "stages", 0, "colour"), 1, "jobs[0].stages[0].colour", "known"),
        (("jobs", 0, "sources", 0, "arrivals", "per_s"), 0, "jobs[0].sources[0].arrivals.per_s", "type"),
        (("jobs", 0, "sources", 0, "arrivals", "pareto"), 1, "jobs[0].sources[0].arrivals", "own"),
        (("jobs", 0, "stages", 0, "width"), 0, "jobs[0].stages[0]", "own"),
        (("cluster", "workers"), "four", "cluster.workers", "type"),
        (("cluster", "machines"), 0, "scenario.cluster", "own"),
        (("cluster", "bytes_per_s"), 0, "scenario.cluster", "own"),
        (("store", "bytes_per_s"), 0, "scenario.store", "own"),
        (("duration_s",), 0, "scenario.duration_s", "type"),
        (("engine",), "segments", "scenario.engine", "type"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path: tuple[Any, ...], wrong: Any, name: str | None, rule: str) -> None:
    value = place = example()
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        MessageScenario.from_json(value)


def test_declared_streams_run_as_jobs() -> None:
    trips = StreamDeclaration("trips", SqlRecipe("SELECT * FROM source"), TopicInput("trips"))
    counted = StreamDeclaration(
        "counts",
        SqlRecipe("SELECT window(ts, '2 seconds'), count(*) FROM trips GROUP BY window(ts, '2 seconds')"),
        ("trips",),
        priority=1,
        parallelism=2,
        max_latency_s=0.5,
        fuse=False,
    )
    alone = StreamDeclaration("alone", SqlRecipe("SELECT * FROM source"), TopicInput("other"), priority=1)
    costs = {"trips": Costs(50, 1), "counts": Costs(100, 2, 0.1), "alone": Costs(10)}
    arrivals = {"trips": (3, Arrivals(2, 10)), "other": (1, Arrivals(1, 1))}
    jobs = jobs_of(Application((trips, counted, alone)), costs, arrivals)
    assert [(job.name, job.max_latency_ms) for job in jobs] == [("counts", 500.0), ("alone", 0.0)]
    assert [(s.name, s.width, s.slide_ms, s.row_us) for s in jobs[0].stages] == [
        ("trips", 1, 0, 1),
        ("counts", 2, 2000, 2),
    ]
    engine = Engine(Dataflow(jobs), InOrder())
    results = engine.run(10 * S, end=20 * S)
    engine.check()
    assert engine.operators[0].rows == 3 * 2 * 10 * 10
    assert all(progress % (2000 * MS) == 0 for progress in results.jobs[0].progress)
    assert len(results.jobs[0].progress) >= 2 * 4
    with pytest.raises(ScenarioError, check=breaks("costs", name="counts")):
        jobs_of(Application((trips, counted)), {"trips": Costs()}, arrivals)
    with pytest.raises(ScenarioError, check=breaks("arrivals", name="trips")):
        jobs_of(Application((trips, counted)), costs, {})
