"""What snapshots tell about how late queries are: from tasks, offsets and batches as a cluster has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qod_magics.application.tasks import tasks
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.metrics.latency import Lateness
from qod_magics.spark.plans.job import Job
from qod_magics.spark.plans.timing import LEVELS
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import Batch, FeedCount
from tests.application.frames import application, stream
from tests.spark.batches import batch
from tests.spark.fakes import cluster

SPECS = tasks(
    application(
        stream("S", topic="rows", fuse=False),
        stream("Q", "S", priority=1, min_accuracy=0.5, max_latency_s=2.0, utility=3.0, min_juice=0.9, fuse=False),
        stream("P", "S", priority=1, fuse=False),
    )
)


def made(*batches: Batch) -> tuple[Cluster, Lateness]:
    """Source S, whose rows arrive at 10 rows/s, and its readers; the batches are Q's, and one of S is 1 s late."""
    whole = cluster(instances=tuple(map(instance, ("S", "Q", "P"))))
    deployment = whole.deployment
    deployment.specs = {spec.id: spec for spec in SPECS}
    deployment.pipes = {f"S>{q}": Pipe(f"S>{q}", "S", q, f"edge-{q}", 1, None) for q in ("Q", "P")}
    deployment.accounts = {
        "S": Account("rows", {0: 0}),
        **{name: Account(pipe.topic, {0: 0}) for name, pipe in deployment.pipes.items()},
    }
    for each in batches:
        whole.instances["Q.1"].meter.add(each)
    rows = replace(FeedCount("rows", {0: 0}, {0: 1000}, 1000, 1000), ages=(1.0,) * len(LEVELS))
    whole.instances["S.1"].meter.add(batch(0, 0.0, 100.0, feeds=(rows,)))
    lateness = Lateness(whole)
    for at in range(0, 101, 5):
        lateness.sample(
            float(at), {"rows": {0: 10 * at}, "edge-Q": {0: 10 * at}, "edge-P": {0: 10 * at}, "other": {0: 5}}
        )
    return whole, lateness


def instance(task: str) -> Instance:
    return Instance(Job(task, f"{task}.1", 0, (), None, (), (), None, None, None), "/nowhere")  # type: ignore[arg-type]


def read(whole: Cluster, **positions: int) -> None:
    """Set what each task has read."""
    for name, account in whole.deployment.accounts.items():
        account.position[0] = positions.get(name.rpartition(">")[2], 1000)


def test_a_target_and_a_utility_are_those_of_the_user() -> None:
    whole, lateness = made()
    read(whole)
    found = lateness.fields(100.0, {})
    assert found == {
        "Q": {"max_latency_s": 2.0, "utility": 3.0, "min_juice": 0.9, "oldest_s": 0.0},
        "P": {"oldest_s": 0.0},
    }


def test_latencies_add_those_of_the_task_upstream() -> None:
    rows = replace(FeedCount("edge-Q", {0: 0}, {0: 100}, 1000, 1000), times=(97.0,) * len(LEVELS))
    whole, lateness = made(batch(0, 98.0, 100.0, feeds=(rows,)))
    read(whole)
    found = lateness.fields(100.0, {})
    assert (found["Q"]["latency_p50_s"], found["Q"]["latency_p95_s"]) == (4.0, 4.0)
    assert "latency_p95_s" not in found["P"]


def test_the_oldest_row_waits_in_the_stream_or_in_the_source() -> None:
    whole, lateness = made()
    read(whole, S=700)
    assert {query: fields["oldest_s"] for query, fields in lateness.fields(100.0, {}).items()} == {"Q": 30.0, "P": 30.0}
    read(whole, Q=900)
    found = lateness.fields(100.0, {})
    assert found["Q"]["oldest_s"] == pytest.approx(11.0), "it was a second late when it was sent"
    assert found["P"]["oldest_s"] == 0.0
    assert lateness.fields(130.0, {})["Q"]["oldest_s"] == pytest.approx(41.0), "it gets older while it waits"


def test_in_real_time_rows_count_as_read_between_reports() -> None:
    """At its last report, of second 90, the task had read all rows of then; or those up to second 80."""
    whole, lateness = made()
    read(whole, Q=900)
    assert lateness.fields(94.0, {"Q": 90.0})["Q"]["oldest_s"] == 0.0
    read(whole, Q=800)
    assert lateness.fields(94.0, {"Q": 90.0})["Q"]["oldest_s"] == pytest.approx(11.0)


def test_a_row_that_has_waited_for_hours_is_still_known() -> None:
    whole, lateness = made()
    read(whole, Q=500)
    for at in range(105, 8000, 5):
        lateness.sample(float(at), {"edge-Q": {0: 10 * at}})
    assert lateness.fields(8000.0, {})["Q"]["oldest_s"] == pytest.approx(7951.0, abs=30.0)


def test_without_a_topic_there_is_no_oldest_row() -> None:
    whole, lateness = made()
    whole.deployment.accounts.clear()
    assert lateness.fields(100.0, {}) == {"Q": {"max_latency_s": 2.0, "utility": 3.0, "min_juice": 0.9}, "P": {}}


def test_a_task_is_looked_at_once_however_many_ways_lead_from_it_to_a_query() -> None:
    """Forty times two streams of the same stream, joined: 2^40 ways from the source."""
    layers = []
    for n in range(40):
        left, right = stream(f"L{n}", f"J{n}", fuse=False), stream(f"R{n}", f"J{n}", fuse=False)
        layers += [left, right, stream(f"J{n + 1}", f"L{n}", f"R{n}", fuse=False, priority=1 if n == 39 else None)]
    whole = cluster()
    specs = {spec.id: spec for spec in tasks(application(stream("J0", topic="rows", fuse=False), *layers))}
    whole.deployment.specs = specs
    whole.deployment.accounts = {"J0": Account("rows", {0: 0})}
    lateness = Lateness(whole)
    lateness.sample(0.0, {"rows": {0: 0}})
    lateness.sample(10.0, {"rows": {0: 10}})
    assert lateness.fields(30.0, {}) == {"J40": {"oldest_s": 30.0}}
