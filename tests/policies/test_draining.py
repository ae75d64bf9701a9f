"""A backlog as part of the plan: what counts as one, what it costs, and who gives the CPU for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.optional import DRAIN, SOURCE_LAG, STREAM_LAG
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.policies import policy
from qod_magics.policies.stream_economics.draining import ALLOWANCE_S, DRAIN_S, TRIGGER_S, with_lag

NAME = "stream-economics-drained"


def two(lag_s: float = 0.0, stream_lag_s: float = 0.0) -> Snapshot:
    """An important chain that needs 60 % of a core at full accuracy, and another query that needs 40 %; of 100 %."""
    costs = {"fixed_cpu": 0.0, "read_us": 0.0, "selectivity": 1.0}
    late = {SOURCE_LAG.name: lag_s} if lag_s else {}
    later = {STREAM_LAG.name: stream_lag_s} if stream_lag_s else {}
    return Snapshot(
        (TaskManager("tm1", 1.0, 100.0),),
        (
            Task("src", (), 1000.0, None, None, {**costs, "work_us": 200.0, **late}),
            Task("high", ("src",), None, 2, 0.1, {**costs, "work_us": 400.0}),
            Task("low", (), 1000.0, 1, 0.1, {**costs, "work_us": 400.0}),
        ),
        (Stream("src", "high", 1000.0, later),),
        tuple(
            Instance(f"{name}.1", name, "tm1", 1000.0, cpu, False)
            for name, cpu in (("src", 20.0), ("high", 40.0), ("low", 40.0))
        ),
    )


def desired(given: Snapshot) -> dict[str, float]:
    return dict(policy(NAME).decide(given, None)[0].desired)


def test_lower_priorities_give_the_cpu_for_a_backlog_first() -> None:
    assert desired(two()) == pytest.approx({"src": 1.0, "high": 1.0, "low": 1.0})
    # 5 s of input in 10 s: half as much again, 90 % of the core for the chain
    assert desired(two(lag_s=DRAIN_S / 2)) == pytest.approx({"src": 1.0, "high": 1.0, "low": 0.25})


def test_what_waits_on_a_stream_costs_its_reader_only() -> None:
    # the reader needs 60 %, the source its 20 %
    assert desired(two(stream_lag_s=DRAIN_S / 2)) == pytest.approx({"src": 1.0, "high": 1.0, "low": 0.5})


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_more_that_waits_never_means_more_accuracy(one: float, other: float) -> None:
    less, more = sorted((one, other))
    before, after = desired(two(lag_s=less)), desired(two(lag_s=more))
    assert all(after[task] <= before[task] + 1e-9 for task in before)
    assert after["high"] >= 0.1


def test_the_plan_says_that_it_drains() -> None:
    assert policy(NAME).decide(two(), None)[0].extra == {DRAIN.name: DRAIN_S}


def test_a_drain_begins_late_and_ends_early() -> None:
    def seen(seconds: float, draining: frozenset[str]) -> frozenset[str]:
        lag = {"src": round(1000 * seconds), "src>high": round(400 * seconds)}
        measured = Measured(lag=lag, input_rate={"src": 1000.0, "src>high": 400.0})
        found, names = with_lag(two(), measured, draining)
        assert (SOURCE_LAG.of(found.tasks[0]) is not None) == ("src" in names)
        assert (STREAM_LAG.of(found.streams[0]) is not None) == ("src>high" in names)
        return names

    both = frozenset({"src", "src>high"})
    assert seen(TRIGGER_S - 0.1, frozenset()) == frozenset()
    assert seen(TRIGGER_S + 0.1, frozenset()) == both
    assert seen(ALLOWANCE_S + 0.1, both) == both
    assert seen(ALLOWANCE_S - 0.1, both) == frozenset()


def test_what_waits_where_nothing_comes_is_no_part_of_the_plan() -> None:
    quiet = replace(two(), tasks=(replace(two().tasks[0], external_rate=0.0), *two().tasks[1:]))
    found, names = with_lag(quiet, Measured(lag={"src": 9000}, input_rate={"src": 0.0}), frozenset())
    assert not names
    assert SOURCE_LAG.of(found.tasks[0]) is None
