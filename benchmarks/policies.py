"""The policies compared in virtual time: `python benchmarks/policies.py [--clusters N] [--policy NAME]...`.

For each scenario and policy:

- lag: the largest backlog from the step on, in seconds of input at the rate of then; how long it took to fall below
  one period of input, for good; and the backlog at the end (mean of the last 8 cycles)
- accuracy: share of the rows due in 8 cycles (before the step, after it, at the end) that the queries got, relative to
  the optimum. The latter is found in hindsight, by the true costs and placement: from the highest priority down,
  queries of one priority are raised together until nothing more fits into the planned capacity. A query above its
  optimum counts as at it, so that one query's surplus does not make up for another's lack.
- moved: how far the plan of the worst query still went up and down at the end

`taxi` is fitted to the live run in tests/recorded, with an input rate that steps to three times its value; `random` are
small applications on one or two task managers, with noisy readings and the same step; `paused` are such that need a
tenth more than the planned capacity, without a step: instead, the broker does not answer for 10 s; `fallen` are such
that need twice the planned capacity, in micro-batches, with a step down to a third of that, which fits.

Medians, the worst in brackets.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.kafka.rates import PiecewiseLinear
from qod_magics.policies import SHEDDING, policy_names
from qod_magics.recordings.reading import load
from qod_magics.simulator import Simulation
from qod_magics.simulator.fitting.fit import fit
from qod_magics.simulator.inputs.simulation import MICRO_BATCH, Fault
from qod_magics.testing.runs import Watched, watch
from qod_magics.testing.truth import Truth

ROOT = Path(__file__).resolve().parents[1]
STEP_S, END_S, FACTOR = 100.0, 220.0, 3.0
TAXI_RATE = 250.0  #: rows/s of each source before the step
LAST = 8  #: cycles that count as the end
SEED = 20161121


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one policy."""

    worst_lag_s: float  #: seconds of input
    drained_s: float  #: from the step until the backlog stayed below a period of input
    lag_s: float  #: at the end
    before: float  #: accuracy before the step / optimum
    during: float  #: the same just after it
    accuracy: float  #: at the end / optimum
    moved: float


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


def most_possible(truth: Truth, where: Mapping[str, str], at_s: float) -> dict[str, float]:
    """By query, the optimum under this placement: the fairest plan of each priority in turn."""
    found = {query.id: query.min_accuracy or 0.0 for query in truth.queries}

    def fits(accuracies: Mapping[str, float]) -> bool:
        return fitting(truth, where, truth.upwards(accuracies), at_s)

    for priority in sorted({query.priority or 0 for query in truth.queries}, reverse=True):
        rising = {query.id for query in truth.queries if (query.priority or 0) == priority}
        while rising:
            low, high = min(found[name] for name in rising), 1.0
            if not fits(raised(found, rising, 1.0)):
                for _ in range(30):
                    middle = (low + high) / 2
                    low, high = (middle, high) if fits(raised(found, rising, middle)) else (low, middle)
                found = raised(found, rising, low)
            else:
                found = raised(found, rising, 1.0)
            stuck = {n for n in rising if found[n] >= 1.0 or not fits({**found, n: min(found[n] + 1e-3, 1.0)})}
            if not stuck:
                break
            rising -= stuck
    return found


def raised(accuracies: Mapping[str, float], names: set[str], level: float) -> dict[str, float]:
    """With `names` raised to at least `level`."""
    return {name: max(value, level) if name in names else value for name, value in accuracies.items()}


def fitting(truth: Truth, where: Mapping[str, str], accuracies: Mapping[str, float], at_s: float) -> bool:
    """Whether these accuracies fit into the task managers' planned capacity."""
    need = truth.need(accuracies, at_s)
    load = {machine.id: machine.background.rate(at_s) for machine in truth.simulation.machines}
    costs = {machine.id: machine.cost for machine in truth.simulation.machines}
    for task in truth.simulation.tasks:
        each = need[task.id] / task.parallelism
        for number in range(task.parallelism):
            host = where[f"{task.id}.{number + 1}"]
            if each * costs[host] > 1.0:
                return False
            load[host] += each * costs[host] + task.overhead
    return all(load[machine.id] <= machine.planned + 1e-9 for machine in truth.simulation.machines)


def judged(run: Watched) -> Result:
    """The figures of a run."""
    period = run.simulation.period_s
    lags = []
    for cycle, look in zip(run.cycles, run.looks, strict=True):
        assert cycle.measured is not None
        lags.append((look.at_s, sum(cycle.measured.lag.values()) / run.truth.rate(look.at_s - 1e-6)))
    after = [(at, lag) for at, lag in lags if at > STEP_S]
    late = [at for at, lag in after if lag >= period]
    step = next((k for k, look in enumerate(run.looks) if look.at_s > STEP_S), len(run.looks))
    moved = []
    for query in run.truth.queries:
        name = query.id
        steps = [b - a for a, b in pairwise(run.desired(name, LAST))]
        moved.append(min(sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0)))
    return Result(
        worst_lag_s=max(lag for _, lag in after),
        drained_s=max(late) - STEP_S if late else 0.0,
        lag_s=mean(lag for _, lag in lags[-LAST:]),
        before=reached(run, step - LAST, step),
        during=reached(run, step, min(step + LAST, len(run.looks))),
        accuracy=reached(run, len(run.looks) - LAST, len(run.looks)),
        moved=max(moved),
    )


def reached(run: Watched, first: int, last: int) -> float:
    """Accuracy over these cycles / optimum."""
    look, end = run.looks[first - 1], run.looks[last - 1]
    best = most_possible(run.truth, end.where, end.at_s - 1e-6)
    full = run.truth.full(end.at_s - 1e-6)
    got = 0.0
    for name, most in best.items():
        served = (end.kept[name] - look.kept[name]) / (full[name] * (end.at_s - look.at_s))
        got += min(served, most)
    return got / max(sum(best.values()), 1e-9)


def line(name: str, policy: str, results: Sequence[Result]) -> str:
    """A row of the table: medians, and the worst in brackets."""

    def told(values: Sequence[float], worst: float, form: str) -> str:
        return f"{median(values):{form}}" + (f" ({worst:{form}})" if len(values) > 1 else "")

    columns = [
        told([r.worst_lag_s for r in results], max(r.worst_lag_s for r in results), ".1f"),
        told([r.drained_s for r in results], max(r.drained_s for r in results), ".0f"),
        told([r.lag_s for r in results], max(r.lag_s for r in results), ".2f"),
        told([r.before for r in results], min(r.before for r in results), ".3f"),
        told([r.during for r in results], min(r.during for r in results), ".3f"),
        told([r.accuracy for r in results], min(r.accuracy for r in results), ".3f"),
        told([r.moved for r in results], max(r.moved for r in results), ".2f"),
    ]
    return f"| {name} | {policy} | {' | '.join(columns)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=24, help="number of random ones")
    parser.add_argument("--policy", action="append", choices=policy_names())
    given = parser.parse_args()
    scenarios = {
        "taxi": [taxi(seed) for seed in range(1, 6)],
        "climb": [kept("climb")],
        "interleaved": [kept("interleaved")],
        "random": list(sample(given.clusters)),
        "paused": [paused(each) for each in sample(given.clusters, 1.1)],
        "fallen": [fallen(each) for each in sample(given.clusters, 2.0)],
    }
    lag, accuracy = "max lag, s | drained, s | lag at the end, s", "accuracy before | after | at the end"
    print(f"| scenario | policy | {lag} | {accuracy} | moved |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, simulations in scenarios.items():
        for policy in given.policy or SHEDDING:
            results = [judged(watch(replace(each, policy=policy))) for each in simulations]
            print(line(name, policy, results), flush=True)


if __name__ == "__main__":
    main()
