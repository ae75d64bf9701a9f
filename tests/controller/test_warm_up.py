from __future__ import annotations

import pytest

from qod_magics.controller import warm_up
from qod_magics.controller.warm_up import REACHED, WarmUp
from qod_magics.core.plan import Move, Plan, Scale
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import replace
from tests.controller.scripted import chain, place, seen
from tests.texts import tells


def settle(state, observation, now, accuracy=1.0, timeout_s=60.0):
    return warm_up.settle(state, observation, now, timeout_s, dict.fromkeys(("Src", "Snk"), accuracy))


@pytest.fixture
def warm() -> WarmUp:
    """Both instances of the chain, seen for the first time at 0 s."""
    return warm_up.begin(WarmUp(), seen(), 0.0)[0]


@pytest.fixture
def settled(warm) -> WarmUp:
    return settle(warm, seen(), 5.0)[0]


def test_an_instance_warms_up_from_when_it_is_first_seen(warm):
    assert set(warm.warming) == {"Src.1", "Snk.1"}


def test_it_is_over_when_metrics_are_fresh_and_the_minimum_is_reached(warm):
    state, over = settle(warm, seen(), 5.0, accuracy=0.4)
    assert not state.warming
    assert [(each.instance.id, each.took_s, each.timed_out) for each in over] == [
        ("Src.1", 5.0, False),
        ("Snk.1", 5.0, False),
    ]


def test_not_in_the_cycle_in_which_it_began(warm):
    assert settle(warm, seen(), 0.0) == (warm, ())


def test_not_while_metrics_are_stale(warm):
    state, _ = settle(warm, seen(fresh={"Snk.1": False}), 5.0)
    assert set(state.warming) == {"Snk.1"}


def test_not_while_the_runtime_says_so_itself(warm):
    state, _ = settle(warm, seen(warm_up.mark(chain(), ["Snk.1"])), 5.0)
    assert set(state.warming) == {"Snk.1"}


def test_not_below_the_minimum_of_its_queries_but_scatter_is_allowed(warm):
    assert set(settle(warm, seen(), 5.0, accuracy=0.4 * REACHED - 0.001)[0].warming) == {"Src.1", "Snk.1"}
    assert not settle(warm, seen(), 5.0, accuracy=0.4 * REACHED)[0].warming


def test_it_times_out(warm):
    state, over = settle(warm, seen(fresh={"Snk.1": False}), 60.0, accuracy=0.1)
    assert not state.warming
    assert all(each.timed_out for each in over)
    assert tells(over[0].event().detail["why"], "60.0 s", "0.10", "0.40")


def test_a_move_begins_it_again(settled):
    state, begun = warm_up.begin(settled, seen(place(chain(), "Snk.1", "tm2")), 10.0)
    assert set(state.warming) == {"Snk.1"}
    assert tells(begun[0].why, "tm1", "tm2")


def test_a_restart_begins_it_again(settled):
    state, _ = warm_up.begin(settled, seen(None, Event("query-restarted", {"instance": "Snk.1"})), 10.0)
    assert set(state.warming) == {"Snk.1"}


def test_an_instance_that_went_and_came_back_is_new(settled):
    gone = chain()
    gone = type(gone)(gone.task_managers, gone.tasks, gone.streams, gone.instances[:1])
    state, _ = warm_up.begin(settled, seen(gone), 10.0)
    state, begun = warm_up.begin(state, seen(), 15.0)
    assert [each.instance.id for each in begun] == ["Snk.1"]


def test_other_instances_go_on_undisturbed(settled):
    assert warm_up.begin(settled, seen(), 10.0) == (settled, ())


MOVE = Plan({}, {}, actions=(Move("Snk.1", "tm2"),))


def test_what_a_plan_moves_warms_up_at_once_and_until_it_has_arrived(settled):
    state = warm_up.told(settled, MOVE, 10.0)
    assert set(settle(state, seen(), 15.0)[0].warming) == {"Snk.1"}  # still on tm1, still fresh
    state, _ = warm_up.begin(state, seen(place(chain(), "Snk.1", "tm2")), 20.0)
    assert not settle(state, seen(place(chain(), "Snk.1", "tm2")), 25.0)[0].warming


def test_a_plan_that_says_so_again_does_not_put_off_the_time_out(settled):
    state = warm_up.told(warm_up.told(settled, MOVE, 10.0), MOVE, 60.0)
    assert not settle(state, seen(), 70.0)[0].warming


@pytest.mark.parametrize("kind", ["query-failed", "action-refused"])
def test_a_move_that_failed_is_not_waited_for(settled, kind):
    state = warm_up.told(settled, MOVE, 10.0)
    state, _ = warm_up.begin(state, seen(None, Event(kind, {"instance": "Snk.1"})), 15.0)
    assert not settle(state, seen(), 15.0)[0].warming


def test_a_plan_that_leaves_an_instance_where_it_is_changes_nothing(settled):
    assert warm_up.told(settled, Plan({}, {}, actions=(Move("Snk.1", "tm1"),)), 10.0) is settled


SCALE = Plan({}, {}, actions=(Scale("Snk", 2),))


def test_what_a_plan_rescales_warms_up_until_it_has_restarted(settled):
    state = warm_up.told(settled, SCALE, 10.0)
    assert set(settle(state, seen(), 15.0)[0].warming) == {"Snk.1"}  # not stopped yet, still fresh
    wide = replace(chain(), instances=(*chain().instances, replace(chain().instances[1], id="Snk.2")))
    state, begun = warm_up.begin(state, seen(wide), 20.0)
    assert [each.instance.id for each in begun] == ["Snk.2"]
    state, begun = warm_up.begin(state, seen(wide, Event("scale", {"task": "Snk", "from": 1, "to": 2})), 25.0)
    assert [(each.instance.id, tells(each.why, "tm1")) for each in begun] == [("Snk.1", True)]
    assert not settle(state, seen(wide), 30.0)[0].warming


def test_a_rescale_that_is_refused_or_changes_nothing_is_not_waited_for(settled):
    assert warm_up.told(settled, Plan({}, {}, actions=(Scale("Snk", 1),)), 10.0) is settled
    state = warm_up.told(settled, SCALE, 10.0)
    refused = Event("action-refused", {"action": "Scale", "task": "Snk", "why": "it has 1 partition"})
    state, _ = warm_up.begin(state, seen(None, refused), 15.0)
    assert not settle(state, seen(), 15.0)[0].warming


def test_marking_sets_exactly_the_named_instances():
    marked = warm_up.mark(warm_up.mark(chain(), ["Src.1"]), ["Snk.1"])
    assert [(i.id, i.warming_up) for i in marked.instances] == [("Src.1", False), ("Snk.1", True)]
