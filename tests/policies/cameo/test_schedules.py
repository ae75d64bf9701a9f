"""Which message runs when, on few workers: exact schedules."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from qod_magics.core.engines import CLIENT, Dispatcher, Message, OperatorInfo, stream_channel
from qod_magics.policies.cameo import ArrivalOrder, Cameo, Parameters, TokenRates, with_deadlines, with_tokens
from qod_magics.policies.cameo.contexts import LEAST_URGENT, ReplyContext, Tokens
from tests.policies.cameo.oracles import drive, one_machine, oracle, schedule

# --- the two jobs of the source's example -----------------------------------------------------------------------------

TWO_JOBS = oracle("four-schedules")
RUNS: Mapping[str, Dispatcher] = {
    "a": ArrivalOrder("fair", quantum=1),
    "b": ArrivalOrder("fair", quantum=60),
    "c": with_deadlines(Parameters(windows=False, quantum=1)),
    "d": with_deadlines(Parameters(ingestion_time=True, quantum=1)),
}


class Known(Cameo):
    """Cameo that has seen the costs of all operators before."""

    def __init__(self, made: Cameo, replies: list[ReplyContext]) -> None:
        super().__init__(made.contexts, made.name, made.quantum)
        self.replies = replies

    def begin(self, topology: Any) -> None:
        super().begin(topology)
        for each in self.replies:
            self.replied(0, CLIENT, CLIENT, each)


@pytest.mark.parametrize("run", RUNS)
def test_four_schedules_of_two_jobs(run: str) -> None:
    given, expected = TWO_JOBS["input"], TWO_JOBS["expected"][run]
    free = given["worker_free_at"]
    jobs = {each["op"]: each for each in given["jobs"].values()}
    names = ["busy", *jobs]
    infos = [OperatorInfo("busy", 0, 0)]
    for number, (name, job) in enumerate(jobs.items(), 1):
        window = job["window"] or 0
        infos.append(OperatorInfo(name, number, 0, (), job["L"], window, 0, window))
    ids = {each["id"]: i for i, each in enumerate(sorted(given["messages"], key=lambda each: each["arrive"]), 1)}
    sends = [(0, Message(0, 0, CLIENT, work=free, source=0))]
    for each in given["messages"]:
        operator, at = names.index(each["op"]), each["arrive"]
        sends.append(
            (at, Message(ids[each["id"]], operator, CLIENT, at, observed=at, work=each["cost"], source=operator))
        )
    dispatcher = RUNS[run]
    if isinstance(dispatcher, Cameo):
        costs = {names.index(each["op"]): each["cost"] for each in given["messages"]}
        dispatcher = Known(dispatcher, [ReplyContext(stream_channel(op), op, cost, 0) for op, cost in costs.items()])
    rows = drive(dispatcher, one_machine(infos, sources=3), sends)
    named = {i: name for name, i in ids.items()}
    found = [[named[i], start, end] for i, _, start, end in rows if i]
    assert found == expected["schedule"]
    assert sorted(violations(given, found)) == expected["violations"]
    if "pri_global" in expected:
        by_id = {message.id: message.context.priority for _, message in sends}
        assert {name: by_id[i] for name, i in ids.items()} == expected["pri_global"]


def violations(given: dict[str, Any], rows: list[list[Any]]) -> list[str]:
    """Messages that end after the latest end that their job allows."""
    jobs = {each["op"]: each for each in given["jobs"].values()}
    by_id = {each["id"]: each for each in given["messages"]}
    return [
        name
        for name, _, end in rows
        if end > (jobs[by_id[name]["op"]]["window"] or by_id[name]["arrive"]) + jobs[by_id[name]["op"]]["L"]
    ]


# --- two levels -------------------------------------------------------------------------------------------------------


def test_an_operator_ranks_by_its_head() -> None:
    case = oracle("two-level")
    given = case["input"]
    assert schedule(given["messages"], given["workers"], given["quantum"]) == case["expected"]


def test_the_quantum_bounds_how_often_a_worker_changes_operators() -> None:
    case = oracle("quantum")
    given = case["input"]
    found = {str(q): schedule(given["messages"], given["workers"], q) for q in given["quanta"]}
    assert found == case["expected"]


def test_an_operator_runs_on_one_worker_at_a_time() -> None:
    case = oracle("single-activation")
    given = case["input"]
    assert schedule(given["messages"], given["workers"], given["quantum"]) == case["expected"]


def test_orders_on_one_worker() -> None:
    case = oracle("policies")
    messages = case["input"]["messages"]
    for expected in (case["expected"][order] for order in ("LLF", "EDF", "SJF")):
        rows = schedule(
            [
                {"id": m["id"], "op": m["id"], "arrive": 100, "cost": m["C"], "pri_local": 0}
                | {"pri_global": expected["priority"][m["id"]]}
                for m in messages
            ],
            1,
            1,
        )
        assert [row[0] for row in rows] == expected["order"]


# --- tokens -----------------------------------------------------------------------------------------------------------

SHARES = oracle("tokens")
RATES = SHARES["input"]["tokens"]
UNIT = 1440  #: of time in a second: it divides by all rates, and by the 60 messages a second


def test_tags_of_tokens() -> None:
    tags = []
    for number, (name, rate) in enumerate(RATES.items()):
        tokens = Tokens(rate, UNIT)
        tags += [(Fraction(tokens.take(0)[1], UNIT), number, name) for _ in range(rate)]
        assert tokens.take(UNIT - 1) == (0, LEAST_URGENT)
        assert tokens.take(UNIT) == (1, UNIT), "unused and used tokens end with the interval"
    found = [[name, tag] for tag, _, name in sorted(tags)[: len(SHARES["expected"]["first_ten_tags"])]]
    assert found == [[name, Fraction(tag)] for name, tag in SHARES["expected"]["first_ten_tags"]]


@pytest.mark.parametrize(
    ("run", "expected"), [*zip(SHARES["input"]["runs"], SHARES["expected"]["shares"], strict=True)]
)
def test_shares_by_tokens(run: dict[str, Any], expected: dict[str, Any]) -> None:
    active = run["active"]
    rates = TokenRates(UNIT, dict(enumerate(RATES[name] for name in active)))
    infos = [OperatorInfo(name, job, 0) for job, name in enumerate(active)]
    work = UNIT // run["capacity"]
    sends = []
    for k in range(60):
        for job in range(len(active)):
            sends.append((k * UNIT // 60, Message(k * len(active) + job, job, CLIENT, work=work, source=job)))
    rows = drive(with_tokens(rates, quantum=1), one_machine(infos, sources=len(active)), sends)
    by_id = {message.id: message for _, message in sends}
    found = {name: [0, 0] for name in active}
    for row in rows[: run["capacity"]]:
        message = by_id[row[0]]
        found[active[message.operator]][message.context.priority >= LEAST_URGENT] += 1
    assert found == expected
