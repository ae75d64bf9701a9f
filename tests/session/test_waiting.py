"""Waiting for a phase of a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.session import decisions
from tests.raising import breaks

PHASES = ("calm", "overload", "calm-again")


class Injecting:
    """In the place of an injector and of the session: each look finds the next of these phases; then it has ended."""

    scenario = SimpleNamespace(phases=[SimpleNamespace(name=name) for name in PHASES])

    def __init__(self, phases: Sequence[str | None], killed: bool = False) -> None:
        self.phases, self.killed = list(phases), killed
        self.annotated: list[str] = []
        self.session: Any = SimpleNamespace(
            alive=True,
            controller=SimpleNamespace(period_s=0.0),
            status=lambda: "a status",
            annotate=lambda phase: self.annotated.append(phase),
        )

    def alive(self) -> bool:
        return bool(self.phases) and not self.killed

    def phase(self) -> str | None:
        return self.phases.pop(0) if len(self.phases) > 1 else self.phases.pop() if self.phases else PHASES[-1]


def during(injector: Injecting, phase: str) -> list[str]:
    """What is shown meanwhile."""
    shown: list[str] = []
    asyncio.run(decisions.during(injector.session, injector, phase, shown.append, look_s=0.0))  # type: ignore[arg-type]
    return shown


def test_a_phase_is_annotated_once_it_begins() -> None:
    injector = Injecting([None, "calm", "overload", "overload", "overload", "calm-again", "calm-again"])
    assert during(injector, "overload") == ["a status"] * 2
    assert injector.annotated == ["overload"]
    assert injector.phases == ["calm-again"], "it has come back with the phase's end"


@pytest.mark.parametrize(
    ("injector", "phase", "rule"),
    [
        (Injecting(["calm-again"]), "overload", "not over"),
        (Injecting(["calm", "calm-again"]), "overload", "not over"),
        (Injecting(["calm"]), "overload", "to come"),
        (Injecting(["overload"], killed=True), "overload", "to come"),
        (Injecting([]), "calm-again", "to come"),
        (Injecting(["calm"]), "overlod", "exists"),
    ],
)
def test_a_phase_that_does_not_come_is_refused_and_not_annotated(injector: Injecting, phase: str, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, name=phase)):
        during(injector, phase)
    assert injector.annotated == []
