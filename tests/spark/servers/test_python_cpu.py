"""How the CPU of Python workers is split among the instances that can have some."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.views import instance_views
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.plans.job import Job, PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.cpu import TaskTime
from tests.spark.batches import batch


def manager(cpu: float, seconds: float) -> Any:
    return SimpleNamespace(id="tm1", python_meter=SimpleNamespace(read=lambda: (cpu, seconds)))


def instance(name: str, on: Any, mode: str = "micro-batch", active: bool = False) -> Instance:
    made = Instance(Job(name, f"{name}.1", 0, (), None, (), (), None, None, None), "/c")  # type: ignore[arg-type]
    made.task_manager, made.mode, made.run_id = on, mode, f"run-{name}"
    made.query = SimpleNamespace(status={"isTriggerActive": active})  # type: ignore[assignment]
    return made


def collector(*instances: Instance) -> Collector:
    cluster = Cluster(Deployment(None, "s"), DialBoard("s"), {}, lambda *_: {}, 5.0)  # type: ignore[arg-type]
    cluster.instances = {each.id: each for each in instances}
    return Collector(cluster)


def test_it_goes_by_the_time_of_batches_in_the_window() -> None:
    now, tm = time.time(), manager(60.0, 10.0)
    long, short, real = instance("long", tm), instance("short", tm), instance("real", tm, "real-time")
    other = instance("other", manager(0.0, 10.0))
    long.meter.add(batch(1, now - 20.0, now - 6.0, run="run-long"))  # 4 s of it in the window
    long.meter.add(batch(2, now - 5.0, now - 3.0, run="run-long"))  # 2 s
    short.meter.add(batch(1, now - 3.0, now - 1.0, run="run-short"))  # 2 s
    short.meter.add(batch(9, now - 9.0, now - 4.0, run="run-before"))
    collector(long, short, real, other)._charge_python(tm)
    assert long.python_cpu == pytest.approx(45.0, abs=0.5)
    assert short.python_cpu == pytest.approx(15.0, abs=0.5)
    assert real.python_cpu == other.python_cpu == 0.0


def test_it_goes_to_the_queries_that_run_python_where_their_plans_tell() -> None:
    now, tm = time.time(), manager(60.0, 10.0)
    plain, python, unknown = instance("plain", tm), instance("python", tm), instance("unknown", tm)
    plain.facts, python.facts = PlanFacts(keeps_state=True), PlanFacts(keeps_state=False, runs_python=True)
    for each in (plain, python, unknown):
        each.meter.add(batch(1, now - 4.0, now - 2.0, run=f"run-{each.job.task}"))
    watching = collector(plain, python, unknown)
    watching._charge_python(tm)
    assert (plain.python_cpu, python.python_cpu, unknown.python_cpu) == (0.0, 60.0, 0.0)
    python.facts = PlanFacts(keeps_state=False)
    watching._charge_python(tm)
    assert plain.python_cpu == python.python_cpu == unknown.python_cpu == pytest.approx(20.0, abs=0.5)


def test_a_batch_that_has_not_ended_counts() -> None:
    now, tm = time.time(), manager(80.0, 10.0)
    under_way, idle = instance("under_way", tm, active=True), instance("idle", tm)
    under_way.meter.add(batch(1, now - 9.0, now - 8.0, run="run-under_way"))
    collector(under_way, idle)._charge_python(tm)
    assert under_way.python_cpu == pytest.approx(80.0, abs=0.5)
    assert idle.python_cpu == 0.0


def test_the_snapshot_says_how_much_of_the_cpu_it_is() -> None:
    now, tm = time.time(), manager(50.0, 5.0)
    only = instance("only", tm)
    only.meter.add(batch(1, now - 2.0, now, run="run-only", read=10))
    only.meter.charge("run-only", 1, TaskTime(0.2, 0.3))
    watching = collector(only)
    watching.cluster.task_managers["tm1"] = tm
    watching._charge_python(tm)
    (view,) = instance_views(watching.cluster)
    assert view.fields["python_cpu"] == 50.0
    assert view.reading is not None
    assert view.reading.cpu == pytest.approx(10.0 + 50.0, rel=0.01)
