"""What a message's context holds after others were sent, and what a reply says."""

from __future__ import annotations

from qod_magics.core.engines import CLIENT, Message, OperatorInfo, Run, Topology
from qod_magics.policies.cameo import Parameters, TokenRates, with_deadlines, with_tokens
from qod_magics.policies.cameo.contexts import LEAST_URGENT, DeadlineContexts, PriorityContext
from qod_magics.policies.cameo.dispatcher import TwoLevelQueue

#: a window of 10 feeds one of 20; target 100
INFOS = (OperatorInfo("ten", 0, 0, (1,), 100, 10, 0, 10), OperatorInfo("twenty", 0, 0, (), 100, 20, 0, 20))


def contexts(parameters: Parameters | None = None) -> DeadlineContexts:
    made = DeadlineContexts(parameters or Parameters())
    made.begin(Topology(INFOS, (0,), ((0,),)))
    return made


def at_source(made: DeadlineContexts, progress: int, observed: int) -> PriorityContext:
    return made.build_at_source(observed, Message(0, 0, CLIENT, progress, observed=observed, source=0))


def test_a_channel_moves_on_and_late_rows_rank_with_the_next_window() -> None:
    made = contexts()
    assert [at_source(made, p, p + 3).local for p in (4, 8, 12, 14)] == [10, 10, 10, 20]
    assert at_source(made, 5, 17).local == 20, "late (A10)"
    assert at_source(made, 15, 18).local == 20, "the channel did not go back"


def test_the_first_result_of_a_window_begins_at_the_windows_start() -> None:
    """Without this, the result that completes the larger window would be put off by one (6)."""
    made = contexts()
    assert made.build_at_operator(Message(0, 1, 0, 20, observed=25, source=0), None).local == 20


def test_a_message_that_completes_a_window_keeps_its_observed_time() -> None:
    """Even if the map would say later (10)."""
    made = contexts()
    for p, t in ((1, 101), (2, 102), (3, 103)):
        at_source(made, p, t)
    assert at_source(made, 10, 50).priority == 50 + 100


def test_the_map_is_never_earlier_than_what_was_observed() -> None:
    made = contexts()
    assert at_source(made, 9, 9).priority == 10 + 100
    made = contexts()
    for p, t in ((1, 11), (2, 12), (3, 13)):
        at_source(made, p, t)
    assert at_source(made, 4, 70).priority >= 70 + 100


def test_costs_are_running_means() -> None:
    made = contexts()
    message = Message(0, 0, CLIENT, 4, source=0)
    assert [made.prepare_reply(message, took) for took in (100, 100)][1] is None, "it would repeat itself"
    reply = made.prepare_reply(message, 200)
    assert reply is not None
    assert reply.cost == 120


def test_costs_by_the_size_of_batches() -> None:
    made = contexts(Parameters(by_size=True))
    small, large = (Message(0, 0, CLIENT, 4, observed=4, rows=rows, source=0) for rows in (3, 900))
    for message, took in ((small, 5), (large, 60)):
        reply = made.prepare_reply(message, took)
        assert reply is not None
        made.process_reply(reply)
    assert made.build_at_source(4, small).priority == 10 + 100 - 5
    assert made.build_at_source(4, large).priority == 10 + 100 - 60


def test_errors_of_costs_are_added_to_what_is_reported() -> None:
    made = contexts(Parameters(cost_error=lambda: 7))
    reply = made.prepare_reply(Message(0, 0, CLIENT, 4, source=0), 100)
    assert reply is not None
    assert reply.cost == 107
    assert made.costs[0][0] == 100


def test_what_an_operator_sends_inherits_the_token_of_what_it_runs() -> None:
    made = with_tokens(TokenRates(interval=1000, default=2))
    made.begin(Topology(INFOS, (0,), ((0,),)))
    messages = [Message(i, 0, CLIENT, i, source=0) for i in range(3)]
    for message in messages:
        made.made(0, CLIENT, message)
        made.arrived(0, 0, message)
    for number, expected in enumerate((0, 500, LEAST_URGENT + 1)):
        (run,) = made.settle(number)
        assert isinstance(run, Run)
        result = Message(10 + number, 1, 0, number, source=0)
        made.made(number, 0, result)
        assert (result.context.local, result.context.priority) == (0, expected)
        made.finished(number, 0, run.message)


def test_a_held_operator_is_invisible_to_other_workers() -> None:
    """Even if a message of it was ranked before another came ahead of it."""
    queue = TwoLevelQueue([0], [0, 1], 0)
    queue.add(Message(0, 0, CLIENT), 5, 5)
    queue.add(Message(1, 0, CLIENT), 1, 1)
    first = queue.choose(0, 0)
    assert first is not None
    assert first.id == 1
    assert queue.choose(1, 0) is None


def test_an_idle_worker_holds_no_operator() -> None:
    made = with_deadlines()
    made.begin(Topology(INFOS, (0, 0), ((0,),)))

    def runs(id: int, now: int) -> list[int]:
        message = Message(id, 0, CLIENT, id, source=0)
        made.made(now, CLIENT, message)
        made.arrived(now, 0, message)
        found = [each for each in made.settle(now) if isinstance(each, Run)]
        for each in found:
            made.finished(now + 1, each.worker, each.message)
        made.settle(now + 1)
        return [each.worker for each in found]

    assert [runs(0, 0), runs(1, 5)] == [[0], [0]]
    assert set(made._queues[0].holds.values()) == {-1}
