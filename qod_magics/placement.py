"""Where instances go that have no task manager: Algorithm 3.1, asked by a runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core import snapshot as core
from qod_magics.policies.stream_economics import UNKNOWN_ESTIMATE, Request, available_cpu, place


@dataclass(frozen=True, slots=True)
class Homeless:
    """An instance that needs a task manager."""

    instance: str
    task: str
    estimate: float | None  #: its last CPU, % of one core
    forbidden: frozenset[str]  #: task managers that it must not go to


#: Where instances go: instance -> task manager. The decision is a policy's; the runtime only asks for it.
Placer = Callable[[Sequence[Homeless], Sequence[core.TaskManager], Sequence[core.Instance]], Mapping[str, str]]


def placed(
    homeless: Sequence[Homeless], managers: Sequence[core.TaskManager], running: Sequence[core.Instance]
) -> Mapping[str, str]:
    """Algorithm 3.1, for instances without a task manager. One that never ran is taken to need what another of its
    task does."""
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
