"""The fluid model under the evaluation of Henge: rows are conserved, waits are those of queueing theory, and the
figures that it is compared with are the source's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.henge import (
    JOBS,
    OPERATORS,
    RUN_S,
    SOURCE,
    TARGET_S,
    Calibration,
    Cluster,
    by_hand,
    loads,
    names,
    observed,
    waiting_s,
)
from qod_magics.core.snapshot_json import snapshot_from_json, snapshot_to_json
from tests.policies.henge.oracles import oracle

GIVEN = Calibration()
ALONE = np.ones((JOBS, len(OPERATORS)))


def ran(cluster: Cluster, rate: float, seconds: int) -> Cluster:
    for _ in range(seconds):
        cluster.step(np.full(JOBS, rate))
    return cluster


def test_the_figures_and_the_length_are_those_of_the_source() -> None:
    case = oracle("H6")
    assert {name: SOURCE[name][0] for name in ("henge", "storm", "manual")} == {
        name: case[name] for name in ("henge", "storm", "manual")
    }
    assert case["henge"] / case["storm"] == pytest.approx(case["ratio"], abs=5e-4)
    assert case["action_s"] == pytest.approx(0.0049 * RUN_S, abs=0.05)
    assert case["longest_convergence_s"] == pytest.approx(0.0056 * RUN_S, abs=0.05)


def test_the_wait_of_one_server_is_exact() -> None:
    for busy in (0.1, 0.5, 0.9):
        found = waiting_s(np.array(busy * 100), np.array(1.0), np.array(0.01))
        assert float(found) == pytest.approx(0.01 * busy / (1 - busy))


def test_rows_are_conserved_in_and_out_of_overload() -> None:
    for rate in (50.0, 200.0):
        cluster = ran(Cluster(GIVEN, ALONE), rate, 300)
        np.testing.assert_allclose(cluster.arrived, cluster.processed + cluster.queue)
        np.testing.assert_allclose(cluster.arrived[:, 0], 300 * rate)


def test_cpu_that_is_used_is_no_more_than_there_is() -> None:
    small = replace(GIVEN, machines=5)
    cores, overhead = 5 * small.cores, small.overhead * 8 * float(ALONE.sum())
    cluster = ran(Cluster(small, 8 * ALONE), 100.0, 100)
    before = float((cluster.processed * cluster.service_s).sum())
    ran(cluster, 100.0, 100)
    done = (float((cluster.processed * cluster.service_s).sum()) - before) / 100
    assert done == pytest.approx(cores - overhead, rel=0.05)
    assert cluster.used == pytest.approx(cores)


def test_a_changed_job_does_nothing_while_it_restarts() -> None:
    cluster = ran(Cluster(GIVEN, ALONE), 50.0, 10)
    before = cluster.processed.copy()
    cluster.scale({(3, 2): 4})
    ran(cluster, 50.0, round(GIVEN.restart_s))
    assert (cluster.processed[3] == before[3]).all()
    assert (cluster.processed[4] > before[4]).all()
    assert cluster.latency_s[3] >= GIVEN.restart_s
    ran(cluster, 50.0, 1)
    assert cluster.processed[3, 0] > before[3, 0]


def test_by_hand_the_target_is_met_at_the_median_load_with_few_instances() -> None:
    instances = by_hand(GIVEN)
    cluster = Cluster(GIVEN, instances)
    for _ in range(200):
        cluster.step(np.median(loads(GIVEN), axis=0))
    assert (cluster.latency_s <= TARGET_S).all()
    assert instances.sum() < 2.5 * ALONE.sum()


def test_what_the_policy_sees_is_a_valid_snapshot() -> None:
    cluster = ran(Cluster(GIVEN, ALONE), 50.0, 10)
    snapshot, measured = observed(cluster, 10.0, np.full(JOBS, 50.0), cluster.latency_s, cluster.busy)
    assert snapshot_from_json(snapshot_to_json(snapshot)) == snapshot
    assert {name for job in range(JOBS) for name in names(job)} == {task.id for task in snapshot.tasks}
    assert all(c.arrived == c.processed + c.waiting for c in measured.counts.values())
