"""Simulated clusters on which policies are compared: Taxi Drives as fitted to a live run, and random ones with a step
of the input rate, a pause of the broker, or a step down."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from qod_magics.core.snapshot import replace
from qod_magics.kafka.scenario import PiecewiseLinear
from qod_magics.recordings.reading import load
from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.fitting.fit import fit
from qod_magics.simulator.rates.simulation import MICRO_BATCH, Fault
from qod_magics.testing.runs import Truth

ROOT = Path(__file__).resolve().parents[2]
STEP_S, END_S, FACTOR = 100.0, 220.0, 3.0
TAXI_RATE = 250.0  #: rows/s of each source before the step
SEED = 20161121


def stepped(simulation: Simulation, factor: float = FACTOR) -> Simulation:
    """The simulation with constant rates that step at `STEP_S`."""
    scenario = simulation.scenario
    feeds = []
    for feed in scenario.topics:
        base = feed.rate.rate(0.0)
        curve = PiecewiseLinear(((0.0, base), (STEP_S, base), (STEP_S, factor * base)))
        feeds.append(replace(feed, rate=curve))
    changed = replace(scenario, topics=tuple(feeds), duration_s=END_S, phases=(), events=())
    return replace(simulation, scenario=changed)


def taxi(seed: int) -> Simulation:
    """Taxi Drives as it ran live, on one task manager: not overloaded before the step, but after it."""
    found = fit(load(ROOT / "tests" / "recorded" / "taxi_drives.jsonl")).simulation
    quiet = replace(found.machines[0], background=PiecewiseLinear.constant(found.machines[0].background.rate(60.0)))
    topics = tuple(replace(feed, rate=PiecewiseLinear.constant(TAXI_RATE)) for feed in found.scenario.topics)
    scenario = replace(found.scenario, topics=topics, seed=seed)
    tasks = tuple(replace(task, application=None) for task in found.tasks)
    return stepped(replace(found, scenario=scenario, machines=(quiet,), tasks=tasks, faults=()))


def kept(name: str) -> Simulation:
    """A scenario of tests/scenarios."""
    return Simulation.read(ROOT / "tests" / "scenarios" / f"{name}.json")


def sample(number: int, load: float | None = None) -> Iterator[Simulation]:
    """Random clusters that need `load` (None: 0.3 to 1) times the planned capacity before the step, and three times as
    much after it. The minimums fit some placement."""
    found = 0
    for n in count():
        if found == number:
            return
        draw = random.Random(SEED + n)
        tasks: list[dict[str, Any]] = []
        for t in range(draw.randint(1, 5)):
            above = draw.sample([task["id"] for task in tasks], min(len(tasks), draw.choice((0, 1, 1, 2))))
            tasks.append(
                {
                    "id": f"t{t}",
                    **({"upstream": sorted(above)} if above else {"topic": f"t{t}-in"}),
                    "work_us": draw.uniform(1, 10),
                    "read_us": draw.uniform(0, 2),
                    "selectivity": draw.choice((1.0, 0.5)),
                    "fixed": draw.uniform(0.01, 0.06),
                    "overhead": draw.uniform(0.0, 0.03),
                    "parallelism": draw.choice((1, 1, 2)),
                }
            )
        inner = {name for task in tasks for name in task.get("upstream", ())}
        for task in tasks:
            if task["id"] not in inner:
                task |= {"priority": draw.randint(0, 2), "min_accuracy": draw.choice((0.05, 0.1, 0.15))}
        value = {
            "seed": n,
            "duration_s": END_S,
            "step_s": 0.5,
            "topics": [{"topic": t["topic"], "rate": draw.choice((500, 1000))} for t in tasks if "topic" in t],
            "task_managers": [{"id": f"tm{m + 1}"} for m in range(draw.randint(1, 2))],
            "tasks": tasks,
            "metrics": {"cpu_noise": 0.05},
        }
        times = draw.uniform(0.3, 1.0) if load is None else load
        for _ in range(8):  # fixed CPU does not scale with rows: iterate
            simulation = Simulation.from_json(value)
            truth = Truth(simulation)
            needed = sum(truth.need(truth.full_accuracy(), 0.0).values())
            planned = sum(machine.planned for machine in simulation.machines)
            for task in tasks:
                task["work_us"] *= times * planned / needed
                task["read_us"] *= times * planned / needed
        simulation = stepped(Simulation.from_json(value))
        truth = Truth(simulation)
        if truth.some_placement_fits(truth.minimum(), END_S, margin=0.9):
            found += 1
            yield simulation


def paused(simulation: Simulation) -> Simulation:
    """Without the step, with a pause of the broker instead."""
    return replace(stepped(simulation, 1.0), faults=(Fault(STEP_S, "broker-pause", None, 10.0),))


def fallen(simulation: Simulation) -> Simulation:
    """In micro-batches, with a step down instead of the one up."""
    tasks = tuple(replace(task, mode=MICRO_BATCH, trigger_s=0.0) for task in simulation.tasks)
    return replace(stepped(simulation, 1 / FACTOR), tasks=tasks)
