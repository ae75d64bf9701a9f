"""Where instances go that have no task manager: Algorithm 3.1, asked by a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core import snapshot as core
from qod_magics.policies.stream_economics import UNKNOWN_ESTIMATE, Request, available_cpu, place
from qod_magics.spark.cluster import Homeless


def placed(
    homeless: Sequence[Homeless], managers: Sequence[core.TaskManager], running: Sequence[core.Instance]
) -> Mapping[str, str]:
    """Algorithm 3.1, for instances without a task manager."""
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    requests = [
        Request(
            one.instance,
            one.estimate if one.estimate is not None else by_task.get(one.task, UNKNOWN_ESTIMATE),
            forbidden=one.forbidden,
        )
        for one in homeless
    ]
    return place(requests, available_cpu(managers, running))
