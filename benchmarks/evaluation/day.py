"""Clusters on which every policy runs the same day, in virtual time: a large one, and one of two queries. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.simulator import application
from qod_magics.core.snapshot import replace
from qod_magics.kafka.scenario import PiecewiseLinear, Scenario, ScenarioEvent
from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.simulation import Machine, Metrics, SimulatedTask
from qod_magics.testing.runs import Truth

SEED = 20161121
#: of the load, relative to the morning's
PEAK, NIGHT = 2.2, 0.55
#: (fraction of the length, load): a night in which all starts, a morning, a peak, a night
DAY = ((0.0, NIGHT), (0.08, NIGHT), (0.12, 1.0), (0.2, 1.0), (0.3, PEAK), (0.55, PEAK), (0.62, NIGHT), (1.0, NIGHT))
LENGTH_S = 600.0

TASKS, CORES = 2000, 4.0
INITIAL, OFF, STANDBY = 40, 50, 10  #: task managers
JOINING, JOINS_AT = 20, 0.3  #: task managers that join by themselves where that is asked for; fraction of the length
MORNING_AT = 0.15  #: of the length
MORNING = 0.7  #: of the planned CPU of the initial task managers that the morning's load needs at accuracy 1
RATE = 250.0  #: rows/s of a source in the morning, before `CURVES`
CURVES = 20  #: sources' loads differ by up to a quarter either way
TARGETS_S = (3.0, 5.0, 10.0)
SCALABLE_EVERY = 10  #: one application of this number has tasks that may have several instances
START_S = 12.0  #: until a task manager that is off is up


def course(length_s: float, calm: float) -> PiecewiseLinear:
    """A day's load, which rises to `PEAK` times the morning's and falls to a quarter of that; rows/s."""
    return PiecewiseLinear.through([(at * length_s, calm * times) for at, times in DAY])


def large(length_s: float = LENGTH_S, tasks: int = TASKS, seed: int = SEED, joins: bool = False) -> Simulation:
    """`tasks` tasks on 100 task managers of four cores at most, 40 of them in use in the morning; fewer task managers
    for fewer tasks. Queries have latency targets; one application in ten can be scaled. `joins`: at the peak, `JOINING`
    of those that are off join by themselves."""
    rng = random.Random(seed)
    share = tasks / TASKS
    curves = [course(length_s, RATE * rng.uniform(0.75, 1.25)) for _ in range(CURVES)]
    made = []
    for number in range(tasks // 4):
        for task in application(number + 1, rng):
            task = replace(task, fixed=0.005, overhead=0.005)
            if task.topic is not None:
                task = replace(task, topic=f"curve{rng.randrange(CURVES)}")
            if task.min_accuracy is not None:
                task = replace(task, max_latency_s=rng.choice(TARGETS_S))
            made.append(replace(task, max_parallelism=4) if number % SCALABLE_EVERY == 0 else task)
    joining = [f"off{n + 1:03}" for n in range(round(JOINING * share))] if joins else []
    machines = [
        *(Machine(f"tm{n + 1:03}", CORES, kind="node") for n in range(round(INITIAL * share))),
        *(Machine(name, CORES, kind="node") for name in joining),
        *(
            Machine(f"off{n + 1:03}", CORES, kind="node", off=True, start_s=START_S)
            for n in range(len(joining), round(OFF * share))
        ),
        *(Machine(f"warm{n + 1:03}", CORES, kind="warm", standby=True) for n in range(round(STANDBY * share))),
    ]
    return _joined(_fitted(tuple(made), tuple(machines), curves, length_s, seed, round(INITIAL * share)), joining)


def _joined(simulation: Simulation, names: Sequence[str]) -> Simulation:
    """With task managers that join at the peak."""
    at_s = JOINS_AT * simulation.scenario.duration_s
    events = tuple(ScenarioEvent(at_s, "add_task_manager", name) for name in names)
    return replace(simulation, scenario=replace(simulation.scenario, events=events))


def _fitted(
    tasks: tuple[SimulatedTask, ...],
    machines: tuple[Machine, ...],
    curves: list[PiecewiseLinear],
    length_s: float,
    seed: int,
    initial: int,
) -> Simulation:
    """With costs of rows such that the morning's load needs `MORNING` of the CPU of the first `initial`."""
    topics = [
        {"topic": f"curve{k}", "rate": rate.points, "data": {"generator": "points"}} for k, rate in enumerate(curves)
    ]
    found = Simulation(
        scenario=Scenario.from_json({"seed": seed, "duration_s": length_s, "topics": topics}),
        machines=machines,
        tasks=tasks,
        metrics=Metrics(cpu_noise=0.02),
        step_s=0.5,
    )
    truth = Truth(found)
    fixed = sum(task.fixed + task.overhead for task in tasks)
    rows = sum(truth.need(truth.full_accuracy(), MORNING_AT * length_s).values()) - sum(task.fixed for task in tasks)
    wanted = MORNING * sum(machine.planned for machine in machines[:initial]) - fixed
    factor = wanted / rows
    cheaper = (replace(task, read_us=factor * task.read_us, work_us=factor * task.work_us) for task in tasks)
    return replace(found, tasks=tuple(cheaper))


def small(length_s: float = LENGTH_S, joins: bool = False) -> Simulation:
    """Two queries on one task manager, and another that is off: calm, doubled, a quarter of that. `joins`: the other
    one joins by itself."""
    calm, doubled, ends = 1.0, 2.0, (0.2, 0.55)
    points = [(0.0, calm), (ends[0], calm), (ends[0] + 0.005, doubled), (ends[1], doubled), (ends[1] + 0.005, 0.5)]
    target = {"max_latency_s": TARGETS_S[0]}
    second = {"id": "tm2", "kind": "node"} | ({} if joins else {"off": True, "start_s": START_S})
    found = Simulation.from_json(
        {
            "seed": SEED,
            "duration_s": length_s,
            "topics": [{"topic": "trips", "rate": [[at * length_s, 500.0 * times] for at, times in points]}],
            "task_managers": [{"id": "tm1", "kind": "node"}, second],
            "tasks": [
                {"id": "Src", "topic": "trips", "read_us": 15, "work_us": 100},
                {"id": "Q1", "upstream": ["Src"], "priority": 1, "min_accuracy": 0.2, "work_us": 600, **target},
                {"id": "Q2", "upstream": ["Src"], "priority": 2, "min_accuracy": 0.3, "work_us": 500, **target},
            ],
            "metrics": {"cpu_noise": 0.02},
        }
    )
    return _joined(found, ["tm2"] if joins else [])
