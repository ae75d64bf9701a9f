"""Recordings watched again: position, speed, why and what-if, without a cluster."""

from __future__ import annotations

import json
import time

import pytest

import qod_magics
from qod_magics.core.json_form import plan_to_json
from qod_magics.errors import QodError, UsageProblem
from qod_magics.notebook.replay import restricted
from tests.raising import breaks
from tests.recordings.taxi_drives import taxi_drives


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in taxi_drives()))
    return file


@pytest.fixture
def replayed(path):
    made = qod_magics.replay(path, speed=2000)
    yield made
    made.close()


def test_it_stands_at_the_end_and_says_what_it_is(replayed):
    assert replayed.position == len(replayed.records) - 1
    assert "4 tasks, 2 task managers" in repr(replayed)
    assert "run.jsonl" in repr(replayed)


def test_seek_goes_to_the_last_cycle_by_then(replayed):
    replayed.seek(12.0)
    assert replayed.at[replayed.position] == 10.0
    replayed.seek(-5)
    assert replayed.position == 0


def test_played_it_comes_to_its_end_cycle_by_cycle(replayed):
    seen = []
    replayed.on_move(seen.append)
    replayed.play()
    deadline = time.monotonic() + 30
    while replayed.position < len(replayed.records) - 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen == list(range(len(replayed.records)))


def test_paused_it_stands_still(replayed):
    replayed.play(start=0)
    replayed.pause()
    here = replayed.position
    time.sleep(0.1)
    assert replayed.position <= here + 1


def test_why_speaks_of_the_recording(replayed):
    assert "TDSnk1" in replayed.why("TDSnk1")
    with pytest.raises(UsageProblem, check=breaks("exists")):
        replayed.why("TDSnk9")


def test_the_status_is_that_of_the_position(replayed):
    replayed.seek(0)
    first = replayed.status()
    assert first.splitlines()[0].startswith("tm1: ")
    assert [line.split()[0] for line in first.splitlines() if line.startswith("TD")] == [
        task.id for task in replayed.record.snapshot.tasks
    ]
    replayed.seek(100)
    assert replayed.status() != first


def test_what_was_planned_is_what_the_policy_plans_again(replayed):
    for second in (30, 120, 200):
        replayed.seek(second)
        recorded = replayed.record
        minimum = next(task.min_accuracy for task in recorded.snapshot.tasks if task.id == "TDSnk1")
        again = replayed.what_if("TDSnk1", min_accuracy=minimum)
        assert plan_to_json(again, {}) == plan_to_json(recorded.plan, {})


def test_a_higher_minimum_is_kept_in_what_if(replayed):
    replayed.seek(100)
    low, high = (replayed.what_if("TDSnk1", min_accuracy=m).desired["TDSnk1"] for m in (0.1, 0.9))
    assert low < high
    assert high >= 0.9


@pytest.mark.parametrize(("name", "minimum"), [("TDSrc1", 0.5), ("nobody", 0.5), ("TDSnk1", 1.5)])
def test_what_can_not_be_asked_is_one_line(replayed, name, minimum):
    with pytest.raises(UsageProblem) as caught:
        replayed.what_if(name, min_accuracy=minimum)
    assert "\n" not in str(caught.value)


def test_other_queries_keep_their_restrictions(replayed):
    before = replayed.snapshot
    after = restricted(before, "TDSnk1", 7, None)
    assert [t for t in after.tasks if t.id != "TDSnk1"] == [t for t in before.tasks if t.id != "TDSnk1"]


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
def test_a_speed_that_plays_nothing_is_refused(path, speed):
    with pytest.raises(UsageProblem, check=breaks("positive")):
        qod_magics.replay(path, speed=speed)


def test_what_is_no_recording_is_one_line(tmp_path):
    file = tmp_path / "no.jsonl"
    file.write_text("{}\n")
    with pytest.raises(QodError) as caught:
        qod_magics.replay(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nope.jsonl", "."])
def test_a_recording_that_can_not_be_read_is_one_line(tmp_path, name):
    with pytest.raises(UsageProblem, check=breaks("readable")) as caught:
        qod_magics.replay(tmp_path / name)
    assert "\n" not in str(caught.value)
