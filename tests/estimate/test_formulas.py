"""How often the intervals of estimates cover, on simulated samples; without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import UsageProblem
from qod_magics.estimate import formulas
from qod_magics.estimate.arrays import ArrayFunctions, Values
from qod_magics.estimate.formulas import SPLIT
from qod_magics.estimate.groups import recipe_over
from tests.raising import breaks

LEVEL = 0.95
#: Samples, and how far the share of them may be from 0.95: of 150 a standard error is 0.018, of 300 0.013.
SAMPLES, NEAR = (300, 0.04) if os.environ.get("HYPOTHESIS_PROFILE", "default") != "default" else (150, 0.055)

Estimate = Callable[[ArrayFunctions, Values | None], Values]
KINDS: Mapping[str, Estimate] = {
    "count": lambda f, part: formulas.count(f, None, LEVEL, part),
    "sum": lambda f, part: formulas.total(f, f.col("fare"), LEVEL, part),
    "avg": lambda f, part: formulas.average(f, f.col("fare"), LEVEL, part),
    "ratio": lambda f, part: formulas.ratio(f, f.col("tip"), f.col("fare"), LEVEL, part),
    "median": lambda f, part: formulas.quantile(f, f.col("fare"), 0.5, LEVEL, part),
}


def truth(fare: np.ndarray, tip: np.ndarray) -> Mapping[str, float]:
    return {
        "count": len(fare),
        "sum": fare.sum(),
        "avg": fare.mean(),
        "ratio": tip.sum() / fare.sum(),
        "median": float(np.median(fare)),
    }


def covers(found: Values, true: float) -> bool:
    low, high = found.of["low"], found.of["high"]
    return (low is None or low <= true) and (high is None or true <= high)


def trips(dice: np.random.Generator, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Key, fare and tip of each trip: drivers with some trips each, and fares that are more alike than others'."""
    key = np.repeat(np.arange(keys), dice.geometric(1 / 3, keys))
    fare = dice.gamma(2.0, 4.0, keys)[key] + dice.gamma(2.0, 4.0, len(key))
    return key, fare, fare * dice.uniform(0.0, 0.3, len(key))


def shares(keys: int, accuracy: float, sampled_by_key: bool, estimated_by_key: bool) -> Mapping[str, float]:
    """How often each interval covers."""
    dice, hits = np.random.default_rng(1), dict.fromkeys(KINDS, 0)
    for _ in range(SAMPLES):
        key, fare, tip = trips(dice, keys)
        kept = (dice.random(keys)[key] if sampled_by_key else dice.random(len(key))) < accuracy
        part = dice.integers(0, SPLIT, keys)[key]
        weight = np.full(kept.sum(), 1.0 / accuracy)
        f = ArrayFunctions({"fare": fare[kept], "tip": tip[kept], "part": part[kept], "_weight": weight})
        true = truth(fare, tip)
        for name, estimate in KINDS.items():
            hits[name] += covers(estimate(f, f.col("part") if estimated_by_key else None), true[name])
    return {name: n / SAMPLES for name, n in hits.items()}


def test_intervals_of_rows_kept_by_themselves_cover_as_often_as_they_say() -> None:
    found = shares(keys=40, accuracy=0.3, sampled_by_key=False, estimated_by_key=False)
    assert found == {name: pytest.approx(LEVEL, abs=NEAR) for name in KINDS}


def test_intervals_of_keys_kept_together_do_so_too() -> None:
    found = dict(shares(keys=100, accuracy=0.4, sampled_by_key=True, estimated_by_key=True))
    assert found.pop("median") > LEVEL - NEAR  # too wide, where the rows of a key differ
    assert found == {name: pytest.approx(LEVEL - 0.01, abs=NEAR) for name in found}  # averages: 0.92 of 1,000 samples


def test_variances_between_rows_would_be_far_too_small_for_them() -> None:
    found = shares(keys=150, accuracy=0.3, sampled_by_key=True, estimated_by_key=False)
    assert found["count"] < 0.75
    assert found["sum"] < 0.75
    assert found["avg"] < 0.85


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=30), st.booleans())
def test_where_nothing_was_dropped_the_figures_are_those_of_all_rows(fares: list[float], by_key: bool) -> None:
    fare = np.array(fares)
    columns = {"fare": fare, "tip": fare, "part": np.arange(len(fare)) % SPLIT, "_weight": np.ones(len(fare))}
    f = ArrayFunctions(columns)
    for name in ("count", "sum", "avg", "median"):
        found = KINDS[name](f, f.col("part") if by_key else None).of
        assert found["low"] == found["value"] == found["high"]
        assert found["value"] == pytest.approx(truth(fare, fare)[name], rel=1e-9)


@pytest.mark.parametrize("by_key", [False, True])
def test_rows_that_do_not_count_leave_a_group_as_exact_as_it_is(by_key: bool) -> None:
    fare = np.array([5.0, np.nan])
    f = ArrayFunctions({"fare": fare, "tip": fare / 5, "part": np.arange(2), "_weight": np.array([1.0, 4.0])})
    x, part = f.col("fare"), f.col("part") if by_key else None
    assert formulas.count(f, x, LEVEL, part).of == {"value": 1.0, "low": 1.0, "high": 1.0}
    for name, true in {"sum": 5.0, "avg": 5.0, "ratio": 0.2, "median": 5.0}.items():
        assert KINDS[name](f, part).of == {"value": true, "low": true, "high": true}, name


def test_without_the_key_in_its_rows_there_is_no_interval() -> None:
    f = ArrayFunctions({"fare": np.ones(3)})
    assert formulas.part_of(f) is None
    with recipe_over([("user",), ("buyer",)]), pytest.raises(UsageProblem, check=breaks("keeps the key")):
        formulas.part_of(f)


@pytest.mark.parametrize(("by_key", "far", "bounded"), [(False, 1e3, True), (False, 1.8e9, False), (True, 1.8e9, True)])
def test_values_far_from_0_are_not_called_exact_where_their_variance_is_lost_in_rounding(
    by_key: bool, far: float, bounded: bool
) -> None:
    """Such as times in seconds since 1970."""
    dice = np.random.default_rng(1)
    near = dice.normal(0.0, 20.0, 400)

    def estimate(kind: str, of: np.ndarray) -> Mapping[str, float]:
        columns = {"fare": np.ones(400), "tip": of} if kind == "ratio" else {"fare": of, "tip": of}
        f = ArrayFunctions({**columns, "part": np.arange(400) % SPLIT, "_weight": np.full(400, 4.0)})
        found: Mapping[str, float] = KINDS[kind](f, f.col("part") if by_key else None).of
        return found

    for kind in ("avg", "ratio"):
        found, true = estimate(kind, far + near), estimate(kind, near)
        assert found["value"] == pytest.approx(far + true["value"], rel=1e-12)
        if bounded:
            assert found["low"] - far == pytest.approx(true["low"], abs=1e-3)
            assert found["high"] - far == pytest.approx(true["high"], abs=1e-3)
        else:
            low, high = found["low"] - far, found["high"] - far
            assert -1000.0 < low < true["low"] < true["high"] < high < 1000.0  # as wide as doubles are rounded
