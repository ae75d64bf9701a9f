"""Placing instances that have no task manager: first placement, and after a failure (Algorithm 3.1). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core.runtime import Unplaced
from qod_magics.core.snapshot import Instance, TaskManager
from qod_magics.policies.stream_economics.placing.scheduler import (
    UNKNOWN_ESTIMATE,
    PlacementRequest,
    available_cpu,
    place,
)


def placed(
    unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
) -> Mapping[str, str]:
    """Task manager by instance. An instance that never ran is estimated by another of its task."""
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    requests = [
        PlacementRequest(
            one.instance,
            one.estimate if one.estimate is not None else by_task.get(one.task, UNKNOWN_ESTIMATE),
            forbidden=one.forbidden,
        )
        for one in unplaced
    ]
    return place(requests, available_cpu(managers, running))
