"""Queries that something other than CPU limits, a cycle at a time; in closed loop: tests/closed_loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core import snapshot as core
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager
from qod_magics.policies.stream_economics.evidence.elsewhere import (
    CALM_CYCLES,
    CYCLES,
    FILLED,
    TOO_MUCH,
    Slows,
    limited,
    limited_elsewhere,
)
from qod_magics.policies.stream_economics.reasons import StreamEconomicsReasons
from tests.texts import tells

RATE = 1000.0
#: A query whose rows take 1.5 times the time that there is, and next to no CPU.
SLOW = Task(
    "q", (), RATE, 1, 0.1, fixed_cpu=1.0, read_us=1.0, work_us=9.0, batch_time_s=0.1, read_time_us=0.0,
    work_time_us=1500.0,
)  # fmt: skip
WORKING = Instance("q.1", "q", "tm1", RATE, 2.0, False, mode="micro-batch", batches_per_s=0.2, at_work=0.98)
IDLE = TaskManager("tm1", 1.0, 5.0)
BACKLOG_S = 12.0


def seen(task: Task = SLOW, instance: Instance = WORKING, manager: TaskManager = IDLE) -> Snapshot:
    return Snapshot((manager,), (task,), (), (instance,))


def after(
    cycles: int, snapshot: Snapshot, waiting_s: float = BACKLOG_S, memory: Slows | None = None, *, proved: bool = True
) -> tuple[float | None, Slows]:
    """The accuracy to which the query is limited after so many cycles, and the memory."""
    found: Slows = memory or {}
    told = snapshot
    for _ in range(cycles):
        told, found = limited_elsewhere(snapshot, {"q": waiting_s}, {"q": proved}, found)
    return told.tasks[0].keeps_up, found


def test_it_takes_some_cycles_in_a_row() -> None:
    assert after(CYCLES - 1, seen())[0] is None
    accuracy, memory = after(CYCLES, seen())
    assert accuracy is not None
    assert 0.3 < accuracy < 1 / 1.5
    assert limited(memory) == {"q"}
    _, almost = after(CYCLES - 1, seen())
    _, broken = after(1, seen(), 1.0, almost)
    assert after(CYCLES - 1, seen(), memory=broken)[0] is None


@pytest.mark.parametrize(
    "other",
    [
        seen(core.replace(SLOW, work_time_us=1000.0 * (TOO_MUCH - 0.05))),  # estimates are not that sure
        seen(core.replace(SLOW, work_time_us=50.0, batch_time_s=30.0)),  # long batches carry any input
        seen(instance=core.replace(WORKING, at_work=0.5)),  # it waits for its trigger
        seen(instance=core.replace(WORKING, cpu=85.0)),  # CPU explains it
        seen(manager=core.replace(IDLE, cpu=90.0)),
        seen(instance=core.replace(WORKING, warming_up=True)),
        seen(instance=core.replace(WORKING, state="backing off")),
        seen(core.replace(SLOW, external_rate=None)),
    ],
)
def test_what_explains_the_backlog_otherwise_limits_nothing(other: Snapshot) -> None:
    assert after(4 * CYCLES, other)[0] is None


def test_neither_a_new_query_nor_one_without_a_backlog_is_limited() -> None:
    assert after(4 * CYCLES, seen(), proved=False)[0] is None
    assert after(4 * CYCLES, seen(), 4.0)[0] is None


@given(st.floats(1.2, 50.0), st.floats(0.0, 2.0))
def test_what_is_kept_fits_into_the_time_that_there_is(times: float, batch_s: float) -> None:
    task = core.replace(SLOW, work_time_us=1000.0 * times, batch_time_s=batch_s)
    accuracy, _ = after(CYCLES, seen(task))
    assert accuracy is not None
    assert 0.0 <= accuracy * times <= FILLED


def test_more_is_tried_while_hardly_a_row_waits_and_less_with_a_backlog() -> None:
    _, memory = after(CYCLES, seen())
    calm, memory = after(4, seen(), 1.0, memory)
    more, memory = after(2, seen(), 1.0, memory)
    assert calm is not None
    assert more is not None
    assert more > calm
    less, memory = after(3, seen(), BACKLOG_S, memory)
    assert less is not None
    assert less < calm


def test_once_its_batches_carry_all_of_its_input_it_is_free_again() -> None:
    _, memory = after(CYCLES, seen())
    fast = seen(core.replace(SLOW, work_time_us=300.0))
    assert limited(after(CALM_CYCLES - 1, fast, 1.0, memory)[1]) == {"q"}
    accuracy, memory = after(CALM_CYCLES, fast, 1.0, memory)
    assert (accuracy, limited(memory)) == (None, frozenset())


def test_one_that_is_removed_is_forgotten() -> None:
    _, memory = after(CYCLES, seen())
    assert limited_elsewhere(replace_all(seen()), {}, {}, memory)[1] == {}


def replace_all(snapshot: Snapshot) -> Snapshot:
    return core.replace(snapshot, tasks=(), instances=())


def test_the_reason_says_that_it_is_not_cpu() -> None:
    told, _ = limited_elsewhere(seen(), {"q": BACKLOG_S}, {"q": True}, after(CYCLES, seen())[1])
    words = StreamEconomicsReasons(told, Plan({"q": 0.5}, {})).shedding(["q"])["q"]
    assert tells(words, "batches", "q", "0.47", "CPU")
    assert "other than CPU" in words
