"""Task managers that are to leave by number: the policy that decides chooses them, and nothing is applied."""

from __future__ import annotations

import pytest

from qod_magics.controller import Controller, InlineWorker, ManualClock
from qod_magics.core.plan import Action, Plan, ReleaseNode
from qod_magics.core.runtime import Dials, Measured, Observation
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy
from tests.raising import breaks


class Still:
    """A source and two queries on three task managers, the same in each cycle; `applied`: the plans it was given."""

    supports: frozenset[type[Action]] = frozenset()

    def __init__(self) -> None:
        self.applied: list[Plan] = []

    def observe(self) -> Observation:
        tasks = (
            Task("S", (), 100.0, None, None),
            Task("Q", ("S",), None, 1, 1.0),
            Task("R", ("S",), None, 1, 1.0),
        )
        rates = {"S": 100.0, "Q": 100.0, "R": 50.0}
        instances = tuple(
            Instance(f"{task}.1", task, f"tm{n}", rate, 10.0, False) for n, (task, rate) in enumerate(rates.items(), 1)
        )
        managers = tuple(TaskManager(f"tm{n}", 1.0, 10.0) for n in (1, 2, 3))
        return Observation(
            Snapshot(managers, tasks, (Stream("S", "Q", 100.0), Stream("S", "R", 100.0)), instances), Measured()
        )

    def apply(self, plan: Plan, dials: Dials) -> None:
        self.applied.append(plan)


def controller(name: str, cycles: int = 2) -> tuple[Controller, Still]:
    clock, still = ManualClock(), Still()
    made = Controller(still, policy(name), clock=clock, worker=InlineWorker)
    for _ in range(cycles):
        made.step()
        clock.advance(5.0)
    return made, still


@pytest.mark.parametrize("name", ["stela", "storm-re-deal", "least-link-load", "most-link-load"])
@pytest.mark.parametrize("count", [1, 2])
def test_as_many_leave_as_were_asked_for_and_their_instances_go_to_the_others(name: str, count: int) -> None:
    made, still = controller(name)
    before = len(still.applied)
    plan = made.plan_without(count)
    gone = {action.id for action in plan.actions if isinstance(action, ReleaseNode)}
    assert len(gone) == count
    assert not {move.to for move in plan.moves} & gone
    assert {move.instance for move in plan.moves} >= {f"{'SQR'[int(id[2:]) - 1]}.1" for id in gone}
    assert len(still.applied) == before
    made.step()
    assert not any(isinstance(action, ReleaseNode) for action in still.applied[-1].actions)


def test_stela_lets_the_one_go_whose_work_moves_the_throughput_least() -> None:
    (release,) = [a for a in controller("stela")[0].plan_without(1).actions if isinstance(a, ReleaseNode)]
    assert release.id == "tm3"


@pytest.mark.parametrize("name", ["stream-economics", "henge", "nephele", "d-storm"])
def test_a_policy_that_does_not_choose_is_named(name: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("chooses", name=name)):
        controller(name)[0].plan_without(1)


def test_nothing_is_chosen_before_something_was_measured() -> None:
    with pytest.raises(UsageProblem):
        controller("stela", cycles=0)[0].plan_without(1)
