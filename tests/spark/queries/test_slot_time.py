"""Slots that batches share, against an oracle in small steps, and what batches wait for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.queries.slot_time import Run, Work, shared_out, slot_seconds, spent
from qod_magics.spark.servers.cpu import TaskTime

STEP_S = 0.25


def work(at: tuple[int, int, int, int]) -> Work:
    begin, lasts, width, weight = at
    return Work(STEP_S * begin, STEP_S * (begin + lasts), float(width), weight / 4)


#: Works that begin and end at whole steps.
WORKS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(1, 4), st.integers(0, 8)).map(work), max_size=6
)
SLOTS = st.sampled_from([1.0, 2.0, 3.0, 8.0])


def stepwise(works: list[Work], slots: float) -> list[float]:
    """Fill the slots of each step drop by drop: each drop goes to whom its weight has had the least of."""
    found, drops = [0.0] * len(works), 480
    for step in range(24):
        active = [i for i, each in enumerate(works) if each.begin <= STEP_S * step < each.end]
        got = dict.fromkeys(active, 0.0)
        for _ in range(round(slots * drops)):
            open_ = [i for i in active if got[i] < works[i].width - 1e-9]
            if not open_:
                break
            wanted = [i for i in open_ if works[i].weight > 0.0] or open_
            least = min(wanted, key=lambda i: got[i] / (works[i].weight or 1.0))
            got[least] += 1 / drops
        for i, share in got.items():
            found[i] += share * STEP_S
    return found


@given(WORKS, SLOTS)
def test_slots_are_shared_by_weight_up_to_what_each_can_use(works: list[Work], slots: float) -> None:
    assert slot_seconds(works, slots) == pytest.approx(stepwise(works, slots), abs=0.06)


@given(WORKS, SLOTS)
def test_no_slot_is_used_twice_and_none_idles_while_a_batch_waits(works: list[Work], slots: float) -> None:
    found = slot_seconds(works, slots)
    for each, seconds in zip(works, found, strict=True):
        assert -1e-9 <= seconds <= each.width * (each.end - each.begin) + 1e-9
    wanted = [sum(w.width for w in works if w.begin <= STEP_S * i < w.end) for i in range(24)]
    assert sum(found) == pytest.approx(sum(min(each, slots) * STEP_S for each in wanted))


@given(WORKS, SLOTS, st.integers(-1_000, 1_000_000_000))
def test_it_does_not_matter_when_it_was(works: list[Work], slots: float, at: int) -> None:
    later = [each._replace(begin=each.begin + at, end=each.end + at) for each in works]
    assert slot_seconds(later, slots) == pytest.approx(slot_seconds(works, slots))


def batch(run: str, id: int, start: float, end: float, planning_s: float = 0.0) -> Batch:
    return Batch(run, id, start, end, planning_s, (), 0, {})


def run_of(name: str, *spans: tuple[float, float], width: float = 1.0, planning_s: float = 0.0) -> Run:
    return Run([batch(name, i, *span, planning_s) for i, span in enumerate(spans)], width)


def cpu(found: dict[tuple[str, int], TaskTime]) -> dict[tuple[str, int], float]:
    return {key: round(times.cpu_s, 6) for key, times in found.items()}


def test_alone_a_batch_takes_a_slot_for_each_partition_while_its_tasks_run() -> None:
    run = run_of("a", (0.0, 4.0), (4.0, 10.0), width=2.0, planning_s=1.0)
    assert cpu(shared_out([run], 4.0, {})) == {("a", 0): 6.0, ("a", 1): 10.0}
    assert cpu(shared_out([run], 1.0, {})) == {("a", 0): 3.0, ("a", 1): 5.0}


def test_behind_a_shuffle_a_batch_takes_more_slots_than_it_has_readers_if_the_ui_tells_so() -> None:
    """Without a UI, nothing tells whether its time goes by before or behind the shuffle."""
    run = Run([batch("a", 0, 0.0, 4.0), batch("a", 1, 4.0, 8.0)], 2.0, 8.0)
    told = {("a", 0): TaskTime(5.0, 7.0), ("a", 1): TaskTime(20.0, 22.0)}
    assert cpu(shared_out([run], 8.0, told)) == {("a", 0): 8.0, ("a", 1): 32.0}
    assert cpu(shared_out([run], 8.0, {})) == {("a", 0): 8.0, ("a", 1): 8.0}
    narrow = Run(run.batches, 2.0, 1.0)  # its shuffle has fewer partitions than its topic
    assert cpu(shared_out([narrow], 8.0, told)) == {("a", 0): 8.0, ("a", 1): 8.0}


def test_two_queries_divide_a_slot_evenly_or_as_the_ui_tells() -> None:
    runs = [run_of("a", (0.0, 6.0)), run_of("b", (0.0, 6.0))]
    assert cpu(shared_out(runs, 1.0, {})) == {("a", 0): 3.0, ("b", 0): 3.0}
    told = {("a", 0): TaskTime(0.5, 1.0), ("b", 0): TaskTime(2.5, 4.0)}
    found = shared_out(runs, 1.0, told)
    assert cpu(found) == {("a", 0): 1.2, ("b", 0): 4.8}, "all of the slot, in proportion to the run times of tasks"
    assert found["b", 0].run_s == 4.0


def test_a_batch_under_way_takes_its_part_before_it_is_reported() -> None:
    """Else the batches beside a long one would count as twice as dear until it ends."""
    short = run_of("a", *((float(i), i + 1.0) for i in range(12)))
    long = run_of("b", (0.0, 4.0), (4.0, 8.0))
    found = cpu(shared_out([short, long], 1.0, {}))
    assert [found["a", i] for i in range(12)] == [0.5] * 12
    idle = run_of("b", (-80.0, -79.0), (-60.0, -59.0))
    assert cpu(shared_out([short, idle], 1.0, {}))["a", 11] == 1.0, "one without rows for a minute runs nothing"


@pytest.mark.parametrize("long_s", [10.0, 120.0])
def test_a_batch_is_charged_the_same_as_long_as_it_counts(long_s: float) -> None:
    """Also once what ran beside it is too old: it would be charged again, as if alone."""
    slow = [(long_s * i, long_s * (i + 1)) for i in range(round(600 / long_s))]
    quick = [(6.0 * i, 6.0 * (i + 1)) for i in range(100)]
    charged: dict[tuple[str, int], set[float]] = {}
    for now in range(0, 600, 5):
        runs = [
            run_of(name, *(each for each in spans if each[1] <= now)) for name, spans in (("a", slow), ("b", quick))
        ]
        settled = {(run.batches[0].run_id, b.batch_id) for run in runs for b in run.batches if b.end <= now - long_s}
        for key, seconds in cpu(shared_out(runs, 1.0, {})).items():
            if key in settled:
                charged.setdefault(key, set()).add(round(seconds, 3))
    assert len(charged) > 50
    assert {key: seconds for key, seconds in charged.items() if len(seconds) > 1} == {}


def report(**given: Any) -> str:
    """The bottleneck of the last batches of a query."""
    batches = [batch("a", i, 10.0 * i, 10.0 * i + given.get("whole_s", 10.0), given["planning_s"]) for i in range(3)]
    keys = [("a", i) for i in range(3)]
    taken = dict.fromkeys(keys, TaskTime(given["slot_s"], given["slot_s"]))
    told = dict.fromkeys(keys, TaskTime(*given["told"])) if "told" in given else {}
    found = spent(Run(batches, 1.0), taken, told, given.get("gap_s", 0.0))
    assert found is not None
    return found.bottleneck


@pytest.mark.parametrize(
    ("given_", "says", "not_"),
    [
        ({"planning_s": 0.5, "slot_s": 9.5}, [], ["slot", "planning", "CPU"]),
        ({"planning_s": 0.5, "slot_s": 3.5}, ["wait 6.0 s for a slot"], ["planning"]),
        ({"planning_s": 4.0, "slot_s": 6.0}, ["40% of their time on planning"], ["slot"]),
        ({"planning_s": 4.0, "slot_s": 6.0, "gap_s": 4.0}, [], ["planning"]),
        ({"planning_s": 0.2, "slot_s": 9.8, "told": (2.0, 9.0)}, ["no CPU for 78%"], ["planning", "slot"]),
        ({"planning_s": 0.2, "slot_s": 9.8, "told": (8.0, 9.0)}, [], ["CPU"]),
        ({"planning_s": 0.4, "slot_s": 0.1, "whole_s": 0.5}, [], ["planning"]),
    ],
)
def test_what_takes_most_of_the_time_of_batches_is_named(given_: Any, says: list[str], not_: list[str]) -> None:
    text = report(**given_)
    assert all(each in text for each in says), text
    assert not any(each in text for each in not_), text


def test_two_that_share_the_slots_behind_their_shuffles_wait_for_half_of_them() -> None:
    runs = [Run([batch(name, 0, 0.0, 10.0)], 1.0, 4.0) for name in ("a", "b")]
    told = {(name, 0): TaskTime(20.0, 20.0) for name in ("a", "b")}
    taken = shared_out(runs, 4.0, told)
    for run in runs:
        found = spent(run, taken, told, 0.0)
        assert found is not None
        assert (found.working_s, found.waiting_s) == (5.0, 5.0)
        assert "5.0 s for a slot" in found.bottleneck
