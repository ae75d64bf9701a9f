"""Whole rows, exactly as many as the injector sends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.rates import PiecewiseLinear
from qod_magics.simulator.engine.arrivals import AHEAD, Arrivals, due


@st.composite
def curves(draw: st.DrawFn) -> PiecewiseLinear:
    """Rates over time with rises, falls, jumps, and whatever comes before the first point."""
    seconds = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True)))
    points = []
    for second in seconds:
        for _ in range(draw(st.integers(1, 2))):
            points.append((second / 2, float(draw(st.integers(0, 3000)))))
    return PiecewiseLinear.through(points)


@given(curves(), st.lists(st.integers(-8, 400), min_size=1, max_size=30))
def test_many_instants_are_due_what_each_is(rate: PiecewiseLinear, eighths: list[int]) -> None:
    times = [n / 8 for n in eighths]
    assert due(rate, np.array(times)).tolist() == [rate.due(t) for t in times]


@given(st.lists(curves(), min_size=1, max_size=4), st.sampled_from([0.1, 0.25, 0.3]), st.sampled_from([7.0, 20.0]))
def test_steps_add_up_to_what_is_due_and_end_at_the_end(
    rates: list[PiecewiseLinear], step_s: float, end_s: float
) -> None:
    arrivals = Arrivals([*rates, rates[0]], step_s, end_s)
    total = np.zeros(len(rates) + 1, np.int64)
    for number in range(AHEAD + 20):
        rows = arrivals.step(number)
        assert (rows >= 0).all()
        total += rows
        now = min((number + 1) * step_s, end_s)
        for topic, rate in enumerate([*rates, rates[0]]):
            assert abs(total[topic] - rate.rows(0.0, now)) <= 1.0 + 1e-6
    assert total.tolist() == [rate.due(end_s) for rate in [*rates, rates[0]]]


def test_without_topics_there_are_no_rows() -> None:
    assert Arrivals([], 0.25, 10.0).step(3).tolist() == []
