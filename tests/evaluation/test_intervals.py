"""Intervals of estimates beside the truth, on rows made by hand and at random."""

from __future__ import annotations

from math import nan, sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation.intervals import (
    BANDS,
    KINDS,
    TURNS,
    compared,
    least_widths,
    probabilities,
    summarized,
    told,
    truths,
)
from benchmarks.evaluation.pairs import ALL, counted, judged
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.scenario_rows import SECTIONS

Z = 1.959964


def rows(amount: list[float], p: list[float] | float = 0.5, place: list[int] | int = 0) -> pd.DataFrame:
    """Trips of one window, with tips of a tenth and distances as large as the amounts."""
    values = np.array(amount, float)
    columns = {"total_amount": values, "tip_amount": values / 10, "trip_distance": values, "p": p}
    return pd.DataFrame({"window": 0, "place": place, **columns})


def test_a_row_was_kept_with_the_probability_of_the_one_kept_nearest_to_it() -> None:
    assert probabilities([6, 1], [4.0, 2.0], 8).tolist() == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6), st.integers(1, 40))
def test_where_all_rows_are_kept_each_has_its_own(levels: list[float], each: int) -> None:
    p = np.repeat(levels, each)
    assert probabilities(range(len(p)), 1.0 / p, len(p)) == pytest.approx(p)


def test_the_truth_is_that_of_all_rows_of_a_group() -> None:
    found = truths(pd.concat([rows([1.0, 2.0, 6.0]), rows([5.0], place=3)]))
    assert found.loc[(0, 0)].to_dict() == pytest.approx(
        {"count": 3, "sum": 9.0, "avg": 3.0, "ratio": 0.1, "median": 2.0, "p90": 5.2}
    )
    assert found.loc[(0, 3)].to_dict() == pytest.approx(
        {"count": 1, "sum": 5.0, "avg": 5.0, "ratio": 0.1, "median": 5.0, "p90": 5.0}
    )


def test_the_least_width_is_that_of_horvitz_and_thompson() -> None:
    found = least_widths(rows([1.0, 2.0, 6.0], [0.5, 0.25, 1.0])).loc[(0, 0)]
    assert found["count"] == pytest.approx(2 * Z * sqrt(1 + 3))
    assert found["sum"] == pytest.approx(2 * Z * sqrt(1 * 1 + 3 * 4))
    assert found["avg"] == pytest.approx(2 * Z * sqrt(1 * 4 + 3 * 1) / 3)
    assert found["ratio"] == pytest.approx(0.0)
    assert np.isnan(found["median"])  # three rows bound none


def test_the_least_width_is_how_far_estimates_of_known_variance_scatter() -> None:
    """Of 4,000 samples: 95 % of their totals, ratios and quantiles are within half of it."""
    dice = np.random.default_rng(1)
    every = rows(list(dice.gamma(2.0, 8.0, 600)), list(dice.choice([0.2, 0.6], 600)))
    every["tip_amount"] = every["total_amount"] * dice.uniform(0.0, 0.3, 600)
    half = least_widths(every).loc[(0, 0)] / 2
    true, x, y, p = truths(every).loc[(0, 0)], *(every[c].to_numpy() for c in ("total_amount", "tip_amount", "p"))
    order = np.argsort(x)
    near = dict.fromkeys(("count", "sum", "avg", "ratio", "median"), 0)
    for _ in range(4000):
        w = (dice.random(600) < p) / p
        among = np.cumsum(w[order]) / w.sum()
        found = {
            "count": w.sum(),
            "sum": w @ x,
            "avg": w @ x / w.sum(),
            "ratio": w @ y / (w @ x),
            "median": x[order][np.searchsorted(among, 0.5)],
        }
        for name, value in found.items():
            near[name] += abs(value - true[name]) <= half[name]
    assert {name: n / 4000 for name, n in near.items()} == {name: pytest.approx(0.95, abs=0.02) for name in near}


def lines(low: list[float], high: list[float], kept: int = 10, turned: float = 1.0) -> pd.DataFrame:
    """Intervals of figures whose truth is 10, with a least width of 4."""
    of_all = {"true": 10.0, "least": 4.0, "kept": kept, "turned": turned, "sheds": True, "kind": "sum"}
    return pd.DataFrame({"low": low, "high": high, **of_all})


def test_an_interval_covers_what_is_between_its_ends_and_an_open_one_all_beyond() -> None:
    found = told(lines([8.0, 10.5, nan, nan], [12.0, 14.5, 9.0, 16.0]))
    assert found == {"figures": 4, "covered": 0.5, "width": 1.0, "open": 0.5}
    assert told(lines([], [])) == {"figures": 0, "covered": None, "width": None, "open": None}


def test_figures_are_told_by_turns_and_by_rows_kept() -> None:
    shed = pd.concat(
        [
            lines([8.0], [12.0], kept=4),
            lines([11.0], [12.0], kept=5, turned=3.0),
            lines([8.0], [12.0], kept=200, turned=2.0),
        ]
    )
    found = summarized(pd.concat([shed, shed.assign(sheds=False, low=10.0, high=10.0)]))["sum"]
    assert found["all"]["covered"] == pytest.approx(2 / 3)
    assert [found["turns"][name]["figures"] for name in TURNS] == [1, 1, 1]
    assert [found["kept"][name]["figures"] for name in BANDS] == [1, 1, 0, 0, 1]
    assert found["kept"]["5 to 9"]["covered"] == 0.0
    assert found["exact"] == {"figures": 3, "covered": 1.0, "width": 0.0, "open": 0.0}


def test_estimates_meet_the_truth_of_their_own_group() -> None:
    every = pd.concat([rows([1.0, 3.0], 0.5), rows([10.0, 30.0], [0.5, 0.25], place=1), rows([7.0], 1.0, place=2)])
    ends = {f"{kind}_{end}": [value, value] for kind in KINDS for end, value in (("low", 0.0), ("high", 50.0))}
    estimates = pd.DataFrame({"window": 0, "place": [2, 1], "kept": [1, 2], **ends}).set_index(["window", "place"])
    found = compared(every, estimates)
    sums = found[found["kind"] == "sum"]
    assert sums["true"].to_dict() == {(0, 1): 40.0, (0, 2): 7.0}
    assert sums["turned"].to_dict() == {(0, 1): 2.0, (0, 2): 1.0}
    assert sums["sheds"].to_dict() == {(0, 1): True, (0, 2): False}
    assert len(found) == 2 * len(KINDS)


def test_pairs_are_those_of_all_rows_of_a_user() -> None:
    one = pd.DataFrame({"user": [1, 1, 2, 3], "round": [0, 0, 0, 1]})
    other = pd.DataFrame({"user": [1, 1, 1, 3, 3], "round": [0, 0, 0, 1, 1]})
    true = counted(one, other)
    assert true.to_dict() == {0: 6, 1: 2, ALL: 8}
    estimates = pd.DataFrame({"value": [6, 4, 10], "low": [4, 3, 7], "high": [9, 7, 15]}, index=[0, 1, ALL])
    found = judged(estimates, true)
    assert found["covers"] is True
    assert (found["rounds"], found["covered"]) == (2, 0.5)
    assert found["width"] == pytest.approx((5 / 6 + 2) / 2)


def test_a_goal_may_have_two_ends() -> None:
    row = Row("coverage", "95 %", [93.0], " %", at_least=93.5, at_most=96.5)
    assert row.limit == "93.5 to 96.5 %"
    assert row.short
    assert not Row("coverage", "95 %", [94.0], " %", at_least=93.5, at_most=96.5).short
    assert Row("coverage", "95 %", [97.0], " %", at_least=93.5, at_most=96.5).short


def run(covered: float) -> dict[str, Any]:
    """A run in which 3 in 4 groups were not turned, and cover so often; the others never."""
    half = {"figures": 1500, "covered": covered, "width": 1.02, "open": 0.0}
    never = {"figures": 500, "covered": 0.0, "width": 1.5, "open": 0.0}
    none = {"figures": 0, "covered": None, "width": None, "open": None}
    first, middle, last = TURNS
    of_kind = {
        "all": {"figures": 2000, "covered": 0.75 * covered, "width": 1.03, "open": 0.0},
        "turns": {first: half, middle: none, last: never},
        "kept": dict.fromkeys(BANDS, none),
        "exact": {"figures": 7, "covered": 1.0, "width": None, "open": 0.0},
    }
    windows = {"rows": 9000, "windows": 6, "turns": 5, "groups": 288, "without_a_row": 3}
    way = {"value": 90.0, "low": 80.0, "high": 110.0, "covers": True, "rounds": 4, "covered": 0.75, "width": 0.6}
    pairs = {"accuracy": 0.3, "rounds": 4, "users": 600, "true": 100, "by_key": way, "by_row": way}
    return {"windows": {**windows, "kinds": dict.fromkeys(KINDS, of_kind)}, "pairs": pairs}


def test_intervals_that_do_not_cover_fall_short_and_the_table_says_where() -> None:
    section, runs = SECTIONS["coverage-live"], [run(0.96), run(0.94)]
    rows = section.rows(runs)
    count = next(row for row in rows if row.what == "coverage")
    assert count.short
    assert count.values == pytest.approx([72.0, 70.5])
    assert not any(row.short for row in rows if row.what.startswith("wider"))
    lines = {line["groups"]: line for line in section.table(runs) if line["figure"] == "count"}
    assert lines["dial not turned"]["covered, %"] == 94.0
    assert lines["100 and more rows kept"]["covered, %"] is None
