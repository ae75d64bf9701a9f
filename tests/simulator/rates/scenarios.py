"""Small simulations that the tests share, as their files would hold them, and what is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from qod_magics.core.runtime import Event, Observation
from qod_magics.simulator import SimulatedCluster, Simulation
from qod_magics.simulator.rates.engine import unbalanced

SOURCE: dict[str, Any] = {"id": "src", "topic": "rows", "work_us": 100}
LEFT: dict[str, Any] = {"id": "left", "upstream": ["src"], "priority": 2, "min_accuracy": 0.2, "work_us": 200}
RIGHT: dict[str, Any] = {"id": "right", "upstream": ["src"], "priority": 1, "min_accuracy": 0.1, "work_us": 200}


def scenario(**fields: Any) -> dict[str, Any]:
    """A source of 400 rows/s with two readers on two task managers, a minute long; `fields` in place of these."""
    return {
        "duration_s": 60,
        "topics": [{"topic": "rows", "rate": 400}],
        "task_managers": [{"id": "tm1"}, {"id": "tm2"}],
        "tasks": [SOURCE, LEFT, RIGHT],
        **fields,
    }


def simulation(**fields: Any) -> Simulation:
    """The simulation of `scenario(**fields)`."""
    return Simulation.from_json(scenario(**fields))


class Lab:
    """A cluster of which every step is checked."""

    def __init__(self, **fields: Any) -> None:
        self.cluster = SimulatedCluster(simulation(**fields))
        self.events: list[Event] = []

    def wait(self, seconds: float) -> Observation:
        """Let time pass, looking once a period and at the end."""
        engine = self.cluster.engine
        for step in range(1, round(seconds / engine.step_s) + 1):
            self.cluster.advance(engine.step_s)
            assert unbalanced(engine) == []
            if step % round(self.cluster.simulation.period_s / engine.step_s) == 0:
                self.look()
        return self.look()

    def look(self) -> Observation:
        """Observe, and keep the events."""
        seen = self.cluster.observe()
        self.events += seen.events
        for name, count in seen.measured.counts.items():
            assert count.arrived == count.processed + count.dropped + count.waiting + count.unreported, name
        return seen

    def until(self, condition: Callable[[Observation], object], at_most_s: float = 60.0) -> Observation:
        """Step by step until the condition holds."""
        step_s = self.cluster.engine.step_s
        for _ in range(round(at_most_s / step_s)):
            seen = self.wait(step_s)
            if condition(seen):
                return seen
        raise AssertionError(f"not within {at_most_s} s")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Details of the events of a kind so far."""
        return [dict(event.detail) for event in self.events if event.kind == kind]

    def home(self, instance: str) -> str:
        """The task manager that an instance is shown on."""
        return next(i.task_manager for i in self.look().snapshot.instances if i.id == instance)

    def place(self, **homes: str) -> None:
        """Move the first instances of these tasks there, and wait until all run."""
        for task, manager in homes.items():
            self.cluster.move(f"{task}.1", manager, "the test wants it there")
        self.wait(15)
        self.events.clear()

    def read(self) -> int:
        """Rows read so far, of all sources and streams."""
        return int(self.cluster.engine.read.sum())


@st.composite
def simulations(draw: st.DrawFn) -> dict[str, Any]:
    """Any application of up to five tasks on up to three task managers, as a file."""
    count = draw(st.integers(2, 5))
    tasks: list[dict[str, Any]] = []
    for t in range(count):
        above = (
            draw(st.lists(st.sampled_from([task["id"] for task in tasks]), unique=True, max_size=2)) if tasks else []
        )
        width = draw(st.integers(1, 3))
        tasks.append(
            {
                "id": f"t{t}",
                **({"upstream": above} if above else {"topic": draw(st.sampled_from(["a", "b"]))}),
                "parallelism": width,
                **({"shares": [0.7, 0.3]} if width == 2 else {}),
                "fixed": draw(st.sampled_from([0.0, 0.02, 0.4])),
                "overhead": draw(st.sampled_from([0.0, 0.05])),
                "read_us": draw(st.sampled_from([0, 10, 200])),
                "work_us": draw(st.sampled_from([0, 100, 3000])),
                "selectivity": draw(st.sampled_from([0.0, 0.3, 1.0, 2.5])),
                "mode": draw(st.sampled_from(["real-time", "micro-batch"])),
                "latency_s": draw(st.sampled_from([0.0, 0.1, 0.75])),
                "keeps_weight": draw(st.booleans()),
            }
        )
    read = {name for task in tasks for name in task.get("upstream", ())}
    for task in tasks:
        if task["id"] not in read:
            task |= {"priority": draw(st.integers(-2, 3)), "min_accuracy": draw(st.sampled_from([0.0, 0.2, 1.0]))}
    managers = [
        {"id": f"tm{m + 1}", "cores": draw(st.sampled_from([0.5, 1, 2])), "background": draw(st.sampled_from([0, 0.3]))}
        for m in range(draw(st.integers(1, 3)))
    ]
    rates = st.sampled_from([0, 7, 300, [[0, 100], [5, 2000], [5, 0]], [[0, 0], [10, 900]]])
    return {
        "seed": draw(st.integers(0, 5)),
        "duration_s": 20,
        "topics": [{"topic": topic, "rate": draw(rates)} for topic in ("a", "b")],
        "task_managers": managers,
        "tasks": tasks,
        "metrics": {"report_s": draw(st.sampled_from([1, 5])), "cpu_noise": 0.05},
    }
