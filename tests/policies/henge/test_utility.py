"""Utilities, their order and numbers of instances against cases worked out by hand (H2 to H6)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import UsageProblem
from qod_magics.policies.henge.machine import added, grown, reduced
from qod_magics.policies.henge.utility import (
    Parameters,
    Utility,
    current_latency,
    farthest_first,
    hybrid_utility,
    latency_utility,
    priority_first,
    satisfaction,
    throughput_utility,
)
from tests.policies.henge.oracles import exact, oracle
from tests.raising import breaks

KINDS = {"throughput": throughput_utility, "latency": latency_utility}
EXACT = Parameters(cap_thr=Fraction(3, 10), keep=Fraction(1, 5))


@pytest.mark.parametrize("case", oracle("H2")["cases"], ids=str)
def test_utility_agrees_with_the_oracle(case: dict[str, Any]) -> None:
    def utility(of: Any) -> Any:
        each = of(case)
        if case["slo"] == "hybrid":
            parts = [KINDS[k](each[k]["current"], each[k]["threshold"], each["max_utility"]) for k in KINDS]
            return hybrid_utility(*parts)
        return KINDS[case["slo"]](each["current"], each["threshold"], each["max_utility"])

    assert utility(exact) == Fraction(case["utility"])
    assert utility(lambda case: _floats(exact(case))) == pytest.approx(case["float"], abs=1e-12)


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(each) for key, each in value.items()}
    return float(value) if isinstance(value, Fraction) else value


def test_utility_of_ten_jobs_agrees_with_the_oracle() -> None:
    case = exact(oracle("H3"))
    each = [latency_utility(ms, case["latency_slo_ms"], case["max_utility"]) for ms in case["latency_ms"]]
    jobs = [Utility(u, case["max_utility"]) for u in each]
    expected = case["expect"]
    assert each == expected["utility"]
    assert sum(each) == expected["total"]
    assert sum(job.most for job in jobs) == expected["max_total"] == case["jobs"] * case["max_utility"]
    assert round(float(satisfaction(jobs)), 4) == float(expected["satisfaction_pct"])
    assert float(expected["reached_89_pct_means"]) == pytest.approx(0.89 * 350)
    assert sum(each) >= expected["reached_89_pct_means"]


@pytest.mark.parametrize("parameters", [EXACT, Parameters()], ids=["fractions", "floats"])
@pytest.mark.parametrize("case", oracle("H4")["cases"], ids=str)
def test_instances_to_add_agree_with_the_oracle(case: dict[str, Any], parameters: Parameters) -> None:
    busy = Fraction(case["capacity"])
    if parameters is not EXACT:
        busy = float(busy)
    assert added(busy, parameters) == case["extra"]
    assert grown(case["instances"], busy, case["tasks"], parameters) == case["new"]


@pytest.mark.parametrize("parameters", [EXACT, Parameters()], ids=["fractions", "floats"])
@pytest.mark.parametrize("case", oracle("H4r")["cases"], ids=str)
def test_instances_left_by_a_reduction_agree_with_the_oracle(case: dict[str, Any], parameters: Parameters) -> None:
    assert reduced(case["instances"], parameters) == case["reduced"]


def test_the_order_of_jobs_that_miss_agrees_with_the_oracle() -> None:
    case = oracle("H5")
    jobs = {row["id"]: Utility(row["u"], row["U"]) for row in reversed(case["jobs"])}
    assert farthest_first(jobs) == case["expect"]["farthest_first"]
    assert priority_first(jobs) == case["expect"]["priority_first"]


def test_ties_go_to_the_larger_utility_then_to_the_name() -> None:
    jobs = {"b": Utility(5, 10), "a": Utility(5, 10), "c": Utility(10, 20)}
    assert farthest_first(jobs) == ["c", "a", "b"]
    assert priority_first(jobs) == ["c", "a", "b"]


def test_where_nothing_finished_the_age_of_the_oldest_row_is_the_latency() -> None:
    assert current_latency(None, 7.0) == 7.0
    assert current_latency(None, None) == current_latency(None, 0.0) == 0.0
    assert current_latency(0.2, None) == 0.2
    assert current_latency(0.2, 30.0) == 30.0


RATIOS = st.fractions(0, 3, max_denominator=50)


@given(RATIOS, RATIOS, RATIOS, st.integers(0, 100))
def test_utility_is_monotone_and_at_most_the_maximum(one: Fraction, other: Fraction, of: Fraction, most: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= throughput_utility(low, of, most) <= throughput_utility(high, of, most) <= most
    if low > 0:
        assert 0 <= latency_utility(high, of, most) <= latency_utility(low, of, most) <= most


def test_any_curve_can_take_the_place_of_the_knee() -> None:
    def step(attained: float) -> float:
        return float(attained >= 1)

    assert throughput_utility(0.99, 1.0, 35.0, step) == 0.0
    assert latency_utility(60.0, 60.0, 35.0, step) == 35.0


@pytest.mark.parametrize(
    "wrong", [{"cap_thr": 0.0}, {"readings": 0}, {"order": "nearest"}, {"margin": -1.0}, {"jobs_per_round": 0}], ids=str
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, check=breaks("in range", name=next(iter(wrong)))):
        Parameters(**wrong)
