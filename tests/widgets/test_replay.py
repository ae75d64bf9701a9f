"""The controls of a recording without a browser: each answer is about what is selected."""

from __future__ import annotations

import json

import pytest

import qod_magics
from qod_widgets.dashboard import plan_table, what_if
from tests.recordings.taxi_drives import taxi_drives

SECOND = 120.0  #: in the overload


@pytest.fixture(params=[False, True], ids=["as recorded", "alike"])
def replayed(tmp_path, request):
    """A recording; or one whose queries have the same restrictions."""
    lines = taxi_drives()
    for task in (task for line in lines for task in line["snapshot"]["tasks"] if request.param):
        if task["min_accuracy"] is not None:
            task["min_accuracy"], task["priority"] = 0.5, 1
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = qod_magics.replay(file)
    made.seek(SECOND)
    yield made
    made.close()


class Noting:
    """A replay that keeps the names it is asked about."""

    def __init__(self, replayed):
        self._replayed, self.asked = replayed, []

    def __getattr__(self, name):
        return getattr(self._replayed, name)

    def what_if(self, name, **restrictions):
        self.asked.append(name)
        return self._replayed.what_if(name, **restrictions)


def test_another_query_is_answered_about_itself(replayed):
    noting = Noting(replayed)
    asked, what = noting.asked, replayed.what_if
    controls, answer = what_if(noting).children
    query, minimum, priority = controls.children
    minimum.value = 0.95
    for name in ("TDSnk2", "TDSnk1"):
        query.value = name
        assert asked[-1] == name
        plan = what(name, min_accuracy=minimum.value, priority=priority.value)
        moves = [(move.instance, move.to) for move in plan.moves]
        assert answer.value == plan_table(replayed.record.plan.desired, plan.desired, moves, plan.starved)
        minimum.value = 0.5
