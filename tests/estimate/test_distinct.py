"""How many different values there were, of which a simulated shedder keeps rows by key or by themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import UsageProblem
from qod_magics.estimate.aggregates import distinct, kept_whole
from qod_magics.estimate.arrays import ArrayFunctions
from qod_magics.estimate.groups import recipe_over
from qod_magics.estimate.text import TextFunctions
from tests.raising import breaks

LEVEL = 0.95
#: Samples, and how far the share of them may be from 0.95: of 100 a standard error is 0.022, of 400 0.011.
SAMPLES, NEAR = (400, 0.035) if os.environ.get("HYPOTHESIS_PROFILE", "default") != "default" else (100, 0.06)

Found = dict[str, float | None]


def estimate(
    columns: Sequence[np.ndarray],
    weights: np.ndarray,
    whole: bool = True,
    key: np.ndarray | None = None,
    level: float = LEVEL,
) -> Found:
    """Of the rows of one group."""
    f = ArrayFunctions({"_weight": weights, **{f"x{i}": values for i, values in enumerate(columns)}})
    counted = [f.col(f"x{i}") for i in range(len(columns))]
    hashed = None if key is None else f.xxhash64(ArrayFunctions({"key": key}).col("key"))
    found: Found = distinct(f, counted, level, whole, hashed).of
    return found


def clicks(dice: np.random.Generator, users: int, pages: int) -> tuple[np.ndarray, np.ndarray]:
    """User and page of each row: users of very different activity, each on pages of their own choice."""
    user = np.repeat(np.arange(users), dice.geometric(1 / 4, users))
    dice.shuffle(user)
    return user, dice.integers(0, pages, len(user))


def kept_by_key(dice: np.random.Generator, user: np.ndarray, accuracies: Sequence[float]) -> tuple[np.ndarray, ...]:
    """Which rows a shedder keeps that is turned from one accuracy to the next while they pass, and their weights."""
    place = dice.random(user.max() + 1)
    p = np.repeat(accuracies, -(-len(user) // len(accuracies)))[: len(user)]
    kept = place[user] < p
    return kept, 1 / p[kept]


@pytest.mark.parametrize(
    ("users", "accuracies"),
    [
        (200, (0.3,)),
        (200, (0.1,)),
        (200, (0.6, 0.2)),
        pytest.param(200, (0.2, 0.6, 0.4), marks=pytest.mark.slow),
        (100, (1.0, 0.3)),
        (15, (1.0, 0.3)),
    ],
    ids=str,
)
def test_intervals_cover_as_often_as_they_say_also_where_the_accuracy_changes(
    users: int, accuracies: tuple[float, ...]
) -> None:
    dice, hits, values = np.random.default_rng(3), 0, []
    for _ in range(SAMPLES):
        user, _ = clicks(dice, users, 5)
        kept, weights = kept_by_key(dice, user, accuracies)
        found = estimate([user[kept]], weights)
        hits += found["low"] <= users <= found["high"]  # type: ignore[operator]
        values.append(found["value"])
    assert hits / SAMPLES == pytest.approx(LEVEL, abs=NEAR)
    assert np.mean(values) == pytest.approx(users, rel=0.03)  # a largest standard error of 0.015


def test_pairs_with_the_key_vary_by_key() -> None:
    """Of a user all pages are seen, or none: the interval is wider than if each pair were kept by itself."""
    dice, hits, hits_alone, values, trues = np.random.default_rng(4), 0, 0, [], []
    for _ in range(SAMPLES // 2):
        user, page = clicks(dice, 80, 50)
        kept, weights = kept_by_key(dice, user, (0.5, 0.3))
        true = len(set(zip(user, page, strict=True)))
        found = estimate([user[kept], page[kept]], weights, key=user[kept])
        hits += found["low"] <= true <= found["high"]  # type: ignore[operator]
        alone = estimate([user[kept], page[kept]], weights)
        hits_alone += alone["low"] <= true <= alone["high"]  # type: ignore[operator]
        assert alone["value"] == found["value"]
        values.append(found["value"])
        trues.append(true)
    assert hits / len(values) == pytest.approx(LEVEL, abs=1.4 * NEAR)
    assert hits_alone / len(values) < 0.75
    assert np.mean(values) == pytest.approx(np.mean(trues), rel=0.03)


def test_row_by_row_they_would_be_far_off_and_are_null() -> None:
    """What the weights of values kept row by row add up to is no estimate: most users are seen, and count for four."""
    dice = np.random.default_rng(5)
    user, _ = clicks(dice, 500, 5)
    kept = dice.random(len(user)) < 0.25
    weights = np.full(kept.sum(), 4.0)
    assert estimate([user[kept]], weights)["low"] > 1.5 * 500  # type: ignore[operator]
    assert set(estimate([user[kept]], weights, whole=False).values()) == {None}


VALUES = st.lists(st.tuples(st.integers(0, 5) | st.none(), st.integers(0, 3) | st.none()), min_size=1, max_size=30)


@given(VALUES, st.booleans(), st.integers(1, 2), st.sampled_from([0.5, 0.95]))
def test_where_nothing_was_dropped_they_are_exact(
    rows: list[tuple[int | None, int | None]], whole: bool, number: int, level: float
) -> None:
    columns = [np.array([row[i] for row in rows], float) for i in range(number)]
    true = len({row[:number] for row in rows if None not in row[:number]})
    found = estimate(columns, np.ones(len(rows)), whole, level=level)
    assert found == {"value": true, "low": true, "high": true}


@given(st.lists(st.tuples(st.integers(0, 9) | st.none(), st.sampled_from([1.0, 2.0, 8.0])), min_size=1, max_size=40))
def test_a_value_has_the_least_weight_of_its_rows(rows: list[tuple[int | None, float]]) -> None:
    values, weights = np.array([value for value, _ in rows], float), np.array([weight for _, weight in rows])
    least = {value: min(w for v, w in rows if v == value) for value, _ in rows if value is not None}
    found = estimate([values], weights)
    assert found["value"] == sum(least.values())
    assert len(least) <= found["low"] <= found["value"] <= found["high"]  # type: ignore[operator]


@given(st.permutations([(0, 2.0), (0, 4.0), (1, 4.0), (2, 1.0), (2, 4.0), (3, 4.0), (4, 2.0)]))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[int, float]]) -> None:
    values, weights = (np.array(each, float) for each in zip(*rows, strict=True))
    page, user = values, values // 2
    found = estimate([user, page], weights, key=user)
    assert found["value"] == 2 + 4 + 1 + 4 + 2
    same = estimate([np.array([0, 0, 1, 1, 2.0]), np.arange(5.0)], np.array([2, 4, 1, 4, 2.0]), key=np.arange(5) // 2.0)
    assert found == pytest.approx(same)


def test_rows_of_a_weight_leave_room_for_values_not_seen() -> None:
    """Of users who all had rows before the shedder was turned down, to 0.25: of others, it may have dropped 11 and kept
    none with a probability of 0.04."""
    found = estimate([np.array([0.0, 1, 2, 0])], np.array([1.0, 1, 1, 4]))
    assert (found["value"], found["low"]) == (3.0, 3.0)
    assert found["high"] == pytest.approx(3 + 1.96**2 * 3, abs=0.01)


def test_a_higher_level_is_wider() -> None:
    user = np.arange(40.0)
    ends = [estimate([user], np.full(40, 3.0), level=level) for level in (0.5, 0.9, 0.99)]
    widths = [found["high"] - found["low"] for found in ends]  # type: ignore[operator]
    assert widths == sorted(widths)
    assert widths[0] < widths[2] / 2


def test_where_a_weight_is_not_known_all_is_null() -> None:
    for whole in (True, False):
        assert set(estimate([np.arange(3.0)], np.array([1.0, np.nan, 1.0]), whole).values()) == {None}
    only_of_a_null = np.array([1.0, np.nan]), np.array([1.0, np.nan])
    assert estimate([only_of_a_null[0]], only_of_a_null[1])["value"] == 1.0


@pytest.mark.parametrize(
    ("keys", "counted", "whole", "several"),
    [
        ([("user",)], ["user"], True, False),
        ([("user",), ("user",)], ["USER"], True, False),
        ([("user",)], ["page", "user"], True, True),
        ([("user", "page")], ["page", "user"], True, False),
        ([("user", "page")], ["user"], False, False),
        ([("user",)], ["page"], False, False),
        ([("user",)], [None], False, False),
        ([None], ["user"], False, False),
        ([], ["user"], False, False),
    ],
)
def test_values_are_kept_whole_where_the_key_is_among_what_is_counted(
    keys: list[tuple[str, ...] | None], counted: list[str | None], whole: bool, several: bool
) -> None:
    with recipe_over(keys):
        found = kept_whole(TextFunctions(), counted)
    assert (found[0], found[1] is not None) == (whole, several)


def test_without_the_key_in_its_rows_there_is_no_interval() -> None:
    with recipe_over([("user",), None]), pytest.raises(UsageProblem, check=breaks("keeps the key")):
        kept_whole(TextFunctions(), ["user"])
