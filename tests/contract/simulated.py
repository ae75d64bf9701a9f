"""The simulator as the contract's harness: virtual time, rows as the test wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qod_magics.simulator import SimulatedCluster, Simulation
from tests.contract.harness import LEFT, MIN_ACCURACY, PRIORITY, RIGHT, SOURCE

NEVER = 1e6
SPARE = 4  #: task managers that may join


class Tap:
    """Rows at a rate that can be turned while time passes."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.rate, self.sent, self._rest = step_s, 0.0, 0, 0.0

    def step(self, number: int) -> Any:
        """The rows of one step."""
        self._rest += self.rate * self.step_s
        rows = int(self._rest + 1e-9)
        self._rest -= rows
        self.sent += rows
        return np.array([rows])


class SimulatedHarness:
    """A simulated cluster of one core a task manager."""

    period_s, look_s, start_s, rate = 5.0, 1.0, 40.0, 400.0

    def __init__(self) -> None:
        ids = [f"tm{n + 1}" for n in range(2 + SPARE)]
        queries: list[dict[str, Any]] = [
            {
                "id": query,
                "upstream": [SOURCE],
                "priority": PRIORITY[query],
                "min_accuracy": MIN_ACCURACY[query],
                "application": "app",
                "max_parallelism": 4,
            }
            for query in (LEFT, RIGHT)
        ]
        simulation = Simulation.from_json(
            {
                "duration_s": NEVER,
                "topics": [{"topic": "rows", "rate": 0}],
                "period_s": self.period_s,
                "task_managers": [
                    *({"id": id} for id in ids),
                    {"id": "off1", "kind": "more", "off": True, "start_s": 8},
                ],
                "tasks": [{"id": SOURCE, "topic": "rows", "application": "app"}, *queries],
                "events": [
                    *({"at_s": NEVER, "add_task_manager": id} for id in ids[2:]),
                    {"at_s": NEVER, "start_application": "app"},
                ],
            }
        )
        self.runtime = SimulatedCluster(simulation)
        self._spare = ids[2:]
        self._tap = Tap(simulation.step_s)
        self.runtime.engine.arrivals = self._tap  # type: ignore[assignment]
        self._first = 0

    def start(self, meanwhile: Callable[[], object]) -> None:
        """Start the application; it reads what comes from now."""
        meanwhile()
        self.runtime.start_tasks([SOURCE, LEFT, RIGHT])
        self._first = self._tap.sent
        meanwhile()

    def feed(self, rate: float) -> None:
        """Send this number of rows/s from now on."""
        self._tap.rate = rate

    @property
    def sent(self) -> int:
        """Rows sent since the application runs."""
        return self._tap.sent - self._first

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.runtime.advance(seconds)

    def now(self) -> float:
        """Virtual seconds."""
        return self.runtime.now

    def fail(self, instance: str) -> None:
        """Its query fails at once."""
        self.runtime.fail(instance)

    def lose(self, task_manager: str) -> None:
        """It is killed."""
        self.runtime.lose(task_manager)

    def add_task_manager(self) -> str:
        """The next of the spare ones joins."""
        id = self._spare.pop(0)
        self.runtime.add_task_manager(id)
        return id

    def remove_task_manager(self, task_manager: str) -> None:
        """It leaves in good order."""
        self.runtime.remove_task_manager(task_manager)
