from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.runtime import Unplaced
from qod_magics.core.snapshot import Instance, TaskManager
from qod_magics.policies.stream_economics import PlacementRequest, available_cpu, estimated_cpu, place
from qod_magics.policies.stream_economics.placing import placed


def running(name: str, manager: str, cpu: float, *, in_rate: float = 10.0, warming_up: bool = False) -> Instance:
    return Instance(name, name.split(".")[0], manager, in_rate, cpu, warming_up)


def new(name: str, manager: str) -> Instance:
    return running(name, manager, 0.0, in_rate=0.0, warming_up=True)


def test_goes_where_most_is_left() -> None:
    assert place([PlacementRequest("a.1", 10)], {"tm1": 50, "tm2": 80}) == {"a.1": "tm2"}


def test_ties_go_to_input_order() -> None:
    assert place([PlacementRequest("a.1", 10)], {"tm2": 50, "tm1": 50}) == {"a.1": "tm2"}


def test_each_placement_lowers_what_the_next_finds() -> None:
    requests = [PlacementRequest(f"a.{k}", 30) for k in range(4)]
    assert place(requests, {"tm1": 100, "tm2": 80}) == {"a.0": "tm1", "a.1": "tm2", "a.2": "tm1", "a.3": "tm2"}


def test_a_preferred_manager_wins_while_the_estimate_fits() -> None:
    requests = [PlacementRequest(f"a.{k}", 30, preferred={"tm2"}) for k in range(3)]
    assert place(requests, {"tm1": 100, "tm2": 60}) == {"a.0": "tm2", "a.1": "tm2", "a.2": "tm1"}


def test_of_the_preferred_the_one_with_most_left() -> None:
    assert place([PlacementRequest("a.1", 10, preferred=["tm1", "tm3"])], {"tm1": 20, "tm2": 90, "tm3": 30}) == {
        "a.1": "tm3"
    }


def test_a_forbidden_manager_is_never_chosen_not_even_if_preferred() -> None:
    request = PlacementRequest("a.1", 10, preferred=["tm2"], forbidden=["tm2"])
    assert place([request, PlacementRequest("b.1", 10)], {"tm1": -50, "tm2": 80}) == {"a.1": "tm1", "b.1": "tm2"}


def test_one_that_may_go_nowhere_has_no_entry_and_does_not_stop_the_next() -> None:
    assert place([PlacementRequest("a.1", 10, forbidden=["tm1"]), PlacementRequest("b.1", 10)], {"tm1": 80}) == {
        "b.1": "tm1"
    }
    assert place([PlacementRequest("a.1", 10)], {}) == {}


def test_a_preferred_manager_that_is_gone_is_ignored() -> None:
    assert place([PlacementRequest("a.1", 10, preferred=["gone"])], {"tm1": 80}) == {"a.1": "tm1"}


def test_estimates_are_the_last_cpu_then_that_of_the_task_then_a_core() -> None:
    instances = [new("a.1", "tm1"), running("a.2", "tm1", 30.0), running("a.3", "tm1", 40.0), new("b.1", "tm1")]
    assert estimated_cpu(instances) == {"a.1": 30.0, "a.2": 30.0, "a.3": 40.0, "b.1": 100.0}


def test_instances_without_metrics_are_charged_to_their_manager() -> None:
    managers = [TaskManager("tm1", 1, 20), TaskManager("tm2", 2, 0)]
    instances = [new("a.1", "tm1"), running("a.2", "tm2", 30.0), new("b.1", "tm1"), running("c.1", "tm1", 5.0)]
    assert available_cpu(managers, instances) == {"tm1": 100 - 20 - 30 - 100, "tm2": 200}


def test_an_instance_that_warms_up_but_was_measured_is_not_charged_twice() -> None:
    warming = [running("a.1", "tm1", 15.0, warming_up=True)]
    assert available_cpu([TaskManager("tm1", 1, 20)], warming) == {"tm1": 80}


@given(
    st.lists(st.tuples(st.floats(0, 200), st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)))),
    st.lists(st.floats(-100, 800), min_size=1, max_size=5),
)
def test_agrees_with_algorithm_3_1(wanted: list[tuple[float, set[int], set[int]]], cpu: list[float]) -> None:
    available = {f"tm{i}": left for i, left in enumerate(cpu)}
    requests = [
        PlacementRequest(f"a.{k}", estimate, {f"tm{i}" for i in preferred}, {f"tm{i}" for i in forbidden})
        for k, (estimate, preferred, forbidden) in enumerate(wanted)
    ]
    placed = place(requests, available)
    for request in requests:
        allowed = [name for name in available if name not in request.forbidden]
        fitting = [name for name in allowed if name in request.preferred and available[name] - request.estimate >= 0]
        if not allowed:
            assert request.instance not in placed
            continue
        best = max(fitting or allowed, key=available.__getitem__)
        assert placed[request.instance] == best
        available[best] -= request.estimate


def test_one_that_never_ran_goes_where_it_is_preferred_while_any_cpu_is_left_there() -> None:
    def home(cpu: float, preferred: str = "tm2") -> str:
        managers = [TaskManager("tm1", 1.0, 0.0), TaskManager("tm2", 1.0, cpu)]
        return placed([Unplaced("a.1", "a", None, frozenset(), frozenset({preferred}))], managers, [])["a.1"]

    assert home(90.0) == "tm2"
    assert home(100.0) == "tm1"
    assert home(90.0, "tm9") == "tm1"
