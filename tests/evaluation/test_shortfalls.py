"""What falls short, and why."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.evaluation import causes
from benchmarks.evaluation.goodput import QUERIES, most_possible, used
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.shortfalls import shortfalls


def test_rows_of_one_cause_share_a_paragraph_and_those_that_hold_are_left_out() -> None:
    rows = [
        Row("share", "", [0.5], at_least=0.9, of="one", why="It is little."),
        Row("share", "", [0.5], at_least=0.9, of="two", why="It is little."),
        Row("share", "", [0.6], at_least=0.9, of="three", why="It is little."),
        Row("share", "", [0.95], at_least=0.9, of="four", why="It is little."),
        Row("time", "", [3.0], " s", at_most=2.0, why="It is slow."),
    ]
    told = shortfalls([("Part", rows), ("Other", [Row("lag", "", [1.0], at_most=2.0)])], ["rest"]).splitlines()
    assert [line for line in told if line] == [
        "## What falls short",
        "**Part.** Share: 0.5 (one, two), 0.6 (three); goal: >= 0.9. It is little.",
        "**Part.** Time: 3 s; goal: <= 2 s. It is slow.",
        "- rest was not run.",
    ]
    assert shortfalls([], []).endswith("Nothing of what was run.")


def cycle(t: float, accuracy: float, planned: float, rate: float = 60.0) -> dict[str, Any]:
    return {
        "t": t,
        "phase": "busy",
        "accuracy": {"Q": accuracy},
        "planned": {"Q": planned},
        "minimum": {"Q": 0.1},
        "input_rate": {"Q": rate},
    }


@pytest.mark.parametrize(
    ("series", "cause"),
    [
        ([cycle(0, 1.0, 1.0), cycle(5, 1.0, 0.1), cycle(10, 0.02, 0.1)], "5 s after its plan fell from 1.00 to 0.10"),
        ([cycle(0, 0.11, 0.1), cycle(60, 0.07, 0.1)], "scatters by 0.017"),
        ([cycle(0, 0.11, 0.1), cycle(60, 0.02, 0.1)], "why is not known"),
    ],
)
def test_a_value_under_the_minimum_is_a_fall_of_the_plan_or_chance_or_unexplained(
    series: list[dict[str, Any]], cause: str
) -> None:
    worst = min(each["accuracy"]["Q"] for each in series) - 0.1
    told = causes.under_a_minimum([{"worst_margin": {"Q": worst}, "series": series, "period_s": 5.0}])
    assert f"Q's {worst + 0.1:.3f} at {series[-1]['t']:.0f} s (busy) of run 1" in told
    assert cause in told


def test_the_most_possible_uses_all_that_may_be_used() -> None:
    top, reading, together = most_possible(tuple(QUERIES), 10.0)
    assert top < together
    assert 0 < reading < 0.9
    rest = (together - top) / 2
    offered = reading / 10e-6
    assert used({"top": top, "middle": rest, "least": rest}, offered) == pytest.approx(0.9)
    assert top < most_possible(("top",), 10.0)[0]
