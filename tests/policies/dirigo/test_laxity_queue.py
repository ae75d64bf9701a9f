"""Deadlines, and the minimum-laxity queue beside Algorithm 6.1."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dirigo.staircase import PrintedQueue, StaircaseQueue
from qod_magics.core.engines import CLIENT, Message, OperatorInfo, Topology
from qod_magics.policies.dirigo import queues
from qod_magics.policies.dirigo.queues import NEVER, Deadlines, LaxityQueue, violators
from tests.policies.dirigo.oracles import oracle

CHAIN = Topology(
    (
        OperatorInfo("a", 0, 0, (1, 2), 800),
        OperatorInfo("b", 0, 1, (3,), 800),
        OperatorInfo("c", 0, 2, (3,), 800),
        OperatorInfo("d", 0, 0, (), 800),
        OperatorInfo("window", 1, 0, (), 50, slide=60, origin=10, length=60),
        OperatorInfo("free", 2, 0),
    ),
    (0, 1, 2),
)


def test_the_dearest_path_behind_an_operator_is_taken_off() -> None:
    deadlines = Deadlines(CHAIN)
    first = Message(1, 0, CLIENT, observed=1000, cost=5)
    assert deadlines(first) == 1800
    for operator, cost in ((1, 7), (2, 20), (3, 5)):
        deadlines(Message(2, operator, 0, observed=1000, cost=cost))
    assert deadlines(first) == 1000 + 800 - 25
    assert deadlines(Message(3, 1, 0, observed=1000, cost=7)) == 1000 + 800 - 5
    assert deadlines(Message(4, 3, 2, observed=1000, cost=5)) == 1800
    deadlines(Message(5, 2, 0, observed=1000, cost=2))  # a cheaper one: the largest cost stays
    assert deadlines.after(0) == 25


def test_a_window_is_due_when_it_can_be_complete() -> None:
    deadlines = Deadlines(CHAIN)
    assert deadlines(Message(1, 4, CLIENT, progress=15, observed=100, cost=1)) == 100 + 55 + 50
    assert deadlines(Message(1, 4, CLIENT, progress=70, observed=100, cost=1)) == 100 + 50
    assert deadlines(Message(1, 4, CLIENT, progress=99, event_time=15, observed=100, cost=1)) == 100 + 55 + 50


def test_without_a_target_nothing_is_ever_late() -> None:
    assert Deadlines(CHAIN)(Message(1, 5, CLIENT, observed=100, cost=1)) == NEVER


QUEUES = [LaxityQueue, StaircaseQueue]
CASES = oracle("queue-errata")


def act(queue: Any, step: list[Any]) -> None:
    if step[0] == "poll":
        queue.poll()
    else:
        _, name, deadline, cost = step
        queue.add(deadline, cost, name)


@pytest.mark.parametrize("kind", QUEUES)
def test_the_operations_of_the_case(kind: type[Any]) -> None:
    case = oracle("queue")
    queue = kind()
    for step, expected in zip(case["input"], case["expected"], strict=True):
        found: dict[str, Any] = {}
        if step["op"] == "check":
            found["accept"] = queue.check(step["deadline"], step["cost"], step["E"])
        elif step["op"] == "poll":
            found["returns"] = queue.poll()
        elif step["op"] == "remove":
            queue.remove(step["id"])
        else:
            told = queue.add(step["deadline"], step["cost"], step["id"])
            found["mark"] = step["id"] in queue.marks()
            assert told in (None, found["mark"])
        if step["op"] != "check":
            found["stored"], found["marks"] = queue.stored(), queue.marks()
            assert list(found["stored"]) == list(expected["stored"])
        assert found == expected


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", QUEUES)
def test_where_the_printed_algorithm_is_wrong(kind: type[Any], number: int) -> None:
    case, expected, printed = CASES["input"][number], CASES["expected"][number], CASES["printed"][number]
    corrected, wrong = kind(), PrintedQueue[str]([f"E{number + 1}"])
    for queue in (corrected, wrong):
        for step in case["setup"]:
            act(queue, step)
    probe = (case["probe"]["deadline"], case["probe"]["cost"], case["E"])
    assert {"accept": corrected.check(*probe), "marks": corrected.marks()} == expected
    assert {"accept": wrong.check(*probe), "marks": wrong.marks()} == printed
    assert expected != printed


TIMES = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TIMES.map(lambda t: 3 * t), st.integers(0, 6)),
        st.tuples(st.just("check"), st.integers(0, 40), st.integers(0, 12)),
        st.tuples(st.just("poll"), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 30), st.just(0)),
    ),
    max_size=40,
)
Listed = list[tuple[int, int, int]]  # deadline, number, cost


def fits(queue: Listed, deadline: int, cost: int, free_at: int) -> bool:
    """Eq. 6 by running the queue through: the message on time, all behind it earlier than their deadlines."""
    end = free_at
    for due, _, each in sorted([*queue, (deadline, 1 << 40, cost)]):
        end += each
        if (due, _) == (deadline, 1 << 40):
            if end > due:
                return False
        elif due > deadline and end >= due:
            return False
    return True


def run(queue: Any, steps: list[tuple[str, int, int]], free_at: int) -> tuple[int, int]:
    """False accepts and false refusals."""
    listed: Listed = []
    wrong = [0, 0]
    for number, (what, one, other) in enumerate(steps):
        if what == "add":
            queue.add(one, other, number)
            listed.append((one, number, other))
            listed.sort()
        elif what == "check":
            found, truth = queue.check(one, other, free_at), fits(listed, one, other, free_at)
            wrong[truth] += found != truth
        elif listed and what == "poll":
            assert queue.poll() == listed.pop(0)[1]
        elif listed and what == "remove":
            queue.remove(listed.pop(one % len(listed))[1])
        if not isinstance(queue, PrintedQueue):
            end = 0
            laxities = {}
            for due, each, cost in listed:
                end += cost
                laxities[each] = due - end
            assert queue.stored() == laxities
            values = list(laxities.values())
            lows = {k: v for i, (k, v) in enumerate(laxities.items()) if all(v < later for later in values[i + 1 :])}
            assert queue.marks() == lows
            if isinstance(queue, LaxityQueue):
                queue.verify()
                assert queue.lowest() == min(values, default=queues.FAR)
                walk = [(due, cost, each) for due, each, cost in listed]
                assert queue.violators(free_at) == violators(walk, free_at)
    return wrong[0], wrong[1]


@pytest.mark.parametrize("kind", QUEUES)
@given(steps=STEPS, free_at=st.integers(0, 9))
def test_the_answers_are_those_of_a_computation_from_scratch(
    kind: type[Any], steps: list[tuple[str, int, int]], free_at: int
) -> None:
    before, queues.SPLIT = queues.SPLIT, 3  # short blocks: so that few messages need several
    try:
        assert run(kind(), steps, free_at) == (0, 0)
    finally:
        queues.SPLIT = before


def test_the_printed_algorithm_accepts_and_refuses_wrongly() -> None:
    draw = Random(4)
    accepts = refusals = 0
    for _ in range(300):
        steps = [
            (draw.choice(["add", "add", "check", "check", "poll"]), draw.randint(0, 30), draw.randint(0, 6))
            for _ in range(25)
        ]
        false = run(PrintedQueue(), steps, 0)
        accepts, refusals = accepts + false[0], refusals + false[1]
    assert accepts > 0
    assert refusals > accepts  # as in the design: 509 and 1,441 of 64,141


def test_copies_are_apart() -> None:
    queue = LaxityQueue[str]()
    queue.add(10, 2, "a")
    other = queue.copy()
    other.add(5, 1, "b")
    assert (list(queue), list(other), queue.stored()) == (["a"], ["b", "a"], {"a": 8})
    other.remove("a")
    assert "a" in queue
    for each in (queue, other):
        each.verify()


def test_misuse_is_said() -> None:
    queue = LaxityQueue[str]()
    with pytest.raises(IndexError, match="empty"):
        queue.poll()
    queue.add(1, 1, "a")
    with pytest.raises(ValueError, match="already"):
        queue.add(2, 1, "a")
    with pytest.raises(KeyError):
        queue.remove("b")


def test_violators_are_found_by_a_walk_that_skips_them() -> None:
    case = oracle("violators")
    listed = [(each["deadline"], each["cost"], each["id"]) for each in case["input"]["queue"]]
    queue = LaxityQueue[str]()
    for deadline, cost, name in listed:
        queue.add(deadline, cost, name)
    found = violators(listed, case["input"]["E"])
    assert found == queue.violators(case["input"]["E"]) == case["expected"]["offload"]
    assert [name for *_, name in listed if name not in found] == case["expected"]["keep"]
    counted = [name for name, laxity in queue.stored().items() if laxity < case["input"]["E"]]
    assert counted == case["expected"]["if violators were counted on"] != found


@pytest.mark.parametrize("kind", QUEUES)
def test_a_message_may_end_at_its_deadline_and_makes_no_other_end_there(kind: type[Any]) -> None:
    """E8: one of both comparisons is strict."""
    queue = kind()
    assert queue.check(5, 5, 0)
    assert not queue.check(5, 5, 1)
    queue.add(9, 3, "a")
    assert queue.check(14, 11, 0)
    assert not queue.check(14, 12, 0)
    assert queue.check(4, 4, 0)
    assert not queue.check(6, 6, 0)


def test_both_queues_agree_at_any_length() -> None:
    """Blocks of three: queues of 60 messages have some 25."""
    draw = Random(7)
    for _ in range(12):
        blocks, staircase = LaxityQueue[int](split=3), StaircaseQueue[int]()
        for number in range(60):
            due, cost = draw.randint(0, 100), draw.randint(0, 4)
            blocks.add(due, cost, number)
            staircase.add(due, cost, number)
            if not number % 7:
                assert blocks.poll() == staircase.poll()
            gap = min(blocks.stored().values(), default=0)
            for _ in range(8):
                probe = draw.randint(0, 110), draw.randint(0, 6), gap - draw.randint(0, 6)
                assert blocks.check(*probe) == staircase.check(*probe)
            assert blocks.stored() == staircase.stored()
            assert blocks.marks() == staircase.marks()
            low = min(blocks.stored().values(), default=queues.FAR)
            assert blocks.lowest() == low
            assert bool(blocks.violators(low + 1)) == bool(len(blocks))
            assert blocks.violators(low) == []
            assert blocks.violators(low + 1) == violators(blocks.entries(), low + 1)
            blocks.verify()
