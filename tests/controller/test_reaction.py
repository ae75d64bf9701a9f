"""Deciding before the period is over: when, how often, and for which rates. In virtual time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from qod_magics.controller import Controller, ControllerThread, InlineWorker, ManualClock
from qod_magics.controller.reaction import SUSTAINED, RateCheck
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.policies import policy
from qod_magics.simulator import Simulation, simulate
from tests.controller.looping import until
from tests.controller.toy import Toy
from tests.simulator.rates.scenarios import scenario

ABOVE = 1.5


def watched(*looks: Mapping[str, float]) -> list[bool]:
    """After each look, whether a source has stepped up; 100 rows/s of each were planned with."""
    check, found = RateCheck(), []
    for second, look in enumerate(looks):
        check = check.after(float(second), look, {"a": 100.0, "b": 100.0}, ABOVE)
        found.append(check.stepped)
    return found


def test_a_rise_counts_when_it_lasts() -> None:
    assert watched(*[{"a": 200.0}] * SUSTAINED) == [False] * (SUSTAINED - 1) + [True]
    assert not any(watched({"a": 900.0}, {"a": 0.0}, {"a": 900.0}, {"a": 0.0}))
    assert not any(watched({"a": 200.0}, {"b": 200.0}, {"a": 200.0}, {"b": 200.0}))


def test_what_is_within_the_band_or_falls_is_no_rise() -> None:
    assert not any(watched(*[{"a": 149.0, "b": 0.0}] * 10))


def test_a_trickle_and_what_was_not_planned_with_are_none() -> None:
    check = RateCheck()
    for second in range(10):
        check = check.after(float(second), {"slow": 15.0, "new": 900.0}, {"slow": 1.0}, ABOVE)
    assert not check.stepped


class Glanced(Toy):
    """The toy, which also tells what comes; whoever looks lets it run until then."""

    def __init__(self, clock: ManualClock, step_at: float) -> None:
        super().__init__(clock, lambda at: 1500.0 if at >= step_at else 500.0, 0.1)
        self.reached = 0.0

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        return {"Src": self.rate(self.clock.monotonic() - over_s / 2)}

    def observe(self) -> Any:
        self._catch_up()
        return super().observe()

    def _catch_up(self) -> None:
        now = self.clock.monotonic()
        while self.reached < now - 1e-9:
            self._step(self.rate(self.reached) * 0.05)
            self.reached += 0.05


class Asking:
    """Stream Economics that asks to be asked again."""

    name = "asking"

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        plan, state = policy("stream-economics").decide(snapshot, state)
        return replace(plan, react_above=ABOVE), state


def looped(chosen: Any, step_at: float, cycles: int) -> list[tuple[float, float | None]]:
    """(second, rate that the plan is for) of each cycle of a thread in virtual time."""
    clock = ManualClock()
    controller = Controller(Glanced(clock, step_at), chosen, clock=clock, worker=InlineWorker)
    made, begun = until(ControllerThread(controller), cycles), clock.wall() - timedelta(seconds=clock.monotonic())
    return [((cycle.at - begun).total_seconds(), cycle.snapshot.tasks[0].external_rate) for cycle in made]


def test_a_step_is_decided_on_before_the_period_is_over_and_for_its_rate() -> None:
    found = looped(Asking(), step_at=18.0, cycles=7)
    times = [at for at, _ in found]
    assert times[:4] == pytest.approx([0.0, 2.0, 7.0, 12.0])  # that anything comes is a step, too
    early = next(at for at in times if at > 18.0)
    assert early < times[times.index(early) - 1] + 5.0
    assert dict(found)[early] == pytest.approx(1500.0)
    assert times[times.index(early) + 1] == pytest.approx(early + 5.0)  # then in time again


def test_who_does_not_ask_is_asked_once_a_period() -> None:
    found = looped(policy("stream-economics"), step_at=16.0, cycles=7)
    assert [at for at, _ in found] == pytest.approx([0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0])


def test_a_runtime_that_fails_to_tell_changes_nothing() -> None:
    clock = ManualClock()
    toy = Glanced(clock, 1e9)
    toy.input_rates = lambda over_s: 1 / 0  # type: ignore[method-assign, assignment]
    controller = Controller(toy, Asking(), clock=clock, worker=InlineWorker)
    assert controller.stepped_rates() == {}
    controller.step()
    assert controller.stepped_rates() == {}
    assert [e.detail["why"] for e in controller.step().events if e.kind == "input-rates-failed"]


def test_a_runtime_that_tells_again_is_said_to() -> None:
    clock = ManualClock()
    toy = Glanced(clock, 1e9)
    tells = toy.input_rates
    controller = Controller(toy, Asking(), clock=clock, worker=InlineWorker)
    controller.step()
    toy.input_rates = lambda over_s: 1 / 0  # type: ignore[method-assign, assignment]
    controller.stepped_rates()
    toy.input_rates = tells  # type: ignore[method-assign]
    controller.stepped_rates()
    kinds = [event.kind for event in controller.step().events]
    assert [kind for kind in kinds if kind.startswith("input-rates")] == [
        "input-rates-failed",
        "input-rates-failed-over",
    ]


def test_a_runtime_that_does_not_tell_holds_nobody_up() -> None:
    toy, tell, told = Glanced(ManualClock(), 1e9), threading.Event(), threading.Event()

    def input_rates(over_s: float) -> Mapping[str, float]:
        tell.wait()
        told.set()
        return {"Src": 9000.0}

    toy.input_rates = input_rates  # type: ignore[method-assign]
    controller = Controller(toy, Asking(), period_s=0.05)
    try:
        controller.step()
        assert [controller.stepped_rates() for _ in range(2 * SUSTAINED)] == [{}] * (2 * SUSTAINED)
        assert not told.is_set()
        assert controller.step().skipped is None
        tell.set()
        assert told.wait(60)
    finally:
        tell.set()
        controller.close()


def test_in_the_simulator_less_waits_after_a_step() -> None:
    stepped = scenario(
        duration_s=110,
        topics=[{"topic": "rows", "rate": [[0, 800], [80, 800], [80, 4000]]}],
        task_managers=[{"id": "tm1"}],
    )
    worst = {}
    for name in ("stream-economics-filled", "stream-economics-reactive"):
        cycles = simulate(replace(Simulation.from_json(stepped), policy=name)).cycles
        early = [cycle for cycle in cycles if any(event.kind == "reaction" for event in cycle.events)]
        assert len(early) == (name == "stream-economics-reactive")
        assert len(cycles) == 22 + len(early)
        worst[name] = max(sum(cycle.measured.lag.values()) for cycle in cycles if cycle.measured is not None)
    assert worst["stream-economics-reactive"] < 0.6 * worst["stream-economics-filled"]


def test_a_request_that_is_no_number_is_a_fault_that_ends_no_loop() -> None:
    class Odd(Asking):
        def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
            plan, state = super().decide(snapshot, state)
            return replace(plan, react_above="much"), state

    clock = ManualClock()
    controller = Controller(Glanced(clock, 0.0), Odd(), clock=clock, worker=InlineWorker)
    controller.step()
    assert controller.stepped_rates() == {}
    assert controller.stepped_rates() == {}
    cycle = controller.step()
    assert [event.kind for event in cycle.events].count("input-rates-failed") == 1
    controller.close()
