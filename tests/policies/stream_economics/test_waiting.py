"""Backlogs in seconds: of the input that they were collected from, which a fall of the load does not make longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, Task
from qod_magics.policies.stream_economics.evidence.limits import REST_S
from qod_magics.policies.stream_economics.evidence.trust import HELD_S, Collected

rates = st.floats(1.0, 1e6)
rows = st.integers(0, 10**7)


def seen(at_s: float, rate: float | None) -> Snapshot:
    return Snapshot((), (Task("q", (), rate, 1, 0.1),), (), (), at_s=at_s)


def waits(lag: int, rate: float) -> Measured:
    return Measured(lag={"q": lag}, input_rate={"q": rate})


def seconds(cycles: list[tuple[float, int, float]]) -> list[float]:
    """After each cycle of (second, rows, rate)."""
    collected, found = Collected(), []
    for at_s, lag, rate in cycles:
        collected = collected.after(seen(at_s, rate), waits(lag, rate), REST_S)
        found.append(collected.waiting_s(seen(at_s, rate), waits(lag, rate))["q"])
    return found


@given(rates, st.lists(st.tuples(rows, st.floats(1.0, 3.0)), min_size=1, max_size=10))
def test_while_no_load_falls_it_is_rows_by_rate(rate: float, steps: list[tuple[int, float]]) -> None:
    cycles = []
    for number, (lag, factor) in enumerate(steps):
        rate *= factor
        cycles.append((5.0 * number, lag, rate))
    assert seconds(cycles) == pytest.approx([lag / rate for _, lag, rate in cycles])


@given(rates, st.floats(0.001, 0.9), st.floats(REST_S + 0.1, 60.0), st.floats(0.0, 2 * HELD_S))
def test_after_a_fall_it_is_what_it_was_for_a_while(rate: float, share: float, before_s: float, later_s: float) -> None:
    lag = int(before_s * rate)
    (_, after) = seconds([(100.0, lag, rate), (100.0 + later_s, lag, share * rate)])
    assert after == pytest.approx(lag / rate if later_s <= HELD_S else lag / (share * rate))


@given(rates, st.floats(0.01, 0.9), st.floats(0.0, REST_S * 0.99))
def test_what_ordinarily_waits_ends_that(rate: float, share: float, rests_s: float) -> None:
    low = share * rate
    cycles = [(100.0, int(10 * rate), rate), (105.0, int(rests_s * low), low), (106.0, int(10 * low), low)]
    assert seconds(cycles)[-1] == pytest.approx(int(10 * low) / low)


def test_streams_count_together_and_without_a_rate_nothing_is_known() -> None:
    tasks = (Task("a", (), None, None, None), Task("q", ("a",), None, 1, 0.1))
    snapshot = Snapshot((), tasks, (), (), at_s=1.0)
    measured = Measured(lag={"a": 50, "a>q": 300}, input_rate={"a>q": 100.0})
    assert Collected().after(snapshot, measured, REST_S).waiting_s(snapshot, measured) == {"a": 0.0, "q": 3.0}
