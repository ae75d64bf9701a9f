"""Show instances and task managers as observations need them: readings, modes, slot time, and what slows batches."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from qod_magics.core import snapshot as core
from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.observation import InstanceView
from qod_magics.spark.queries import slots
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import MeterReading
from qod_magics.spark.queries.slot_time import Key, Run, shared_out, spent
from qod_magics.spark.servers.cpu import TaskTime
from qod_magics.spark.servers.task_manager import TaskManager

#: Periods over which CPU not used by tasks is averaged. Even, so that the error which an alternating plan causes (cores
#: and tasks are not measured over the same seconds) cancels out instead of keeping the plan alternating.
OTHERS_PERIODS = 4
#: Bytes of a megabyte.
MB = 1e6


def instance_views(cluster: Cluster) -> list[InstanceView]:
    """Return all instances with their last readings. While a run has not reported yet, that of the run before it
    counts."""
    now = time.time()
    return [_view(cluster, instance, now) for instance in cluster.all_instances]


def _view(cluster: Cluster, instance: Instance, now: float) -> InstanceView:
    reading = instance.reading(cluster.period_s)
    current = reading is not None
    reading = reading or instance.last_reading
    manager = instance.task_manager.id if instance.task_manager else None
    if manager is None or manager not in cluster.task_managers:
        manager = next(iter(cluster.task_managers), "")
    stalled = instance.state is State.STALLED  # its restart has begun
    state = State.BACKING_OFF if stalled else instance.state
    fields: dict[str, Any] = {"state": state.value, "mode": instance.mode or None}
    if instance.mode == "micro-batch" and reading is not None:
        fields |= _batch_fields(cluster, instance, reading)
    if reading is not None and state in (State.BACKING_OFF, State.GAVE_UP, State.SUSPENDED):
        reading = replace(reading, cpu=0.0)  # the last one measured a query that has ended
    elif instance.python_cpu and reading is not None and reading.cpu is not None:
        fields["python_cpu"] = round(instance.python_cpu, 2)
        reading = replace(reading, cpu=reading.cpu + instance.python_cpu)
    age_s = now - reading.at if reading else 0.0
    return InstanceView(instance.id, instance.job.task, manager, reading, current, age_s, fields)


def _batch_fields(cluster: Cluster, instance: Instance, reading: MeterReading) -> dict[str, Any]:
    """Return what a snapshot says of an instance that runs in micro-batches."""
    fields: dict[str, Any] = {
        "batches_per_s": round(reading.batch_rate, 4),
        "batch_interval_s": round(1.0 / reading.batch_rate, 4) if reading.batch_rate else 0.0,
        "at_work": round(reading.at_work, 4),
    }
    if reading.eviction > 0.0:
        fields["eviction_cpu"] = round(reading.eviction, 2)
    if instance.job.trigger_s is not None:
        fields["trigger_s"] = instance.job.trigger_s
    if reading.busy is not None:
        fields["busy"] = round(max(reading.busy - _asleep(cluster, instance, reading.batch_rate), 0.0), 4)
    if reading.state_bytes:
        fields["memory_mb"] = round(reading.state_bytes / MB, 2)
    return fields


def _asleep(cluster: Cluster, instance: Instance, batches_per_s: float) -> float:
    """Return the share of the time in which its batches slept, as their pace asks, after their offsets were
    settled."""
    if instance.is_paced and not instance.pauses_on_read:
        return batches_per_s * cluster.delay_s(instance)
    return 0.0


def batching_on(cluster: Cluster, manager: TaskManager) -> list[Instance]:
    """Return the instances on a task manager that run in micro-batches."""
    return [i for i in cluster.all_instances if i.task_manager is manager and i.mode == "micro-batch"]


def slot_times(cluster: Cluster, manager: TaskManager) -> dict[Key, TaskTime]:
    """Return the slot time of the latest micro-batches on a task manager, by batch."""
    here = batching_on(cluster, manager)
    told = {key: times for each in here for key, times in _told(each, manager).items()}
    taken = sum(slots.slots_of(i) for i in cluster.all_instances if i.task_manager is manager and i.mode == "real-time")
    left = max(manager.capacity - taken, 1.0)
    return shared_out([_run(each) for each in here], left, told)


def _run(instance: Instance) -> Run:
    return Run(instance.batches, instance.width, instance.widest)


def _told(instance: Instance, manager: TaskManager) -> dict[Key, TaskTime]:
    """Return the times of its batches' tasks that the Spark UI has told."""
    return dict(instance.meter.told if manager.cpu_meter is None else instance.meter.times)


def bottleneck(cluster: Cluster, instance: Instance) -> str:
    """Return what takes most of the time of an instance's batches, in words; "" where nothing stands out."""
    manager = instance.task_manager
    if manager is None or instance.mode != "micro-batch":
        return ""
    gap_s = 0.0 if instance.pauses_on_read else cluster.delay_s(instance)
    found = spent(_run(instance), slot_times(cluster, manager), _told(instance, manager), gap_s)
    return "" if found is None else found.bottleneck


def core_managers(cluster: Cluster) -> list[core.TaskManager]:
    """Return the task managers as a snapshot has them."""
    return [
        core.TaskManager(
            m.id,
            m.cores * m.share,
            cluster.cpu.get(m.id, 0.0),
            kind=m.kind,
            dials=m.reading.value,
            others_periods=OTHERS_PERIODS,
            neighbours_cpu=round(cluster.neighbours[m.id], 2) if m.id in cluster.neighbours else None,
            cpu_limit=m.share if m.share < 1.0 else None,
        )
        for m in cluster.task_managers.values()
    ]
