"""Stela against the source's example and cases worked out exactly."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from benchmarks.evaluation.convergence import chance_of_best, convergence_s, settled_mean
from qod_magics.policies.stela.job import Gains, Options, congested, etp, etps, is_congested
from qod_magics.policies.stela.scaling import Shift, scale_in, scale_out, slots_per_machine
from tests.policies.stela.oracles import exact, example, job_of, model_of, options_of, oracle, scenarios


def test_s1_the_example_of_the_source() -> None:
    case = oracle("S1")
    job, options, expected = job_of(case), options_of(case), case["expect"]
    found = congested(job, options)
    assert list(found) == expected["congested"]
    assert job.throughput == expected["throughput"]
    assert {op: etp(job, op, found) for op in found} == exact(expected["etp"])
    assert [gain.op for gain in Gains.of(job, options).ranked] == expected["order"]
    assert list(congested(job)) == expected["congested_at_1_2"]


def test_s2_rates_are_projected_after_each_instance() -> None:
    case = oracle("S2")
    slots = scale_out(example(2), case["new_machines"], 5, options_of(case))  # 20 instances on 5 machines: 4 slots
    assert len(slots) == case["slots"] == len(case["expect"])
    for slot, expected in zip(slots, case["expect"], strict=True):
        assert slot.number == expected["slot"]
        assert slot.machine == "m11"
        assert list(slot.gains.congested) == expected["congested"]
        assert {gain.op: gain.etp for gain in slot.gains.ranked} == exact(expected["etp"])
        assert slot.target == expected["target"]
        assert slot.after.processed[slot.target] == Fraction(expected["proc_after"])


def test_s2_projections_capped_at_the_input() -> None:
    case = oracle("S2")
    slots = scale_out(example(2), case["new_machines"], 5, options_of(case, cap_at_input=True))
    assert [slot.target for slot in slots] == case["expect_if_projection_capped_at_input"]


def test_s3_a_sink_reached_twice_counts_once_unless_paths_are_counted() -> None:
    case = oracle("S3")
    job = job_of(case)
    found = congested(job, options_of(case))
    assert list(found) == case["expect"]["congested"]
    assert {op: etp(job, op, found) for op in found} == exact(case["expect"]["etp_set"])
    assert {op: etp(job, op, found, "paths") for op in found} == exact(case["expect"]["etp_paths"])


def test_s4_sources_and_machines_take_turns_where_nothing_is_congested() -> None:
    case = oracle("S4")
    job, machines = job_of(case), case["machines_before"]
    assert slots_per_machine(sum(case["instances"].values()), machines) == case["expect"]["slots_per_machine"]
    slots = scale_out(job, case["new_machines"], machines, options_of(case))
    assert [[s.number, s.machine, s.target, s.by] for s in slots] == case["expect"]["assignment"]
    assert len(slots) == case["expect"]["total_slots"]


def test_s5_two_machines_of_five_are_removed() -> None:
    case = oracle("S5")
    job, expected = example(), case["expect"]
    found = etps(job, congested(job, Options(1)))
    assert found == exact(expected["etp_by_operator"])
    placement = {machine: [(i, op) for i, op in hosted] for machine, hosted in case["placement"].items()}
    result = scale_in(placement, found, case["remove"])
    assert len(result.removals) == len(expected["rounds"])
    for removal, wanted in zip(result.removals, expected["rounds"], strict=True):
        assert removal.scores == exact(wanted["etpsum"])
        assert removal.machine == wanted["removed"]
        assert [[s.instance, s.source, s.target] for s in removal.shifts] == wanted["moves"]
    ends = {machine: [instance for instance, _ in hosted] for machine, hosted in result.placement.items()}
    assert ends == expected["final"]
    assert Shift("i10", "m5", "m3") in result.shifts  # by way of m2: one move


@pytest.mark.parametrize("case", oracle("S6")["cases"], ids=lambda case: f"{case['input']}-{case['processing']}")
def test_s6_edges_of_the_threshold(case: dict[str, Any]) -> None:
    rate = Fraction(oracle("S6")["congestion_rate"])
    assert is_congested(case["input"], case["processing"], rate) is case["congested"]
    assert is_congested(case["input"], case["processing"], Options(1.2).threshold) is case["congested"]


def test_s6_a_source_without_an_offered_rate_is_never_congested() -> None:
    job = job_of({**oracle("S1"), "external_input": {}})
    assert ("1" in congested(job, Options(1))) is oracle("S6")["source_without_offered_rate"]


def test_s7_convergence() -> None:
    case = oracle("S7")
    for given, expected in ((case, case["expect"]), (case["expect"]["flat_series"],) * 2):
        assert settled_mean(given["throughput"]) == expected["mean"]
        assert convergence_s(given["throughput"], case["window_s"]) == expected["convergence_s"]


def test_s8_the_chance_of_a_lucky_removal() -> None:
    case = oracle("S8")
    found = chance_of_best(case["machines"], case["best"], case["remove"])
    assert found == Fraction(case["expect"]["probability"])
    assert round(float(found), 2) == case["expect"]["rounded"]


@pytest.mark.parametrize("case", scenarios(), ids=lambda case: case["name"])
def test_s9_throughput_in_the_proportional_model(case: dict[str, Any]) -> None:
    model, expected = model_of(case), case["expect"]
    before = dict.fromkeys(case["ops"], case["k"])
    most = dict.fromkeys(case["ops"], case["tasks"])
    job = model.job(before, most)
    slots = scale_out(job, ["new"], case["machines"])
    assert len(slots) == expected["slots"]
    assert [slot.target for slot in slots] == expected["targets"]
    after = {op: k + Counter(slot.target for slot in slots)[op] for op, k in before.items()}
    assert {op: after[op] for op in after if after[op] != case["k"]} == expected["instances"]
    assert job.throughput == Fraction(expected["T0"])
    assert model.job(after, most).throughput == Fraction(expected["T1"])
    assert round(float(Fraction(expected["T1"]) / job.throughput), 4) == expected["ratio"]
