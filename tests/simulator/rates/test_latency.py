"""Latencies: from the arrival of a row outside to its result, against closed forms and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.runtime import Observation
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.simulator.rates.cohorts import LEFT as MERGED
from qod_magics.simulator.rates.cohorts import MOST
from qod_magics.simulator.rates.engine import unbalanced
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab, simulations
from tests.simulator.rates.test_determinism import BUSY as BUSY_SCENARIO
from tests.simulator.rates.test_engine import HAPPENINGS, happen

#: A query that reads a topic itself, on a core of its own, without costs but those of its rows: 1000 rows/s.
ONE: dict[str, Any] = {
    **{"id": "one", "topic": "rows", "priority": 1, "min_accuracy": 0.1},
    **{"fixed": 0.0, "overhead": 0.0, "read_us": 0, "work_us": 1000},
}
EXACT = {"slowdown": 1, "start_cpu_s": 0, "down_s": 1, "spread": 0}
STEP_S = 0.25


def one(**fields: Any) -> Lab:
    """A cluster of one task manager that runs `ONE` alone, with its latency measured."""
    given = {"latency": True, "task_managers": [{"id": "tm1"}], "moves": EXACT, "tasks": [ONE], "duration_s": 400}
    return Lab(**{**given, **fields})


def of(seen: Observation, field: str, row: str) -> float | None:
    """A field of a task or an instance."""
    rows = {each.id: each for each in (*seen.snapshot.tasks, *seen.snapshot.instances)}
    found: float | None = getattr(rows[row], field, None)
    return found


@pytest.mark.parametrize("rate", [100, 900, 1000])
def test_what_is_carried_has_the_latency_of_its_step(rate: float) -> None:
    seen = one(topics=[{"topic": "rows", "rate": rate}]).wait(30)
    assert of(seen, "latency_p50_s", "one") == of(seen, "latency_p95_s", "one") == STEP_S / 2
    assert of(seen, "oldest_s", "one") == of(seen, "waiting", "one.1") == 0
    assert of(seen, "busy", "one.1") == pytest.approx(rate / 1000, rel=0.02)
    assert seen.measured.latency_s == {"one": STEP_S / 2}


@pytest.mark.parametrize("rate", [1250, 2000, 4000])
def test_a_backlog_at_constant_service_has_an_age_of_backlog_by_rate(rate: float) -> None:
    """Rows arrive at `rate` and are served at 1000 rows/s: at second t, (rate - 1000) t wait, and the row that is
    served arrived (1 - 1000 / rate) t ago."""
    lab = one(topics=[{"topic": "rows", "rate": rate}])
    for _ in range(6):
        seen = lab.wait(50)
        now, backlog = lab.cluster.now, seen.measured.lag["one"]
        assert backlog == (rate - 1000) * now
        assert of(seen, "oldest_s", "one") == pytest.approx(backlog / rate, abs=STEP_S, rel=0.03)
        growth = 1 - 1000 / rate  # of the age, per second
        assert of(seen, "latency_p50_s", "one") == pytest.approx(growth * (now - 2.5), abs=STEP_S, rel=0.03)
        assert of(seen, "latency_p95_s", "one") == pytest.approx(growth * (now - 0.25), abs=STEP_S, rel=0.03)
        assert of(seen, "waiting", "one.1") == backlog


def test_a_backlog_that_is_drained_is_forgotten() -> None:
    lab = one(topics=[{"topic": "rows", "rate": [[0, 2000], [20, 2000], [20, 500]]}])
    lab.wait(40)
    # 20,000 rows wait at second 20, and go by 500 rows/s; those read at second 40 arrived at second 20
    seen = lab.wait(STEP_S)
    assert of(seen, "oldest_s", "one") == pytest.approx(20, abs=0.6)
    lab.wait(21)
    seen = lab.wait(6)
    assert of(seen, "latency_p95_s", "one") == STEP_S / 2
    assert of(seen, "oldest_s", "one") == 0


@pytest.mark.parametrize("trigger_s", [2, 4])
def test_micro_batches_add_their_trigger_and_their_time(trigger_s: float) -> None:
    """Rows wait for 0 ... trigger_s for a batch, which takes a step."""
    batched = {**ONE, "mode": "micro-batch", "trigger_s": trigger_s, "work_us": 10}
    lab = one(tasks=[batched], period_s=4.0)
    seen = lab.wait(40)
    assert of(seen, "latency_p50_s", "one") == pytest.approx(trigger_s / 2, abs=STEP_S)
    assert of(seen, "latency_p95_s", "one") == pytest.approx(0.95 * trigger_s, abs=1.5 * STEP_S)
    slow = lab.look()
    lab = one(tasks=[{**batched, "work_us": 1500, "trigger_s": trigger_s}], period_s=4.0)
    seen = lab.wait(40)  # 400 rows/s take 0.6 of the time: a batch lasts 0.6 of the trigger
    most = of(seen, "latency_p95_s", "one")
    assert most is not None
    assert most == pytest.approx(1.6 * trigger_s, rel=0.12, abs=STEP_S)
    assert of(seen, "busy", "one.1") == pytest.approx(0.6, abs=0.16)
    assert of(slow, "busy", "one.1") == pytest.approx(0.004, abs=0.003)


def test_each_stream_adds_a_step_and_what_its_readers_wait() -> None:
    lab = Lab(latency=True, moves=EXACT)
    seen = lab.wait(40)
    assert of(seen, "latency_p95_s", "left") == STEP_S * 1.5
    assert of(seen, "oldest_s", "src") is None  # no query
    assert seen.measured.latency_s.keys() == {"left", "right"}
    late = Lab(latency=True, moves=EXACT, tasks=[SOURCE, {**LEFT, "latency_s": 2.0}, RIGHT]).wait(40)
    assert of(late, "latency_p50_s", "left") == pytest.approx(2 + STEP_S / 2, abs=STEP_S)
    assert of(late, "latency_p50_s", "right") == STEP_S * 1.5


def test_rows_that_wait_upstream_count_as_the_oldest() -> None:
    slow = {**SOURCE, "work_us": 5000}  # 200 rows/s of 400
    lab = Lab(latency=True, tasks=[slow, LEFT, RIGHT], moves=EXACT, task_managers=[{"id": "tm1", "cores": 4}])
    seen = lab.wait(40)
    assert seen.measured.lag["src"] > 7000
    for query in ("left", "right"):
        oldest, p95 = of(seen, "oldest_s", query), of(seen, "latency_p95_s", query)
        assert oldest is not None
        assert p95 is not None
        assert oldest == pytest.approx(seen.measured.lag["src"] / 400, rel=0.05)
        assert p95 == pytest.approx(oldest, rel=0.1)


def test_a_query_that_stands_still_keeps_its_last_latencies_and_its_oldest_row_ages() -> None:
    lab = one()
    lab.wait(30)
    lab.cluster.move("one.1", "tm1", "as it is")
    lab.cluster.engine.stop(0)
    seen = lab.wait(20)
    assert of(seen, "latency_p95_s", "one") == STEP_S / 2
    assert of(seen, "oldest_s", "one") == pytest.approx(20, abs=STEP_S)


def test_rows_read_again_after_a_failure_are_as_old_as_they_are() -> None:
    lab = one(metrics={"report_s": 5}, topics=[{"topic": "rows", "rate": 400}])
    lab.wait(30)
    lab.until(lambda _: lab.cluster.now - float(lab.cluster.reports.committed.at[0]) > 3)
    age = lab.cluster.now - float(lab.cluster.reports.committed.at[0])
    lab.cluster.fail("one.1")
    seen = lab.look()
    assert seen.measured.lag["one"] == 400 * age
    assert of(seen, "oldest_s", "one") == pytest.approx(age, rel=0.3, abs=STEP_S)
    assert unbalanced(lab.cluster.engine) == []


def test_the_number_of_cohorts_is_bounded_and_ages_stay_right() -> None:
    lab = one(topics=[{"topic": "rows", "rate": 2000}], duration_s=1200)
    cohorts = lab.cluster.engine.cohorts
    assert cohorts is not None
    lab.cluster.advance(1000)
    seen = lab.look()
    assert unbalanced(lab.cluster.engine) == []
    assert MERGED // 2 < cohorts.end - cohorts.first <= MOST
    assert of(seen, "oldest_s", "one") == pytest.approx(500, rel=0.03)
    assert of(seen, "latency_p50_s", "one") == pytest.approx(500, rel=0.03)
    assert (np.diff(cohorts.at[cohorts.first : cohorts.end]) > 0).all()


@settings(max_examples=15)
@given(simulations(), HAPPENINGS, st.sampled_from([0.0, 2.0]))
def test_percentiles_are_ordered_and_no_row_is_older_than_the_run(
    value: dict[str, Any], happenings: list[tuple[int, str, int]], wait_s: float
) -> None:
    value = {**value, "latency": True, "moves": {"wait_s": wait_s}}
    cluster = SimulatedCluster(Simulation.from_json(value))
    engine = cluster.engine
    for number in range(72):
        for step, what, which in happenings:
            if step == number:
                happen(cluster, what, which)
        cluster.advance(engine.step_s)
        assert unbalanced(engine) == []  # the rows of all cohorts are those in the queues
        if number % 3:
            continue
        seen = cluster.observe()
        waits = dict.fromkeys(seen.measured.lag, 0) | dict(seen.measured.lag)
        for task in seen.snapshot.tasks:
            p50, p95, oldest = (task.latency_p50_s, task.latency_p95_s, task.oldest_s)
            assert (oldest is None) == (task.priority is None)
            if p95 is not None and p50 is not None:
                assert 0 < p50 <= p95 <= cluster.now
                assert seen.measured.latency_s[task.id] == p95
            if oldest is not None:
                assert oldest <= cluster.now
                own = sum(waits[f"{source}>{task.id}"] for source in task.upstream) if task.upstream else waits[task.id]
                assert oldest > 0 or own == 0
        for i in seen.snapshot.instances:
            busy = i.busy
            assert busy is not None
            assert 0 <= busy <= 1
        assert sum(i.waiting or 0 for i in seen.snapshot.instances) <= sum(waits.values())


@settings(max_examples=10)
@given(st.lists(st.integers(0, 3000), min_size=4, max_size=12), st.sampled_from([500, 1000, 2000]))
def test_latencies_of_a_queue_are_those_of_first_in_first_out(rates: list[int], work_us: int) -> None:
    """Each row's wait, from cumulative arrivals and departures, row by row."""
    points = [[float(at), rate] for n, rate in enumerate(rates) for at in (5 * n, 5 * n + 5)]
    topics = [{"topic": "rows", "rate": points}]
    lab = one(topics=topics, tasks=[{**ONE, "work_us": work_us}], duration_s=60, controlled=False)
    engine = lab.cluster.engine
    came: list[float] = []
    ages: list[tuple[float, float]] = []
    for _ in range(4 * 5 * len(rates)):
        now, before, read = engine.now, int(engine.came[0]), int(engine.read[0])
        lab.cluster.advance(STEP_S)
        came += [now + STEP_S / 2] * int(engine.came[0] - before)
        ages += [(engine.now, engine.now - came[row]) for row in range(read, int(engine.read[0]))]
    seen = lab.look()
    last = [age for at, age in ages if at > engine.now - 5 + 1e-6]
    if last:
        for field, share in (("latency_p50_s", 0.5), ("latency_p95_s", 0.95)):
            assert of(seen, field, "one") == pytest.approx(
                float(np.quantile(last, share, method="inverted_cdf")), abs=0.26, rel=0.03
            )
    waiting = came[int(engine.read[0]) :]
    assert of(seen, "oldest_s", "one") == pytest.approx(engine.now - waiting[0] if waiting else 0.0, abs=0.26, rel=0.03)


def test_measuring_changes_nothing_else(tmp_path: Path) -> None:
    def records(latency: bool) -> list[Any]:
        file = tmp_path / f"{latency}.jsonl"
        simulate(Simulation.from_json({**BUSY_SCENARIO, "latency": latency}), record=file)
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    plain, measured = records(False), records(True)
    assert plain[-1]["measured"]["latency_s"] == {}
    assert measured[-1]["measured"]["latency_s"].keys() == {"left", "right"}
    for record in measured:
        record["measured"]["latency_s"] = {}
        measured_only = {
            "tasks": ("latency_p50_s", "latency_p95_s", "oldest_s"),
            "instances": ("waiting", "busy", "batch_interval_s"),
        }
        for table, fields in measured_only.items():
            for row in record["snapshot"][table]:
                for field in fields:
                    row.pop(field, None)
    for record in (*plain, *measured):
        record.pop("policy_ms", None)
    assert measured == plain
