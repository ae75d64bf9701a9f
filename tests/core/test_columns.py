"""Tables that make rows from columns, and mappings with shared keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.columns import Keyed, Keys, Table, column, differing, in_order
from qod_magics.core.snapshot import NOTHING, Stream

STREAMS = st.lists(st.builds(Stream, st.text(), st.text(), st.floats(0.0, 1e9)), max_size=5).map(tuple)


def table(streams: tuple[Stream, ...]) -> Table[Stream]:
    names = ("source", "target", "out_rate", "extra")
    return Table(Stream, *(tuple(column(streams, name)) for name in names))


@given(STREAMS)
def test_a_table_is_the_sequence_of_its_rows(streams: tuple[Stream, ...]) -> None:
    found = table(streams)
    assert found == streams
    assert streams == found
    assert found == table(streams)
    assert (list(found), len(found), hash(found), repr(found)) == (
        list(streams),
        len(streams),
        hash(streams),
        repr(streams),
    )
    assert found[:2] == streams[:2]
    assert [found[i] for i in range(-len(streams), len(streams))] == list(streams * 2)


@given(STREAMS)
def test_columns_of_a_table_are_those_of_its_rows(streams: tuple[Stream, ...]) -> None:
    for name in ("source", "target", "out_rate", "extra"):
        assert list(column(table(streams), name)) == list(column(streams, name))


def test_a_column_may_be_made_when_it_is_wanted_and_once() -> None:
    asked = []

    def extra() -> list[object]:
        asked.append(1)
        return [NOTHING, {"bytes_rate": 7.0}]

    found = Table(Stream, ("a", "b"), ("c", "d"), (1.0, 2.0), extra)
    assert column(found, "target") == ("c", "d")
    assert not asked
    assert found[1].extra == {"bytes_rate": 7.0}
    assert column(found, "extra")[0] == NOTHING
    assert len(asked) == 1


def test_the_same_rows_with_another_column() -> None:
    found = Table(Stream, ("a", "b"), ("c", "d"), (1.0, 2.0), (NOTHING, NOTHING))
    other = found.but("out_rate", (3.0, 4.0))
    assert other == (Stream("a", "c", 3.0), Stream("b", "d", 4.0))
    assert found[0].out_rate == 1.0


def test_a_column_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Table(Stream, ("a", "b"), ("c",), (1.0, 2.0), (NOTHING, NOTHING)).rows()


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
