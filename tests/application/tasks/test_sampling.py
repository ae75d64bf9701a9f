"""By which key the rows of a recipe were kept together, and what that makes of their weight."""

from __future__ import annotations

import pytest

from qod_magics.application.weights import NOT_BY_KEY, Equated, joins_by_key, key_of, weight_problem
from qod_magics.estimate.groups import Key, input_key, recipe_over

USER, BUYER, TWO = ("user",), ("buyer",), ("user", "day")


@pytest.mark.parametrize(
    ("inputs", "columns", "key"),
    [
        ([], ["id"], None),  # of a recipe with a source of its own
        ([None], ["id"], None),
        ([None, None], ["id"], None),
        ([USER], ["user", "page"], USER),
        ([USER], ["USER", "page"], USER),  # as the query spells it
        ([USER], ["page"], ()),  # still kept together, but nobody can tell which
        ([()], ["user"], ()),
        ([USER, BUYER], ["page", "buyer"], ()),  # a union: rows by the one, and by the other
        ([USER, USER], ["user"], USER),
        ([USER, None], ["user"], ()),
        ([TWO], ["day", "user", "n"], TWO),
        ([TWO], ["user"], ()),
    ],
)
def test_a_key_stays_while_its_columns_do(inputs: list[Key], columns: list[str], key: Key) -> None:
    assert key_of(inputs, columns) == key


def test_a_join_by_key_has_the_key_of_either_side() -> None:
    assert key_of([USER, BUYER], ["page", "buyer"], by_key=True) == BUYER
    assert key_of([USER, BUYER], ["buyer", "user"], by_key=True) == USER
    assert key_of([USER, BUYER], ["page"], by_key=True) == ()
    assert key_of([USER, ()], ["user"], by_key=True) == ()


@pytest.mark.parametrize(
    ("inputs", "joins", "found"),
    [
        ([USER, BUYER], [{("user", "buyer")}], True),
        ([BUYER, USER], [{("user", "buyer"), ("zone", "zone")}], True),
        ([("User",), BUYER], [{("user", "buyer")}], True),
        ([USER, USER], [{("zone", "zone")}], False),
        ([USER, BUYER], [{("user", "user")}], False),
        ([TWO, TWO], [{("user", "user")}], False),
        ([TWO, TWO], [{("user", "user"), ("day", "day")}], True),
        ([USER, USER, USER], [{("user", "user")}, {("user", "user")}], True),
        ([USER, USER, USER], [{("user", "user")}, {("id", "id")}], False),
        ([USER, None], [{("user", "user")}], False),
        ([USER, ()], [{("user", "user")}], False),
        ([USER, USER], [], False),
        ([USER], [{("user", "user")}], True),  # with itself
        ([None, None], [{("user", "user")}], False),
    ],
)
def test_a_join_is_by_key_if_it_equates_all_of_it(
    inputs: list[Key], joins: list[set[tuple[str, str]]], found: bool
) -> None:
    equated: list[Equated] = [frozenset(each) for each in joins]
    assert joins_by_key(inputs, equated) is found


def test_pairs_of_streams_by_key_have_a_weight_if_joined_by_it() -> None:
    a, b, pair = frozenset({"topic a"}), frozenset({"topic b"}), ["id", "_weight", "_weight"]
    assert weight_problem(pair, [a, b], keyed=2, by_key=True) is None
    assert weight_problem(pair, [a, a], keyed=2, by_key=True) is None  # one topic twice: the same keys are kept
    assert weight_problem(pair, [a], keyed=1, by_key=True) is None  # with itself
    assert weight_problem(pair, [a, b], keyed=2) == NOT_BY_KEY
    assert weight_problem(pair, [a, b], keyed=1) is None  # the others' rows are kept by themselves
    assert weight_problem(["id", "_weight"], [a, b], keyed=2) is None  # a union


def test_a_recipe_can_ask_by_which_key_its_inputs_are_shed() -> None:
    assert input_key() is None
    for inputs, key in (([USER], USER), ([USER, BUYER], ()), ([None, USER], ()), ([], None), ([USER, USER], USER)):
        with recipe_over(inputs):  # type: ignore[arg-type]
            assert input_key() == key
    assert input_key() is None
