"""Columns of rows, and values by keys in an order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.snapshot import Keys, Stream, column, differing

STREAMS = st.lists(st.builds(Stream, st.text(), st.text(), st.floats(0.0, 1e9)), max_size=5).map(tuple)


@given(STREAMS)
def test_a_column_has_the_field_of_each_row(streams: tuple[Stream, ...]) -> None:
    assert column(streams, "out_rate") == [stream.out_rate for stream in streams]


VALUES = st.dictionaries(st.text(), st.integers(0, 3), max_size=6)


@given(VALUES)
def test_values_by_key_are_the_dict_of_its_items(values: dict[str, int]) -> None:
    assert Keys(values).mapping(list(values.values())) == values


@given(VALUES, st.randoms())
def test_values_come_in_any_order_asked_for(values: dict[str, int], random: object) -> None:
    names = list(values)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert Keys(names).values(values) == [values[name] for name in names]


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="b"):
        Keys(["a", "b"]).values({"a": 1})


def test_every_key_has_a_value() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Keys(["a", "b"]).mapping([1])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1))))
def test_where_two_sequences_differ(pairs: list[tuple[int, int]]) -> None:
    assert differing([a for a, _ in pairs], [b for _, b in pairs]) == [i for i, (a, b) in enumerate(pairs) if a != b]
