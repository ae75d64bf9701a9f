"""Latencies of queries from their batches, against the exact latencies of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.spark.metrics.latency import HELD_S, WINDOWS_S, Latencies, Step
from qod_magics.spark.plans.timing import LEVELS
from qod_magics.spark.queries.progress import Batch, FeedCount
from tests.spark.batches import batch

Array = np.ndarray


def quantiles(values: Array) -> tuple[float, ...]:
    return tuple(np.quantile(values, LEVELS, method="inverted_cdf").tolist())


def feed(rows: int, topic: str = "t", **times: tuple[float, ...]) -> FeedCount:
    return replace(FeedCount(topic, {0: 0}, {0: rows}, rows, rows), **times)


def micro_batches(arrived: Array, length_s: float, until: float, run: str = "run", topic: str = "t") -> list[Batch]:
    """Each takes in what arrived up to its start."""
    made, start, taken = [], length_s, 0
    while start + length_s <= until:
        upto = int(np.searchsorted(arrived, start))
        if upto > taken:
            feeds = (feed(upto - taken, topic, times=quantiles(arrived[taken:upto])),)
            made.append(batch(len(made), start, start + length_s, feeds=feeds, run=run))
        taken, start = upto, start + length_s
    return made


def ended(arrived: Array, batches: Sequence[Batch], since: float) -> Array:
    """Exact latencies of the rows of the batches that ended after this, until their batch was completed."""
    found, first = [], 0
    for each in batches:
        last = first + each.rows
        if each.end > since:
            found.append(each.end - arrived[first:last])
        first = last
    return np.concatenate(found)


def steps(*batches: Sequence[Batch]) -> dict[str, Step]:
    return {"q": Step({"t": None}, batches)}


@settings(max_examples=40)
@given(st.integers(0, 1000), st.floats(0.2, 3.0), st.sampled_from([300.0, 2000.0]))
def test_micro_batches_against_exact_percentiles(seed: int, length_s: float, rate: float) -> None:
    """Rows at a rate that rises and falls; a batch completes one length after it has begun."""
    dice = np.random.default_rng(seed)
    even = dice.uniform(0, 30, int(30 * rate))
    arrived = np.sort(np.clip(even + 0.5 * np.sin(even), 0, 30))
    batches = micro_batches(arrived, length_s, 30.0)
    found = Latencies(steps(batches)).of("q", 30.0)
    assert found is not None
    true = ended(arrived, batches, batches[-1].end - WINDOWS_S[0])
    assert found.p50 == pytest.approx(np.quantile(true, 0.5), rel=0.1)
    assert found.p95 == pytest.approx(np.quantile(true, 0.95), rel=0.1)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.floats(0.01, 0.2), st.floats(0.0, 0.5))
def test_real_time_batches_against_exact_percentiles(seed: int, usual_s: float, pause_s: float) -> None:
    """A row waits a little, and longer where a batch was committed meanwhile."""
    dice = np.random.default_rng(seed)
    made, every = [], []
    for number in range(3):
        waits = dice.exponential(usual_s, 4000)
        waits[: int(4000 * pause_s / 5)] += dice.uniform(0, pause_s, int(4000 * pause_s / 5))
        every.append(waits)
        feeds = (feed(4000, ages=quantiles(waits)),)
        made.append(batch(number, 5.0 * number, 5.0 * number + 5, feeds=feeds))
    found = Latencies(steps(made)).of("q", 15.0)
    true = np.concatenate(every[1:])
    assert found is not None
    assert found.p50 == pytest.approx(np.quantile(true, 0.5), rel=0.1, abs=0.05)
    assert found.p95 == pytest.approx(np.quantile(true, 0.95), rel=0.1, abs=0.05)


def test_a_row_is_done_when_it_is_read_or_when_its_batch_is_completed() -> None:
    read = batch(0, 11.0, 14.0, feeds=(feed(1000, ages=(2.0,) * len(LEVELS)),))
    completed = batch(0, 11.0, 14.0, feeds=(feed(1000, times=(10.0,) * len(LEVELS)),))
    for one, latency_s in ((read, 2.0), (completed, 4.0)):
        found = Latencies(steps([one])).of("q", 14.0)
        assert found is not None
        assert (found.p50, found.p95) == (latency_s, latency_s)


def test_rows_count_by_instance() -> None:
    few = batch(0, 0.0, 1.0, feeds=(feed(100, ages=(9.0,) * len(LEVELS)),), run="a")
    many = batch(0, 0.0, 1.0, feeds=(feed(9900, ages=(1.0,) * len(LEVELS)),), run="b")
    found = Latencies(steps([few], [many])).of("q", 1.0)
    assert found is not None
    assert (found.p50, found.p95) == (1.0, 1.0)


def test_few_rows_are_sought_for_a_minute() -> None:
    made = [
        batch(number, 5.0 * number, 5.0 * number + 5, feeds=(feed(10, ages=(float(number),) * len(LEVELS)),))
        for number in range(12)
    ]
    found = Latencies(steps(made)).of("q", 60.0)
    assert found is not None
    assert 5.0 <= found.p50 <= 6.0


def test_nothing_is_told_without_rows_times_or_news() -> None:
    bare = batch(0, 0.0, 1.0, read=100)
    timed = batch(0, 0.0, 1.0, feeds=(feed(100, ages=(1.0,) * len(LEVELS)),))
    assert Latencies(steps([])).of("q", 1.0) is None
    assert Latencies(steps([bare])).of("q", 1.0) is None
    assert Latencies(steps([timed])).of("q", HELD_S) is not None
    assert Latencies(steps([timed])).of("q", HELD_S + 2.0) is None


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(0.3, 2.0), st.floats(0.3, 2.0))
def test_latencies_add_up_along_streams(seed: int, first_s: float, second_s: float) -> None:
    """Two tasks in micro-batches, the second behind a stream: each row against its own path."""
    dice = np.random.default_rng(seed)
    arrived = np.sort(dice.uniform(0, 40, 20_000))
    above = micro_batches(arrived, first_s, 40.0)
    written = np.concatenate([np.full(each.rows, each.end) for each in above])
    below = micro_batches(written, second_s, 40.0, run="below", topic="edge")
    tasks = {"s": Step({"t": None}, [above]), "q": Step({"edge": "s"}, [below])}
    found = Latencies(tasks).of("q", 40.0)
    assert found is not None
    done = np.concatenate([np.full(each.rows, each.end) for each in below])
    latency = (done - arrived[: len(done)])[done > below[-1].end - WINDOWS_S[0]]
    assert found.p50 == pytest.approx(np.quantile(latency, 0.5), rel=0.12, abs=0.05)
    assert found.p95 == pytest.approx(np.quantile(latency, 0.95), rel=0.12, abs=0.05)


def test_a_stream_is_as_late_as_its_writer_was_at_that_time() -> None:
    """The writer's latency was 10 s, and is 1 s by now; the reader has just read rows of the first time."""
    old = batch(0, 0.0, 5.0, feeds=(feed(1000, ages=(10.0,) * len(LEVELS)),))
    new = batch(1, 5.0, 10.0, feeds=(feed(1000, ages=(1.0,) * len(LEVELS)),))
    late = batch(0, 9.0, 10.0, feeds=(feed(2000, "edge", times=(4.0,) * len(LEVELS)),), run="reader")
    tasks = {"s": Step({"t": None}, [[old, new]]), "q": Step({"edge": "s"}, [[late]])}
    found = Latencies(tasks).of("q", 10.0)
    assert found is not None
    assert (found.p50, found.p95) == (pytest.approx(16.0), pytest.approx(16.0))
    assert Latencies(tasks).median_at("s", 9.0) == pytest.approx(1.0)


def test_unknown_above_is_unknown_below() -> None:
    late = batch(0, 9.0, 10.0, feeds=(feed(2000, "edge", times=(4.0,) * len(LEVELS)),))
    tasks = {"s": Step({"t": None}, [[]]), "q": Step({"edge": "s"}, [[late]])}
    assert Latencies(tasks).of("q", 10.0) is None
