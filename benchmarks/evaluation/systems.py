"""Every policy on the same simulated clusters over a day, and `auto` beside the default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.evaluation import day
from benchmarks.evaluation.auto import compared
from qod_magics.controller import Cycle
from qod_magics.core.plan import Move
from qod_magics.core.policy import Policy
from qod_magics.policies import policy
from qod_magics.policies.d_storm import DStorm, Parameters
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.testing.runs import Truth, processed

WORKERS = 2
#: D-Storm reschedules every ten minutes at most, the length of the whole day here: so it is tried with less, too.
SHORT = Parameters(window_s=20.0, interval_s=60.0)


@dataclass(frozen=True, slots=True)
class Setup:
    """A policy, and what it runs on."""

    make: Callable[[], Policy]
    joins: bool = False  #: whether task managers join by themselves


def _named(name: str, joins: bool = False) -> Setup:
    return Setup(lambda: policy(name), joins)


SETUPS: Mapping[str, Setup] = {
    "stream-economics": _named("stream-economics"),
    "stream-economics-reactive": _named("stream-economics-reactive"),
    "d-storm": _named("d-storm"),
    "d-storm, every minute": Setup(lambda: DStorm(parameters=SHORT)),
    "stela, task managers join": _named("stela", joins=True),
    "henge": _named("henge"),
    "auto": _named("auto"),
}


def systems(_out: Path, scale: float) -> dict[str, Any]:
    """Figures by cluster and policy; `auto` beside the default by scenario. Below full scale, there are fewer tasks.
    Two processes share the work: all times are of CPU."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        days = {name: {label: pool.submit(_day, name, label, scale) for label in SETUPS} for name in ("large", "small")}
        auto = pool.submit(compared, scale)
        return {
            "days": {name: {label: one.result() for label, one in each.items()} for name, each in days.items()},
            "auto": auto.result(),
        }


def _day(name: str, label: str, scale: float) -> dict[str, Any]:
    setup = SETUPS[label]
    tasks = max(round(day.TASKS * min(scale, 1.0) / 40), 2) * 40
    given = day.small(joins=setup.joins) if name == "small" else day.large(tasks=tasks, joins=setup.joins)
    return figures(setup.make(), given)


def figures(chosen: Policy, simulation: Simulation) -> dict[str, Any]:
    """A run: accuracy measured and rows processed of those due by priority, share of time within the latency target,
    node-hours, actions by kind, task managers up, and ms of the policy per cycle."""
    actions: Counter[str] = Counter()
    up: list[int] = []

    def look(cluster: SimulatedCluster, cycle: Cycle) -> None:
        up.append(int(cluster.engine.up.sum()))
        if cycle.plan is not None:
            actions.update(type(action).__name__ for action in cycle.plan.actions)

    run = simulate(simulation, policy=chosen, keep=False, inspect=look)
    queries = [task for task in simulation.tasks if task.min_accuracy is not None]
    done, due = processed(run.cluster), rows_due(simulation)
    moves = actions.pop(Move.__name__, 0)
    return {
        "accuracy": _by_priority(simulation, run.mean_accuracy),
        "processed": _by_priority(simulation, {q.id: done[q.id] / max(due[q.id], 1e-9) for q in queries}),
        "met": mean(met for met in run.met.values() if met is not None),
        "node_hours": run.node_hours,
        "moves": moves,
        "actions": dict(actions),
        "up": {"first": up[0], "most": max(up), "last": up[-1]},
        "policy_ms": 1000 * run.policy_s / len(up),
        "tasks": len(simulation.tasks),
        "task_managers": len(simulation.machines),
    }


def rows_due(simulation: Simulation) -> dict[str, float]:
    """Rows that each task processes in the whole run if nothing is shed or late."""
    truth, length = Truth(simulation), round(simulation.scenario.duration_s)
    found = dict.fromkeys(truth.tasks, 0.0)
    for second in range(length):
        for name, rate in truth.full(second + 0.5).items():
            found[name] += rate
    return found


def _by_priority(simulation: Simulation, values: Mapping[str, float | None]) -> dict[str, float]:
    """Means, from the highest priority down; of all under "all"."""
    found: dict[int, list[float]] = {}
    for task in simulation.tasks:
        value = values.get(task.id)
        if task.priority is not None and value is not None:
            found.setdefault(task.priority, []).append(value)
    by = {str(priority): mean(found[priority]) for priority in sorted(found, reverse=True)}
    return {"all": mean(value for each in found.values() for value in each), **by}
