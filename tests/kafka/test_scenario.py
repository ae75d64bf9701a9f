from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.data.spec import GENERATORS, TRIP_STREAM_COLUMNS, GeneratedData, ParquetData
from qod_magics.errors import ScenarioError
from qod_magics.kafka.scenario import ACTIONS, PiecewiseLinear, Scenario
from tests.raising import breaks

WHOLE: dict[str, Any] = {
    "seed": 7,
    "duration_s": 300,
    "phases": [{"name": "calm", "from_s": 0}, {"name": "overload", "from_s": 45}],
    "topics": [
        {
            "topic": "trips1",
            "partitions": 2,
            "data": {"generator": "taxi-trips", "rows": 1000},
            "key": "PULocationID",
            "rate": [[0, 500], [45, 500], [46, 2000]],
        },
        {"topic": "points", "data": {"generator": "points", "clusters": 4}, "rate": 250},
        {"topic": "lines", "data": {"jsonl": "rows.jsonl", "event_time": "ts"}, "rate": [[0, 1]]},
        {"topic": "real", "data": {"parquet": "trips.parquet"}, "rate": [[0, 1]]},
    ],
    "events": [
        {"at_s": 120, "add_task_manager": "tm2"},
        {"at_s": 60, "start_application": "knn"},
        {"at_s": 200, "stop_application": "knn"},
        {"at_s": 250, "remove_task_manager": "tm2"},
    ],
}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """WHOLE with another value at `path`."""
    value = copy.deepcopy(WHOLE)
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return value


def without(*path: str | int) -> dict[str, Any]:
    value = copy.deepcopy(WHOLE)
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return value


def test_reads_all_that_is_written() -> None:
    scenario = Scenario.from_json(WHOLE)
    trips, points, _, real = scenario.topics
    assert (scenario.seed, scenario.duration_s) == (7, 300.0)
    assert (trips.topic, trips.partitions, trips.key) == ("trips1", 2, "PULocationID")
    assert trips.data == GeneratedData("taxi-trips", TRIP_STREAM_COLUMNS, "tpep_dropoff_datetime", rows=1000)
    assert trips.rate.rate(45.5) == 1250
    assert points.rate == PiecewiseLinear.constant(250)
    assert real.data == ParquetData("trips.parquet")
    assert [(event.at_s, event.action, event.target) for event in scenario.events] == [
        (60, "start_application", "knn"),
        (120, "add_task_manager", "tm2"),
        (200, "stop_application", "knn"),
        (250, "remove_task_manager", "tm2"),
    ]


def test_what_is_left_out_has_a_default() -> None:
    scenario = Scenario.from_json({"duration_s": 1, "topics": [WHOLE["topics"][1]]})
    assert (scenario.seed, scenario.phases, scenario.events) == (0, (), ())
    assert (scenario.topics[0].partitions, scenario.topics[0].key) == (1, None)


def test_phases_last_until_the_next() -> None:
    scenario = Scenario.from_json(changed("phases", 0, "from_s", to=10))
    assert [scenario.phase(t) for t in (0, 10, 44.9, 45, 299)] == [None, "calm", "calm", "overload", "overload"]


def test_nothing_more_is_due_after_the_end() -> None:
    scenario = Scenario.from_json(WHOLE)
    assert scenario.due(300)["points"] == 300 * 250
    assert scenario.due(1e6) == scenario.due(300)
    assert scenario.due(0)["trips1"] == 0


@pytest.mark.parametrize(
    ("value", "name", "rule"),
    [
        ([], "scenario", "object"),
        (without("duration_s"), "duration_s", "present"),
        (changed("duration_s", to=0), "scenario.duration_s", "type"),
        (changed("duration_s", to=True), "scenario.duration_s", "type"),
        (changed("duration_s", to=float("nan")), "scenario.duration_s", "type"),
        (changed("seed", to=-1), "scenario.seed", "type"),
        (changed("durations", to=3), "durations", "known"),
        (changed("topics", to=[]), "scenario.topics", "type"),
        (changed("topics", to="trips"), "scenario.topics", "type"),
        (changed("topics", 1, "topic", to="trips1"), "trips1", "unique"),
        (changed("topics", 0, "topic", to="my topic"), "topics[0].topic", "type"),
        (changed("topics", 0, "partitions", to=0), "topics[0].partitions", "type"),
        (changed("topics", 0, "partitions", to=1.5), "topics[0].partitions", "type"),
        (changed("topics", 0, "key", to="PULocation"), "topics[0].key", "own"),
        (changed("topics", 0, "rate", to=[]), "topics[0].rate", "own"),
        (changed("topics", 0, "rate", to=[[0, 1], [2]]), "topics[0].rate", "own"),
        (changed("topics", 0, "rate", to=[[0, "1"]]), "topics[0].rate", "own"),
        (changed("topics", 0, "rate", to=-5), "topics[0].rate", "own"),
        (changed("topics", 0, "rate", to="fast"), "topics[0].rate", "own"),
        (changed("topics", 0, "rate", to=[[5, 1], [4, 1]]), "topics[0].rate", "own"),
        (without("topics", 0, "rate"), "topics[0].rate", "present"),
        (without("topics", 0, "data"), "topics[0].data", "present"),
        (changed("topics", 0, "data", to={}), "topics[0].data", "one kind"),
        (
            changed("topics", 0, "data", to={"parquet": "a", "jsonl": "b"}),
            "topics[0].data",
            "one kind",
        ),
        (changed("topics", 0, "data", "generator", to="taxi"), "topics[0].data.generator", "type"),
        (changed("topics", 0, "data", "rows", to=0), "topics[0].data.rows", "type"),
        (changed("topics", 0, "data", "clusters", to=3), "topics[0].data.clusters", "own"),
        (changed("topics", 0, "data", "columns", to=["fare"]), "fare", "exists"),
        (changed("topics", 0, "data", "columns", to=["extra", "extra"]), "topics[0].data.columns", "own"),
        (changed("topics", 0, "data", "event_time", to="extra"), "topics[0].data.event_time", "own"),
        (changed("topics", 2, "data", "columns", to=["a"]), "columns", "known"),
        (changed("phases", 1, "from_s", to=0), "scenario.phases", "in order"),
        (changed("phases", 1, "from_s", to=300), "phases[1].from_s", "own"),
        (changed("phases", 1, "name", to="calm"), "calm", "unique"),
        (changed("events", 0, to={"at_s": 1}), "events[0]", "one action"),
        (changed("events", 0, "start_application", to="x"), "events[0]", "one action"),
        (changed("events", 0, "at_s", to=301), "events[0].at_s", "own"),
        (changed("events", 0, to={"at_s": 1, "add_taskmanager": "x"}), "events[0].add_taskmanager", "known"),
        (changed("events", 0, "add_task_manager", to=""), "events[0].add_task_manager", "type"),
    ],
)
def test_says_in_one_line_what_is_wrong(value: Any, name: str, rule: str) -> None:
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        Scenario.from_json(value)


@pytest.mark.parametrize(("text", "rule"), [("{", "JSON"), ("[1]", "object")])
def test_a_file_that_is_none(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ScenarioError, check=breaks(rule)):
        Scenario.read(tmp_path / "s.json")
    with pytest.raises(ScenarioError, check=breaks("readable")):
        Scenario.read(tmp_path / "other.json")


def test_paths_are_taken_from_the_scenario_s_folder(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(changed("topics", 2, "data", "jsonl", to="/abs/rows.jsonl")))
    _, _, lines, real = Scenario.read(tmp_path / "s.json").topics
    assert isinstance(real.data, ParquetData)
    assert real.data.path == str(tmp_path / "trips.parquet")
    assert lines.data.to_json()["jsonl"] == "/abs/rows.jsonl"


NAMES = st.from_regex(r"[a-z][a-z0-9._-]{0,9}", fullmatch=True)
RISING = st.lists(st.integers(0, 500), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def generated(draw: st.DrawFn) -> dict[str, Any]:
    generator = draw(st.sampled_from(sorted(GENERATORS)))
    data: dict[str, Any] = {"generator": generator}
    if draw(st.booleans()):
        data["columns"] = draw(st.lists(st.sampled_from(GENERATORS[generator]), min_size=1, unique=True))
        data["event_time"] = draw(st.sampled_from([None, *data["columns"]]))
    if draw(st.booleans()):
        data["seed"] = draw(st.integers(0, 9))
    return data


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    numbers = st.floats(0, 1e6, allow_subnormal=False)
    path = st.sampled_from(["a.parquet", "/b/c.parquet"])
    data = st.one_of(generated(), st.builds(lambda p: {"parquet": p}, path), st.builds(lambda p: {"jsonl": p}, path))
    topics = [
        {"topic": name, "partitions": draw(st.integers(1, 9)), "data": draw(data), "rate": rate}
        for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
        for rate in [draw(st.one_of(numbers, RISING.map(lambda ts: [[t, draw(numbers)] for t in ts])))]
    ]
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    events = st.builds(
        lambda at, action, to: {"at_s": at, action: to}, st.floats(0, 1000), st.sampled_from(ACTIONS), NAMES
    )
    return {
        "seed": draw(st.integers(0, 100)),
        "duration_s": 1000,
        "phases": [{"name": name, "from_s": 10 * index} for index, name in enumerate(names)],
        "topics": topics,
        "events": draw(st.lists(events, max_size=3)),
    }


@given(scenarios())
def test_its_json_form_is_the_same_scenario(value: dict[str, Any]) -> None:
    scenario = Scenario.from_json(value)
    written = json.loads(json.dumps(scenario.to_json()))
    assert Scenario.from_json(written) == scenario
    assert Scenario.from_json(written).to_json() == written
