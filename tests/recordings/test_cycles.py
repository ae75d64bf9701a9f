"""Stages and cycles behind records."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import datetime
from pathlib import Path

import pytest

from qod_magics.controller.log import DecisionLog
from qod_magics.core.json_form import plan_to_json, snapshot_from_json
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from qod_magics.policies.stack.stage import Lever
from qod_magics.recordings.criteria import Judged, plans_replayed
from qod_magics.recordings.frame import frames
from qod_magics.recordings.reading import IDLE, PAUSED, SHED, StageNote, narrated, policy_notes
from qod_magics.simulator import Simulation, simulate
from tests.raising import breaks
from tests.recordings.taxi_drives import records, taxi_drives
from tests.texts import tells

STAGES = ["place", "scale", "lend", "judge", "shed"]
#: A chain that is calm for long enough to be fused, and has more input than its core can process after that.
CHAIN = {
    "seed": 1,
    "duration_s": 280,
    "topics": [{"topic": "rows", "rate": [[0, 500], [220, 500], [221, 2000]]}],
    "task_managers": [{"id": "tm1"}],
    "tasks": [
        {"id": "src", "topic": "rows", "work_us": 200},
        {"id": "mid", "upstream": ["src"], "work_us": 250, "hop_us": 20, "fusable": True},
        {
            **{"id": "end", "upstream": ["mid"], "work_us": 300, "hop_us": 20, "fusable": True},
            **{"priority": 1, "min_accuracy": 0.1},
        },
    ],
    "policy": "auto",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The lines of a run of `CHAIN`."""
    path = tmp_path_factory.mktemp("recorded") / "run.jsonl"
    simulate(Simulation.from_json(CHAIN), record=path, keep=False)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def shown(lines):
    """The frames of a recording of these lines."""
    return list(frames(records(lines), datetime.fromisoformat(lines[0]["at"]), DecisionLog()))


def words(frame):
    return {each["stage"]: each["words"] for each in frame["stages"]}


def paused(frame):
    return [each["stage"] for each in frame["stages"] if each["paused"]]


def test_each_stage_says_what_it_did_or_why_it_did_nothing(recorded):
    made = shown(recorded)
    assert all(list(words(each)) == STAGES for each in made)
    assert [each["idle"] for each in made[0]["stages"]] == [words(made[0])[stage] == IDLE for stage in STAGES]
    (fuses, again) = (words(each)["place"] for each in made if "run side by side" in words(each)["place"])
    assert "end" in fuses + again
    assert "task manager" in words(made[-1])["scale"]
    keeps = recorded[-1]["plan"]["desired"]["end"]
    assert keeps < 0.9
    assert tells(words(made[-1])["shed"], "end", f"{keeps:.2f}")
    assert words(made[10])["shed"] == IDLE


def test_streams_within_a_task_are_told_once_it_was_fused(recorded):
    made = shown(recorded)
    assert {task["id"]: task["fused"] for task in made[0]["tasks"]} == {"src": [], "mid": [], "end": []}
    assert {task["id"]: task["fused"] for task in made[-1]["tasks"]} == {"end": ["src>mid", "mid>end"]}


def test_a_paused_stage_is_marked_until_it_is_resumed_or_another_policy_decides(recorded):
    lines = deepcopy(recorded[:8])
    for line in lines:
        line["events"] = []
    lines[1]["events"] = [{"kind": "stage-paused", "stage": "place"}]
    lines[2]["events"] = [{"kind": "stage-paused", "stage": "judge"}]
    lines[4]["events"] = [{"kind": "stage-resumed", "stage": "place"}]
    lines[6]["events"] = [{"kind": "policy", "policy": "auto"}]
    made = shown(lines)
    both, judge = ["place", "judge"], ["judge"]
    assert list(map(paused, made)) == [[], ["place"], both, both, judge, judge, [], []]
    assert words(made[2])["judge"] == PAUSED
    began = datetime.fromisoformat(lines[0]["at"])
    assert paused(next(frames(records(lines[3:4]), began, DecisionLog(), paused=frozenset({"scale"})))) == ["scale"]


def test_plans_of_paused_stages_and_of_a_policy_that_begins_anew_are_replayed(recorded):
    lines, deciding, state = deepcopy(recorded), policy("auto"), None
    for index, line in enumerate(lines):
        line["events"] = []
        if index == 8:
            deciding, line["events"] = deciding.pausing("scale"), [{"kind": "stage-paused", "stage": "scale"}]
        if index == 30:
            deciding, state, line["events"] = policy("auto"), None, [{"kind": "policy", "to": "auto"}]
        (record,) = records([line])
        plan, state = deciding.decide(record.snapshot, state)
        line["plan"] = plan_to_json(plan, record.current_accuracy)
    replayed = plans_replayed(Judged.of(records(lines), 0.0), None)
    assert replayed.passed, replayed.detail
    for line in lines:
        line["events"] = []
    assert not plans_replayed(Judged.of(records(lines), 0.0), None).passed


def test_a_policy_without_stages_has_none():
    assert not any(each["stages"] for each in shown(taxi_drives()[:5]))
    assert policy_notes(policy("stream-economics"), None, None) == ()


def test_of_a_policy_that_is_not_installed_here_those_are_shown_that_had_something_to_say(recorded):
    lines = deepcopy(recorded[-1:])
    lines[0]["policy"] = "another"
    lines[0]["plan"]["stages"] = {"grow": "waits", "shed": "moved end.1"}
    keeps = lines[0]["plan"]["desired"]["end"]
    told = words(shown(lines)[0])
    assert (told.keys(), told["grow"]) == ({"grow", "shed"}, "waits")
    assert tells(told["shed"], "moved end.1", "end", f"{keeps:.2f}")
    del lines[0]["plan"]["stages"]
    assert shown(lines)[0]["stages"] == []


@pytest.mark.parametrize("stages", [3, ["grow"], {"grow": 1}])
def test_notes_that_are_no_texts_are_refused_in_one_line(recorded, stages):
    lines = deepcopy(recorded[-1:])
    lines[0]["plan"]["stages"] = stages
    with pytest.raises(SnapshotError, check=breaks("type")):
        shown(lines)


def test_before_the_first_cycle_every_stage_is_idle_or_paused():
    notes = policy_notes(policy("auto").pausing("scale"), None, None)
    assert notes == tuple(StageNote(name, PAUSED if name == "scale" else IDLE) for name in STAGES)


def test_live_and_recorded_notes_are_the_same(recorded):
    made, auto, state = shown(recorded), policy("auto"), None
    for line, each in zip(recorded, made, strict=True):
        snapshot = snapshot_from_json(line["snapshot"])
        plan, state = auto.decide(snapshot, state)
        assert {note.stage: note.words for note in policy_notes(auto, snapshot, plan)} == words(each)


def test_the_stage_that_sheds_is_called_what_the_policy_calls_it():
    assert policy("auto").owners[Lever.SHEDDING] == SHED


RECORDED = Path(__file__).parents[2] / "notebooks" / "data" / "taxi_drives.jsonl"


def test_a_recorded_move_of_an_instance_that_is_not_there_is_no_move() -> None:
    """The policy asked for it, and it was refused: a recording holds the plan as it was made."""
    lines = [json.loads(text) for text in RECORDED.read_text("utf-8").splitlines()][:3]
    lines[1]["plan"] |= {"fail": ["nobody.1"], "place": {"nobody.1": "tm1"}}
    found = [entry for _, entries in narrated(records(lines), DecisionLog()) for entry in entries]
    assert not [entry for entry in found if "nobody.1" in entry.names]
