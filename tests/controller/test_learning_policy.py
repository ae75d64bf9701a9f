"""A policy that learns, in the loop: what it learned is in the snapshots, goes with it, and stays there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from qod_magics.controller import Controller, InlineWorker, ManualClock
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.policies import policy
from tests.controller.toy import Toy


@dataclass
class Counting:
    """Stream Economics, and the number of the cycle in each snapshot."""

    name: str = "counting"

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        count = 1 + (memory or 0)
        return replace(snapshot, tasks=tuple(replace(t, unknown={"count": count}) for t in snapshot.tasks)), count

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        return policy("stream-economics").decide(snapshot, state)


def looped(chosen: Any) -> tuple[Controller, Toy, ManualClock]:
    clock = ManualClock()
    toy = Toy(clock, lambda _: 1500.0, 0.1, heavy="Src")
    return Controller(toy, chosen, clock=clock, worker=InlineWorker), toy, clock


def counts(controller: Controller) -> list[Any]:
    cycle = controller.step()
    assert cycle.snapshot is not None
    return [(task.unknown or {}).get("count") for task in cycle.snapshot.tasks]


def test_what_was_learned_is_in_the_snapshot_of_the_cycle() -> None:
    controller, toy, _ = looped(Counting())
    for number in range(1, 4):
        toy.run(5)
        assert counts(controller) == [number, number]


def test_another_policy_begins_without_what_was_learned() -> None:
    controller, toy, _ = looped(Counting())
    toy.run(5)
    counts(controller)
    controller.policy = policy("stream-economics")
    assert counts(controller) == [None, None]
    controller.policy = Counting()
    assert counts(controller) == [1, 1]


def test_a_backlog_is_thinned() -> None:
    controller, toy, _ = looped(Counting())
    for _ in range(4):  # until nobody warms up
        toy.run(5)
        controller.step()
    toy.src_queue += 6000.0
    toy.run(0.5)
    decision = controller.step().decision
    assert decision is not None
    assert decision.measured.lag["Src"] > 3000
    assert decision.dials.keep[None, "Src"] < decision.plan.non_drop[None, "Src"]


def test_a_policy_goes_on_with_what_it_learned_in_an_earlier_process() -> None:
    controller, toy, _ = looped(policy("auto"))
    for _ in range(6):
        toy.run(5)
        controller.step()
    learned = controller.learned
    assert learned is not None
    after, _, _ = looped(policy("auto"))
    assert after.learned is None
    assert after.recall(learned)
    assert after.learned == learned


@pytest.mark.parametrize(("chosen", "learned"), [("auto", {"of": "another"}), ("auto", None), ("stream-economics", {})])
def test_what_a_policy_can_not_use_is_left(chosen: str, learned: Any) -> None:
    controller, toy, _ = looped(policy(chosen))
    assert not controller.recall(learned)
    toy.run(5)
    assert controller.step().decision is not None
