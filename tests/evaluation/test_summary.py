"""The summary of the evaluation: a line a measure, with how many of its subjects hold."""

from __future__ import annotations

from benchmarks.evaluation.row import Row
from benchmarks.evaluation.summary import summary


def table(*rows: Row) -> list[str]:
    return summary([("Scenario", rows)]).splitlines()[6:]


def test_what_has_no_goal_is_left_out() -> None:
    assert table(Row("moves", "", [1.0])) == []


def test_one_subject_is_shown_with_its_range() -> None:
    row = Row("age", "1", [1.0, 2.0, 4.0], " s", at_most=3.0)
    assert table(row) == ["| Scenario | age | 1 | 2 s (1 to 4) | <= 3 s | holds |"]


def test_several_are_one_line_that_names_those_that_fall_short() -> None:
    rows = [Row("age", "1", [value], at_most=1.2, of=of) for of, value in (("light", 0.2), ("totals", 3.0))]
    assert table(*rows, Row("age", "1", [None], at_most=1.2, of="join")) == [
        "| Scenario | age | 1 | 0.2 to 3; for some never | <= 1.2 | 1 of 3 hold; short: totals, join |"
    ]


def test_a_figure_that_never_came_is_short() -> None:
    assert table(Row("back", "", [None], " s", at_most=15.0))[0].endswith("| never | <= 15 s | short |")
