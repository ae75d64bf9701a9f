"""Moves by hand, and what became of them."""

from __future__ import annotations

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.runtime import SparkRuntime


def move(runtime: SparkRuntime, id: str, target: str) -> None:
    """`Session.move`. Raises TaskManagerError: it can't be moved, or does not run there afterwards."""
    failed = runtime.move(id, target, "moved by hand").result()
    instance = runtime.instances.get(id)
    if instance is None:
        raise TaskManagerError(f"{id} was not moved to {target}: its task was stopped meanwhile.")
    home = instance.task_manager
    if instance.state is State.RUNNING and home is not None and home.id == target:
        return
    why = failed or instance.failure
    raise TaskManagerError(f"{id} does not run on {target}: it {_now(instance)}{f' ({why})' if why else ''}")


def _now(instance: Instance) -> str:
    """Where it is, and in which state."""
    home, state = instance.task_manager, instance.state
    if state is State.GAVE_UP:
        return "failed too often and stays stopped" + ("" if home is None else f" on {home.id}")
    if home is None:
        return "waits for a task manager" if state is State.WAITING else f"is {state.value}"
    return f"runs on {home.id}" if state is State.RUNNING else f"is {state.value} on {home.id}"
