"""The controls without a browser: one command for what a user chose, none for what they only show."""

from __future__ import annotations

import time
from copy import deepcopy
from math import inf

import pytest

from qod_magics.recordings.frame import frame
from qod_widgets.controls import Commands, Panel
from tests.recordings.taxi_drives import records, taxi_drives

LINE = taxi_drives()[20]  # in the overload: dials are below 1


class Session:
    """Keeps what it is told; refuses what it has a reason against."""

    def __init__(self):
        self.told = []
        self.against = ""

    def __getattr__(self, name):
        def told(*given, **named):
            if self.against:
                raise ValueError(self.against)
            self.told.append((name, *given, *named.items()))

        return told


class Shown(Panel):
    """A panel whose commands are awaited, with the texts that it showed."""

    def __init__(self):
        self.commands = Commands()
        self.texts = []
        super().__init__(Session(), self.commands)
        self.said.observe(lambda change: self.texts.append(change["new"]), "value")

    def until(self, words):
        deadline = time.monotonic() + 20
        while not any(words in text for text in self.texts):
            assert time.monotonic() < deadline, (words, self.texts)
            time.sleep(0.01)

    def show(self, line=LINE, period_s=5.0, paused=False, by_hand=None, policy="auto"):
        self.update(shown(line), period_s, paused, by_hand, policy, ("auto", "henge"))

    def tab(self, title):
        return self._tabs.children[self.TABS.index(title)].children


@pytest.fixture
def panel():
    made = Shown()
    made.show()
    yield made
    made.commands.close()


def shown(line):
    """The frame of a line."""
    (record,) = records([line])
    return frame(record, record.at)


def restricted(**values):
    """LINE with other restrictions of TDSnk1."""
    line = deepcopy(LINE)
    for task in line["snapshot"]["tasks"]:
        if task["id"] == "TDSnk1":
            task |= values
    return line


def minimum(panel):
    return panel.tab("Queries")[0].children[0]


def test_a_choice_is_one_command_that_is_pending_and_then_done(panel):
    minimum(panel).value = 0.5
    panel.until("done")
    assert panel.session.told == [("set", "TDSnk1", ("min_accuracy", 0.5))]
    assert [text.partition("50%: ")[2].removesuffix("</span>") for text in panel.texts] == ["pending", "done"]


def test_a_latency_target_is_set_followed_and_taken_back(panel):
    within = panel.tab("Queries")[0].children[2]
    assert within.value == 0, "none"
    panel.show(restricted(max_latency_s=2.0))
    assert within.value == 2.0
    assert panel.session.told == []
    within.value = 1.5
    panel.until("TDSnk1 within 1.5 s: done")
    within.value = 0
    panel.until("TDSnk1 without a latency target: done")
    assert panel.session.told == [("set", "TDSnk1", ("max_latency_s", s)) for s in (1.5, inf)]


def test_what_is_refused_is_said_with_its_reason_and_taken_back(panel):
    before = minimum(panel).value
    panel.session.against = "there is no such query"
    minimum(panel).value = 0.5
    panel.until("refused, there is no such query")
    assert minimum(panel).value == before
    assert len(panel.texts) == 2, "taking it back is no command"


def test_what_was_set_elsewhere_is_shown_and_no_command(panel):
    panel.show(restricted(min_accuracy=0.77, priority=9), period_s=2.0, paused=True, by_hand={"TDSrc1": 0.4})
    assert minimum(panel).value == 0.77
    assert panel.tab("Queries")[0].children[1].value == 9
    slider, by_hand = panel.tab("Shedders")[0].children
    assert (slider.value, slider.disabled, by_hand.value) == (0.4, False, True)
    period, paused, _ = (row.children[0] for row in panel.tab("Controller"))
    assert (period.value, paused.value) == (2.0, True)
    panel.show()
    assert by_hand.value is False
    assert slider.disabled
    assert panel.texts == []
    assert panel.session.told == []


def test_a_policy_is_chosen_with_its_parameters_and_that_of_the_session_is_shown(panel):
    box = panel.tab("Controller")[2].children[0]
    assert (box.value, box.options) == ("auto", ("auto", "henge"))
    box.value = "henge settle_s=15"
    panel.until("policy henge settle_s=15: done")
    assert panel.session.told == [("set_policy", "henge settle_s=15")]
    panel.show(policy="henge settle_s=15")
    assert box.value == "henge settle_s=15"
    panel.session.against = "settle_s must be a number"
    box.value = "henge settle_s=x"
    panel.until("refused, settle_s must be a number")
    assert box.value == "henge settle_s=15"


def test_a_choice_stays_on_show_until_something_else_holds(panel):
    minimum(panel).value = 0.5
    panel.until("done")
    panel.show()  # a cycle that began before
    assert minimum(panel).value == 0.5
    panel.show(restricted(min_accuracy=0.5))
    panel.show(restricted(min_accuracy=0.6))
    assert minimum(panel).value == 0.6


def test_a_shedder_is_held_where_the_plan_has_it_then_where_the_slider_is_and_let_go(panel):
    edge = next(e for e in shown(LINE)["edges"])
    slider, by_hand = panel.tab("Shedders")[0].children
    assert slider.disabled
    assert slider.value == pytest.approx(edge["d"], abs=0.005)
    by_hand.value = True
    panel.show()  # a cycle that began before
    assert by_hand.value
    slider.value = 0.25
    by_hand.value = False
    panel.until("automatic: done")
    assert panel.session.told == [
        ("override", edge["name"], pytest.approx(edge["d"], abs=0.005)),
        ("override", edge["name"], 0.25),
        ("override", edge["name"], None),
    ]


def test_another_task_manager_leaves_the_open_tab_and_what_is_held(panel):
    by_hand = panel.tab("Shedders")[0].children[1]
    panel.show(by_hand={"TDSrc1": 0.4})
    panel._tabs.selected_index = 2
    more = deepcopy(LINE)
    more["snapshot"]["task_managers"].append({**more["snapshot"]["task_managers"][0], "id": "tm9"})
    before = panel.tab("Task managers")[1].children[0]
    panel.show(more, by_hand={"TDSrc1": 0.4})
    assert panel._tabs.selected_index == 2
    assert by_hand.value
    assert panel.tab("Task managers")[1].children[0].options[-1] == "tm9"
    assert before.comm is None, "what was replaced is closed"


def test_a_slider_limits_the_cpu_of_a_task_manager_and_follows_its_limit(panel):
    (slider,) = panel.tab("Task managers")[3].children
    assert (slider.value, slider.min, slider.max) == (1.0, 0.05, 1.0)
    slider.value = 0.5
    panel.until("done")
    assert panel.session.told == [("limit_cpu", "tm1", 0.5)]
    limited = deepcopy(LINE)
    limited["snapshot"]["task_managers"][0]["cpu_limit"] = 0.25
    panel.show(limited)
    assert slider.value == 0.25
    assert len(panel.session.told) == 1, "what is shown is no command"
    panel.session.against = "no"
    slider.value = 0.9
    panel.until("refused")
    assert slider.value == 0.25


def test_what_was_chosen_to_be_moved_is_still_chosen_when_a_task_manager_joins(panel):
    def with_managers(*ids):
        line = deepcopy(LINE)
        line["snapshot"]["task_managers"] = [{**line["snapshot"]["task_managers"][0], "id": id} for id in ids]
        return line

    def chosen():
        (which, _), (instance, target, _) = (row.children for row in panel.tab("Task managers")[1:3])
        return which, instance, target

    assert [each.value for each in chosen()] == ["tm1", "TDSnk1.1", "tm1"]
    chosen()[1].value = "TDSnk2.1"
    panel.show(with_managers("tm1", "tm8"))
    assert [each.value for each in chosen()] == ["tm1", "TDSnk2.1", "tm8"], "the last is where one would move it"
    chosen()[0].value, chosen()[2].value = "tm8", "tm1"
    panel.show(with_managers("tm1", "tm8", "tm9"))
    assert [each.value for each in chosen()] == ["tm8", "TDSnk2.1", "tm1"]
    chosen()[2].value = "tm9"
    panel.show(with_managers("tm1", "tm8", "tm9", "tm99"))
    assert [each.value for each in chosen()] == ["tm8", "TDSnk2.1", "tm9"], "also where it was the last"
    panel.show(with_managers("tm0", "tm1", "tm8"))
    assert [each.value for each in chosen()] == ["tm8", "TDSnk2.1", "tm8"], "what is gone can't be chosen"
    chosen()[0].value, chosen()[2].value = "tm0", "tm1"
    panel.show(with_managers("a", "tm0", "tm1"))
    assert [each.value for each in chosen()] == ["tm0", "TDSnk2.1", "tm1"], "also where it was the first"
    panel.tab("Task managers")[2].children[2].click()
    panel.until("TDSnk2.1 to tm1: done")
    panel.show(with_managers("tm1"))
    assert [each.value for each in chosen()] == ["tm1", "TDSnk2.1", "tm1"], "what is gone can't be chosen"
    assert panel.session.told == [("move", "TDSnk2.1", "tm1")]


def test_a_query_that_is_its_own_source_has_its_minimum_too(panel):
    line = deepcopy(LINE)
    line["snapshot"]["tasks"].append(
        {"id": "alone", "upstream": [], "external_rate": 1.0, "priority": 3, "min_accuracy": 0.25}
    )
    line["snapshot"]["instances"].append({**line["snapshot"]["instances"][0], "id": "alone.1", "task": "alone"})
    panel.show(line)
    assert [row.children[0].description for row in panel.tab("Queries")][-1] == "alone: at least"


def test_after_the_end_nothing_is_left_to_turn(panel):
    panel.end()
    assert panel.body.children == ()
    assert "ended" in panel.said.value
