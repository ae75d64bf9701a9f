"""Columns of rows, and mappings with shared keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.columns import Keyed, Keys, column, differing, in_order
from qod_magics.core.snapshot import Stream

STREAMS = st.lists(st.builds(Stream, st.text(), st.text(), st.floats(0.0, 1e9)), max_size=5).map(tuple)


@given(STREAMS)
def test_a_column_has_the_field_of_each_row(streams: tuple[Stream, ...]) -> None:
    assert column(streams, "out_rate") == [stream.out_rate for stream in streams]


VALUES = st.dictionaries(st.text(), st.integers(0, 3), max_size=6)


def keyed(values: dict[str, int]) -> Keyed[str, int]:
    return Keyed(Keys(values), list(values.values()))


@given(VALUES, st.text())
def test_a_keyed_mapping_is_the_dict_of_its_items(values: dict[str, int], other: str) -> None:
    found = keyed(values)
    assert found == values
    assert values == found
    assert dict(found) == dict(found.items()) == values
    assert list(found) == list(values)
    assert list(found.values()) == list(values.values())
    assert (other in found) == (other in values)
    assert found.get(other, -1) == values.get(other, -1)
    assert repr(found) == repr(values)


@given(VALUES, VALUES)
def test_two_are_equal_where_their_dicts_are(a: dict[str, int], b: dict[str, int]) -> None:
    assert (keyed(a) == keyed(b)) == (a == b)


@given(VALUES, st.randoms())
def test_values_come_in_any_order_asked_for(values: dict[str, int], random: object) -> None:
    names = list(values)
    random.shuffle(names)  # type: ignore[attr-defined]
    order, found = Keys(names), keyed(values)
    wanted = [values[name] for name in names]
    assert list(in_order(values, order)) == list(in_order(found, order)) == wanted
    assert list(in_order(found, order)) == wanted  # the second time from memory


def test_a_key_that_is_missing_is_named() -> None:
    for mapping in ({"a": 1}, keyed({"a": 1})):
        with pytest.raises(KeyError, match="b"):
            in_order(mapping, Keys(["a", "b"]))


def test_every_key_has_a_value() -> None:
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        Keyed(Keys(["a", "b"]), [1])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1))))
def test_where_two_sequences_differ(pairs: list[tuple[int, int]]) -> None:
    assert differing([a for a, _ in pairs], [b for _, b in pairs]) == [i for i, (a, b) in enumerate(pairs) if a != b]
