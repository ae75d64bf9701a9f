from __future__ import annotations

import pytest

from qod_magics.controller.dials import Backlog, Drains, Limits, backlogs
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from tests.controller.scripted import chain

USUAL = Limits.usual(5.0)


def test_a_backlog_is_what_lies_beyond_a_fifth_of_a_period_of_input():
    measured = Measured(lag={"Src": 1500, "Src>Snk": 700}, input_rate={"Src": 1000.0, "Src>Snk": 800.0})
    assert backlogs(chain(), measured, USUAL) == {"Src": Backlog(500.0, 1000.0)}


def test_a_source_without_a_measured_rate_has_its_external_rate_and_a_stream_has_none():
    measured = Measured(lag={"Src": 1500, "Src>Snk": 700})
    assert backlogs(chain(rate=500.0), measured, USUAL) == {"Src": Backlog(1000.0, 500.0), "Snk": Backlog(700.0, None)}


def test_a_drain_keeps_its_deadline_until_it_is_over():
    drains = Drains().advance({"Src": Backlog(900.0, 1.0)}, 100.0, 10.0, USUAL)
    assert drains.left_s(100.0, 5.0) == {"Src": 10.0}
    drains = drains.advance({"Src": Backlog(450.0, 1.0)}, 105.0, 10.0, USUAL)
    assert drains.left_s(105.0, 5.0) == {"Src": 5.0}
    assert drains.advance({"Src": Backlog(0.0, 1.0)}, 110.0, 10.0, USUAL) == Drains()


def test_a_drain_that_is_late_goes_on_with_a_period_at_a_time():
    drains = Drains().advance({"Src": Backlog(900.0, 1.0)}, 100.0, 10.0, USUAL)
    drains = drains.advance({"Src": Backlog(400.0, 1.0)}, 120.0, 10.0, USUAL)
    assert drains.left_s(120.0, 5.0) == {"Src": 5.0}


@pytest.mark.parametrize(("rows", "left_s"), [(899.0, 5.0), (901.0, 10.0)])
def test_a_backlog_that_grows_gets_its_time_anew(rows, left_s):
    drains = Drains().advance({"Src": Backlog(900.0, 1.0)}, 100.0, 10.0, USUAL)
    assert drains.advance({"Src": Backlog(rows, 1.0)}, 105.0, 10.0, USUAL).left_s(105.0, 5.0) == {"Src": left_s}


@pytest.mark.parametrize(("rows", "drained"), [(1499.0, False), (1501.0, True)])
def test_a_drain_begins_at_half_a_period_of_input_and_goes_on_down_to_a_fifth(rows, drained):
    drains = Drains().advance({"Src": Backlog(rows, 1000.0)}, 100.0, 10.0, USUAL)
    assert ("Src" in drains.by_task) == drained
    if drained:
        assert "Src" in drains.advance({"Src": Backlog(1.0, 1000.0)}, 105.0, 10.0, USUAL).by_task


def test_a_plan_may_ask_for_limits_by_task():
    plan = Plan({}, {}, backlog_s={"Src": [2.0, 10.0]})
    limits = Limits.of(plan, 5.0)
    measured = Measured(lag={"Src": 2500, "Src>Snk": 2600}, input_rate={"Src": 1000.0, "Src>Snk": 1000.0})
    found = backlogs(chain(), measured, limits)
    assert found == {"Src": Backlog(500.0, 1000.0), "Snk": Backlog(1600.0, 1000.0)}
    assert set(Drains().advance(found, 100.0, 10.0, limits).by_task) == {"Snk"}  # of those, the usual ones hold
    assert Limits.of(Plan({}, {}, backlog_s=[1.0, 2.0]), 5.0) == Limits(1.0, 2.0)
