"""What holds for any messages."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.errors import UsageProblem
from qod_magics.policies.dirigo import Options, RejectSend
from qod_magics.policies.dirigo.binding import static_limit
from qod_magics.simulator.messages import Store
from qod_magics.simulator.messages.dataflow import popularity
from tests.policies.dirigo.oracles import oracle
from tests.policies.dirigo.runs import POLICIES, ran
from tests.raising import breaks

WORKERS = 3
OOS = [name for name in POLICIES if "RTT" in name]
MESSAGE = st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(0, 25), st.integers(0, WORKERS - 1))


def listed(drawn: list[tuple[int, int, int, int]], slack: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": f"m{n}", "gen": gen, "cost": cost, "deadline": gen + cost + more + slack, "lessor": lessor}
        for n, (gen, cost, more, lessor) in enumerate(drawn)
    ]


MESSAGES = st.lists(MESSAGE, min_size=1, max_size=12)
OPTIONS = st.builds(
    Options,
    parallelism_range=st.sampled_from([None, 1, 2]),
    account_running=st.booleans(),
    force_migrate=st.booleans(),
    random_lessee=st.booleans(),
    search_range=st.just(2),
    reply_required=st.integers(1, 2),
    seed=st.integers(0, 3),
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(drawn=MESSAGES, options=OPTIONS)
def test_every_message_runs_once(policy: str, drawn: list[tuple[int, int, int, int]], options: Options) -> None:
    found = ran(policy, listed(drawn), workers=WORKERS, delay=1, options=options)  # checks the books, too
    assert len(found.tasks) == len(drawn) == found.messages["data"]
    assert found.messages["reply"] >= found.messages["request"]  # those that send messages back ask nothing
    if options.parallelism_range == 1:
        assert found.tasks == ran("SBS", listed(drawn), workers=WORKERS, delay=1).tasks
        assert found.messages["forward"] == found.messages["request"] == 0


@settings(max_examples=50)
@given(drawn=MESSAGES, seed=st.integers(0, 3))
def test_what_a_lessor_keeps_after_a_check_is_never_late(drawn: list[tuple[int, int, int, int]], seed: int) -> None:
    messages = listed([(*each[:3], 0) for each in drawn], slack=1)
    tasks = ran("1RTT-RejectSend", messages, workers=WORKERS, delay=1, options=Options(seed=seed)).tasks
    assert all(late == 0 for worker, _, _, late in tasks.values() if worker == 0)


def test_messages_that_a_lessee_takes_unchecked_break_that() -> None:
    messages = listed([(0, 5, 0, 0)] * 6, slack=1)
    tasks = ran("1RTT-RejectSend", messages, workers=2, delay=1).tasks
    assert any(late for worker, *_, late in tasks.values() if worker == 1)


@pytest.mark.parametrize("policy", OOS)
@settings(max_examples=15)
@given(drawn=MESSAGES, options=OPTIONS)
def test_offloading_equals_static_binding_while_every_check_passes(
    policy: str, drawn: list[tuple[int, int, int, int]], options: Options
) -> None:
    messages = listed(drawn, slack=200)
    found = ran(policy, messages, workers=WORKERS, delay=1, options=options)
    assert found.tasks == ran("SBS", messages, workers=WORKERS, delay=1).tasks
    assert found.messages["forward"] == found.messages["request"] == 0


def test_state_travels_least_under_static_binding_and_most_under_dynamic_binding() -> None:
    fetches = dict.fromkeys(POLICIES, 0)
    draw = Random(1)
    for seed in range(10):
        drawn = [(draw.randint(0, 60), draw.randint(1, 6), draw.randint(0, 12), draw.randint(0, 2)) for _ in range(40)]
        for policy in POLICIES:
            store = Store(capacity=1, workers=WORKERS)
            found = ran(policy, listed(drawn), workers=WORKERS, delay=1, options=Options(seed=seed), store=store)
            fetches[policy] += sum(store.fetches)
            assert found.engine.store is store
    offloading = [fetches[policy] for policy in OOS]
    dynamic = min(fetches["QueueBasedDirect"], fetches["LaxityBasedDirect"])
    assert fetches["SBS"] < min(offloading) <= max(offloading) < dynamic


def test_fetches_are_misses_of_the_caches() -> None:
    case = oracle("fetches")
    for policy in ("SBS", "DBS"):
        found = []
        for capacity in case["input"]["capacities"]:
            store = Store(capacity=capacity, workers=3)
            for name, worker in zip(case["input"]["objects"], case["input"][f"place_{policy}"], strict=True):
                store.read(worker, (name,))
            found.append(sum(store.fetches))
        assert found == case["expected"][policy]


def test_static_binding_saturates_early_on_skew() -> None:
    case = oracle("zipf")
    for expected in case["expected"]:
        exponent = float(expected["s"])
        shares = popularity(case["input"]["n"], exponent)
        assert sum(shares) == pytest.approx(1)
        assert shares[0] == pytest.approx(expected["hottest"], abs=1e-4)
        assert static_limit(shares) == pytest.approx(expected["SBS_saturates_at_utilisation"], abs=1e-4)


def test_dynamic_binding_costs_two_questions_and_answers_per_message_and_a_round_trip() -> None:
    messages = listed([(0, 1, 10, 0)])
    for policy, begin in (("SBS", 1), ("QueueBasedDirect", 3), ("LaxityBasedDirect", 3), ("1RTT-RejectSend", 1)):
        found = ran(policy, messages, workers=WORKERS, delay=1)
        assert found.tasks["m0"][1] == begin
        assert found.messages["request"] == found.messages["reply"] == (2 if begin == 3 else 0)


def test_a_search_decides_by_the_replies_that_are_required() -> None:
    """Two lessees, the first of which is full: only Pipelined waits for the second."""
    first = [(0, 30, 2, 1)]  # keeps worker 1 busy
    burst = [(0, 10, 22, 0)] * 4
    draws: list[Any] = [[1, 2], [1, 2], [1, 2]]
    at = {}
    for policy in ("2RTT-Sequential", "2RTT-Pipelined"):
        found = ran(policy, listed(first + burst), workers=WORKERS, delay=1, draws=draws)
        at[policy] = sorted(task[0] for name, task in found.tasks.items() if name != "m0")
    assert at == {"2RTT-Sequential": [0, 0, 0, 0], "2RTT-Pipelined": [0, 0, 0, 2]}


def test_the_known_lengths_of_queues_are_those_that_came_back() -> None:
    """Worker 1 sends the second message back with its length, 1; so the third goes to worker 2."""
    messages = listed([(0, 30, 1, 1), (0, 30, 1, 0), (1, 30, 1, 0), (10, 5, 3, 0)])
    options = Options(force_migrate=False, random_lessee=False)
    found = ran("1RTT-RejectSend", messages, workers=WORKERS, delay=1, options=options)
    assert [found.tasks[f"m{n}"][0] for n in range(4)] == [1, 0, 0, 2]


@pytest.mark.parametrize(
    ("values", "rule"),
    [({"parallelism_range": 0}, "count"), ({"search_range": 0}, "count"), ({"reply_required": 3}, "range")],
)
def test_options_out_of_range_are_refused(values: dict[str, int], rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, name=next(iter(values)))):
        Options(**values)  # type: ignore[arg-type]


def test_machines_with_several_workers_are_refused() -> None:
    from qod_magics.core.engines import Topology

    with pytest.raises(UsageProblem, check=breaks("one worker a machine")):
        RejectSend().begin(Topology((), (0, 0, 1)))
