"""Tasks in micro-batches: what they read, when they begin and report, and how long one may last."""

from __future__ import annotations

import numpy as np
import pytest

from qod_magics.core.runtime import Count
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab

SLOW = {**LEFT, "mode": "micro-batch", "trigger_s": 2}
QUIET = {"slowdown": 1, "start_cpu_s": 0}


def test_batches_begin_with_the_trigger_and_take_what_waited_then() -> None:
    lab = Lab(tasks=[SOURCE, SLOW, RIGHT], moves=QUIET, duration_s=60)
    lab.wait(10)
    engine = lab.cluster.engine
    begun, taken = [], []
    for _ in range(80):
        before, read, waiting = engine.batch_began[1], engine.read[1], engine.queues.waiting[1]
        lab.wait(0.25)
        if engine.batch_began[1] > before:
            begun.append(float(engine.batch_began[1]))
            taken.append((int(engine.read[1] - read), int(waiting)))
        else:
            assert engine.read[1] == read  # its batches are short: between them nothing is read
    assert np.diff(begun).tolist() == [2.0] * (len(begun) - 1)
    assert len(begun) == 10
    for read, waiting in taken:
        assert waiting <= read <= waiting + 100 == 800
    seen = lab.wait(60)
    assert seen.measured.counts["src>left"] == Count(24_000, 24_000, 0, 0)


def test_a_micro_batch_reports_when_it_ends_and_an_idle_query_not_at_all() -> None:
    lab = Lab(tasks=[SOURCE, {**SLOW, "trigger_s": 20}, RIGHT], duration_s=45, moves=QUIET)
    reports = []
    for _ in range(220):
        seen = lab.wait(0.25)
        processed = seen.measured.counts["src>left"].processed
        if not reports or reports[-1] != processed:
            reports.append(processed)
    assert 3 <= len(reports) <= 5  # 0, and once a batch
    assert not lab.wait(30).fresh["left.1"]  # its last batch was long ago
    assert lab.look().fresh["right.1"]


@pytest.mark.parametrize("period_s", [5.0, 2.0])
def test_under_overload_a_batch_is_bound_to_a_period(period_s: float) -> None:
    heavy = {**SLOW, "work_us": 5000, "trigger_s": 1}
    tm = [{"id": "tm1", "cores": 8}]
    lab = Lab(tasks=[SOURCE, heavy, RIGHT], period_s=period_s, duration_s=80, moves=QUIET, task_managers=tm)
    engine = lab.cluster.engine
    began, lasted = None, []
    for _ in range(320):
        lab.cluster.advance(0.25)
        if engine.in_batch[1] and began is None:
            began = engine.batch_began[1]
        elif not engine.in_batch[1] and began is not None:
            lasted.append(engine.now - began)
            began = None
    assert len(lasted) > 10
    assert max(lasted) <= period_s + 0.5
    seen = lab.look()
    shown = next(i for i in seen.snapshot.instances if i.id == "left.1")
    assert seen.fresh["left.1"]
    assert shown.cpu == pytest.approx(100, rel=0.1)
    assert seen.measured.lag["src>left"] > 10_000


def test_a_query_killed_in_a_batch_does_the_whole_batch_again() -> None:
    heavy = {**SLOW, "work_us": 2000}
    lab = Lab(tasks=[SOURCE, heavy, RIGHT], duration_s=20, moves=QUIET)
    engine = lab.cluster.engine
    lab.until(lambda _: engine.in_batch[1] and engine.read[1] > lab.cluster.reports.committed.read[1] + 50)
    committed = int(lab.cluster.reports.committed.read[1])
    lab.cluster.fail("left.1")
    assert engine.read[1] == committed
    assert not engine.running[1]
    seen = lab.wait(60)
    assert seen.measured.counts["src>left"] == Count(8000, 8000, 0, 0)
