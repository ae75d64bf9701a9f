"""Task managers that a policy starts and releases, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.plan import AddNode, ReleaseNode, Stop
from qod_magics.core.runtime import Count
from qod_magics.core.snapshot import Spare
from qod_magics.errors import ScenarioError
from qod_magics.simulator import Simulation
from tests.raising import breaks
from tests.simulator.rates.scenarios import Lab, scenario
from tests.simulator.rates.test_rescaling import act
from tests.texts import tells

BIG: dict[str, Any] = {"kind": "big", "cores": 4, "memory_mb": 12_000, "price": 0.5, "off": True, "start_s": 10}
FIRST: dict[str, Any] = {"id": "tm1", "memory_mb": 2000, "price": 0.1}
WARM: dict[str, Any] = {"id": "warm1", "kind": "warm", "standby": True, "price": 0.2}
MANAGERS = [FIRST, {"id": "tm2"}, {**BIG, "id": "big1"}, {**BIG, "id": "big2"}, WARM]


def test_what_can_be_started_is_shown_and_joins_after_its_time() -> None:
    lab = Lab(task_managers=MANAGERS, duration_s=120)
    seen = lab.wait(5)
    assert [m.id for m in seen.snapshot.task_managers] == ["tm1", "tm2"]
    first, second = seen.snapshot.task_managers
    assert (first.memory_mb, first.price) == (2000, 0.1)
    assert second.memory_mb is second.price is None
    big, warm = Spare("big", 2, 3.6, 12_000, 0.5, 10.0), Spare("warm", 1, 0.9, None, 0.2, 0.0)
    assert seen.snapshot.spares == (big, warm)
    act(lab.cluster, AddNode("big", "the load rises"))
    seen = lab.wait(9)
    assert seen.snapshot.spares == (Spare("big", 1, 3.6, 12_000, 0.5, 10.0), warm)
    assert len(seen.snapshot.task_managers) == 2
    seen = lab.wait(1.25)
    up = {"task_manager": "big1", "cores": 3.6, "took_s": 10.0, "why": "the load rises"}
    assert lab.of("task-manager-up")[-1] == up
    assert [m.id for m in seen.snapshot.task_managers] == ["tm1", "tm2", "big1"]
    act(lab.cluster, AddNode("warm"))
    assert [m.id for m in lab.look().snapshot.task_managers][-1] == "warm1"
    act(lab.cluster, AddNode("big"), AddNode("big"), AddNode("bog"))
    lab.wait(12)
    whys = [event["why"] for event in lab.of("action-refused")]
    assert [tells(why, kind) for why, kind in zip(whys, ("'big'", "'bog'"), strict=True)] == [True, True]
    assert lab.look().snapshot.spares == ()


def test_one_that_is_released_is_drained_first_and_can_be_started_again() -> None:
    lab = Lab(task_managers=MANAGERS)
    lab.place(src="tm1", left="tm1", right="tm2")
    act(lab.cluster, ReleaseNode("tm1", "it is idle"))
    seen = lab.wait(10)
    assert [m.id for m in seen.snapshot.task_managers] == ["tm2"]
    assert {(e["instance"], e["from"], e["to"], e["why"]) for e in lab.of("move")} == {
        ("src.1", "tm1", "tm2", "it is idle"),
        ("left.1", "tm1", "tm2", "it is idle"),
    }
    assert lab.of("task-manager-removed") == [{"task_manager": "tm1", "why": "it is idle"}]
    assert seen.snapshot.spares[0] == Spare("local", 1, 0.9, 2000, 0.1, 0.0)
    act(lab.cluster, ReleaseNode("tm2"), ReleaseNode("tm1"), ReleaseNode("big1"))
    act(lab.cluster, AddNode("local", "again"))
    seen = lab.wait(60)
    assert [m.id for m in seen.snapshot.task_managers] == ["tm1", "tm2"]
    whys = [event["why"] for event in lab.of("action-refused")]
    assert tells(whys[0], "tm2", "last")
    assert [event["id"] for event in lab.of("action-refused")] == ["tm2", "tm1", "big1"]
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_no_more_are_started_than_the_user_allows() -> None:
    lab = Lab(task_managers=MANAGERS, max_task_managers=3)
    seen = lab.wait(5)
    assert [spare.count for spare in seen.snapshot.spares] == [1, 1]
    act(lab.cluster, AddNode("big"), AddNode("warm"))
    assert lab.look().snapshot.spares == ()
    lab.wait(20)
    (refused,) = lab.of("action-refused")
    assert tells(refused["why"], 3, "max_task_managers", 3)


def test_hours_and_cost_are_those_of_the_time_up() -> None:
    lab = Lab(task_managers=MANAGERS, duration_s=400)
    nodes = lab.cluster.nodes
    lab.wait(100)
    act(lab.cluster, AddNode("big"))
    lab.wait(110)
    act(lab.cluster, ReleaseNode("big1"))
    lab.wait(50)
    lab.cluster.lose("tm2")
    lab.wait(40)
    assert nodes.up_s.tolist() == pytest.approx([300, 260, 100, 0, 300])
    assert nodes.hours == pytest.approx(960 / 3600)
    assert nodes.cost == pytest.approx((300 * 0.1 + 100 * 0.5 + 300 * 0.2) / 3600)
    assert Lab().cluster.nodes.cost is None


@pytest.mark.parametrize(
    ("managers", "name", "rule"),
    [
        ([{**FIRST, "off": True}], None, "one is up"),
        ([FIRST, {**WARM, "off": True}], "task_managers[1].standby", "own"),
        ([FIRST, {**BIG, "id": "a"}, {**BIG, "id": "b", "cores": 2}], "b", "of one kind"),
        ([{**FIRST, "price": -1}], "task_managers[0].price", "type"),
        ([{**FIRST, "memory_mb": 0}], "task_managers[0].memory_mb", "type"),
        ([{**FIRST, "kind": ""}], "task_managers[0].kind", "type"),
        ([{**FIRST, "off": 1}], "task_managers[0].off", "type"),
    ],
)
def test_managers_that_make_no_sense_are_refused(managers: list[dict[str, Any]], name: str | None, rule: str) -> None:
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        Simulation.from_json(scenario(task_managers=managers))


def test_the_way_to_json_and_back_keeps_them() -> None:
    given = Simulation.from_json(scenario(task_managers=MANAGERS, max_task_managers=3, latency=False))
    assert Simulation.from_json(given.to_json()) == given
    assert given.to_json()["max_task_managers"] == 3


def test_what_is_being_stopped_takes_the_place_that_comes_meanwhile() -> None:
    lab = Lab(task_managers=MANAGERS, moves={"wait_s": 5}, duration_s=120)
    lab.place(src="tm1", left="tm1", right="tm2")
    lab.wait(21)
    act(lab.cluster, Stop("left.1", "no room"), AddNode("warm"))
    lab.wait(0.25)
    assert lab.of("task-manager-up")[-1]["task_manager"] == "warm1"
    assert lab.of("stop") == [], "its batch has not ended"
    seen = lab.wait(60)
    assert [event["instance"] for event in lab.of("stop")] == ["left.1"]
    assert [each.in_rate > 0.0 for each in seen.snapshot.instances if each.id == "left.1"] == [True]
    assert lab.of("move")[-1]["why"] == "warm1 has joined"
