"""A whole run in virtual time: the cluster, the same controller as live, and the scenario."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import numpy as np

from qod_magics.controller import Controller, Cycle, InlineWorker, ManualClock, Recording
from qod_magics.core.plan import Plan
from qod_magics.core.policy import LearningPolicy, Policy, Reasons, placer_of, reasons_of
from qod_magics.core.runtime import Dials, Measured, Unplaced
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager
from qod_magics.policies import policy as policy_named
from qod_magics.simulator.rates.cluster import SimulatedCluster
from qod_magics.simulator.rates.simulation import Simulation
from qod_magics.simulator.rates.wiring import Column

_NOTHING: Mapping[str, float] = {}

Progress = Callable[[float], object]


class _Timed:
    """Times a policy: virtual time stands still while it decides."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, policy.name
        self.seconds = 0.0
        self._learner = policy if isinstance(policy, LearningPolicy) else None

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        begun = thread_time()
        try:
            return self.policy.decide(snapshot, state)
        finally:
            self.seconds += thread_time() - begun

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        return placer_of(self.policy)(unplaced, managers, running)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        return reasons_of(self.policy, snapshot, plan)

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        if self._learner is None:
            return snapshot, None
        begun = thread_time()
        try:
            return self._learner.learn(snapshot, measured, memory)
        finally:
            self.seconds += thread_time() - begun


class _Mean:
    """Mean by name, over the mappings that have a value for it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._column = Column(self._names)
        self._sum, self._count = np.zeros(len(self._names)), np.zeros(len(self._names), int)

    def add(self, values: Mapping[str, float | None]) -> None:
        found = self._column.of(values, np.full(len(self._names), np.nan))
        there = ~np.isnan(found)
        self._sum[there] += found[there]
        self._count += there

    def by_name(self) -> dict[str, float | None]:
        each = zip(self._names, self._sum.tolist(), self._count.tolist(), strict=True)
        return {name: total / count if count else None for name, total, count in each}


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run."""

    cycles: tuple[Cycle, ...]
    cluster: SimulatedCluster
    policy_s: float  #: CPU seconds of the policy in all
    cpu_s: float  #: CPU seconds of the run in all, the policy included
    mean_accuracy: Mapping[str, float | None]  #: by query, over the cycles that measured one
    #: by query with a `max_latency_s`: share of the cycles that measured a 95th percentile in which it was met
    met: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def node_hours(self) -> float:
        """Hours that task managers were up, in all."""
        return self.cluster.nodes.hours

    @property
    def cost(self) -> float | None:
        """Price x hours up of the task managers with a price; None if none has one."""
        return self.cluster.nodes.cost


def simulate(
    simulation: Simulation,
    *,
    record: str | os.PathLike[str] | None = None,
    policy: Policy | None = None,
    keep: bool = True,
    progress: Progress | None = None,
    inspect: Callable[[SimulatedCluster, Cycle], object] | None = None,
) -> Run:
    """Run a simulation to its end.

    - `record`: a file to which the recording is appended
    - `policy`: replaces the one that the simulation names
    - `keep`: whether the cycles are in the result; False saves memory in long runs
    - `progress`: called with the virtual second after each cycle
    - `inspect`: called with the cluster and the cycle after each cycle
    """
    begun = thread_time()
    clock = ManualClock()
    decides = policy or policy_named(simulation.policy)
    cluster = SimulatedCluster(simulation, clock, placer_of(decides))
    timed = _Timed(decides)
    controller = Controller(
        cluster,
        timed,
        period_s=simulation.period_s,
        clock=clock,
        recording=None if record is None else Recording(record),
        worker=InlineWorker,
    )
    if not simulation.controlled:
        controller.pause()
        cluster.apply(*_open(cluster))
    cycles = []
    mean = _Mean(task.id for task in simulation.tasks if task.min_accuracy is not None)
    targets = {task.id: task.max_latency_s for task in simulation.tasks if task.max_latency_s is not None}
    met = _Mean(targets)
    scenario = simulation.scenario
    collecting = gc.isenabled()
    gc.disable()  # controller cycles leave no cyclic garbage, and collecting among the rows of a large cluster is slow
    try:
        left_s, rates = round(scenario.duration_s / simulation.period_s) * simulation.period_s, _NOTHING
        due_s = simulation.period_s  # until the next cycle on time
        was_early = False  # whether a rise made the last one early
        while left_s > 1e-6:
            before = cluster.now
            seconds = min(due_s, left_s, due_s if controller.again_s is None else controller.again_s)
            rates = _pass(cluster, controller, seconds, early=not was_early)
            left_s -= cluster.now - before
            due_s -= cluster.now - before
            if rates or due_s <= 1e-6:
                due_s, was_early = simulation.period_s, due_s > 1e-6 and controller.rises
            controller.annotate(phase=scenario.phase(min(cluster.now, scenario.duration_s) - 1e-6))
            cycle = controller.step(rates)
            if cycle.measured is not None:
                mean.add(cycle.measured.accuracy)
                took = cycle.measured.latency_s
                met.add({name: float(took[name] <= most) for name, most in targets.items() if name in took})
            if keep:
                cycles.append(cycle)
            if inspect is not None:
                inspect(cluster, cycle)
            if progress is not None:
                progress(cluster.now)
    finally:
        if collecting:
            gc.enable()
        controller.close()
    return Run(tuple(cycles), cluster, timed.seconds, thread_time() - begun, mean.by_name(), met.by_name())


def _pass(cluster: SimulatedCluster, controller: Controller, seconds: float, *, early: bool) -> Mapping[str, float]:
    """Advance to the next cycle, by `seconds` at most. A fall makes it earlier, and a rise if it may be `early`.

    Returns the input rates that it is for, if they differ from those planned with.
    """
    every_s = controller.check_s
    if every_s is None:
        cluster.advance(seconds)
        return _NOTHING
    passed = 0.0
    while passed < seconds - 1e-6:
        cluster.advance(min(every_s, seconds - passed))
        passed += every_s
        rates = controller.stepped_rates()
        if rates and (early or not controller.rises):
            return rates
    return _NOTHING


def _open(cluster: SimulatedCluster) -> tuple[Plan, Dials]:
    """Return a plan and dials with every shedder open."""
    tasks = [task.id for task in cluster.simulation.tasks]
    ones = dict.fromkeys(tasks, 1.0)
    keep = dict.fromkeys(cluster.wiring.edges, 1.0)
    return Plan(ones, keep), Dials(keep, ones)
