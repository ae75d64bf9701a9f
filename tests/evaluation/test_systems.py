"""A day under every policy and auto beside the default: clusters, figures, and what counts as worse."""

from __future__ import annotations

import pytest

from benchmarks.evaluation import day
from benchmarks.evaluation.auto import AUTO, difference, is_worse
from benchmarks.evaluation.system_rows import SECTIONS
from benchmarks.evaluation.systems import SETUPS, figures, rows_due
from qod_magics.policies import DEFAULT_POLICY, policy
from qod_magics.testing.runs import Truth


def test_the_large_cluster_needs_more_than_it_starts_with_and_a_quarter_of_that_at_night():
    made = day.large(tasks=80)
    up = [machine for machine in made.machines if not machine.waits]
    assert (len(up), len(made.machines)) == (2, 4)
    truth, length = Truth(made), made.scenario.duration_s
    fixed = sum(task.fixed + task.overhead for task in made.tasks)
    need = {at: sum(truth.need(truth.full_accuracy(), at * length).values()) for at in (0.15, 0.4, 0.9)}
    beside = sum(task.overhead for task in made.tasks)
    planned = sum(machine.planned for machine in up)
    assert need[0.15] + beside == pytest.approx(day.MORNING * planned)
    assert need[0.4] + beside > planned
    assert need[0.9] + beside - fixed == pytest.approx((need[0.4] + beside - fixed) / 4)


def test_rows_due_are_those_of_the_course():
    made = day.small(100.0)
    (feed,) = made.scenario.topics
    due = rows_due(made)
    assert due["Q1"] == due["Src"] == pytest.approx(sum(feed.rate.rate(s + 0.5) for s in range(100)))


def test_a_policy_without_actions_processes_what_the_first_task_manager_can():
    found = figures(policy("stream-economics-reactive"), day.small())
    assert (found["moves"], found["actions"]) == (0, {})
    assert found["up"] == {"first": 1, "most": 1, "last": 1}
    assert found["processed"]["1"] < found["processed"]["2"] <= 1.0


def test_auto_is_worse_only_beyond_the_bounds_and_by_the_highest_priority_that_differs():
    def pair(usual, auto, what):
        return {DEFAULT_POLICY: {what: usual}, AUTO: {what: auto}}

    assert difference(pair([0.5, 0.9], [0.6, 0.1], "processed"), "processed") == pytest.approx(0.1)
    assert is_worse(pair([0.5, 0.9], [0.5, 0.8], "processed"), "processed")
    assert not is_worse(pair([0.5], [0.495], "end"), "end")
    assert is_worse(pair(1.0, 2.5, "lag_s"), "lag_s")
    assert not is_worse(pair(2.5, 1.0, "lag_s"), "lag_s")
    assert not is_worse(pair(0.0, 0.0, "margin"), "margin")


def test_a_scenario_in_which_auto_is_worse_falls_short_and_the_table_says_by_how_much():
    run = figures(policy("stream-economics-reactive"), day.small(60.0))
    each = {"processed": [1.0], "end": [1.0], "margin": 0.0, "lag_s": 0.0, "lag_end_s": 0.0}
    runs = [
        {
            "days": {name: dict.fromkeys(SETUPS, run) for name in ("large", "small")},
            "auto": {"taxi": [{DEFAULT_POLICY: each, AUTO: {**each, "lag_s": 9.0}}]},
        }
    ]
    assert [row.short for row in SECTIONS["systems"].rows(runs)] == [False, False, False, True]
    table = SECTIONS["systems"].table(runs)
    assert {line["policy"] for line in table} == {*SETUPS, "auto minus default"}
    assert table[-1]["lag_s"] == -9.0
    assert table[0]["moves"] == 0
