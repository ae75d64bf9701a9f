"""Ask the policy where instances start. It sees the CPU that each used last, and what runs where."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qod_magics.core import snapshot as core
from qod_magics.core.runtime import Unplaced
from qod_magics.errors import TaskManagerError
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.observation import InstanceView
from qod_magics.spark.cluster.views import core_managers, instance_views
from qod_magics.spark.queries import slots


def targets_for(cluster: Cluster, forbidden: Mapping[str, Collection[str]]) -> Mapping[str, str]:
    """Return the task manager on which the policy places each of these instances, never one that `forbidden` lists
    for it, and one with enough task slots if there is one.

    Raises TaskManagerError if no task manager is available.
    """
    if not forbidden:
        return {}
    with cluster.lock:
        available = {m.id for m in cluster.answering()} - cluster.leaving
        managers = [m for m in core_managers(cluster) if m.id in available]
        there = {m.id for m in managers}
        running = [
            _as_measured(v) for v in instance_views(cluster) if v.id not in forbidden and v.task_manager in there
        ]
        unplaced = [_unplaced(cluster, id, refused) for id, refused in forbidden.items()]
        needs = {id: slots.slots_of(cluster.instances[id]) for id in forbidden if id in cluster.instances}
        others = [i for i in cluster.all_instances if i.id not in forbidden]
        open_slots = slots.free((cluster.task_managers[m.id] for m in managers), others)
    if not managers:
        raise TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
    return slots.placed(cluster.place, unplaced, managers, running, needs, open_slots)


def _unplaced(cluster: Cluster, id: str, refused: Collection[str]) -> Unplaced:
    """Return an instance that needs a task manager, none of these, with the CPU that it used last."""
    instance = cluster.instances.get(id)
    last = (instance.reading(cluster.period_s) or instance.last_reading) if instance else None
    task = instance.job.task if instance else id.rpartition(".")[0]
    return Unplaced(id, task, last.cpu if last else None, frozenset(refused), _homes_near(cluster, task))


def _homes_near(cluster: Cluster, task: str) -> frozenset[str]:
    """Return the task managers on which the streams run beside which a task's instances are to start."""
    spec = cluster.deployment.specs.get(task)
    names = () if spec is None else spec.near
    near = {each.id for name in names for each in cluster.deployment.specs_with(name)}
    return frozenset(i.task_manager.id for i in cluster.all_instances if i.job.task in near and i.task_manager)


def _as_measured(view: InstanceView) -> core.Instance:
    """Return an instance as a policy sees it that places others beside it."""
    found = view.reading
    in_rate, cpu = (found.in_rate, found.cpu or 0.0) if found else (0.0, 0.0)
    return core.Instance(view.id, view.task, view.task_manager, in_rate, cpu, found is None)
