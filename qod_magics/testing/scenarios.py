"""Random simulations: applications of 1 to 6 tasks on 1 to 3 task managers, with exactly known loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from qod_magics.core.snapshot import replace
from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.simulation import Fault, FaultKind
from qod_magics.testing.runs import Truth

PERIOD_S = 5.0
STEP_S = 0.5
#: None is 0: a query shed to nothing gets all of its rows back at once (tests/scenarios/README.md).
MINIMUMS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)

Draw = st.DrawFn
Points = Sequence[tuple[float, float]]


def few(low: float, high: float, steps: int = 10) -> st.SearchStrategy[float]:
    """Draw one of `steps` + 1 numbers from `low` to `high`: they shrink to `low`, and read well in a file."""
    return st.integers(0, steps).map(lambda k: round(low + (high - low) * k / steps, 4))


@st.composite
def dags(
    draw: Draw, most: int = 6, parallelism: int = 2, proportional: bool = False, joins: bool = True
) -> list[dict[str, Any]]:
    """Return tasks in JSON, their costs relative to each other: chains, joins, branches, several applications.

    `proportional`: CPU is proportional to the rows kept, as the policy assumes; else there are also fixed costs and
    costs of reading dropped rows. `joins`: tasks may read two others.
    """
    tasks: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, most))):
        name = f"t{number}"
        inputs = (
            st.lists(st.sampled_from([task["id"] for task in tasks]), unique=True, max_size=1 + joins)
            if tasks
            else st.just([])
        )
        upstream = draw(inputs)
        tasks.append(
            {
                "id": name,
                **({"upstream": sorted(upstream)} if upstream else {"topic": f"{name}-in"}),
                "work_us": draw(st.integers(1, 10)),
                "read_us": 0 if proportional else draw(st.integers(0, 2)),
                "selectivity": draw(st.sampled_from((1.0, 0.5, 0.25))),
                "fixed": 0.0 if proportional else draw(few(0.0, 0.05, 5)),
                "overhead": draw(few(0.0, 0.03, 3)),
                "parallelism": draw(st.integers(1, parallelism)),
            }
        )
    return tasks


def ask(draw: Draw, tasks: list[dict[str, Any]]) -> None:
    """Give the queries their priorities and minimum accuracies."""
    read = {name for task in tasks for name in task.get("upstream", ())}
    for task in tasks:
        if task["id"] not in read:
            task["priority"] = draw(st.integers(0, 3))
            task["min_accuracy"] = draw(st.sampled_from(MINIMUMS))


def scaled(value: Mapping[str, Any], load: float, fitting: bool) -> Simulation:
    """`value` with row costs scaled so that, at peak rates, the tasks need `load` times the planned cores at full
    accuracy; less where the minimums would not fit otherwise (`fitting`)."""
    simulation = Simulation.from_json(value)
    truth = Truth(simulation)
    planned = sum(machine.planned for machine in simulation.machines)
    at_s = max((second for feed in simulation.scenario.topics for second, _ in feed.rate.points), key=truth.rate)
    fixed = {task.id: task.fixed * task.parallelism for task in simulation.tasks}
    others = sum(task.overhead * task.parallelism for task in simulation.tasks) + sum(fixed.values())
    factor = max(load * planned - others, 0.02) / by_rows(truth, truth.full_accuracy(), at_s, fixed)
    if fitting:
        factor = min(factor, max(ROOM * planned - others, 0.02) / by_rows(truth, truth.minimum(), at_s, fixed))
        for name, need in truth.need(truth.minimum(), at_s).items():
            width = truth.tasks[name].parallelism
            factor = min(factor, (ROOM * width - fixed[name]) / max(need - fixed[name], 1e-9))
    tasks = [
        {**task, **{key: max(round(task[key] * factor, 1), 0.1 if key == "work_us" else 0.0) for key in COSTS}}
        for task in value["tasks"]
    ]
    return Simulation.from_json({**value, "tasks": tasks})


def by_rows(truth: Truth, accuracy: Mapping[str, float], at_s: float, fixed: Mapping[str, float]) -> float:
    """Return cores needed for rows, without fixed costs, at these accuracies."""
    return max(sum(truth.need(accuracy, at_s).values()) - sum(fixed.values()), 1e-9)


#: Share of the planned cores, and of one core per instance, that minimums which must fit may need.
ROOM = 0.55
COSTS = ("read_us", "work_us")


@st.composite
def simulations(
    draw: Draw,
    curve: Points,
    duration_s: float,
    load: st.SearchStrategy[float],
    *,
    tasks: st.SearchStrategy[list[dict[str, Any]]] | None = None,
    machines: st.SearchStrategy[int] | None = None,
    late: Sequence[float] = (),
    fitting: bool = True,
    slowdown: float = 2.0,
    report_s: float = PERIOD_S,
) -> Simulation:
    """Return a simulation whose topics follow `curve`, of (second, share of the highest rate); `load` is the load at
    share 1.

    `late`: seconds at which task managers after the first may join. `fitting`: the minimums fit the cluster as a whole,
    though not necessarily any placement. `slowdown`: factor on row costs just after a start.
    `report_s`: seconds between reports.
    """
    drawn = draw(dags() if tasks is None else tasks)
    ask(draw, drawn)
    topics = [task["topic"] for task in drawn if "topic" in task]
    rates = {topic: draw(st.sampled_from((500.0, 1000.0, 2000.0))) for topic in topics}
    count = draw(st.integers(1, 3) if machines is None else machines)
    events: list[dict[str, Any]] = []
    for number in range(2, count + 1):
        joins = draw(st.sampled_from((0.0, *late)))
        if joins:
            events.append({"at_s": joins, "add_task_manager": f"tm{number}"})
    value = {
        "seed": draw(st.integers(0, 3)),
        "duration_s": duration_s,
        "topics": [
            {"topic": topic, "rate": [[second, round(rate * share, 1)] for second, share in curve]}
            for topic, rate in rates.items()
        ],
        "events": sorted(events, key=lambda event: event["at_s"]),
        "period_s": PERIOD_S,
        "step_s": STEP_S,
        "task_managers": [{"id": f"tm{number + 1}"} for number in range(count)],
        "tasks": drawn,
        "moves": {"slowdown": slowdown},
        "metrics": {"report_s": report_s},
    }
    return scaled(value, draw(load), fitting)


@st.composite
def twins(draw: Draw) -> list[dict[str, Any]]:
    """Two to four queries with the same inputs and costs, downstream of one or two other tasks."""
    tasks = draw(dags(most=2, parallelism=1))
    query: dict[str, Any] = next(iter(draw(dags(most=1))))
    upstream = draw(st.lists(st.sampled_from([task["id"] for task in tasks]), unique=True, min_size=1))
    del query["topic"]
    return tasks + [{**query, "id": f"q{n}", "upstream": sorted(upstream)} for n in range(draw(st.integers(2, 4)))]


@st.composite
def faulty(draw: Draw, sound: st.SearchStrategy[Simulation]) -> Simulation:
    """Return a simulation with one to three faults from second 40 to 60; at least one task manager survives."""
    simulation = draw(sound)
    machines = [machine.id for machine in simulation.machines]
    instances = [f"{task.id}.{n + 1}" for task in simulation.tasks for n in range(task.parallelism)]
    faults: list[Fault] = []
    for _ in range(draw(st.integers(1, 3))):
        lost = {fault.target for fault in faults if fault.kind == "task-manager-lost"}
        left = [name for name in machines if name not in lost]
        kinds: list[FaultKind] = ["query-failure", "slow-metrics", "broker-pause"]
        kinds += ["task-manager-lost"] if len(left) > 1 else []
        kind = draw(st.sampled_from(kinds))
        targets: dict[str, list[Any]] = {
            "query-failure": instances,
            "slow-metrics": left,
            "task-manager-lost": left,
            "broker-pause": [None],
        }
        target = draw(st.sampled_from(targets[kind]))
        at_s = float(draw(st.integers(40, 60)))
        faults.append(Fault(at_s, kind, target, float(draw(st.integers(1, 20))) if kind in LASTING else 0.0))
    return replace(simulation, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


LASTING = ("slow-metrics", "broker-pause")
