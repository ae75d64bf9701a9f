"""Demand estimation and the system analyser against their cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.d_storm.observation import State, Window, is_due, state_of
from qod_magics.policies.d_storm.packing import Channel, Parameters, growth, input_rates, planned, requirement
from tests.policies.d_storm.cases import oracle

MAPE = oracle("dstorm-10-mape")
DEMAND = oracle("dstorm-11-demand")


def test_demand_is_projected_to_the_workload() -> None:
    given, expected = DEMAND["input"], DEMAND["expected"]
    tasks = list(given["measured_cpu"])
    channels = [Channel(*edge) for edge in given["edges"]]
    rates = input_rates(tasks, channels, given["external_rate"])
    assert rates == expected["input_rate"]
    factors = growth(tasks, channels, rates, given["workload_to_plan_for"])
    later = planned(channels, factors)
    assert [[c.source, c.target, c.traffic] for c in later] == expected["planned_edges"]
    then = input_rates(tasks, later, given["workload_to_plan_for"])
    for resource, digits in (("cpu", "cpu"), ("mem", "mem")):
        needs = {task: requirement(given[f"measured_{resource}"][task], rates[task]) for task in tasks}
        assert {task: need.per_row for task, need in needs.items()} == pytest.approx(expected[f"rho_{digits}"])
        demands = {task: need.at(then[task]) for task, need in needs.items()}
        assert demands == pytest.approx(expected[f"planned_{resource}"])


def test_streams_of_several_sources_grow_by_the_shares_of_their_origin() -> None:
    channels = [Channel("a", "c", 100.0), Channel("b", "c", 300.0), Channel("c", "d", 40.0)]
    read = {"a": 100.0, "b": 300.0, "c": 400.0, "d": 40.0}
    factors = growth(["a", "b", "c", "d"], channels, read, {"a": 200.0, "b": 300.0})
    assert factors == pytest.approx({"a": 2.0, "b": 1.0, "c": 1.25, "d": 1.25})


def test_a_task_that_reads_less_than_arrives_is_planned_at_all_of_it() -> None:
    channels = [Channel("a", "b", 100.0), Channel("b", "c", 10.0)]
    read = {"a": 100.0, "b": 50.0, "c": 10.0}
    assert growth("abc", channels, read, {"a": 100.0}) == pytest.approx({"a": 1.0, "b": 2.0, "c": 2.0})
    nearly = {**read, "b": 96.0}
    assert growth("abc", channels, nearly, {"a": 100.0}, 0.05) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_without_input_the_last_known_need_of_a_row_stays() -> None:
    last = requirement(30.0, 600.0)
    assert requirement(0.0, 0.0).per_row == 0.0
    assert requirement(2.0, 0.0, last=last).at(100.0) == pytest.approx(2.0 + 5.0)
    assert requirement(30.0, 600.0, fixed=6.0).at(1200.0) == pytest.approx(6.0 + 48.0)
    assert requirement(3.0, 600.0, fixed=6.0).at(1200.0) == pytest.approx(3.0)


def test_the_analyser_and_the_interval() -> None:
    given = MAPE["input"]
    parameters = Parameters(
        interval_s=given["scheduling_interval_s"],
        max_latency_s=given["max_latency_ms"] / 1000.0,
        tolerance=given["throughput_tolerance"],
        consolidation=given["consolidation_threshold"],
    )
    assert parameters == Parameters()
    last = given["first_deployment_t_s"]
    found = []
    for window in given["windows"]:
        seen = Window(window["throughput"], window["workload"], window["latency_ms"] / 1000.0, window["utilisation"])
        state = state_of(seen, parameters)
        due = is_due(state, window["t_s"], last, parameters)
        if due:
            last = window["t_s"]
        found.append({"t_s": window["t_s"], "state": state.name, "solver_runs": due})
    assert found == MAPE["expected"]


@given(st.dictionaries(st.text(min_size=1, max_size=2), st.floats(0.5, 5.0), max_size=6))
def test_high_usage_alone_is_no_reason_to_act(usage: dict[str, Any]) -> None:
    assert state_of(Window(95.0, 100.0, 0.5, usage)) is State.NORMAL


def test_a_query_s_own_target_takes_the_place_of_the_limit() -> None:
    assert state_of(Window(1.0, 1.0, 1.5, {})) is State.PERFORMANCE
    assert state_of(Window(1.0, 1.0, 1.5, {}, max_latency_s=2.0)) is State.NORMAL
    assert state_of(Window(1.0, 1.0, None, {})) is State.NORMAL
