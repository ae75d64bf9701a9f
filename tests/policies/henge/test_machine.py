"""The adaptation state machine against traces worked out by hand (H7 to H10), and what holds of any trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.henge.machine import (
    Configuration,
    Converged,
    Hold,
    Job,
    Memory,
    Operator,
    Reconfiguration,
    Reduction,
    Reversion,
    Stable,
    State,
    Step,
    advance,
    configuration_of,
    is_congested,
    targets,
    without_undone,
)
from qod_magics.policies.henge.utility import Parameters, Utility
from tests.policies.henge.oracles import exact, oracle

COMMON = exact(oracle("H7_H10_common"))
TRACES = ["H7_happy", "H8_reduce_then_revert", "H9_skip_plateaued", "H10_revert_when_not_congested"]
PARAMETERS = Parameters(**COMMON["parameters"])


def cluster(
    utility: Mapping[str, Fraction],
    instances: Configuration | None = None,
    busy: Mapping[str, Mapping[str, Fraction]] = COMMON["capacity"],
) -> dict[str, Job]:
    """The jobs of the traces with these utilities; with other instances where given."""
    known = instances or {}
    return {
        name: Job(
            Utility(utility[name], job["U"]),
            {
                o: Operator(
                    known.get(name, {}).get(o, int(each["k"])),
                    int(each["tasks"]),
                    busy[name].get(o, Fraction(0)),
                    each.get("source", False),
                )
                for o, each in job["ops"].items()
            },
        )
        for name, job in COMMON["jobs"].items()
    }


def carried_out(step: Step, jobs: Mapping[str, Job]) -> Configuration:
    """The instances after a step."""
    return {name: {**each, **targets(step).get(name, {})} for name, each in configuration_of(jobs).items()}


def worded(step: Step) -> list[Any]:
    """A step as the oracles write it."""
    match step:
        case Reconfiguration(changes):
            ((job, each),) = changes.items()
            return ["RECONFIGURE", job, {o: list(change) for o, change in each.items()}]
        case Reduction(changes):
            return ["REDUCTION", {job: {o: list(c) for o, c in each.items()} for job, each in changes.items()}]
        case Reversion(utility):
            return ["REVERSION", str(utility)]
        case Stable(rounds):
            return ["STABLE", rounds]
        case Converged():
            return ["CONVERGED"]
        case Hold():
            return ["HOLD"]


@pytest.mark.parametrize("name", TRACES)
def test_agrees_with_the_trace(name: str) -> None:
    memory, instances = Memory(), None
    for row in oracle(name)["rounds"]:
        jobs = cluster({job: Fraction(u) for job, u in row["u"].items()}, instances)
        step, memory = advance(memory, row["t"], jobs, PARAMETERS, congested=row["cluster_congested"])
        assert (row["t"], worded(step), memory.state.value) == (row["t"], row["action"], row["state"])
        instances = carried_out(step, jobs)


def test_a_reversion_in_the_trace_restores_the_instances_before_the_harmful_step() -> None:
    first = cluster({"A": Fraction(35, 2), "B": Fraction(35), "C": Fraction(28)})
    step, memory = advance(Memory(), 0, first, PARAMETERS, congested=False)
    after = cluster({"A": Fraction(14), "B": Fraction(35), "C": Fraction(14)}, carried_out(step, first))
    step, _ = advance(memory, 60, after, PARAMETERS, congested=False)
    assert carried_out(step, after) == configuration_of(first)


@pytest.mark.parametrize(
    ("totals", "best"),
    [((60, 66, 59), 1), ((66, 60, 54), 0), ((66, 66, 59), 0)],
    ids=["the later", "the earlier", "the earlier of equals"],
)
def test_a_reversion_goes_back_to_the_best_configuration_of_the_search(totals: tuple[int, ...], best: int) -> None:
    parameters = replace(PARAMETERS, min_gain=Fraction(-1))
    memory, instances, found = Memory(is_reduced=True), None, []
    for number, total in enumerate(totals):
        jobs = cluster({"A": Fraction(total, 3), "B": Fraction(total, 3), "C": Fraction(total, 3)}, instances)
        found.append(configuration_of(jobs))
        step, memory = advance(memory, 60 * number, jobs, parameters, congested=False)
        instances = carried_out(step, jobs)
    assert isinstance(step, Reversion)
    assert step.utility == totals[best]
    assert step.configuration == found[best] != found[1 - best]


def test_a_skip_is_over_at_the_end_of_its_hour() -> None:
    missed = cluster({"A": Fraction(10), "B": Fraction(35), "C": Fraction(35)})
    for now_s, step in ((3599, Stable), (3600, Reconfiguration)):
        assert isinstance(advance(Memory(skip={"A": 3600}), now_s, missed, PARAMETERS, congested=False)[0], step)


def test_utility_that_falls_by_less_than_a_tenth_of_what_is_left_is_no_harm() -> None:
    first = cluster({"A": Fraction(21), "B": Fraction(35), "C": Fraction(21)})
    for total, is_reverted in ((Fraction(70), False), (Fraction(70) - Fraction(1, 100), True)):
        step, memory = advance(Memory(), 0, first, PARAMETERS, congested=False)
        lost = {"A": Fraction(21), "B": total - 42, "C": Fraction(21)}
        step, _ = advance(memory, 60, cluster(lost, carried_out(step, first)), PARAMETERS, congested=False)
        assert isinstance(step, Reversion) is is_reverted, total


@pytest.mark.parametrize(
    ("gain", "is_skipped"), [(Fraction(7, 4), False), (Fraction(7, 4) - Fraction(1, 100), True)], ids=str
)
def test_a_job_that_gains_less_than_a_twentieth_of_its_utility_is_skipped(gain: Fraction, is_skipped: bool) -> None:
    busy = {"A": {"a1": Fraction(3, 5)}, "B": {}, "C": {}}
    first = cluster({"A": Fraction(10), "B": Fraction(35), "C": Fraction(35)}, busy=busy)
    step, memory = advance(Memory(), 0, first, PARAMETERS, congested=False)
    then = cluster({"A": 10 + gain, "B": Fraction(35), "C": Fraction(35)}, carried_out(step, first), busy)
    step, _ = advance(memory, 60, then, PARAMETERS, congested=False)
    assert isinstance(step, Stable) is is_skipped
    assert isinstance(step, Reconfiguration) is not is_skipped


def test_the_order_of_the_prototype_can_be_chosen() -> None:
    jobs = cluster({"A": Fraction(20), "B": Fraction(35), "C": Fraction(10)})
    jobs["A"] = replace(jobs["A"], utility=Utility(Fraction(90), Fraction(100)))
    for order, first in (("farthest", "C"), ("priority", "A")):
        step, _ = advance(Memory(), 0, jobs, replace(PARAMETERS, order=order), congested=False)
        assert isinstance(step, Reconfiguration)
        assert list(step.changes) == [first]


@pytest.mark.parametrize("exit_on_new_miss", [True, False])
def test_when_a_converged_search_wakes(exit_on_new_miss: bool) -> None:
    parameters = replace(PARAMETERS, exit_on_new_miss=exit_on_new_miss)
    full = {name: Fraction(35) for name in "ABC"}
    memory = Memory(State.CONVERGED)
    step, memory = advance(memory, 0, cluster(full), parameters, congested=False)
    assert isinstance(step, Hold)
    missed = {**full, "A": Fraction(868, 25)}
    step, _ = advance(memory, 60, cluster(missed), parameters, congested=False)
    assert isinstance(step, Reconfiguration) is exit_on_new_miss
    lost = {**full, "A": Fraction(105) * Fraction(95, 100) - 70 - Fraction(1, 100)}
    step, _ = advance(memory, 60, cluster(lost), parameters, congested=False)
    assert isinstance(step, Reconfiguration)


@pytest.mark.parametrize(("retry_s", "is_retried"), [(None, False), (600.0, True)])
def test_a_search_that_ended_with_jobs_that_miss_is_tried_again(retry_s: float | None, is_retried: bool) -> None:
    """By the source's rules it holds for good: there is nothing left to lose."""
    parameters = replace(PARAMETERS, retry_s=retry_s)
    missed = cluster(dict.fromkeys("ABC", Fraction(1)))
    _, memory = advance(Memory(State.CONVERGED, converged_s=0), 60, missed, parameters, congested=False)
    step, memory = advance(memory, 540, missed, parameters, congested=False)
    assert isinstance(step, Hold)
    step, _ = advance(memory, 600, missed, parameters, congested=False)
    assert isinstance(step, Reconfiguration) is is_retried
    assert isinstance(step, Hold) is not is_retried


def test_a_converged_search_in_which_all_meet_their_target_is_not_tried_again() -> None:
    parameters = replace(PARAMETERS, retry_s=600.0)
    full = cluster(dict.fromkeys("ABC", Fraction(35)))
    _, memory = advance(Memory(State.CONVERGED, converged_s=0), 60, full, parameters, congested=False)
    step, _ = advance(memory, 6000, full, parameters, congested=False)
    assert isinstance(step, Hold)


@pytest.mark.parametrize("bystanders", [True, False])
@pytest.mark.parametrize("congested", [True, False])
def test_a_step_can_be_blamed_for_others_losses_on_full_machines_only(bystanders: bool, congested: bool) -> None:
    parameters = replace(PARAMETERS, bystanders=bystanders)
    first = cluster({"A": Fraction(10), "B": Fraction(34), "C": Fraction(34)})
    step, memory = advance(Memory(is_reduced=True), 0, first, parameters, congested=False)
    others = cluster({"A": Fraction(20), "B": Fraction(10), "C": Fraction(10)}, carried_out(step, first))
    step, _ = advance(memory, 60, others, parameters, congested=congested)
    assert isinstance(step, Reversion) is (bystanders or congested)
    worse = cluster({"A": Fraction(5), "B": Fraction(34), "C": Fraction(34)}, configuration_of(others))
    step, _ = advance(memory, 60, worse, replace(parameters, bystanders=False), congested=False)
    assert isinstance(step, Reversion)


def test_there_is_one_reduction_in_a_search() -> None:
    first = cluster({"A": Fraction(14), "B": Fraction(35), "C": Fraction(14)})
    step, memory = advance(Memory(), 0, first, PARAMETERS, congested=True)
    kinds = [type(step)]
    for number, low in ((1, 7), (2, 6), (3, 1)):  # B meets its target all the time, and has instances to give
        jobs = cluster(
            {"A": Fraction(low), "B": Fraction(35), "C": Fraction(low)}, {"A": {"a1": 4 + number}, "B": {"b1": 10}}
        )
        step, memory = advance(memory, 60 * number, jobs, PARAMETERS, congested=True)
        kinds.append(type(step))
    assert kinds == [Reconfiguration, Reduction, Reconfiguration, Reversion]
    assert not memory.is_reduced


def test_an_operator_at_the_threshold_is_not_congested_but_reduced() -> None:
    busy = {"A": {"a1": Fraction(3, 5)}, "B": {"b1": Fraction(3, 10)}, "C": {}}
    first = cluster({"A": Fraction(14), "B": Fraction(35), "C": Fraction(35)}, busy=busy)
    _, memory = advance(Memory(), 0, first, PARAMETERS, congested=True)
    worse = cluster({"A": Fraction(14), "B": Fraction(35), "C": Fraction(14)}, {"A": {"a1": 14}}, busy)
    step, _ = advance(memory, 60, worse, PARAMETERS, congested=True)
    assert step == Reduction({"B": {"b1": (10, 2)}})


def test_an_action_takes_one_of_the_stable_rounds_away() -> None:
    full, missed = (cluster({"A": Fraction(a), "B": Fraction(35), "C": Fraction(35)}) for a in (35, 10))
    memory, found = Memory(), []
    for number, jobs in enumerate((full, full, missed, full, full, full)):
        step, memory = advance(memory, 60 * number, jobs, PARAMETERS, congested=False)
        found.append(worded(step)[:2])
    stable = ["STABLE", 1], ["STABLE", 2]
    assert found == [*stable, ["RECONFIGURE", "A"], stable[1], ["STABLE", 3], ["CONVERGED"]]


def test_several_jobs_in_a_round_are_judged_each_for_itself() -> None:
    parameters = replace(PARAMETERS, jobs_per_round=2)
    first = cluster({"A": Fraction(10), "B": Fraction(35), "C": Fraction(10)})
    step, memory = advance(Memory(), 0, first, parameters, congested=False)
    assert isinstance(step, Reconfiguration)
    assert list(step.changes) == ["A", "C"]
    then = cluster({"A": Fraction(10), "B": Fraction(35), "C": Fraction(30)}, carried_out(step, first))
    step, memory = advance(memory, 60, then, parameters, congested=False)
    assert isinstance(step, Reconfiguration)
    assert list(step.changes) == ["C"]
    assert list(memory.skip) == ["A"]


def test_a_step_that_was_not_carried_out_tells_nothing() -> None:
    jobs = cluster({"A": Fraction(10), "B": Fraction(35), "C": Fraction(30)})
    step, memory = advance(Memory(), 0, jobs, PARAMETERS, congested=False)
    assert without_undone(memory, jobs).trials == ()
    assert without_undone(memory, cluster({n: Fraction(1) for n in "ABC"}, carried_out(step, jobs))) == memory


def test_a_cluster_is_congested_if_half_of_its_machines_are() -> None:
    free, full = (0.5, 1.0), (4.0, 4.0)
    assert not is_congested({})
    assert is_congested({"a": full})
    assert is_congested({"a": full, "b": free})
    assert not is_congested({"a": full, "b": free, "c": free})
    assert is_congested({"a": full, "b": (3.9, 4.0), "c": free}, 0.95)
    assert not is_congested({"a": full, "b": (3.9, 4.0), "c": free})


@given(
    st.lists(
        st.tuples(
            st.tuples(*[st.integers(0, 70)] * 3),
            st.tuples(*[st.integers(0, 20)] * 4),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 3),
)
def test_instances_stay_in_range_and_reversions_restore_what_was_saved(rounds: list[Any], most_jobs: int) -> None:
    parameters = replace(PARAMETERS, jobs_per_round=most_jobs)
    memory, instances = Memory(), None
    seen: list[tuple[Fraction, Configuration]] = []
    for number, (halves, busy, congested, is_done) in enumerate(rounds):
        utility = {name: Fraction(half, 2) for name, half in zip("ABC", halves, strict=True)}
        a1, a2, b1, c1 = (Fraction(each, 20) for each in busy)
        jobs = cluster(utility, instances, {"A": {"a1": a1, "a2": a2}, "B": {"b1": b1}, "C": {"c1": c1}})
        assert sum(job.utility.current for job in jobs.values()) <= sum(job.utility.most for job in jobs.values())
        seen.append((sum(utility.values()), configuration_of(jobs)))
        step, memory = advance(memory, 60 * number, jobs, parameters, congested=congested)
        after = carried_out(step, jobs)
        for name, job in jobs.items():
            for o, operator in job.operators.items():
                assert 1 <= after[name][o] <= operator.most
                assert not operator.is_source or after[name][o] == operator.instances
        if isinstance(step, Reversion):
            assert (step.utility, step.configuration) in seen
            assert after == step.configuration
            assert memory == Memory(State.CONVERGED, converged_s=60 * number)
        if is_done:
            instances = after
