"""Ours beside plain Spark: the load, and the goals and tables from figures made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import document, kept
from benchmarks.evaluation.against_plain import Noted, recovered_s
from benchmarks.evaluation.recipes import scenario
from benchmarks.evaluation.spark_rows import SECTIONS, most_possible
from benchmarks.evaluation.staircase import fitting, rates, staircase
from qod_magics.kafka.scenario import Scenario
from tests.texts import tells

LOADS = (0.6, 3.0, 12.0)
SECTION = SECTIONS["against-plain"]


def ours(times: float, **more: float | None) -> dict[str, Any]:
    figures = {"age_s": 1.2, "cpu": 84.0, "accuracy": 1.0, "worst_accuracy": 1.0, "kept_rows_s": 600.0}
    return {"times": times, "rows_s": 1000 * times, **figures, "backlog_periods": 0.5, **more}


def plain(times: float, **more: float | None) -> dict[str, Any]:
    return {"times": times, "rows_s": 1000 * times, "age_s": 1.0, "cpu": 80.0, "backlog_periods": 0.3, **more}


def recipe(back_s: float | None = 10.0, **fits: float | None) -> dict[str, Any]:
    """Plain Spark carries 1,000 rows/s; ours is as it should be, except for what is given of 0.6x."""
    over = {"accuracy": 0.3, "worst_accuracy": 0.2, "backlog_periods": 1.5, "kept_rows_s": 900.0}
    return {
        "plain": {
            "rows_s": 1000.0,
            "bound": 2000,
            "age_s_by_bound": {"None": 2.0, "2000": 1.0},
            "loads": {"0.6x": plain(0.6), "3x": plain(3.0, backlog_periods=4.0, age_s=20.0), "back": plain(0.6)},
        },
        "ours": {
            "loads": {
                "0.6x": ours(0.6, **fits),
                "3x": ours(3.0, **over),
                "12x": ours(12.0, **over),
                "back": ours(0.6),
            },
            "mode": "micro-batch",
            "why": "",
            "back_s": back_s,
        },
        "period_s": 5.0,
        "stateless": False,
    }


def run(**recipes: dict[str, Any]) -> dict[str, Any]:
    return {"recipes": recipes, "left_out": {}}


def test_loads_that_the_injector_can_not_send_give_way_to_the_highest_that_it_can() -> None:
    assert fitting(LOADS, 10_000.0, most=150_000.0) == [0.6, 3.0, 12.0]
    assert fitting(LOADS, 30_000.0, most=150_000.0) == [0.6, 3.0, 5.0]
    assert fitting(LOADS, 48_000.0, most=150_000.0) == [0.6, 3.0]  # 3.1x tells nothing new


def test_steps_follow_each_other_and_each_settles_before_it_counts() -> None:
    steps = staircase(LOADS, 1000.0, period_s=5.0, scale=1.0, back=0.6)
    assert [(step.name, step.rows_s) for step in steps] == [
        ("0.6x", 600.0),
        ("3x", 3000.0),
        ("12x", 12000.0),
        ("back", 600.0),
    ]
    assert all(step.end - step.begin == 30.0 and step.settled - step.begin == 15.0 for step in steps)
    assert [step.begin for step in steps[1:]] == [step.end for step in steps[:-1]]
    short = staircase(LOADS, 1000.0, period_s=5.0, scale=0.2)
    assert all(step.begin < step.settled < step.end for step in short)
    *_, last, back = staircase(LOADS, 1000.0, period_s=5.0, scale=0.2, back=0.6)
    assert (last.end - last.begin, back.begin, back.end - back.begin) == (6.0, last.end, 30.0)


def test_one_scenario_holds_each_step_s_rate_from_its_begin_to_its_end() -> None:
    steps = staircase(LOADS, 1000.0, period_s=5.0, scale=0.2)
    sent = Scenario.from_json(scenario(("one", "two"), rates(steps), steps[-1].end))
    for step in steps:
        for at in (step.begin + 0.01, step.end - 0.01):
            assert sum(topic.rate.rate(at) for topic in sent.topics) == pytest.approx(step.rows_s)
    assert sum(topic.rate.rate(0.0) for topic in sent.topics) == pytest.approx(steps[0].rows_s)


def test_it_is_back_when_accuracy_stays_at_one() -> None:
    cycles = [Noted(105.0, 0, 0.5), Noted(110.0, 0, 1.0), Noted(115.0, 0, 0.9), Noted(120.0, 0, 1.0)]
    assert recovered_s(cycles, 100.0) == 20.0
    assert recovered_s(cycles[:3], 100.0) is None
    assert recovered_s([Noted(105.0, 0, None)], 100.0) is None


def test_where_all_goals_are_reached_nothing_is_short() -> None:
    rows = SECTION.rows([run(totals=recipe())])
    assert rows
    assert not [row.what for row in rows if row.short]


@pytest.mark.parametrize(
    ("figures", "short"),
    [
        (recipe(accuracy=0.97), "least accuracy up to 0.9x"),
        (recipe(worst_accuracy=0.9), "least of any cycle up to 0.9x"),
        (recipe(age_s=1.3), "age of rows / plain Spark's, up to 0.9x"),
        (recipe(age_s=None), "age of rows / plain Spark's, up to 0.9x"),
        (recipe(cpu=88.0), "CPU / plain Spark's, up to 0.9x"),
        (recipe(back_s=None), "recovery to accuracy 1"),
    ],
)
def test_a_goal_that_is_missed_is_short_and_so_is_one_that_was_not_measured(
    figures: dict[str, Any], short: str
) -> None:
    rows = SECTION.rows([run(totals=figures)])
    assert [row.what for row in rows if row.short] == [short]


def test_the_worst_backlog_beyond_what_is_carried_counts() -> None:
    figures = recipe()
    figures["ours"]["loads"]["12x"]["backlog_periods"] = 2.5
    rows = SECTION.rows([run(totals=figures)])
    assert [(row.of, row.middle) for row in rows if row.short] == [("totals", 2.5)]


def test_of_runs_whose_highest_loads_differ_each_counts_with_its_own() -> None:
    higher = recipe()
    higher["ours"]["loads"]["14x"] = {**higher["ours"]["loads"].pop("12x"), "times": 14.0, "backlog_periods": 1.8}
    rows = SECTION.rows([run(totals=recipe()), run(totals=higher)])
    (backlog,) = (row for row in rows if row.what.startswith("backlog"))
    assert (backlog.values, backlog.short) == ([1.5, 1.8], False)
    table = SECTION.table([run(totals=recipe()), run(totals=higher)])
    assert [line["load"] for line in table] == ["0.6x", "3x", "12x", "14x", "back"]
    higher["ours"]["loads"]["14x"]["backlog_periods"] = None
    rows = SECTION.rows([run(totals=recipe()), run(totals=higher)])
    assert [row.values for row in rows if row.what.startswith("backlog")] == [[1.5, None]]


def test_the_table_sets_both_beside_each_other_and_leaves_open_what_plain_spark_was_spared() -> None:
    table = SECTION.table([run(totals=recipe(), light=recipe(cpu=40.0))])
    by_load = {(line["recipe"], line["load"]): line for line in table}
    light, over, most = (by_load[key] for key in (("light", "0.6x"), ("totals", "3x"), ("totals", "12x")))
    assert (light["CPU, %"], light["plain Spark's CPU, %"], light["kept / plain Spark's capacity"]) == (40.0, 80.0, 0.6)
    assert (over["accuracy"], over["age, s"], over["plain Spark's age, s"]) == (0.3, 1.2, 20.0)
    assert (most["backlog, periods"], most["plain Spark's backlog"]) == (1.5, None)


def test_runs_of_different_recipes_make_one_part_and_what_was_left_out_is_named(tmp_path: Path) -> None:
    failed = {"recipes": {}, "left_out": {"join": "it failed"}}
    runs = [
        {**kept.provenance("now", 1.0), **each}
        for each in (run(totals=recipe()), run(light=recipe(accuracy=0.9)), failed)
    ]
    kept.keep(tmp_path / "against-plain.json", "against-plain", 1.0, runs)
    document.write(tmp_path, tmp_path / "E.md")
    written = (tmp_path / "E.md").read_text("utf-8")
    assert tells(written, "against-plain", "join", "failed")
    assert tells(written, "Beside plain Spark", "0.9x (light)", 0.9, ">= 1")
    assert tells(written, "Not run", "goodput-live")
    table = (tmp_path / "against-plain.csv").read_text("utf-8").splitlines()
    assert [line.split(",")[0] for line in table[1:]].count("light") == 4


def test_of_two_queries_the_higher_one_is_judged_by_what_it_gets_alone() -> None:
    load = {"times": 6.0, "rows_s": 60_000.0, "higher": 3000.0, "lower": 500.0, "alone": 4000.0}
    (row,) = SECTIONS["goodput-live"].rows([{"carried": 10_000.0, "loads": {"6x": load}}])
    assert (row.middle, row.of, row.short) == (0.75, "6x", True)


def test_the_minimum_of_the_lower_query_is_what_the_higher_one_can_not_have() -> None:
    assert most_possible(1.0) == 1.0
    assert most_possible(6.0) == pytest.approx(1 - 0.05 / (2 / 6))
    assert most_possible(12.0) < most_possible(6.0) < most_possible(2.0) <= 1.0
    assert most_possible(12.0, 0.005) == pytest.approx(1 - 0.005 / (2 / 12))
