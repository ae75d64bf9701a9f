"""The equations of Cameo, with exact numbers; what the text prints wrongly is not matched."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from qod_magics.core.engines import CLIENT, MS, Message, OperatorInfo, Topology, channel_of, stream_channel
from qod_magics.policies.cameo.contexts import (
    URGENCY,
    DeadlineContexts,
    Parameters,
    ProgressMap,
    ReplyContext,
    critical_paths,
    frontier_progress,
    printed_frontier_progress,
    waits,
)
from tests.policies.cameo.oracles import DATA, oracle, schedule


def test_all_cases_are_here() -> None:
    assert len(list(DATA.glob("cameo-*.json"))) == 13


def urgency(order: str, case: dict[str, Any]) -> int:
    return URGENCY[order](case["t_mf"], case["L"], case["C"], case["C_path"])


def test_deadlines() -> None:
    case = oracle("deadline")
    found = [{"id": each["id"], **{order.upper(): urgency(order, each) for order in URGENCY}} for each in case["input"]]
    assert found == case["expected"]


def test_critical_paths() -> None:
    case = oracle("cpath")
    assert critical_paths(case["input"]["dag"], case["input"]["cost"]) == case["expected"]


TRANSFORM = oracle("transform")


@pytest.mark.parametrize(("given", "expected"), [*zip(TRANSFORM["input"], TRANSFORM["expected"], strict=True)])
def test_frontier_progress(given: dict[str, Any], expected: dict[str, Any]) -> None:
    p = given["p"]
    previous = p if given["p_prev"] is None else given["p_prev"]
    found = frontier_progress(previous, p, given["slide"], given["origin"])
    assert {"p_mf": found, "waits": waits(found, p)} == {key: expected[key] for key in ("p_mf", "waits")}
    printed = printed_frontier_progress(p, given["slide"], given["slide_up"])
    assert printed == expected["printed_eq_5_4"]


def test_the_printed_form_puts_off_messages_that_complete_a_window() -> None:
    """What the printed form gives for triggers (E1), and where it is wrong: not where ours is."""
    pairs = [*zip(TRANSFORM["input"], TRANSFORM["expected"], strict=True)]
    triggers = [(given, expected) for given, expected in pairs if given["slide"] and not expected["waits"]]
    wrong = [expected["printed_eq_5_4"] > expected["p_mf"] for _, expected in triggers]
    assert wrong == [True, True, True, True, True, False, True]


MAPS = oracle("progressmap")


@pytest.mark.parametrize(("given", "expected"), [*zip(MAPS["input"], MAPS["expected"], strict=True)])
def test_progress_maps(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = ProgressMap()
    for p, t in given["points"]:
        found.update(p * MS, t * MS)
    line = found.line()
    assert line is not None
    assert line == (Fraction(str(expected["alpha"])), Fraction(str(expected["gamma"])) * MS)
    assert found.time(given["query"] * MS) == Fraction(str(expected["t"])) * MS


@pytest.mark.parametrize("order", ["LLF", "EDF", "SJF"])
def test_orders_and_lateness(order: str) -> None:
    case = oracle("policies")
    messages = case["input"]["messages"]
    expected = case["expected"][order]
    priority = {each["id"]: urgency(order.lower(), each) for each in messages}
    assert priority == expected["priority"]
    by_priority = sorted(messages, key=lambda each: priority[each["id"]])
    assert [each["id"] for each in by_priority] == expected["order"]
    late = lateness(by_priority, case["input"]["now"])
    assert max(late) == expected["max_lateness"]
    assert sum(each > 0 for each in late) == expected["late"]
    least = min(max(lateness(each, case["input"]["now"])) for each in permutations(messages))
    assert least == case["expected"]["least max_lateness of all 24 orders"]


def lateness(messages: Any, now: int) -> list[int]:
    """Of messages that run one after another."""
    found = []
    for each in messages:
        now += each["C"]
        found.append(now - (each["t_mf"] + each["L"] - each["C_path"]))
    return found


# --- contexts ---------------------------------------------------------------------------------------------------------

CHAIN = ("A", "B", "K")


def chain_contexts(case: dict[str, Any], parameters: Parameters) -> DeadlineContexts:
    operators = [
        OperatorInfo(
            name, 0, 0, () if name == "K" else (i + 1,), case["L"], case["slide"][name], 0, case["slide"][name]
        )
        for i, name in enumerate(CHAIN)
    ]
    contexts = DeadlineContexts(parameters)
    contexts.begin(Topology(tuple(operators), (0,), ((0,),)))
    contexts.maps[0].update(0, case["delay"])
    return contexts


def trace(case: dict[str, Any], parameters: Parameters) -> tuple[list[Any], list[Any]]:
    """RC after each round, and a row for each hop; a windowed operator sends the window that it awaits."""
    contexts = chain_contexts(case, parameters)
    names = ("S", *CHAIN)
    known, rows = [], []
    for event in case["events"]:
        progress, observed = event["p"], event["t"]
        sent: Message | None = None
        hops = []
        for i, name in enumerate(CHAIN):
            message = Message(i, i, i - 1 if i else CLIENT, progress, observed=observed, source=0 if not i else -1)
            channel = contexts.channel(message)
            channel.previous = event["prev"][i]
            if sent is None:
                context = contexts.build_at_source(observed, message)
            else:
                context = contexts.build_at_operator(message, sent)
            message.context = context
            if sent is not None:
                acknowledge(contexts, sent, case["cost"][CHAIN[i - 1]])
            frontier_time = context.priority - case["L"] + channel.cost + channel.after
            hops.append([f"{names[i]}->{name}", context.local, frontier_time, context.priority])
            if case["slide"][name]:
                progress, observed = context.local, frontier_time
            sent = message
        assert sent is not None
        acknowledge(contexts, sent, case["cost"]["K"])
        rows.append(hops)
        ends = [contexts.channels[i][i - 1 if i else stream_channel(0)] for i in range(len(CHAIN))]
        known.append({name: {"C_m": each.cost, "C_path": each.after} for name, each in zip(names, ends, strict=False)})
    return known, rows


def acknowledge(contexts: DeadlineContexts, message: Message, took: int) -> None:
    reply = contexts.prepare_reply(message, took)
    if reply is not None:
        assert reply.sender == channel_of(message)
        contexts.process_reply(reply)


def test_costs_travel_up_a_chain_by_one_operator_per_message() -> None:
    case = oracle("context")
    assert trace(case["input"], Parameters())[0] == case["expected"]["rc_after_round"]


def rows_with_known_costs(parameters: Parameters) -> list[Any]:
    """The rows of the second of two passes."""
    given = oracle("context")["input"]
    events = given["events"]
    return trace({**given, "events": [*events, *events]}, parameters)[1][len(events) :]


def test_deadlines_along_a_chain() -> None:
    assert rows_with_known_costs(Parameters()) == oracle("context")["expected"]["trace"]


def test_the_printed_transform_puts_them_off() -> None:
    case = oracle("context")
    found = rows_with_known_costs(Parameters(transform="printed"))
    assert found == case["printed_eq_5_4_gives"] != case["expected"]["trace"]
    assert found[2][0][3] - case["expected"]["trace"][2][0][3] == 9700  # "a deadline 9.7 s too late"


# --- joins, and what is a limit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("join_aware", [True, False])
def test_the_frontier_time_of_a_join(join_aware: bool) -> None:
    case = oracle("join")
    given = case["input"]
    contexts = DeadlineContexts(Parameters(join_aware=join_aware))
    slide = given["p_mf"]
    operator = OperatorInfo("join", 0, 0, (), given["L"], slide, 0, slide)
    contexts.begin(Topology((operator,), (0,), ((0,), (0,))))
    for i, line in enumerate(given["maps"].values()):
        assert line["alpha"] == 1
        contexts.maps[i].update(0, line["gamma"])
    contexts.process_reply(ReplyContext(stream_channel(0), 0, given["C"], given["C_path"]))
    contexts.channels[0][stream_channel(0)].previous = 1
    message = Message(0, 0, CLIENT, 2, observed=given["maps"]["s1"]["gamma"] + 2, source=0)
    context = contexts.build_at_source(0, message)
    expected = case["expected"] if join_aware else case["expected"]["if only the map of s1 is known"]
    assert (context.local, context.priority) == (given["p_mf"], expected["ddl"])
    assert context.priority == expected["t_mf"] + given["L"] - given["C"] - given["C_path"]


def test_messages_of_one_window_share_a_deadline_that_is_too_late_for_all() -> None:
    case = oracle("sibling-work")
    given, expected = case["input"], case["expected"]
    end = given["t_mf"]
    contexts = DeadlineContexts(Parameters())
    operator = OperatorInfo("sum", 0, 0, (), given["L"], end, 0, end)
    contexts.begin(Topology((operator,), (0,), ((0,),) * given["messages"]))
    messages = []
    for source in range(given["messages"]):
        contexts.process_reply(ReplyContext(stream_channel(source), 0, given["C"], given["C_path"]))
        context = contexts.build_at_source(0, Message(source, 0, CLIENT, 9000, observed=9000, source=source))
        messages.append(
            {"id": source, "op": "sum", "cost": given["C"], "pri_local": context.local, "pri_global": context.priority}
        )
    deadline = expected["ddl_each"]
    assert {each["pri_global"] for each in messages} == {deadline}
    rows = schedule([{**each, "arrive": deadline} for each in messages], 1, 1)
    assert rows[-1][3] == expected["end_if_started_at_ddl"] == deadline + expected["work"]
    assert rows[-1][3] > given["t_mf"] + given["L"] == expected["deadline_of_output"]
