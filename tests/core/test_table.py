from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.columns import Table, column
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
