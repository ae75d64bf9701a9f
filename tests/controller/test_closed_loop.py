"""The controller with the real policy around an application that answers to its dials."""

from __future__ import annotations

import pytest

from qod_magics.controller import Controller, InlineWorker, ManualClock
from qod_magics.policies.stream_economics import StreamEconomics
from tests.controller.scripted import FixedPolicy
from tests.controller.toy import HEAVY_S, LIGHT_S, Toy

CAPACITY = 1 / (LIGHT_S + HEAVY_S)  #: rows/s at full accuracy
PERIOD_S = 5.0


class Loop:
    def __init__(self, rate, minimum=0.2, heavy="Snk", policy=None, **options):
        self.clock = ManualClock()
        self.toy = Toy(self.clock, rate, minimum, heavy)
        self.controller = Controller(
            self.toy,
            policy or StreamEconomics(),
            clock=self.clock,
            worker=InlineWorker,
            period_s=PERIOD_S,
            **options,
        )
        self.cycles, self.lags = [], []

    def run(self, periods):
        for _ in range(periods):
            self.toy.run(PERIOD_S)
            self.cycles.append(self.controller.step())
            self.lags.append(self.toy.src_queue + self.toy.edge_lag)

    @property
    def desired(self):
        return [cycle.plan.desired["Snk"] for cycle in self.cycles]


def settled_at(values, within):
    """Index from which all values stay within `within` of the last one."""
    return next(i for i in range(len(values)) if all(abs(v - values[-1]) <= within for v in values[i:]))


def step_up(before, after, at_s=40.0):
    return lambda now: before if now < at_s else after


def test_below_capacity_nothing_is_shed():
    loop = Loop(lambda _: 0.8 * CAPACITY)
    loop.run(12)
    assert loop.desired[-1] == 1.0
    assert loop.toy.dials.keep[None, "Src"] == 1.0
    assert loop.lags[-1] < 0.2 * PERIOD_S * CAPACITY


@pytest.mark.parametrize("heavy", ["Src", "Snk"])
@pytest.mark.parametrize("load", [1.3, 2.0, 3.0])
def test_an_overload_settles_at_what_the_core_can_do_and_its_backlog_is_gone_two_periods_later(load, heavy):
    loop = Loop(step_up(0.5 * CAPACITY, load * CAPACITY), heavy=heavy)
    loop.run(30)
    settled = settled_at(loop.desired, 0.05)
    assert settled < 20
    # the policy shares by task, not by what would help the query most: it may leave some of the core unused
    assert 0.7 / load <= loop.desired[-1] <= 1.02 / load
    assert loop.cycles[-1].decision.current_accuracy["Snk"] == pytest.approx(loop.desired[-1], rel=0.02)
    assert max(loop.lags) > 0.2 * PERIOD_S * CAPACITY  # there was something to drain
    ordinary = 0.2 * PERIOD_S * load * CAPACITY
    assert all(lag <= ordinary for lag in loop.lags[settled + 2 :])


@pytest.mark.parametrize("heavy", ["Src", "Snk"])
def test_under_a_plan_that_uses_the_whole_core_a_backlog_is_gone_after_the_drain_time_and_else_never(heavy):
    lags = {}
    for drain_periods in (2.0, 4.0, 1e9):
        policy = FixedPolicy()
        loop = Loop(lambda _: 2 * CAPACITY, policy=policy, drain_periods=drain_periods, heavy=heavy)
        loop.run(1)  # the plan comes too late: a period of overload is left behind
        policy.desired = 0.5
        loop.run(8)
        lags[drain_periods] = loop.lags
    ordinary = 0.25 * PERIOD_S * 2 * CAPACITY
    assert lags[2.0][1] > lags[2.0][2] > ordinary >= max(lags[2.0][3:])
    assert lags[4.0][3] > ordinary >= max(lags[4.0][5:])
    assert min(lags[1e9]) > ordinary


def test_a_drain_never_takes_a_query_below_its_minimum():
    loop = Loop(step_up(0.5 * CAPACITY, 2 * CAPACITY), minimum=0.45)
    loop.run(25)
    for cycle in loop.cycles:
        settings = cycle.decision.dials
        assert settings.keep[None, "Src"] * settings.keep["Src", "Snk"] >= 0.45 - 1e-9
        assert settings.accept["Snk"] >= 0.45 - 1e-9


def test_when_the_overload_is_over_full_accuracy_comes_back():
    loop = Loop(lambda now: 2 * CAPACITY if 40 <= now < 100 else 0.5 * CAPACITY)
    loop.run(35)
    assert min(loop.desired) < 0.6
    assert loop.desired[-1] == 1.0
    assert loop.lags[-1] < 0.2 * PERIOD_S * CAPACITY


def test_the_log_tells_the_overload_in_a_few_entries():
    loop = Loop(step_up(0.5 * CAPACITY, 2 * CAPACITY))
    loop.run(30)
    said = loop.controller.log.entries("Snk", kind="shedding")
    assert 1 <= len(said) <= 8
    assert said[-1].numbers["after"] == pytest.approx(loop.desired[-1], abs=0.011)
    assert "tm1 has" in said[0].words
