"""Sums of estimates: how often their intervals cover, and what of groups of estimates can't be told."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics import estimate as est
from qod_magics.application.sql.estimates import estimated
from qod_magics.errors import ApplicationError, UsageProblem
from qod_magics.estimate import aggregates, formulas
from qod_magics.estimate.arrays import ArrayFunctions, Values
from qod_magics.estimate.groups import Groups, groups_read, recipe_over
from tests.raising import breaks

#: How often groups are drawn, and the least share of the intervals that cover: fewer times leave it less certain.
SAMPLES, LEAST = (300, 0.92) if os.environ.get("HYPOTHESIS_PROFILE", "default") != "default" else (120, 0.9)

PARTS = ("value", "low", "high")
Ends = tuple[float, float, float]


def summed(estimates: list[Ends], weights: list[float] | None = None, shared: bool = False) -> dict[str, Any]:
    """The sum of these estimates, each with this weight."""
    columns = dict(zip(PARTS, np.array(estimates, float).T, strict=True))
    f = ArrayFunctions({"_weight": np.array(weights or [1.0] * len(estimates))})
    found: dict[str, Any] = aggregates.chained_total(f, Values(columns), 0.95, shared).of
    return found


def total_of(fares: np.ndarray, p: np.ndarray, dice: np.random.Generator) -> Ends | None:
    """The estimate of the sum of fares of which each is kept with its probability; None without one that is kept."""
    kept = dice.random(len(fares)) < p
    if not kept.any():
        return None
    f = ArrayFunctions({"_weight": 1 / p[kept]})
    found = formulas.total(f, Values(fares[kept]), 0.95).of
    return found["value"], found["low"], found["high"]


@pytest.mark.parametrize(
    ("rows", "accuracy", "later", "most"),
    [
        (40, 0.5, 1.0, 0.99),
        pytest.param(200, 0.3, 1.0, 0.985, marks=pytest.mark.slow),
        (40, 0.5, 0.6, 0.99),
        (10, 0.3, 1.0, 1.0),  # three rows kept on average, in one of 35 groups none: Student's wide tails
    ],
)
def test_intervals_of_sums_cover_the_truth_as_often(rows: int, accuracy: float, later: float, most: float) -> None:
    """20 groups of as many fares, kept with one probability; then each group with the probability `later`."""
    dice = np.random.default_rng(5)
    covers = []
    for _ in range(SAMPLES):
        every = [dice.gamma(2.0, 8.0, rows) for _ in range(20)]
        there = [e for fares in every if (e := total_of(fares, np.full(rows, accuracy), dice)) is not None]
        kept = [e for e in there if dice.random() < later]
        found = summed(kept, [1 / later] * len(kept))
        covers.append(found["low"] <= sum(fares.sum() for fares in every) <= found["high"])
    assert LEAST <= np.mean(covers) <= most


def test_groups_that_share_their_rows_are_as_one_group() -> None:
    """Of sliding windows each row is in several: their errors do not cancel out."""
    dice = np.random.default_rng(6)
    covers: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(300):
        fares = dice.gamma(2.0, 8.0, 100)
        one = total_of(fares, np.full(100, 0.4), dice)
        assert one is not None
        for shared, covered in covers.items():
            found = summed([one] * 4, shared=shared)
            covered.append(found["low"] <= 4 * fares.sum() <= found["high"])
    assert np.mean(covers[True]) == pytest.approx(0.95, abs=0.04)
    assert np.mean(covers[False]) < 0.75


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=20))
def test_they_hold_the_sum_and_are_widest_where_groups_share_rows(groups: list[Ends]) -> None:
    estimates = [(value, value - below, value + above) for value, below, above in groups]
    alone, end_to_end = summed(estimates), summed(estimates, shared=True)
    value = sum(each[0] for each in estimates)
    assert alone["value"] == end_to_end["value"] == pytest.approx(value)
    slack = 1e-9 * max(value, 1.0)
    for found in (alone, end_to_end):
        assert found["low"] - slack <= value <= found["high"] + slack
    assert alone["high"] - alone["low"] <= end_to_end["high"] - end_to_end["low"] + slack


@given(st.floats(0.01, 1e6), st.floats(0, 1e3), st.floats(0, 1e3))
def test_the_sum_of_one_group_is_that_group(value: float, below: float, above: float) -> None:
    for shared in (False, True):
        found = summed([(value, value - below, value + above)], shared=shared)
        slack = 1e-9 * max(value, 1.0)
        assert [found[part] for part in PARTS[1:]] == pytest.approx([value - below, value + above], abs=1e-3 + slack)


def test_the_interval_is_about_that_of_the_total_over_all_rows() -> None:
    dice = np.random.default_rng(7)
    every = [dice.gamma(2.0, 8.0, 60) for _ in range(30)]
    kept = [fares[dice.random(60) < 0.4] for fares in every]
    of_groups = [formulas.total(ArrayFunctions({"_weight": np.full(len(x), 2.5)}), Values(x), 0.95).of for x in kept]
    rows = np.concatenate(kept)
    direct = formulas.total(ArrayFunctions({"_weight": np.full(len(rows), 2.5)}), Values(rows), 0.95).of
    found = summed([(each["value"], each["low"], each["high"]) for each in of_groups])
    assert found["value"] == pytest.approx(direct["value"])
    width = direct["high"] - direct["low"]
    assert [found["low"], found["high"]] == pytest.approx([direct["low"], direct["high"]], abs=0.05 * width)


def test_of_exact_groups_the_sum_is_exact() -> None:
    assert summed([(3.0, 3.0, 3.0), (0.1, 0.1, 0.1)]) == {"value": 3.1, "low": 3.1, "high": 3.1}
    dropped = summed([(3.0, 3.0, 3.0), (0.1, 0.1, 0.1)], [2.0, 2.0])
    assert dropped["low"] < dropped["value"] == 6.2 < dropped["high"]


def test_what_is_not_known_of_a_group_is_not_of_the_sum() -> None:
    open_end = summed([(3.0, 2.0, 5.0), (4.0, np.nan, 5.0)])
    assert (open_end["value"], open_end["low"], open_end["high"]) == (7.0, None, None)
    assert summed([(3.0, 2.0, 5.0), (np.nan,) * 3]) == dict.fromkeys(PARTS)
    assert summed([(3.0, 2.0, 5.0)], [np.nan]) == dict.fromkeys(PARTS)


RIDES = Groups(frozenset({"rides", "Fares"}), shared=False)


def test_of_groups_of_estimates_only_sums_of_these_are_told() -> None:
    with recipe_over([None], RIDES) as inputs:
        assert not inputs.estimated
        assert groups_read("sum", "RIDES") is RIDES
        assert inputs.estimated
        for estimate in (
            lambda: est.count(),
            lambda: est.avg("rides"),
            lambda: est.ratio("rides", "Fares"),
            lambda: est.quantile("rides", 0.5),
            lambda: est.count_distinct("zone"),
            lambda: est.sum("zone"),
        ):
            with pytest.raises(UsageProblem, check=breaks("sums of groups")):
                estimate()
        sql = estimated("SELECT zone, est_sum(rides), est_sum(g.fares) FILTER (WHERE zone > 3) FROM g GROUP BY zone")
        assert "rides.low" in sql
        assert "(CASE WHEN zone > 3 THEN g.fares END).low" in sql
        with pytest.raises(ApplicationError, check=breaks("sums of groups")):
            estimated("SELECT est_count(*) FROM g")
    summed_up = Groups(frozenset(), shared=False)
    with recipe_over([None], summed_up), pytest.raises(UsageProblem, match=r"est\.count"):
        est.count()
    assert groups_read("sum", "rides") is None
