"""What holds for all messages, costs and workers."""

from __future__ import annotations

from itertools import permutations
from random import Random
from statistics import linear_regression
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.engines import CLIENT, Message, OperatorInfo
from qod_magics.errors import UsageProblem
from qod_magics.policies.cameo import Parameters, TokenRates
from qod_magics.policies.cameo.contexts import (
    URGENCY,
    DeadlineContexts,
    ProgressMap,
    critical_paths,
    frontier_progress,
    printed_frontier_progress,
    waits,
)
from qod_magics.policies.cameo.dispatcher import SPARE, TwoLevelQueue
from qod_magics.policies.of_engines import dispatcher
from tests.policies.cameo.oracles import drive, one_machine, schedule
from tests.raising import breaks

OURS = ["cameo", "cameo-edf", "cameo-sjf", "cameo-tokens", "cameo-topology-only", "fifo", "orleans"]

# --- equations --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(0, 60), st.integers(1, 40), st.integers(0, 39))
def test_the_frontier_is_the_first_window_end_after_the_channels_progress(
    previous: int, step: int, slide: int, origin: int
) -> None:
    ends = [origin + k * slide for k in range(-200, 400)]
    progress = previous + step
    frontier = frontier_progress(previous, progress, slide, origin)
    assert frontier == min(end for end in ends if end > previous)
    assert waits(frontier, progress) == (not any(previous < end <= progress for end in ends))
    if origin == 0 and waits(frontier, progress):
        assert printed_frontier_progress(progress, slide, 0) == frontier


pairs = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1, max_size=12)


@given(pairs, st.integers(1, 6), st.integers(0, 10**12))
def test_a_map_is_the_regression_of_its_newest_pairs(points: list[tuple[int, int]], history: int, query: int) -> None:
    found = ProgressMap(history)
    kept: list[tuple[int, int]] = []
    for point in points:
        found.update(*point)
        if not kept or kept[-1] != point:
            kept.append(point)
    kept = kept[-history:]
    assert len(found) == len(kept)
    line, time = found.line(), found.time(query)
    assert line is not None
    assert time == (line[0] * query + line[1]).__floor__()
    if len({p for p, _ in kept}) == 1:
        assert line == (1, kept[-1][1] - kept[-1][0])
        return
    slope, intercept = linear_regression(*zip(*kept, strict=True))
    if slope > 1e-9:
        assert float(line[0]) == pytest.approx(slope, rel=1e-6)
        assert float(line[1]) == pytest.approx(intercept, rel=1e-5, abs=1)
    elif slope < -1e-9:
        assert line == (1, kept[-1][1] - kept[-1][0])


def test_no_pair_no_estimate() -> None:
    assert ProgressMap().time(5) is None
    assert ProgressMap().line() is None


@st.composite
def dags(draw: st.DrawFn) -> tuple[dict[int, list[int]], dict[int, int]]:
    count = draw(st.integers(1, 7))
    edges = {
        node: sorted(draw(st.sets(st.integers(node + 1, count - 1), max_size=3))) if node + 1 < count else []
        for node in range(count)
    }
    return edges, {node: draw(st.integers(0, 50)) for node in range(count)}


@given(dags())
def test_the_critical_path_is_the_longest_of_all(dag: tuple[dict[int, list[int]], dict[int, int]]) -> None:
    edges, cost = dag

    def longest(node: int) -> int:
        return max((cost[each] + longest(each) for each in edges[node]), default=0)

    assert critical_paths(edges, cost) == {node: longest(node) for node in cost}


@given(dags())
def test_replies_find_the_critical_paths(dag: tuple[dict[int, list[int]], dict[int, int]]) -> None:
    """After as many rounds as there are operators, each knows its longest path."""
    edges, cost = dag
    contexts = DeadlineContexts(Parameters())
    contexts.begin(one_machine([OperatorInfo(str(node), 0, 0, tuple(edges[node])) for node in edges]))
    for _ in edges:
        for node in edges:
            for target in edges[node]:
                message = Message(0, target, node)
                contexts.build_at_operator(message, None)
                reply = contexts.prepare_reply(message, cost[target])
                if reply is not None:
                    contexts.process_reply(reply)
    assert dict(enumerate(contexts.after)) == critical_paths(edges, cost)


jobs = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=6
)


@given(jobs)
def test_earliest_deadline_first_minimises_the_largest_lateness(all_: list[tuple[int, int, int, int]]) -> None:
    def worst(order: Any) -> int:
        now, found = 100, []
        for frontier, target, cost, after in order:
            now += cost
            found.append(now - (frontier + target - after))
        return max(found)

    by_deadline = sorted(all_, key=lambda each: URGENCY["edf"](*each))
    assert worst(by_deadline) == min(map(worst, permutations(all_)))


@given(jobs, st.integers(0, 1000))
def test_a_constant_error_of_all_costs_leaves_the_order_of_laxity(
    all_: list[tuple[int, int, int, int]], error: int
) -> None:
    def order(shift: int) -> list[int]:
        return sorted(
            range(len(all_)),
            key=lambda i: (URGENCY["llf"](all_[i][0], all_[i][1], all_[i][2] + shift, all_[i][3]), i),
        )

    assert order(error) == order(0)


@given(jobs, st.integers(1, 50))
def test_equal_costs_make_laxity_and_deadlines_one_order(all_: list[tuple[int, int, int, int]], cost: int) -> None:
    def order(name: str) -> list[int]:
        keys = [URGENCY[name](frontier, target, cost, after) for frontier, target, _, after in all_]
        return sorted(range(len(all_)), key=lambda i: (keys[i], i))

    assert order("llf") == order("edf")


# --- queues -----------------------------------------------------------------------------------------------------------

messages = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from("ABCD"),
            "arrive": st.integers(0, 30),
            "cost": st.integers(1, 12),
            "pri_local": st.integers(0, 6),
            "pri_global": st.integers(0, 40),
        }
    ),
    min_size=1,
    max_size=14,
).map(lambda found: [each | {"id": i} for i, each in enumerate(found)])


def plainly(all_: list[dict[str, Any]], workers: int, quantum: int) -> list[list[Any]]:
    """The rules of 2.7 literally: lists that are searched, and a tick for every unit of time."""
    order = sorted(all_, key=lambda each: (each["arrive"], each["id"]))
    number = {each["id"]: i for i, each in enumerate(order)}
    pending: dict[str, list[dict[str, Any]]] = {op: [] for op in "ABCD"}
    holds: list[str | None] = [None] * workers
    taken = [0] * workers
    ends = [0] * workers
    rows: list[list[Any]] = []

    def head(op: str) -> dict[str, Any]:
        return min(pending[op], key=lambda each: (each["pri_local"], number[each["id"]]))

    def rank(op: str) -> tuple[int, int]:
        return head(op)["pri_global"], number[head(op)["id"]]

    for now in range(400):
        if len(rows) == len(all_):
            break
        for each in order:
            if each["arrive"] == now:
                pending[each["op"]].append(each)
        for worker in range(workers):
            if ends[worker] > now:
                continue
            mine = holds[worker]
            free = [op for op in pending if pending[op] and op not in holds]
            if mine is not None and pending[mine]:
                best = min(free, key=rank, default=None)
                spent = now - taken[worker] >= quantum
                if best is not None and spent and rank(best)[0] < rank(mine)[0]:
                    holds[worker] = None
            else:
                holds[worker] = None
            if holds[worker] is None:
                free = [op for op in pending if pending[op] and op not in holds]
                if not free:
                    continue
                holds[worker] = min(free, key=rank)
                taken[worker] = now
            op = holds[worker]
            assert op is not None
            each = head(op)
            pending[op].remove(each)
            ends[worker] = now + each["cost"]
            rows.append([each["id"], worker, now, ends[worker]])
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_the_two_level_queue_does_what_its_rules_say(seed: int) -> None:
    """Crowded cases: few operators, and priorities that often tie."""
    random = Random(seed)
    for _ in range(250):
        all_ = [
            {
                "id": i,
                "op": random.choice("ABCD"),
                "arrive": random.randrange(20),
                "cost": random.randint(1, 6),
                "pri_local": random.randrange(5),
                "pri_global": random.randrange(6),
            }
            for i in range(random.randint(5, 14))
        ]
        workers, quantum = random.randint(1, 3), random.choice([0, 1, 3, 5, 20])
        assert schedule(all_, workers, quantum) == plainly(all_, workers, quantum)


def test_outdated_ranks_do_not_pile_up() -> None:
    """Each message comes before all that wait, so every one changes the rank of its operator."""
    queue = TwoLevelQueue([0], [0], 0)
    for i in range(300):
        queue.add(Message(i, 0, CLIENT), -i, i * 7 % 100)
        queue.check()
    assert len(queue._ranks) <= 2 + SPARE + 1
    run = queue.choose(0, 0)
    assert run is not None
    assert run.id == 299


@given(messages, st.integers(1, 3), st.sampled_from(OURS))
def test_every_message_runs_once_and_no_worker_idles_beside_a_free_operator(
    all_: list[dict[str, Any]], workers: int, name: str
) -> None:
    infos = [OperatorInfo(op, job, 0, (), 50, 10 * (job % 2), 0, 10) for job, op in enumerate("ABCD")]
    sends = [
        (
            m["arrive"],
            Message(
                m["id"], "ABCD".index(m["op"]), CLIENT, m["arrive"], observed=m["arrive"], work=m["cost"], source=0
            ),
        )
        for m in all_
    ]
    rows = drive(dispatcher(name), one_machine(infos, workers, 1), sends)
    assert sorted(row[0] for row in rows) == sorted(m["id"] for m in all_)
    by_id = {m["id"]: m for m in all_}
    for now in range(max(row[3] for row in rows)):
        running = [by_id[row[0]]["op"] for row in rows if row[2] <= now < row[3]]
        assert len(running) == len(set(running)) <= workers
        waiting = {by_id[row[0]]["op"] for row in rows if by_id[row[0]]["arrive"] <= now < row[2]}
        assert len(running) == workers or waiting <= set(running)
    for op in "ABCD":
        mine = [row[0] for row in rows if by_id[row[0]]["op"] == op]
        assert mine == sorted(mine, key=lambda i: (by_id[i]["arrive"], i)), "a channel is in order"


def test_an_unknown_dispatcher_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UsageProblem, check=breaks("exists", name="came")):
        dispatcher("came")


@pytest.mark.parametrize("name", OURS)
def test_dispatchers_bear_the_name_that_selects_them(name: str) -> None:
    assert dispatcher(name).name == name


@pytest.mark.parametrize(
    "wrong", [{"order": "fifo"}, {"transform": "x"}, {"quantum": -1}, {"history": 0}, {"weight": 0.0}]
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, check=breaks(name=next(iter(wrong)))):
        Parameters(**wrong)


def test_token_rates_out_of_range_are_refused() -> None:
    with pytest.raises(UsageProblem, check=breaks(name="interval")):
        TokenRates(0)
    with pytest.raises(UsageProblem, check=breaks("not negative")):
        TokenRates(rates={0: -1})
