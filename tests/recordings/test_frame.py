"""A cycle as the dashboard shows it: states in one word, by what a user would want to know first."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import datetime

import pytest

from qod_magics.controller.record import record_from_json, record_to_json
from qod_magics.recordings.frame import OTHER, STATES, frame
from qod_widgets import charts
from tests.recordings.taxi_drives import records, taxi_drives

LINES = taxi_drives()
BEGAN = datetime.fromisoformat(LINES[0]["at"])


def shown(line):
    return frame(*records([line]), BEGAN)


def task(line, id):
    return next(task for task in shown(line)["tasks"] if task["id"] == id)


def changed(line, **instance):
    """`line` with other values in the instances of TDSnk1."""
    other = deepcopy(line)
    for each in other["snapshot"]["instances"]:
        if each["task"] == "TDSnk1":
            each |= instance
    return other


def test_every_line_makes_a_frame_that_is_json():
    for line in LINES:
        made = json.loads(json.dumps(shown(line)))
        assert {each["state"] for each in made["tasks"]} <= STATES.keys()


def test_the_cpu_of_a_task_manager_is_that_of_its_tasks_and_of_others():
    for line in LINES:
        for manager in shown(line)["managers"]:
            assert sum(manager["tasks"].values()) == pytest.approx(manager["cpu"], abs=0.05)
            assert OTHER in manager["tasks"]


def test_task_managers_that_join_or_leave_are_told():
    line = deepcopy(LINES[-1])
    assert shown(line)["nodes"] == {}
    line["snapshot"]["node_states"] = {"tm3": "starting", "tm2": "standby"}
    assert json.loads(json.dumps(shown(line)["nodes"])) == {"tm3": "starting", "tm2": "standby"}


def test_sources_have_an_edge_from_outside_and_each_stream_has_one():
    edges = {edge["name"]: edge for edge in shown(LINES[-1])["edges"]}
    assert edges["TDSrc1"]["from"] is None
    assert edges["TDSrc1>TDSnk1"]["d"] == pytest.approx(1.0)


def test_latencies_are_those_of_the_query_and_its_target():
    line = deepcopy(LINES[-1])
    for each in line["snapshot"]["tasks"]:
        if each["id"] == "TDSnk1":
            each |= {"latency_p50_s": 0.4, "oldest_s": 7.5, "max_latency_s": 2.0}
    line["measured"]["latency_s"] = {"TDSnk1": 1.25}
    shows = ("p50", "p95", "target", "oldest")
    assert [task(line, "TDSnk1")[key] for key in shows] == [0.4, 1.25, 2.0, 7.5]
    assert [task(line, "TDSnk2")[key] for key in shows] == [None] * 4


def test_rows_that_could_not_be_parsed_are_counted_by_task():
    line = deepcopy(LINES[-1])
    counts = {"arrived": 9, "processed": 9, "dropped": 0, "waiting": 0, "malformed": 4}
    line["measured"]["counts"] = {"TDSrc1": counts}
    assert {each["id"]: each["malformed"] for each in shown(line)["tasks"] if each["malformed"]} == {"TDSrc1": 4}


def test_rows_that_are_in_no_result_are_counted_by_kind_and_recorded():
    line = deepcopy(LINES[-1])
    counts = {"arrived": 9, "processed": 9, "dropped": 0, "waiting": 0, "tombstones": 3, "implausible": 2}
    line["measured"] |= {"counts": {"TDSrc1": counts}, "late": {"TDSnk1": 50}}
    source, query = task(line, "TDSrc1"), task(line, "TDSnk1")
    assert (source["malformed"], source["tombstones"], source["implausible"], source["late"]) == (0, 3, 2, 0)
    assert (query["tombstones"], query["late"]) == (0, 50)
    measured = record_to_json(record_from_json(line))["measured"]
    assert measured["late"] == {"TDSnk1": 50}
    assert measured["counts"]["TDSrc1"] == {**counts, "unreported": 0}


def test_instances_and_their_limit_and_the_streams_within_are_told_by_task():
    line = deepcopy(LINES[-1])
    more = next(each for each in line["snapshot"]["instances"] if each["id"] == "TDSnk1.2")
    for each in line["snapshot"]["tasks"]:
        if each["id"] == "TDSnk1":
            each |= {"max_parallelism": 4, "fused": ["zones>hours", "hours>TDSnk1"]}
    assert list(task(line, "TDSnk1")["instances"]) == ["TDSnk1.1", "TDSnk1.2"]
    line["snapshot"]["instances"].append({**more, "id": "TDSnk1.3"})
    wide, other = task(line, "TDSnk1"), task(line, "TDSnk2")
    assert (list(wide["instances"]), wide["max_parallelism"]) == (["TDSnk1.1", "TDSnk1.2", "TDSnk1.3"], 4)
    assert isinstance(wide["max_parallelism"], int)
    assert wide["fused"] == ["zones>hours", "hours>TDSnk1"]
    assert (other["max_parallelism"], other["fused"]) == (None, [])


def test_kinds():
    kinds = {task["id"]: task["kind"] for task in shown(LINES[0])["tasks"]}
    assert kinds == {"TDSrc1": "source", "TDSrc2": "source", "TDSnk1": "query", "TDSnk2": "query"}


@pytest.mark.parametrize(
    ("instance", "state"),
    [
        ({"state": "given up"}, "given up"),
        ({"state": "backing off", "warming_up": True}, "backing off"),
        ({"state": "suspended", "stale": True}, "suspended"),
        ({"state": "moving"}, "moving"),
        ({"warming_up": True, "stale": True}, "warming up"),
        ({"warming_up": False, "stale": True}, "no metrics"),
        ({"warming_up": False, "missing": ["cpu"]}, "no metrics"),
    ],
)
def test_what_is_wrong_with_an_instance_comes_first(instance, state):
    assert task(changed(LINES[-1], **instance), "TDSnk1")["state"] == state


@pytest.mark.parametrize(
    ("accuracy", "planned", "state"),
    [
        (1.0, 1.0, "full accuracy"),
        (None, 1.0, "idle"),
        (0.7, 0.7, "shedding"),
        (0.4, 0.4, "at minimum"),
        (0.35, 0.4, "below minimum"),
    ],
)
def test_the_state_of_a_query_is_told_by_its_accuracies(accuracy, planned, state):
    line = changed(LINES[-1], warming_up=False)
    line["measured"]["accuracy"]["TDSnk1"] = accuracy
    line["plan"]["desired"]["TDSnk1"] = planned
    line["plan"]["starved"] = []
    assert task(line, "TDSnk1")["state"] == state


def test_tasks_of_a_starved_task_manager_say_so():
    line = changed(LINES[-1], warming_up=False, task_manager="tm1")
    line["plan"]["starved"] = ["tm1"]
    line["measured"]["accuracy"]["TDSnk1"] = 0.5
    found = task(line, "TDSnk1")
    assert (found["state"], found["attention"]) == ("starved", 3)


def test_the_charts_know_other_processes_by_their_name_in_a_frame():
    assert charts.OTHER == OTHER


def test_what_shedding_does_to_columns_is_told_by_query():
    (record,) = records([LINES[-1]])
    told = frame(record, BEGAN, labels={"TDSnk1": "zone exact; n of the rows kept only"})
    assert {each["id"]: each["labels"] for each in told["tasks"]} == {
        "TDSrc1": None,
        "TDSrc2": None,
        "TDSnk1": "zone exact; n of the rows kept only",
        "TDSnk2": None,
    }
    assert not any(each["labels"] for each in shown(LINES[-1])["tasks"])
