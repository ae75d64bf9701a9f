"""Where the source leaves a choice: what each reading comes to."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from benchmarks.evaluation.convergence import convergence_s, down_s
from qod_magics.errors import UsageProblem
from qod_magics.policies.stela.job import Gains, Graph, Job, Options, congested, etp
from qod_magics.policies.stela.scaling import by_link_load, link_loads, re_deal, scale_in, scale_out, slots_per_machine
from tests.policies.stela.oracles import example, model_of, scenarios
from tests.raising import breaks

CHAIN = Graph(("s", "a", "b", "k"), (("s", "a"), ("a", "b"), ("b", "k")))
FORK = Graph(("s", "x", "y"), (("s", "x"), ("s", "y")))


def chain(*rates: int, offered: int, k: int = 2, busy: Fraction | None = None) -> Job:
    """Each operator emits what it processes; `busy`: the share of the time at work, of all of them."""
    processed = dict(zip(CHAIN.ops, map(Fraction, rates), strict=True))
    emitted = {(a, b): processed[a] for a, b in CHAIN.edges}
    capacity = {} if busy is None else {op: rate / busy for op, rate in processed.items()}
    return Job(CHAIN, processed, emitted, {"s": offered}, dict.fromkeys(CHAIN.ops, k), {}, capacity)


def test_r9_of_equal_etps_the_first_declared_goes_first() -> None:
    for ops in (("s", "x", "y"), ("s", "y", "x")):
        graph = Graph(ops, FORK.edges)
        job = Job(graph, {"s": 200, "x": 50, "y": 50}, {("s", "x"): 100, ("s", "y"): 100})
        assert [gain.op for gain in Gains.of(job).ranked] == list(ops[1:])
        assert scale_out(job, ["n"], 3)[0].target == ops[1]


def test_r4_an_operator_that_is_not_congested_is_no_target() -> None:
    job = chain(1000, 500, 500, 500, offered=1000)
    assert etp(job, "s", congested(job)) == 0
    assert etp(job, "b", congested(job)) == 1
    assert [gain.op for gain in Gains.of(job).ranked] == ["a"]


def test_r10_after_one_projection_a_child_looks_congested_unless_its_capacity_is_known() -> None:
    job = chain(1000, 500, 500, 500, offered=1000, busy=Fraction(1, 2))
    idle = Options(projection="capacity")
    assert congested(job) == ("a",)
    assert [slot.target for slot in scale_out(job, ["n"], 4)] == ["a", "b"]
    saturated = Job(**{**vars_of(job), "capacity": {**job.capacity, "a": Fraction(500)}})
    assert congested(saturated, idle) == ("a",)
    assert [slot.target for slot in scale_out(saturated, ["n"], 4, idle)] == ["a", "a"]
    assert [slot.target for slot in scale_out(saturated, ["n"], 4)] == ["a", "b"]


def vars_of(job: Job) -> dict[str, object]:
    return {name: getattr(job, name) for name in Job.__dataclass_fields__}


def test_r10_five_instances_take_two_steps_to_make_a_child_look_congested() -> None:
    job = chain(1000, 500, 500, 500, offered=1000, k=5)
    assert [slot.target for slot in scale_out(job, ["n"], 6)] == ["a", "a", "b"]


def test_r11_a_projection_may_be_capped_at_the_input() -> None:
    job = chain(1000, 800, 800, 800, offered=1000)
    assert job.grown("a").processed["a"] == 1200
    capped = job.grown("a", cap_at_input=True)
    assert capped.processed["a"] == capped.emitted["a", "b"] == 1000
    draining = chain(1000, 1200, 1200, 1200, offered=1000)  # works off a backlog
    assert draining.grown("a", cap_at_input=True).processed["a"] == 1200


def test_r12_an_operator_at_its_maximum_is_passed_over() -> None:
    job = Job(**{**vars_of(example(2)), "most": {"3": 2, "4": 3}})
    targets = [slot.target for slot in scale_out(job, ["n"], 5, Options(1))]
    assert targets[:3] == ["4", "1", "2"]  # 4 has 3,000 of 5,500 rows/s then, and 1 and 2 lead to it
    assert "3" not in targets


def test_r5_the_input_of_a_source_is_what_is_offered_or_else_what_it_processes() -> None:
    job = chain(1000, 800, 800, 800, offered=1100)
    assert job.input("s") == 1100
    assert Job(CHAIN, job.processed, job.emitted).input("s") == 1000
    assert job.input("a") == 1000


def test_r2_sources_take_turns_also_where_all_that_is_congested_is_at_its_maximum() -> None:
    job = Job(FORK, {"s": 200, "x": 50, "y": 50}, {("s", "x"): 100, ("s", "y"): 100}, most={"x": 1, "y": 1, "s": 2})
    slots = scale_out(job, ["n", "m"], 1)
    assert [(slot.target, slot.by) for slot in slots] == [("s", "source")]  # and then it is at its maximum, too


def test_r3_instances_per_machine_are_rounded_down_and_one_at_least() -> None:
    assert [slots_per_machine(k, 4) for k in (3, 4, 7, 8)] == [1, 1, 1, 2]


def test_nothing_is_projected_from_nothing() -> None:
    job = Job(FORK, dict.fromkeys("sxy", 0), dict.fromkeys(FORK.edges, 0), {"s": 100})
    assert congested(job) == ("s",)
    assert etp(job, "s", ("s",)) == 0
    assert [slot.target for slot in scale_out(job, ["n"], 1)] == ["s", "s", "s"]


def test_of_equal_machines_the_first_declared_goes() -> None:
    placement = {"m2": [("i1", "x")], "m1": [("i2", "x")], "m3": [("i3", "x")]}
    result = scale_in(placement, {"x": Fraction(1, 3)}, 5)
    assert [removal.machine for removal in result.removals] == ["m2", "m3"]  # m1 has two instances by then
    assert result.placement == {"m1": (("i2", "x"), ("i1", "x"), ("i3", "x"))}


@pytest.mark.parametrize(
    "options",
    [{"congestion_rate": 0.9}, {"congestion_rate": float("inf")}, {"mode": "sets"}, {"projection": "none"}],
    ids=str,
)
def test_other_values_are_refused_in_one_line(options: dict[str, object]) -> None:
    with pytest.raises(UsageProblem, check=breaks("in range", name=next(iter(options)))):
        Options(**options)


def test_a_re_deal_goes_through_the_first_slots_of_all_machines() -> None:
    instances = [("k.1", "k"), ("s.1", "s"), ("s.2", "s"), ("a.1", "a"), ("k.2", "k")]
    assert re_deal(instances, ("s", "a", "k"), ["m1", "m2"]) == {
        "s.1": "m1",
        "s.2": "m2",
        "a.1": "m1",
        "k.1": "m2",
        "k.2": "m1",
    }
    three = re_deal(instances, ("s", "a", "k"), ["m1", "m2"], workers=3)  # m1.1, m2.1, m1.2
    assert list(three.values()) == ["m1", "m2", "m1", "m1", "m2"]


def test_link_load_moves_neighbours_together() -> None:
    job = chain(400, 200, 100, 100, offered=400)
    load = link_loads(job)
    assert load == {"s": 200, "a": 300, "b": 150, "k": 50}
    instances = [(f"{op}.{i}", op) for op in CHAIN.ops for i in (1, 2)]
    assert by_link_load(instances, CHAIN, load, 4) == ("k.1", "b.1", "k.2", "b.2")
    assert by_link_load(instances, CHAIN, load, 3, "most") == ("a.1", "s.1", "a.2")


def test_convergence_is_not_claimed_where_there_is_none() -> None:
    assert convergence_s([]) is None
    assert convergence_s([100.0, 200.0] * 10) is None
    assert convergence_s([1.0, 2.0, 3.0]) is None


def test_a_sample_at_the_mean_goes_on_with_its_excursion() -> None:
    assert convergence_s([0, 0, 104, 96, 104, 96, 100, 100, 100, 100, 104, 96]) == 60.0
    # below, at the mean, below: one excursion; the second one ends it
    assert convergence_s([0, 0, 104, 96, 100, 96, 104, 96, 100, 100, 104, 96, 100, 100, 104, 96]) == 80.0


def test_down_time_counts_windows_without_throughput() -> None:
    assert down_s([5, 0, 0, 3, 0], 10.0) == 30.0


@pytest.mark.parametrize("case", scenarios(), ids=lambda case: case["name"])
def test_with_capacities_known_no_scenario_ends_lower(case: dict[str, Any]) -> None:
    model = model_of(case)
    before, most = dict.fromkeys(case["ops"], case["k"]), dict.fromkeys(case["ops"], case["tasks"])
    job = model.job(before, most)
    after = dict(before)
    for slot in scale_out(job, ["new"], case["machines"], Options(projection="capacity")):
        after[slot.target] += 1
    assert model.job(after, most).throughput > job.throughput
