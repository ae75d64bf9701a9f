from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qod_magics.controller.dials import DEAD_BAND, dials, hold, reached, thinned
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.policies.stream_economics.requirements import actual_accuracy

fraction = st.floats(0.0, 1.0)
rows = st.floats(0.0, 1e9)


@given(fraction, fraction, rows, st.none() | rows, st.floats(0.1, 1e3))
def test_thinned_lies_between_the_minimum_and_desired(desired, minimum, backlog, rate, drain_s):
    found = thinned(desired, minimum, backlog, rate, drain_s)
    assert min(minimum, desired) <= found <= desired


@given(fraction, fraction, rows, rows, rows, st.floats(0.1, 1e3))
def test_a_larger_backlog_never_raises_the_accuracy(desired, minimum, some, more, rate, drain_s):
    assert thinned(desired, minimum, some + more, rate, drain_s) <= thinned(desired, minimum, some, rate, drain_s)


@given(fraction, fraction, rows, st.floats(0.1, 1e3))
def test_nothing_is_thinned_without_a_backlog_or_a_known_rate(desired, minimum, backlog, drain_s):
    assert thinned(desired, minimum, 0.0, 100.0, drain_s) == desired
    assert thinned(desired, minimum, backlog, 0.0, drain_s) == desired
    assert thinned(desired, minimum, backlog, None, drain_s) == desired


@given(st.floats(0.01, 1.0), rows, st.floats(0.1, 1e6), st.floats(0.1, 1e3))
def test_backlog_and_input_fit_the_cpu_of_the_plan_within_the_drain_time(desired, backlog, rate, drain_s):
    kept = thinned(desired, 0.0, backlog, rate, drain_s)
    assert kept * (rate * drain_s + backlog) == pytest.approx(desired * rate * drain_s)


def two_queries() -> Snapshot:
    """Src -> A, Src -> B."""
    return Snapshot(
        (TaskManager("tm1", 1.0, 50.0),),
        (
            Task("Src", (), 1000.0, None, None),
            Task("A", ("Src",), None, 1, 0.4),
            Task("B", ("Src",), None, 2, 0.4),
        ),
        (Stream("Src", "A", 900.0), Stream("Src", "B", 900.0)),
        tuple(Instance(f"{task}.1", task, "tm1", 900.0, 10.0, False) for task in ("Src", "A", "B")),
    )


def plan_for(a: float, b: float) -> Plan:
    top = max(a, b)
    desired = {"Src": top, "A": a, "B": b}
    keep = {(None, "Src"): top, ("Src", "A"): a / top if top else 0.0, ("Src", "B"): b / top if top else 0.0}
    return Plan(desired, keep)


@given(fraction, fraction)
def test_without_a_backlog_the_dials_are_the_plan(a, b):
    plan = plan_for(a, b)
    found = dials(plan, two_queries(), Measured(lag={"Src": 900}, input_rate={"Src": 1000.0}), period_s=5.0)
    assert found.keep == plan.non_drop
    assert found.accept == plan.desired


def test_a_backlog_of_a_fifth_of_a_period_is_ordinary_and_one_more_row_is_not():
    plan, snapshot = plan_for(0.9, 0.9), two_queries()
    at = dials(plan, snapshot, Measured(lag={"Src": 1000}, input_rate={"Src": 1000.0}), period_s=5.0)
    above = dials(plan, snapshot, Measured(lag={"Src": 1001}, input_rate={"Src": 1000.0}), period_s=5.0)
    assert at.keep[None, "Src"] == 0.9
    assert above.keep[None, "Src"] < 0.9


def test_the_drain_of_a_source_takes_the_given_number_of_periods():
    measured = Measured(lag={"Src": 1000 + 10_000}, input_rate={"Src": 1000.0})  # 1000 of them ordinary
    found = dials(plan_for(0.9, 0.9), two_queries(), measured, period_s=5.0, drain_periods=2.0)
    assert found.keep[None, "Src"] == pytest.approx(0.9 * 10_000 / (10_000 + 10_000))


def test_a_source_without_a_measured_rate_counts_with_its_external_rate():
    found = dials(plan_for(0.9, 0.9), two_queries(), Measured(lag={"Src": 11_000}), period_s=5.0)
    assert found.keep[None, "Src"] == pytest.approx(0.45)


def test_a_backlog_on_an_edge_is_thinned_at_its_reading_end_only():
    measured = Measured(lag={"Src>A": 9_000 + 900}, input_rate={"Src>A": 900.0, "Src>B": 900.0})
    found = dials(plan_for(0.9, 0.9), two_queries(), measured, period_s=5.0)
    assert found.accept == {"Src": 0.9, "A": pytest.approx(0.45), "B": 0.9}
    assert found.keep == plan_for(0.9, 0.9).non_drop


def test_while_a_source_is_drained_its_narrower_streams_open():
    measured = Measured(lag={"Src": 11_000}, input_rate={"Src": 1000.0})
    found = dials(plan_for(0.9, 0.5), two_queries(), measured, period_s=5.0)
    assert found.keep[None, "Src"] == pytest.approx(0.45)
    assert found.keep["Src", "B"] == 1.0  # 0.5 / 0.9 of what is left would be 0.25, below its minimum
    assert reached(found, two_queries()) == pytest.approx({"Src": 0.45, "A": 0.45, "B": 0.45})


def test_behind_a_source_that_is_thinned_to_nothing_streams_are_open():
    snapshot = two_queries()
    snapshot = replace(snapshot, tasks=tuple(replace(t, min_accuracy=t.min_accuracy and 0.0) for t in snapshot.tasks))
    measured = Measured(lag={"Src": 10**300}, input_rate={"Src": 1e-300})
    found = dials(plan_for(0.9, 0.5), snapshot, measured, period_s=5.0)
    assert found.keep[None, "Src"] == 0.0
    assert found.keep["Src", "B"] == 1.0


@st.composite
def applications(draw):
    """A random layered DAG with a plan in the manner of Stream Economics, and random backlogs."""
    count = draw(st.integers(1, 7))
    upstream = [tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=2)))) if i else () for i in range(count)]
    consumed = {source for sources in upstream for source in sources}
    tasks = tuple(
        Task(
            f"t{i}",
            tuple(f"t{source}" for source in upstream[i]),
            None if upstream[i] else 1000.0,
            None if i in consumed else draw(st.integers(1, 3)),
            None if i in consumed else draw(st.floats(0.0, 1.0)),
        )
        for i in range(count)
    )
    streams = tuple(Stream(source, task.id, 1000.0) for task in tasks for source in task.upstream)
    instances = tuple(Instance(f"{task.id}.1", task.id, "tm1", 1000.0, 1.0, False) for task in tasks)
    snapshot = Snapshot((TaskManager("tm1", 1.0, 1.0),), tasks, streams, instances)
    desired: dict[str, float] = {}
    for task in reversed(tasks):
        consumers = snapshot.downstream[task.id]
        wanted = draw(st.floats(task.min_accuracy, 1.0)) if not consumers else max(desired[c] for c in consumers)
        desired[task.id] = wanted
    keep = {(None, task.id): desired[task.id] for task in tasks if not task.upstream}
    keep |= {(s.source, s.target): desired[s.target] / desired[s.source] if desired[s.source] else 0.0 for s in streams}
    names = [task.id for task in tasks if not task.upstream] + [f"{s.source}>{s.target}" for s in streams]
    lag = {name: draw(st.integers(0, 10**6)) for name in names}
    return snapshot, Plan(desired, keep), Measured(lag=lag, input_rate=dict.fromkeys(names, 1000.0))


@given(applications())
def test_no_row_reaches_a_query_with_less_than_its_minimum_nor_more_than_its_plan(application):
    snapshot, plan, measured = application
    found = dials(plan, snapshot, measured, period_s=5.0)
    assert all(0.0 <= value <= 1.0 for value in (*found.keep.values(), *found.accept.values()))
    assert all(found.accept[task.id] <= plan.desired[task.id] for task in snapshot.tasks)
    for task in snapshot.tasks:
        if task.min_accuracy is not None:
            assert reached(found, snapshot)[task.id] >= task.min_accuracy - 1e-9


@given(applications())
def test_without_a_backlog_every_task_is_reached_by_what_the_plan_desires(application):
    snapshot, plan, _ = application
    found = reached(dials(plan, snapshot, Measured(), period_s=5.0), snapshot)
    assert found == pytest.approx(actual_accuracy(snapshot, plan.non_drop))


SMALL = DEAD_BAND / 2


def turned(src: float, a: float = 1.0, b: float = 1.0) -> Dials:
    return Dials({(None, "Src"): src, ("Src", "A"): a, ("Src", "B"): b}, {"Src": src, "A": src * a, "B": src * b})


def test_small_moves_are_not_made():
    last = turned(0.8)
    assert hold(turned(0.8 + SMALL), last, two_queries()) == last
    assert hold(turned(0.8 - SMALL), last, two_queries()) == last


def test_small_moves_in_one_direction_add_up():
    settings = turned(0.8)
    for step in range(1, 5):
        settings = hold(turned(0.8 - 0.4 * DEAD_BAND * step), settings, two_queries())
    assert settings.keep[None, "Src"] < 0.8


@pytest.mark.parametrize(("new", "last"), [(1.0, 0.998), (0.998, 1.0), (0.0, 0.002), (0.002, 0.0)])
def test_moves_to_and_from_the_ends_are_always_made(new, last):
    snapshot = two_queries()
    assert hold(turned(new), turned(last), snapshot).keep[None, "Src"] == new


def test_a_small_move_that_a_minimum_needs_is_made():
    assert hold(turned(0.4), turned(0.4 - SMALL), two_queries()).keep[None, "Src"] == 0.4


def test_the_first_dials_are_taken_as_they_are():
    assert hold(turned(0.7), None, two_queries()) == turned(0.7)


@given(fraction, fraction, fraction, fraction)
def test_holding_never_moves_a_dial_by_more_than_the_dead_band(a, b, was_a, was_b):
    assume(max(a, b) > 0 and max(was_a, was_b) > 0)
    snapshot = two_queries()
    new = dials(plan_for(a, b), snapshot, Measured(), period_s=5.0)
    last = dials(plan_for(was_a, was_b), snapshot, Measured(), period_s=5.0)
    held = hold(new, last, snapshot)
    assert all(abs(held.keep[edge] - new.keep[edge]) < DEAD_BAND for edge in new.keep)
    wanted, got = reached(new, snapshot), reached(held, snapshot)
    for query in ("A", "B"):
        assert got[query] >= min(0.4, wanted[query]) - 1e-9
