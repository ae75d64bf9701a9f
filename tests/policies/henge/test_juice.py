"""Juice against cases worked out by hand (H1), and what holds on any DAG."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.henge.jobs import job_juice, operator_juice
from tests.policies.henge.oracles import exact, oracle

CASES = {case["name"]: case for case in oracle("H1")["cases"]}
Dag = dict[str, tuple[str, ...]]
Counts = tuple[Dag, dict[str, Fraction], dict[tuple[str, str], Fraction]]


def counted(case: dict[str, Any]) -> Counts:
    upstream = {o: tuple(u for u, v in case["edges"] if v == o) for o in case["ops"]}
    executed = {tuple(edge.split(">")): number for edge, number in exact(case["executed"]).items()}
    return upstream, exact(case["sent"]), executed


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_oracle(name: str) -> None:
    case = CASES[name]
    given = counted(case)
    expected = exact(case["expect"])
    assert operator_juice(*given, entry=dict.fromkeys(given[0], Fraction(1))) == expected["juice"]
    assert job_juice(*given, entry=dict.fromkeys(given[0], Fraction(1))) == expected["topology"]


def test_tuples_emitted_in_place_of_delivered_give_more_juice_than_there_are_spouts() -> None:
    upstream, sent, executed = counted(CASES["copy_to_two_and_merge"])
    assert job_juice(upstream, sent, executed) == 1
    assert job_juice(upstream, {**sent, "s": Fraction(1000)}, executed) == 2


def test_a_drained_backlog_has_more_than_all_juice() -> None:
    assert job_juice(*counted(CASES["draining"])) == Fraction(6, 5)


def test_what_waits_before_a_source_is_missed_by_all_that_it_feeds() -> None:
    given = counted(CASES["two_spouts_join"])
    assert job_juice(*given, entry={"s2": Fraction(1, 2)}) == Fraction(1, 2)


def test_a_job_without_operators_is_refused() -> None:
    with pytest.raises(ValueError, match="operators"):
        job_juice({}, {}, {})


@st.composite
def loads(draw: st.DrawFn, *, lossless: bool = False) -> Counts:
    """Any DAG; each operator executes no more than it was sent, and sends any number of what it executed."""
    size = draw(st.integers(1, 8))
    names = [f"o{i}" for i in range(size)]
    upstream = {
        name: tuple(sorted(draw(st.sets(st.sampled_from(names[:i]), max_size=3)))) if i else ()
        for i, name in enumerate(names)
    }
    delivered = {(u, v): Fraction(draw(st.integers(0, 50))) for v, parents in upstream.items() for u in parents}
    sent = {u: sum((n for (a, _), n in delivered.items() if a == u), Fraction(0)) for u in names}
    done = {e: n if lossless else n * draw(st.integers(0, 4)) / 4 for e, n in delivered.items()}
    return upstream, sent, done


@given(loads(lossless=True))
def test_all_is_juice_where_every_copy_is_executed(load: Counts) -> None:
    assert job_juice(*load, entry=dict.fromkeys(load[0], Fraction(1))) == 1


@given(loads())
def test_juice_does_not_exceed_1_where_nobody_executes_more_than_was_sent(load: Counts) -> None:
    assert 0 <= job_juice(*load, entry=dict.fromkeys(load[0], Fraction(1))) <= 1


@given(loads(), st.integers(1, 1000))
def test_juice_does_not_depend_on_the_rate(load: Counts, factor: int) -> None:
    upstream, sent, executed = load
    entry = dict.fromkeys(upstream, Fraction(1))
    more = ({u: factor * n for u, n in sent.items()}, {e: factor * n for e, n in executed.items()})
    assert job_juice(upstream, *more, entry) == job_juice(upstream, sent, executed, entry)


@given(loads(), st.data())
def test_juice_does_not_depend_on_what_a_filter_drops(load: Counts, data: st.DataObject) -> None:
    upstream, sent, executed = load
    entry = dict.fromkeys(upstream, Fraction(1))
    one = data.draw(st.sampled_from(sorted(upstream)))
    share = Fraction(1, data.draw(st.integers(1, 10)))
    less = {u: n * share if u == one else n for u, n in sent.items()}
    fewer = {(u, v): n * share if u == one else n for (u, v), n in executed.items()}
    assert job_juice(upstream, less, fewer, entry) == job_juice(upstream, sent, executed, entry)


@given(loads())
def test_juice_is_the_sum_over_all_paths(load: Counts) -> None:
    upstream, sent, executed = load
    children = {u: [v for v, parents in upstream.items() if u in parents] for u in upstream}

    def along(operator: str) -> Fraction:
        if not children[operator]:
            return Fraction(1)
        total = sent[operator]
        return sum(
            (executed[operator, v] / total if total else Fraction(1, len(children[operator]))) * along(v)
            for v in children[operator]
        )

    spouts = [o for o, parents in upstream.items() if not parents]
    expected = sum(map(along, spouts)) / len(spouts)
    assert job_juice(upstream, sent, executed, dict.fromkeys(upstream, Fraction(1))) == expected
