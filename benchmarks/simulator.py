"""How fast the simulator is: `python benchmarks/simulator.py`, an hour of 1,000 task managers with 20,000 tasks.

Thousands of small applications, some of them overloaded for a part of the time. Scenario 5 of the evaluation (`growth`)
times the controller's cycles on such clusters.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import linear_regression, median
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.controller import Controller, InlineWorker, ManualClock
from qod_magics.core.plan import Plan
from qod_magics.core.policy import placer_of
from qod_magics.core.runtime import Observation
from qod_magics.core.snapshot import Snapshot
from qod_magics.kafka.scenario import PiecewiseLinear, Scenario
from qod_magics.policies import PAPER_POLICY, policy
from qod_magics.simulator import SimulatedCluster, Simulation, simulate
from qod_magics.simulator.rates.simulation import Machine, Metrics, SimulatedTask

SIZES = (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000)
SEED = 20161121
TASKS_PER_MANAGER = 20
CORES = 4.0
CURVES = 60  #: different courses of load
OVERLOADED = 0.3  #: of the applications
PRIORITIES = 5
SETTLING = 16  #: cycles until the warm-ups are over and the overloads have begun
CYCLES = 8  #: that scenario 5 times
#: The paper's largest: tasks and task managers, the latter here with as many cores as needed.
SOURCE_TASKS, SOURCE_MANAGERS = 2000, 2


def curves(duration_s: float, rng: random.Random) -> list[PiecewiseLinear]:
    """Input rates of sources, rows/s: most wander, some rise far beyond the capacity, and fall again."""
    found = []
    for number in range(CURVES):
        calm = rng.uniform(150.0, 400.0)
        points = [(0.0, calm)]
        if number < OVERLOADED * CURVES:
            begins = rng.uniform(0.05, 0.4) * duration_s
            ends = begins + rng.uniform(0.3, 0.5) * duration_s
            high = calm * rng.uniform(4.0, 8.0)
            points += [(begins, calm), (begins + 0.02 * duration_s, high), (ends, high), (ends + 60.0, calm)]
        else:
            points += [(at * duration_s / 6, calm * rng.uniform(0.8, 1.2)) for at in range(1, 7)]
        found.append(PiecewiseLinear.through(points))
    return found


def application(number: int, rng: random.Random) -> list[SimulatedTask]:
    """Mostly two sources that both feed two queries, as in the taxi application; one in ten is a chain with a side."""
    name, topic = f"app{number}", f"curve{rng.randrange(CURVES)}"

    def source(k: int) -> SimulatedTask:
        return SimulatedTask(f"{name}.src{k}", topic=topic, read_us=15.0, work_us=rng.uniform(30.0, 60.0))

    def query(k: int, upstream: tuple[str, ...]) -> SimulatedTask:
        return SimulatedTask(
            f"{name}.snk{k}",
            upstream,
            priority=rng.randrange(PRIORITIES),
            min_accuracy=round(rng.uniform(0.1, 0.4), 2),
            work_us=rng.uniform(60.0, 250.0),
        )

    if number % 10:
        both = (f"{name}.src1", f"{name}.src2")
        return [source(1), source(2), query(1, both), query(2, both)]
    middle = SimulatedTask(f"{name}.mid", (f"{name}.src1",), work_us=80.0, selectivity=rng.uniform(0.2, 1.0))
    return [source(1), middle, query(1, (middle.id,)), query(2, (middle.id,))]


def simulation(
    tasks: int, duration_s: float = 3600.0, managers: int | None = None, cores: float = CORES, seed: int = SEED
) -> Simulation:
    """A cluster with `tasks` tasks (rounded up to whole applications), an instance each; `cores` is per task
    manager."""
    rng = random.Random(seed)
    rates = curves(duration_s, rng)
    applications = [application(number, rng) for number in range(1, -(-tasks // 4) + 1)]
    count = max(tasks // TASKS_PER_MANAGER, 2) if managers is None else managers
    topics = [
        {"topic": f"curve{k}", "rate": rate.points, "data": {"generator": "points"}} for k, rate in enumerate(rates)
    ]
    return Simulation(
        scenario=Scenario.from_json({"seed": seed, "duration_s": duration_s, "topics": topics}),
        machines=tuple(Machine(f"tm{m + 1}", cores) for m in range(count)),
        tasks=tuple(task for each in applications for task in each),
        metrics=Metrics(cpu_noise=0.02),
        step_s=0.5,
        policy=PAPER_POLICY,
    )


class Timed:
    """A policy that notes how long it takes to decide, in ms of CPU."""

    def __init__(self) -> None:
        self._policy = policy("stream-economics")
        self.name = self._policy.name
        self.took_ms = 0.0

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        began = process_time()
        try:
            return self._policy.decide(snapshot, state)
        finally:
            self.took_ms += 1000 * (process_time() - began)


def cycles(
    tasks: int, count: int, managers: int | None = None, cores: float = CORES
) -> tuple[list[float], list[float], list[float]]:
    """CPU time of the policy, of the whole cycle (policy and controller) and of the observation before it, in ms.

    `count` cycles within an overload, on a cluster that the controller runs.
    """
    given = simulation(tasks, 160.0, managers, cores)
    clock = ManualClock()
    decider = Timed()
    cluster = SimulatedCluster(given, clock, placer_of(policy("stream-economics")))
    runtime = Watched(cluster)
    controller = Controller(runtime, decider, period_s=given.period_s, clock=clock, worker=InlineWorker)
    decided, whole, observed = [], [], []
    for number in range(SETTLING + count):
        cluster.advance(given.period_s)
        decider.took_ms = runtime.took_ms = 0.0
        began = process_time()
        controller.step()
        took = 1000 * (process_time() - began)
        if number >= SETTLING:
            decided.append(decider.took_ms)
            whole.append(took - runtime.took_ms)
            observed.append(runtime.took_ms)
    controller.close()
    return decided, whole, observed


class Watched:
    """A simulated cluster that notes how long it takes to be observed, in ms of CPU."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.apply, self.supports = cluster.apply, cluster.supports
        self._observe: Callable[[], Observation] = cluster.observe
        self.took_ms = 0.0

    def observe(self) -> Observation:
        began = process_time()
        try:
            return self._observe()
        finally:
            self.took_ms = 1000 * (process_time() - began)


def growth(_out: Path, scale: float) -> dict[str, Any]:
    """Scenario 5: CPU time of the policy, of a cycle and of the observation before it, ms, by number of tasks. Below
    full scale, sizes end at the paper's."""
    sizes = [size for size in SIZES if scale >= 1 or size <= SOURCE_TASKS]
    cores = CORES * SOURCE_TASKS / TASKS_PER_MANAGER / SOURCE_MANAGERS
    return {
        "by_tasks": {str(size): _named(*cycles(size, CYCLES)) for size in sizes},
        "as_source": _named(*cycles(SOURCE_TASKS, CYCLES, SOURCE_MANAGERS, cores)),
    }


def _named(policy: list[float], cycle: list[float], observing: list[float]) -> dict[str, list[float]]:
    return {"policy_ms": policy, "cycle_ms": cycle, "observing_ms": observing}


def exponent(sizes: Sequence[int], took: Sequence[float]) -> float:
    """The k of time ~ tasks ** k: the slope of a line through all points on logarithmic scales."""
    return linear_regression([log(n) for n in sizes], [log(ms) for ms in took]).slope


def run(tasks: int, managers: int, duration_s: float, until_s: float, latency: bool) -> None:
    given = replace(simulation(tasks, duration_s, managers), latency=latency)
    if until_s < duration_s:
        given = replace(given, scenario=replace(given.scenario, duration_s=until_s))
    shedding: list[int] = []
    done = simulate(
        given,
        keep=False,
        inspect=lambda _, cycle: shedding.append(
            len([d for d in cycle.plan.desired.values() if d < 1]) if cycle.plan else 0
        ),
    )
    beside = done.cpu_s - done.policy_s
    count = len(shedding)
    print(
        f"{given.scenario.duration_s:g} s of {managers} task managers and {len(given.tasks)} tasks, {count} cycles: "
        f"{done.cpu_s:.1f} s of CPU, of which the policy {done.policy_s:.1f} s\n"
        f"all but the policy {beside:.1f} s, {1000 * beside / count:.1f} ms a cycle; the policy "
        f"{1000 * done.policy_s / count:.1f} ms a cycle\n"
        f"shedding tasks per cycle: median {median(shedding):.0f}, at most {max(shedding)}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, help="number of tasks")
    parser.add_argument("--managers", type=int, default=1000, help="task managers of the run")
    parser.add_argument("--seconds", type=float, default=3600.0, help="virtual seconds that the scenario lasts")
    parser.add_argument("--until", type=float, default=float("inf"), help="virtual second at which to stop the run")
    parser.add_argument("--latency", action="store_true", help="measure the latencies of the run's queries, too")
    words = parser.parse_args()
    run(words.tasks, words.managers, words.seconds, min(words.until, words.seconds), words.latency)


if __name__ == "__main__":
    main()
