"""What arrives, how CPU is shared, and queues of rows: exact in counts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.scenario import PiecewiseLinear
from qod_magics.simulator.rates.queues import AHEAD, STRETCHES, Arrivals, Queues, Taken, due, max_min_fair


@st.composite
def curves(draw: st.DrawFn) -> PiecewiseLinear:
    """Rates over time with rises, falls, jumps, and whatever comes before the first point."""
    seconds = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True)))
    points = []
    for second in seconds:
        for _ in range(draw(st.integers(1, 2))):
            points.append((second / 2, float(draw(st.integers(0, 3000)))))
    return PiecewiseLinear.through(points)


@given(curves(), st.lists(st.integers(-8, 400), min_size=1, max_size=30))
def test_many_instants_are_due_what_each_is(rate: PiecewiseLinear, eighths: list[int]) -> None:
    times = [n / 8 for n in eighths]
    assert due(rate, np.array(times)).tolist() == [rate.due(t) for t in times]


@given(st.lists(curves(), min_size=1, max_size=4), st.sampled_from([0.1, 0.25, 0.3]), st.sampled_from([7.0, 20.0]))
def test_steps_add_up_to_what_is_due_and_end_at_the_end(
    rates: list[PiecewiseLinear], step_s: float, end_s: float
) -> None:
    arrivals = Arrivals([*rates, rates[0]], step_s, end_s)
    total = np.zeros(len(rates) + 1, np.int64)
    for number in range(AHEAD + 20):
        rows = arrivals.step(number)
        assert (rows >= 0).all()
        total += rows
        now = min((number + 1) * step_s, end_s)
        for topic, rate in enumerate([*rates, rates[0]]):
            assert abs(total[topic] - rate.rows(0.0, now)) <= 1.0 + 1e-6
    assert total.tolist() == [rate.due(end_s) for rate in [*rates, rates[0]]]


def test_without_topics_there_are_no_rows() -> None:
    assert Arrivals([], 0.25, 10.0).step(3).tolist() == []


SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
CASES = st.integers(1, 4).flatmap(
    lambda groups: st.tuples(
        st.lists(st.tuples(SECONDS, st.integers(0, groups - 1)), min_size=1, max_size=20),
        st.lists(SECONDS, min_size=groups, max_size=groups),
    )
)


def progressive_filling(demands: list[float], capacity: float) -> list[float]:
    """All levels rise together; who has enough stops; the water is what there is."""
    grants = [0.0] * len(demands)
    waiting = sorted(range(len(demands)), key=lambda i: demands[i])
    while waiting:
        level = capacity / len(waiting)
        first = waiting.pop(0)
        grants[first] = min(demands[first], level)
        capacity -= grants[first]
    return grants


@given(CASES)
def test_it_is_max_min_fair(case: tuple[list[tuple[float, int]], list[float]]) -> None:
    demands, capacities = case
    demand, group = np.array([d for d, _ in demands]), np.array([g for _, g in demands])
    before = demand.copy()
    grant = max_min_fair(demand, group, np.array(capacities))
    assert (demand == before).all()
    assert (grant <= demand).all()
    assert (grant >= 0).all()
    for g, capacity in enumerate(capacities):
        wanted, got = demand[group == g].tolist(), grant[group == g].tolist()
        assert sum(got) <= capacity * (1 + 1e-9) + 1e-12
        assert got == pytest.approx(progressive_filling(wanted, capacity), abs=1e-9)
        if sum(wanted) <= capacity:
            assert got == wanted
        else:
            assert sum(got) == pytest.approx(capacity, abs=1e-9)  # nothing is left over
        for want, have in zip(wanted, got, strict=True):
            if have < want - 1e-9:
                assert have >= max(got) - 1e-9  # who wants more has as much as anybody


READ_S, WORK_S = 1 / 64, 1 / 8
COUNT = 3
PROBABILITIES = st.sampled_from([1.0, 0.5, 0.25, 0.125])


@dataclass
class Reference:
    """One queue, row by row."""

    rows: deque[float] = field(default_factory=deque)  #: probability with which each was kept so far
    carry: float = 0.0

    def take(self, budget_s: float, accept: float, most: int) -> tuple[int, int, float, float, float]:
        """Rows read and kept, their weights, those of all rows read, seconds left."""
        read = kept = 0
        weight = weight_read = 0.0
        while self.rows and read < most and budget_s > 0:
            p = self.rows[0]
            passing = min(accept / p, 1.0)
            cost = READ_S + WORK_S * passing
            if cost > budget_s:
                break
            self.rows.popleft()
            budget_s -= cost
            read += 1
            weight_read += 1 / p
            self.carry += passing
            if self.carry >= 1.0:
                self.carry -= 1.0
                kept += 1
                weight += 1 / (p * passing)
        return read, kept, weight, weight_read, budget_s


def at(queue: int, value: float, others: float = 0.0) -> np.ndarray:
    """A value for one queue."""
    values = np.full(COUNT, others)
    values[queue] = value
    return values


def take(queues: Queues, queue: int, budget_s: float, accept: float, most: int) -> Taken:
    bound = np.zeros(COUNT, np.int64)
    bound[queue] = most
    costs = np.full(COUNT, READ_S), np.full(COUNT, WORK_S)
    return queues.take(at(queue, budget_s), np.full(COUNT, accept), *costs, bound)


QUEUE = st.integers(0, COUNT - 1)
PUT = st.tuples(st.just("put"), QUEUE, st.integers(0, 30), PROBABILITIES)
BACK = st.tuples(st.just("back"), QUEUE, st.integers(0, 10), PROBABILITIES)
TAKE = st.tuples(
    st.just("take"),
    QUEUE,
    st.one_of(st.integers(0, 64).map(lambda n: n / 64), st.just(inf)),
    PROBABILITIES,
    st.sampled_from([0, 3, 1000]),
)


@given(st.lists(st.one_of(PUT, BACK, TAKE), max_size=25))
def test_rows_leave_in_order_exactly_counted_and_thinned(steps: list[tuple[object, ...]]) -> None:
    queues, reference = Queues(COUNT), [Reference() for _ in range(COUNT)]
    for kind, queue, *values in steps:
        mine = reference[queue]  # type: ignore[index]
        stretches = 1 + sum(a != b for a, b in zip(mine.rows, list(mine.rows)[1:], strict=False))
        if kind != "take" and stretches + 1 >= STRETCHES:
            continue  # a merge would mix them
        if kind == "put":
            rows, p = values
            queues.put(at(queue, rows).astype(np.int64), np.full(COUNT, p))  # type: ignore[arg-type]
            mine.rows.extend([p] * rows)  # type: ignore[list-item, operator]
        elif kind == "back":
            rows, p = values
            queues.put_back(queue, rows, p)  # type: ignore[arg-type]
            mine.rows.extendleft([p] * rows)  # type: ignore[list-item, operator]
        else:
            budget_s, accept, most = values
            taken = take(queues, queue, budget_s, accept, most)  # type: ignore[arg-type]
            read, kept, weight, weight_read, rest_s = mine.take(budget_s, accept, most)  # type: ignore[arg-type]
            assert (taken.read[queue], taken.kept[queue]) == (read, kept)
            assert (taken.weight[queue], taken.weight_read[queue]) == (weight, weight_read)
            assert taken.rest_s[queue] == rest_s
            for other in set(range(COUNT)) - {queue}:
                assert taken.read[other] == taken.kept[other] == 0
        assert queues.waiting.tolist() == [len(each.rows) for each in reference]
        accept_all = np.full(COUNT, 0.25)
        work = queues.work(accept_all, np.full(COUNT, READ_S), np.full(COUNT, WORK_S))
        expected = [sum(READ_S + WORK_S * min(0.25 / p, 1.0) for p in each.rows) for each in reference]
        assert work.tolist() == expected


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 1.0)), min_size=1, max_size=40), st.booleans())
def test_what_is_merged_keeps_its_rows_and_the_sum_of_its_weights(puts: list[tuple[int, float]], front: bool) -> None:
    queues = Queues(1)
    for rows, p in puts:
        if front:
            queues.put_back(0, rows, p)
        else:
            queues.put(np.array([rows]), np.array([p]))
    total = sum(rows for rows, _ in puts)
    assert queues.waiting.tolist() == [total]
    assert queues.depth[0] <= STRETCHES
    costs = np.array([0.1]), np.array([1.0])
    taken = queues.take(np.array([inf]), np.array([1.0]), *costs)
    assert taken.read.tolist() == taken.kept.tolist() == [total]
    assert taken.weight[0] == pytest.approx(sum(rows / p for rows, p in puts))
    assert queues.waiting.tolist() == [0]


@given(st.integers(1, 5000), st.floats(0.05, 1.0), st.floats(0.0, 1.0), st.integers(1, 200))
def test_however_it_is_read_the_share_is_exact_to_a_row(rows: int, p: float, accept: float, at_once: int) -> None:
    queues = Queues(1)
    queues.put(np.array([rows]), np.array([p]))
    kept, weight, at_once = 0, 0.0, max(at_once, rows // 50)
    while queues.waiting[0]:
        taken = queues.take(np.array([inf]), np.array([accept]), np.ones(1), np.ones(1), np.array([at_once]))
        assert taken.read[0] == min(at_once, taken.read[0] + queues.waiting[0])
        kept += int(taken.kept[0])
        weight += float(taken.weight[0])
    passing = min(accept / p, 1.0)
    assert kept in (floor(rows * passing), floor(rows * passing + 1e-6))
    if kept:
        assert weight == pytest.approx(kept / (p * passing))


def test_who_has_no_time_reads_nothing() -> None:
    queues = Queues(1)
    queues.put(np.array([5]), np.ones(1))
    taken = queues.take(np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1))
    assert taken.read.tolist() == [0]
    assert queues.waiting.tolist() == [5]
