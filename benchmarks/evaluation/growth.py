"""Scenario 5: what a decision and a whole cycle of the controller cost, from 10 to 20,000 tasks, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.simulator import CORES, SIZES, TASKS_PER_MANAGER, cycles

CYCLES = 8
#: The paper's largest: tasks and task managers, the latter here with as many cores as needed.
SOURCE_TASKS, SOURCE_MANAGERS = 2000, 2


def growth(_out: Path, scale: float) -> dict[str, Any]:
    """CPU time of the policy, of a cycle and of the observation before it, ms, by number of tasks. Below full scale,
    sizes end at the paper's."""
    sizes = [size for size in SIZES if scale >= 1 or size <= SOURCE_TASKS]
    cores = CORES * SOURCE_TASKS / TASKS_PER_MANAGER / SOURCE_MANAGERS
    return {
        "by_tasks": {str(size): _named(*cycles(size, CYCLES)) for size in sizes},
        "as_source": _named(*cycles(SOURCE_TASKS, CYCLES, SOURCE_MANAGERS, cores)),
    }


def _named(policy: list[float], cycle: list[float], observing: list[float]) -> dict[str, list[float]]:
    return {"policy_ms": policy, "cycle_ms": cycle, "observing_ms": observing}
