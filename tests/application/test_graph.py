"""Order, ancestors and cycles."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.graph import ancestors, consumers, cycle, ordered

DIAMOND = {"d": ("b", "c"), "b": ("a",), "c": ("a",), "a": ()}


def test_a_diamond() -> None:
    assert ordered(DIAMOND) == ("a", "b", "c", "d")
    assert ancestors(DIAMOND, ("b",)) == {"a", "b"}
    assert consumers(DIAMOND) == {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}
    assert cycle(DIAMOND) == ()


@pytest.mark.parametrize(
    ("upstreams", "found"),
    [
        ({"a": ("a",)}, ("a", "a")),
        ({"a": ("b",), "b": ("a",)}, ("a", "b", "a")),
        ({"x": (), "a": ("x", "c"), "b": ("a",), "c": ("b",), "y": ("c",)}, ("a", "b", "c", "a")),
    ],
)
def test_a_cycle_is_told_along_the_rows(upstreams: dict[str, tuple[str, ...]], found: tuple[str, ...]) -> None:
    assert cycle(upstreams) == found


graphs = st.integers(1, 7).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            str(node): st.lists(st.sampled_from([str(other) for other in range(count)]), unique=True, max_size=3).map(
                tuple
            )
            for node in range(count)
        }
    )
)


@given(graphs)
def test_either_an_order_or_a_cycle(upstreams: dict[str, tuple[str, ...]]) -> None:
    found = cycle(upstreams)
    if found:
        assert found[0] == found[-1]
        assert all(one in upstreams[other] for one, other in itertools.pairwise(found))
    else:
        order = ordered(upstreams)
        assert sorted(order) == sorted(upstreams)
        assert all(order.index(i) < order.index(name) for name, inputs in upstreams.items() for i in inputs)


def test_a_thousand_streams_in_a_row_need_no_deep_stack() -> None:
    chain = {str(n): (str(n - 1),) if n else () for n in reversed(range(5000))}
    assert ordered(chain) == tuple(map(str, range(5000)))
    assert cycle(chain) == ()
