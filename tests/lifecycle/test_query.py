"""What a query does next: after failures, stalls, losses and stops, by hand and by chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qod_magics.lifecycle import events as module
from qod_magics.lifecycle.events import (
    WORDS,
    BatchEnded,
    Cause,
    CauseGone,
    DropRun,
    Event,
    Failed,
    FindOther,
    FirstReported,
    Follows,
    GoOn,
    Instruction,
    Instructions,
    MoveAsked,
    MoveCalledOff,
    MoveStopped,
    NoOther,
    NotPlaced,
    NotStarted,
    OtherFound,
    PlaceAsked,
    PutBack,
    Refuse,
    RestartAsked,
    RetryAt,
    RetryDue,
    RoomCame,
    RunEnded,
    ServerLost,
    Stalled,
    StallEnded,
    StartAsked,
    Started,
    StartOn,
    StartQuery,
    State,
    StopAsked,
    StopForMove,
    StopUndone,
    SuspendAsked,
    Suspended,
    SuspendFailed,
    Tell,
    WentOn,
    told,
)
from qod_magics.lifecycle.query import (
    BACK_OFF_S,
    RECOVERED_AFTER_S,
    RECOVERED_IDLE_S,
    ROWS_BACK_OFF_S,
    QueryLife,
    pattern_of,
)
from tests.texts import tells

CAST = "[CAST_INVALID_INPUT] The value 'x' of the type STRING cannot be cast to INT. Lost task 0.0 in stage {}.0"


class Driven:
    """A query and a clock."""

    def __init__(self, *, realtime: bool = False) -> None:
        self.life, self.now, self.realtime = QueryLife(), 100.0, realtime

    def start(self, batches: int = 0) -> None:
        """Have a run begin, and end as many batches."""
        self.handle(StartAsked())
        self.handle(Started(self.life.run, self.realtime))
        for _ in range(batches):
            self.handle(BatchEnded())

    def handle(self, event: Event) -> Instructions:
        found = self.life.handle(event, self.now)
        self.life.check()
        return found

    def fail(self, cause: Cause = Cause.ROWS, why: str = CAST, *, after_s: float | None = None, **more: Any) -> Any:
        """Start once the back-off is over, or `after_s` seconds after the last failure, and fail; returns the back-off,
        None if the query was given up."""
        batches, ran_s = more.pop("batches", 0), more.pop("ran_s", 0.0)
        self.now = max(self.now, self.life.retry_at) if after_s is None else self.now + after_s
        self.start(batches)
        self.now += ran_s
        (tell,) = (each for each in self.handle(Failed(why.format(self.life.run), cause, **more)) if type(each) is Tell)
        return tell.detail.get("retry_in_s")


def tries(driven: Driven, *causes: Cause) -> list[float | None]:
    return [driven.fail(cause, cause.value) for cause in causes]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_back_offs_grow_and_the_last_failure_is_final() -> None:
    driven = Driven()
    assert tries(driven, *[Cause.MAY_PASS] * (len(BACK_OFF_S) + 1)) == [*BACK_OFF_S, None]
    assert (driven.life.state, driven.life.failures) == (State.GAVE_UP, len(BACK_OFF_S))


@pytest.mark.parametrize(("ran_s", "batches"), [(RECOVERED_AFTER_S + 1, 1), (RECOVERED_IDLE_S + 1, 0)])
def test_a_long_run_resets_the_count_once(ran_s: float, batches: int) -> None:
    driven = Driven()
    tries(driven, Cause.MAY_PASS, Cause.MAY_PASS)
    assert driven.fail(Cause.MAY_PASS, ran_s=ran_s, batches=batches) == BACK_OFF_S[0]
    driven.now = driven.life.retry_at
    driven.handle(StartAsked())
    driven.handle(Failed("no such table"))  # it did not start
    assert driven.life.failures == 2


@given(st.lists(st.floats(0.0, RECOVERED_IDLE_S - 1.0), min_size=len(BACK_OFF_S) + 1, max_size=len(BACK_OFF_S) + 1))
def test_batches_that_always_fail_come_to_an_end_however_long_they_take(ran: list[float]) -> None:
    driven = Driven()
    found = [driven.fail(Cause.MAY_PASS, "out of memory", ran_s=ran_s) for ran_s in ran]
    assert found == [*BACK_OFF_S, None]


@given(st.lists(st.tuples(st.floats(0.0, 300.0), st.integers(0, 2)), max_size=40))
def test_only_runs_that_ended_a_batch_earn_more_tries(runs: list[tuple[float, int]]) -> None:
    driven, failures = Driven(), 0
    for ran_s, batches in runs:
        failures = 0 if batches and ran_s > RECOVERED_AFTER_S else failures
        expected = BACK_OFF_S[failures] if failures < len(BACK_OFF_S) else None
        assert driven.fail(Cause.MAY_PASS, "out of memory", ran_s=ran_s, batches=batches) == expected
        if expected is None:
            return
        failures += 1


def restarts(driven: Driven, times: int, *, every_s: float, batches: int) -> None:
    """Have it restart in order, each time after as many seconds and batches."""
    for _ in range(times):
        driven.now += every_s
        for _ in range(batches):
            driven.handle(BatchEnded())
        assert driven.handle(RestartAsked()) == (GoOn(),)
        driven.handle(RunEnded())
        driven.start()


@pytest.mark.parametrize(
    ("restarts_before", "batches", "waits"),
    [(13, 1, [BACK_OFF_S[0]] * 7), (5, 1, [*BACK_OFF_S, None]), (13, 0, [*BACK_OFF_S, None])],
)
def test_restarts_in_order_do_not_end_the_time_without_a_failure(
    restarts_before: int, batches: int, waits: list[float | None]
) -> None:
    """Each run is shorter than what resets the count; it counts only that batches have ended."""
    driven, found = Driven(), list[float | None]()
    while None not in found and len(found) < len(waits):
        driven.now = max(driven.now, driven.life.retry_at)
        driven.start()
        restarts(driven, restarts_before, every_s=5.0, batches=batches)
        (tell,) = (each for each in driven.handle(Failed("no broker")) if isinstance(each, Tell))
        found.append(tell.detail.get("retry_in_s"))
    assert found == waits


def test_rows_that_a_run_has_passed_before_a_restart_are_no_reason_to_give_up() -> None:
    driven = Driven()
    for _ in range(3):
        driven.now = max(driven.now, driven.life.retry_at)
        driven.start(batches=1)
        restarts(driven, 1, every_s=5.0, batches=0)
        (tell,) = (each for each in driven.handle(Failed(CAST, Cause.ROWS)) if isinstance(each, Tell))
        assert tell.detail.get("retry_in_s") == ROWS_BACK_OFF_S[0]


def test_a_restart_from_time_to_time_is_due_once_a_batch_has_ended() -> None:
    driven = Driven()
    driven.start()
    driven.now += 60.0
    assert not driven.life.refresh_due(5.0, driven.now)  # it still reads its first batch
    assert driven.life.refresh_due(5.0, driven.now, idle=True)  # it will end none
    driven.handle(BatchEnded())
    assert driven.life.refresh_due(5.0, driven.now)
    assert not driven.life.refresh_due(61.0, driven.now, idle=True)
    driven.handle(SuspendAsked("no room"))
    assert not driven.life.refresh_due(5.0, driven.now, idle=True)


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("ends", [(RestartAsked("for tables"), RunEnded()), (ServerLost("tm1 was lost", "tm1"),)])
@pytest.mark.parametrize("ran_s", [RECOVERED_AFTER_S - 2, RECOVERED_AFTER_S + 2])
def test_time_in_which_it_is_stopped_is_none_without_a_failure(
    ends: Sequence[Event], ran_s: float, starts: bool
) -> None:
    driven = Driven()
    tries(driven, Cause.MAY_PASS, Cause.MAY_PASS)
    driven.now = driven.life.retry_at
    driven.start(batches=1)
    driven.now += ran_s
    for event in ends:
        driven.handle(event)
    driven.now += RECOVERED_IDLE_S + 1  # it waits for a place
    driven.handle(RunEnded())
    if starts:
        driven.start(batches=1)
        driven.now += 1.0
    else:
        driven.handle(StartAsked())
    driven.handle(Failed("it broke"))
    assert driven.life.failures == (1 if ran_s > RECOVERED_AFTER_S else 3)


@pytest.mark.parametrize(("realtime", "before"), [(False, 0), (True, 2)])
def test_rows_that_fail_are_tried_again_once_what_they_read_may_have_been_fixed(realtime: bool, before: int) -> None:
    """Each try writes the rows in front of them once more. In real-time mode a batch may end in front of them."""
    driven = Driven(realtime=realtime)
    assert driven.fail(batches=5) == ROWS_BACK_OFF_S[0]
    assert driven.fail(batches=before) is None
    assert (driven.life.state, driven.life.failures) == (State.GAVE_UP, 1)
    assert "twice" in driven.life.failure


def test_other_failures_between_two_tries_of_the_same_rows_do_not_hide_these() -> None:
    """Two tasks with such rows may fail in turns."""
    driven = Driven()
    found = [driven.fail(cause, why) for cause, why in [(Cause.ROWS, "a"), (Cause.MAY_PASS, "b"), (Cause.ROWS, "c")]]
    assert found == [ROWS_BACK_OFF_S[0], BACK_OFF_S[1], ROWS_BACK_OFF_S[0]]
    assert driven.fail(Cause.ROWS, "a") is None


def test_a_try_before_its_time_is_not_the_last_one() -> None:
    """A move starts it sooner, and nothing outside of its rows had the time to change."""
    driven = Driven()
    driven.fail()
    assert driven.fail(after_s=3.0) == ROWS_BACK_OFF_S[0] - 3.0
    assert driven.fail() is None


@pytest.mark.parametrize(("realtime", "batches"), [(False, 1), (True, 3)])
def test_rows_that_a_run_has_passed_are_no_reason_to_give_up(realtime: bool, batches: int) -> None:
    driven = Driven(realtime=realtime)
    assert [driven.fail(batches=batches) for _ in range(3)] == [ROWS_BACK_OFF_S[0]] * 3


def test_rows_that_fail_after_a_long_batch_have_not_been_passed() -> None:
    driven = Driven()
    assert [driven.fail(ran_s=RECOVERED_AFTER_S + 20.0) for _ in range(2)] == [ROWS_BACK_OFF_S[0], None]


def test_rows_that_cannot_be_sent_are_not_tried_again() -> None:
    assert Driven().fail(Cause.CERTAIN) is None


def test_a_row_that_is_too_large_is_tried_once_more_to_find_its_column() -> None:
    driven = Driven()
    assert driven.fail(Cause.CERTAIN, row_limit=1000) == BACK_OFF_S[0]
    assert driven.life.row_limit == 1000
    assert driven.fail(Cause.CERTAIN, row_limit=1000) is None


def test_a_mode_that_is_refused_is_no_failure_whatever_came_before() -> None:
    driven = Driven()
    tries(driven, *[Cause.MAY_PASS] * len(BACK_OFF_S))
    assert driven.fail(Cause.MODE) == 0.0
    assert driven.life.failures == len(BACK_OFF_S)
    assert driven.handle(RetryDue()) == (GoOn(),)


def test_what_can_not_leave_a_task_manager_keeps_its_tries() -> None:
    driven = Driven()
    assert [driven.fail(Cause.CERTAIN, leaving=True) for _ in range(9)] == [BACK_OFF_S[0]] * 9
    assert driven.life.failures == 0


def test_a_failure_that_is_reported_twice_counts_once() -> None:
    driven = Driven()
    driven.fail(Cause.MAY_PASS)
    assert driven.handle(Failed("once more")) == ()
    assert driven.life.failures == 1


def test_the_time_of_a_stall_is_none_in_which_a_query_recovers() -> None:
    driven = Driven()
    driven.fail(Cause.MAY_PASS)
    driven.start()
    assert driven.handle(Stalled("no batch has ended")) == (GoOn(),)
    driven.now += 2 * RECOVERED_AFTER_S
    found = driven.handle(StallEnded("no batch has ended", stalled_s=2 * RECOVERED_AFTER_S - 1))
    assert [each.kind for each in found if isinstance(each, Tell)] == ["query-stalled"]
    assert driven.life.failures == 2


def test_what_was_given_up_begins_with_all_its_tries_once_the_cause_is_gone() -> None:
    driven = Driven()
    tries(driven, Cause.ROWS, Cause.ROWS)
    assert driven.life.state is State.GAVE_UP
    assert driven.handle(CauseGone()) == (RetryAt(driven.now),)
    assert driven.handle(RetryDue()) == (GoOn(),)
    assert driven.fail(Cause.ROWS) == ROWS_BACK_OFF_S[0]


# -- starts and stops --------------------------------------------------------------------------------------------------


def test_a_start_stops_a_run_that_may_write_on() -> None:
    driven = Driven()
    driven.start()
    assert driven.handle(StartAsked()) == (StartQuery(2),)
    assert driven.life.writing  # so it is stopped before run 2 starts
    driven.handle(RunEnded())
    assert not driven.life.writing
    assert driven.handle(StartAsked()) == (StartQuery(3),)


def test_a_query_that_follows_another_stops_its_run_first() -> None:
    driven = Driven()
    driven.handle(Follows(writes_on=True))
    assert driven.handle(StartAsked()) == (StartQuery(1),)
    assert driven.life.writing


def test_a_run_that_begins_after_its_server_was_lost_counts_no_more() -> None:
    driven = Driven()
    driven.handle(StartAsked())
    driven.handle(ServerLost("tm1 was lost"))
    driven.handle(Started(1))
    assert driven.life.state is State.WAITING


@pytest.mark.parametrize(
    "event",
    [StartAsked(), Failed("x"), Stalled(), WentOn(), StallEnded("x", 1.0), RetryDue(), CauseGone(), RestartAsked(),
     MoveCalledOff(), MoveStopped(), NotStarted("x", "tm2"), OtherFound("tm2"), NoOther(), FirstReported(),
     PlaceAsked(), NotPlaced(), StopAsked(), BatchEnded()],
)  # fmt: skip
def test_stopped_is_final(event: Event) -> None:
    driven = Driven()
    driven.start()
    driven.handle(StopAsked())
    assert driven.handle(event) == ()
    assert driven.life.state is State.STOPPED


def test_a_stop_that_is_undone_goes_on_where_it_was() -> None:
    driven = Driven()
    driven.start()
    for undone, state in [
        (StopUndone(placed=True, runs=True), State.RUNNING),
        (StopUndone(placed=True, why="not fused"), State.BACKING_OFF),
        (StopUndone(placed=False), State.WAITING),
    ]:
        driven.handle(StopAsked())
        driven.handle(undone)
        assert driven.life.state is state
    assert driven.life.failure == "not fused"


def test_a_stop_may_be_of_running_queries_only() -> None:
    driven = Driven()
    assert driven.handle(StopAsked(only_running=True)) == ()
    driven.start()
    assert driven.handle(StopAsked(only_running=True)) == (GoOn(),)


# -- moves -------------------------------------------------------------------------------------------------------------


def moving(*, stopped: bool = True) -> Driven:
    """A query that runs on tm1 and moves to tm2, by hand."""
    driven = Driven()
    driven.start()
    assert driven.handle(MoveAsked("tm2", "tm1", "by hand")) == (StopForMove(),)
    if stopped:
        driven.now += 1.0
        driven.handle(RunEnded())
        assert driven.handle(MoveStopped()) == (StartOn("tm2"),)
    return driven


def test_a_move_is_told_once_its_first_batch_is_reported() -> None:
    driven = moving()
    driven.now += 2.0
    driven.start()
    driven.now += 3.0
    (tell,) = driven.handle(FirstReported(ago_s=1.0))
    assert tell == Tell("move", {"from": "tm1", "to": "tm2", "took_s": 4.0, "why": "by hand"})
    assert driven.handle(FirstReported()) == ()


@pytest.mark.parametrize(
    ("event", "refused"),
    [
        (MoveAsked("tm3", "tm1"), "being moved already"),
        (MoveAsked("tm3", "tm1", only_running=True), "is moving"),
        (MoveAsked("tm2", "tm1", only_running=True), ""),
    ],
)
def test_what_moves_is_not_moved_at_the_same_time(event: MoveAsked, refused: str) -> None:
    driven = moving(stopped=False)
    (*_, why) = [each.why for each in driven.handle(event) if isinstance(each, Refuse)] or [""]
    assert refused in why
    assert (why == "") == (refused == "")
    assert driven.handle(MoveAsked("tm3", "tm1", redirects=True)) == (StopForMove(),)


def test_a_plan_moves_only_what_runs_and_nobody_to_where_it_is() -> None:
    driven = Driven()
    driven.fail(Cause.MAY_PASS)
    assert driven.handle(MoveAsked("tm2", "tm1", only_running=True)) == (Refuse("is backing off"),)
    driven.start()
    assert driven.handle(MoveAsked("tm1", "tm1")) == ()
    driven.handle(StopAsked())
    assert isinstance(driven.handle(MoveAsked("tm2", "tm1"))[0], Refuse)


def test_what_cannot_start_there_is_tried_on_each_other_one_and_then_where_it_was() -> None:
    driven = moving()
    driven.handle(StartAsked())
    told, drop, find = driven.handle(NotStarted("no jar", "tm2"))
    assert (told, drop) == (Tell("query-failed", {"why": "no jar"}), DropRun())
    assert find == FindOther(frozenset({"tm1", "tm2"}))
    assert driven.handle(OtherFound("tm3")) == (StartOn("tm3"),)
    driven.handle(StartAsked())
    assert driven.handle(NotStarted("no jar", "tm2")) == ()  # said twice
    *_, find = driven.handle(NotStarted("no jar", "tm3"))
    assert find == FindOther(frozenset({"tm1", "tm2", "tm3"}))
    assert driven.handle(NoOther()) == (PutBack("tm1"),)
    driven.handle(Failed("no jar", put_back=True))
    assert (driven.life.state, driven.life.move) == (State.BACKING_OFF, None)


def test_what_may_still_write_is_started_nowhere_else() -> None:
    driven = moving()
    driven.handle(StartAsked())
    assert driven.handle(NotStarted("it could not be stopped", "tm2", writes_on=True))[1:] == (PutBack("tm1"),)


def test_what_cannot_be_stopped_stays_and_says_so() -> None:
    driven = moving(stopped=False)
    driven.handle(Failed("nobody answers", writes_on=True, stopping=True))
    assert tells(driven.life.failure, "tm2", "nobody answers")
    assert (driven.life.state, driven.life.move) == (State.BACKING_OFF, None)
    assert driven.handle(MoveStopped()) == ()


def test_a_move_that_is_called_off_leaves_it_where_it_runs() -> None:
    driven = moving(stopped=False)
    driven.handle(MoveCalledOff("tm2 was lost"))
    assert driven.life.state is State.RUNNING
    assert driven.handle(RestartAsked()) == (GoOn(),)


def test_a_loss_becomes_a_move_to_the_task_manager_that_takes_it() -> None:
    driven = moving()
    driven.handle(ServerLost("tm2 was lost", "tm2"))
    assert driven.handle(MoveStopped()) == ()
    driven.handle(PlaceAsked("tm3"))
    driven.start()
    (tell,) = driven.handle(FirstReported())
    assert (tell.detail["from"], tell.detail["to"], tell.detail["why"]) == ("tm2", "tm3", "tm2 was lost")


# -- stopped by a plan -------------------------------------------------------------------------------------------------


def suspended(*, stopped: bool = True) -> Driven:
    driven = Driven()
    driven.start(batches=1)
    assert driven.handle(SuspendAsked("no room")) == (GoOn(),)
    if stopped:
        driven.handle(RunEnded())
        assert driven.handle(Suspended()) == (Tell("stop", {"why": "no room"}),)
    return driven


def test_what_a_plan_stops_waits_and_is_stopped_once() -> None:
    driven = suspended()
    assert driven.handle(SuspendAsked("no room")) == driven.handle(Suspended()) == ()
    for event in (
        RetryDue(),
        CauseGone(),
        PlaceAsked("tm1"),
        RestartAsked(),
        Failed("late"),
        ServerLost("lost", "tm1"),
    ):
        assert not [each for each in driven.handle(event) if not isinstance(each, DropRun)]
        assert (driven.life.state, driven.life.suspended) == (State.SUSPENDED, "no room")


@pytest.mark.parametrize("only_running", [True, False])
def test_what_a_plan_has_stopped_starts_where_it_is_moved_to(only_running: bool) -> None:
    driven = suspended()
    assert driven.handle(MoveAsked("tm1", None, "room", only_running)) == (StartOn("tm1"),)
    driven.now += 2.0
    driven.start()
    (tell,) = driven.handle(FirstReported())
    assert tell == Tell("move", {"to": "tm1", "took_s": 2.0, "why": "room"})
    assert (driven.life.state, driven.life.suspended) == (State.RUNNING, "")


def test_what_a_plan_has_stopped_starts_once_there_may_be_a_place() -> None:
    driven = suspended(stopped=False)
    assert isinstance(driven.handle(MoveAsked("tm2", None))[0], Refuse)
    driven.handle(RunEnded())
    driven.handle(Suspended())
    assert driven.handle(RoomCame("tm2 has joined")) == ()
    assert driven.handle(PlaceAsked("tm2")) == (GoOn(),)
    driven.start()
    (tell,) = driven.handle(FirstReported())
    assert (tell.detail["to"], tell.detail["why"]) == ("tm2", "tm2 has joined")


@pytest.mark.parametrize("ends", ["stopped", "lost"])
def test_a_place_that_comes_while_a_plan_stops_it_is_taken_once_it_has_stopped(ends: str) -> None:
    driven = suspended(stopped=False)
    assert driven.handle(RoomCame("tm2 has joined")) == ()  # its run has not ended
    driven.handle(RunEnded() if ends == "stopped" else ServerLost("tm1 was lost", "tm1"))
    assert driven.handle(Suspended() if ends == "stopped" else SuspendFailed("gone")) == (
        Tell("stop", {"why": "no room"}),
    )
    assert (driven.life.state, driven.life.suspended, driven.life.room) == (State.WAITING, "", None)
    driven.handle(PlaceAsked("tm2"))
    driven.start()
    (tell,) = driven.handle(FirstReported())
    assert (tell.detail["to"], tell.detail["why"]) == ("tm2", "tm2 has joined")


def test_a_place_that_comes_while_a_deployment_stops_it_is_taken_once_that_is_undone() -> None:
    driven = suspended()
    driven.handle(StopAsked())
    assert driven.handle(RoomCame("tm2 has joined")) == ()
    assert driven.handle(StopUndone(placed=False)) == ()
    assert driven.life.state is State.WAITING


def test_a_place_is_forgotten_once_it_is_no_longer_suspended() -> None:
    driven = suspended(stopped=False)
    driven.handle(RoomCame("tm2 has joined"))
    driven.handle(SuspendFailed("nobody answers"))
    assert (driven.life.state, driven.life.room) == (State.BACKING_OFF, None)
    driven.handle(RetryDue())
    driven.start(batches=1)
    assert driven.handle(SuspendAsked("no room")) == (GoOn(),)
    driven.handle(RunEnded())
    driven.handle(Suspended())
    assert driven.life.state is State.SUSPENDED


def test_a_plan_stops_only_what_runs() -> None:
    driven = Driven()
    assert isinstance(driven.handle(SuspendAsked("no room"))[0], Refuse)
    driven = moving()
    assert isinstance(driven.handle(SuspendAsked("no room"))[0], Refuse)
    assert driven.life.suspended == ""


def test_what_a_plan_can_not_stop_is_stopped_by_its_next_start() -> None:
    driven = suspended(stopped=False)
    assert RetryAt(driven.now) in driven.handle(SuspendFailed("nobody answers"))
    assert (driven.life.state, driven.life.suspended) == (State.BACKING_OFF, "")
    driven.handle(RetryDue())
    assert driven.life.writing  # so its next start stops it


def test_what_is_lost_while_a_plan_stops_it_is_stopped() -> None:
    driven = suspended(stopped=False)
    driven.handle(ServerLost("tm1 was lost", "tm1"))
    assert driven.handle(SuspendFailed("it is gone")) == (Tell("stop", {"why": "no room"}),)
    assert driven.life.state is State.SUSPENDED


def test_a_deployment_that_fails_leaves_stopped_what_a_plan_has_stopped() -> None:
    driven = suspended()
    driven.handle(StopAsked())
    assert driven.handle(StopUndone(placed=False)) == ()
    assert (driven.life.state, driven.life.suspended) == (State.SUSPENDED, "no room")


def test_the_story_says_what_happened_and_why() -> None:
    driven = Driven()
    driven.fail(Cause.MAY_PASS, "connection refused")
    driven.handle(RetryDue())
    driven.now += 1.0
    driven.handle(RetryDue())
    driven.start(batches=9)
    driven.handle(ServerLost("tm1 was lost"))
    assert [(step.event, step.after, step.why, step.wait_s) for step in driven.life.steps] == [
        (StartAsked, State.STARTING, "", 0.0),
        (Started, State.RUNNING, "", 0.0),
        (Failed, State.BACKING_OFF, "connection refused", BACK_OFF_S[0]),
        (RetryDue, State.STARTING, "", 0.0),
        (Started, State.RUNNING, "", 0.0),
        (ServerLost, State.WAITING, "tm1 was lost", 0.0),
    ]
    words = [line for _, line in told(driven.life.steps)]
    assert tells(words[2], "running", "backing off", "1 s", "connection refused")


def test_a_query_that_takes_the_place_of_others_goes_on_with_their_stories() -> None:
    first, second, both = Driven(), Driven(), Driven()
    first.start()
    second.now += 1.0
    second.start()
    for each in (second, first):
        each.handle(StopAsked(why="a>b is fused"))
    both.now = 102.0
    both.handle(Follows(why="a>b is fused", steps=(*second.life.steps, *first.life.steps)))
    assert [step.at for step in both.life.steps] == sorted(step.at for step in both.life.steps)
    assert tells(told(both.life.steps)[-1][1], "stopped", "waiting", "a>b is fused")


def test_each_event_has_its_transitions() -> None:
    events = {each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Event)}
    assert set(QueryLife.TRANSITIONS) == events - {Event}
    assert set(WORDS) == events - {
        Event,
        BatchEnded,
        RunEnded,
        MoveStopped,
        OtherFound,
        NoOther,
        FirstReported,
        Suspended,
    }  # which change no state


# -- any events in any order -------------------------------------------------------------------------------------------

CAUSES = st.sampled_from(Cause)
PATTERNS = st.sampled_from(["a", "b"])
MANAGERS = st.sampled_from(["tm1", "tm2", "tm3"])


class AnyLife(RuleBasedStateMachine):
    """A runtime that carries out the instructions at any later time, with runs that write to one checkpoint; events
    come in any order, late and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.life, self.now = QueryLife(), 0.0
        self.placed = False
        self.runs: set[int] = set()  #: that write now
        self.attached = False  #: whether the runtime has a run in hand
        self.starting: StartQuery | None = None  #: a start that was asked for, and is not answered yet
        self.old: list[Event] = []  #: events that may come again
        self.failed_at = self.wait_s = 0.0
        self.stalling = False  #: a stalled run is being stopped
        self.moving = False  #: it is being stopped for a move
        self.suspending = False  #: it is being stopped for a plan
        self.has_room = False  #: a place has come since it was suspended last
        self.bound_for = ""  #: the task manager on which it is to start
        self.seeking: FindOther | None = None  #: another task manager is looked for

    def handle(self, event: Event) -> Instructions:
        before, failures = self.life.state, self.life.failures
        found = self.life.handle(event, self.now)
        self.life.check()
        if self.life.state is not before:
            assert self.life.steps[-1].after is self.life.state
        for each in found:
            if isinstance(each, Tell) and "retry_in_s" in each.detail:
                self.failed_at, self.wait_s = self.now, each.detail["retry_in_s"]
                assert self.wait_s in (0.0, *BACK_OFF_S) or 0.0 < self.wait_s < max(ROWS_BACK_OFF_S) + 1e-6
        self.attached = self.attached and not any(isinstance(each, DropRun) for each in found)
        if isinstance(event, CauseGone | StopUndone):
            self.wait_s = 0.0
        if isinstance(event, RetryDue) and found:
            assert self.now >= self.failed_at + self.wait_s - 1e-9, "sooner than its back-off"
        assert self.life.failures - failures <= 1
        return found

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, StartQuery):
                if self.life.writing:
                    self.stops()
                self.starting = each
            elif isinstance(each, StopForMove):
                self.moving = True
            elif isinstance(each, StartOn):
                self.bound_for = each.target
            elif isinstance(each, FindOther):
                self.seeking = each
            elif isinstance(each, PutBack):
                self.placed = True
                self.handle(Failed("no jar anywhere", put_back=True, writes_on=bool(self.runs)))

    def stops(self) -> None:
        self.runs.clear()
        self.attached = False
        self.handle(RunEnded())

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.starting is None)
    @rule()
    def is_asked_to_start(self) -> None:
        found = self.handle(StartAsked())
        self.placed = self.placed or bool(found)
        self.carry_out(found)

    @precondition(lambda self: self.starting is None)
    @rule()
    def cannot_be_stopped_for_its_start(self) -> None:
        found = self.handle(StartAsked())
        self.placed = self.placed or bool(found)
        if found and self.life.writing:
            self.handle(Failed("it could not be stopped", writes_on=True))
        else:
            self.carry_out(found)

    @precondition(lambda self: self.starting is None and self.life.state is not State.RUNNING)
    @rule(realtime=st.booleans())
    def is_started(self, realtime: bool) -> None:
        self.is_asked_to_start()
        if self.starting is not None:
            self.starts(realtime)

    @precondition(lambda self: self.starting is not None)
    @rule(realtime=st.booleans())
    def starts(self, realtime: bool) -> None:
        start, self.starting = self.starting, None
        assert start is not None
        if self.placed and start.run == self.life.run:  # else the runtime stops it at once
            self.runs.add(start.run)
            self.attached = True
            self.report(Started(start.run, realtime))

    @precondition(lambda self: self.starting is not None)
    @rule(cause=CAUSES)
    def cannot_start(self, cause: Cause) -> None:
        start, self.starting = self.starting, None
        assert start is not None
        if self.placed and start.run == self.life.run:
            self.report(Failed("no jar", cause, start.run))

    @precondition(lambda self: self.runs)
    @rule()
    def ends_a_batch(self) -> None:
        self.report(BatchEnded())

    @precondition(lambda self: self.runs)
    @rule(cause=CAUSES, why=PATTERNS, limit=st.none() | st.just(9), leaving=st.booleans())
    def ends_by_itself(self, cause: Cause, why: str, limit: int | None, leaving: bool) -> None:
        if self.life.state is State.RUNNING:
            self.runs.clear()
            self.attached = False
            self.report(Failed(why, cause, self.life.run, row_limit=limit, leaving=leaving))

    @precondition(lambda self: self.life.state in (State.RUNNING, State.STALLED))
    @rule()
    def stands_still(self) -> None:
        self.stalling = self.handle(Stalled()) == (GoOn(),) or self.stalling

    @precondition(lambda self: self.stalling)
    @rule(ends=st.sampled_from(["stopped", "went on", "cannot be stopped"]))
    def has_ended_its_stall(self, ends: str) -> None:
        self.stalling = False
        if self.life.state is not State.STALLED:  # somebody else has it in hand
            return
        if ends == "went on":
            if self.attached:
                self.report(WentOn())
            return
        if ends == "stopped":
            self.runs.clear()
            self.attached = False
            self.handle(RunEnded())
        self.report(StallEnded("stands still", stalled_s=5.0, writes_on=bool(self.runs)))

    @rule()
    def loses_its_server(self) -> None:
        self.runs.clear()
        self.placed = False
        self.report(ServerLost("tm1 was lost"))

    @rule()
    def is_looked_at(self) -> None:
        self.report(RetryDue(self.placed))

    @rule()
    def has_a_cause_that_goes(self) -> None:
        self.report(CauseGone(self.placed))

    @precondition(lambda self: self.life.state is State.WAITING)
    @rule(cause=CAUSES)
    def is_put_back(self, cause: Cause) -> None:
        self.placed = True
        self.handle(Failed("no jar anywhere", cause, put_back=True, writes_on=bool(self.runs)))

    @rule(event=st.sampled_from([RestartAsked(), PlaceAsked("tm1"), NotPlaced(), FirstReported()]))
    def is_asked_for(self, event: Event) -> None:
        self.report(event)

    @precondition(lambda self: self.starting is None)
    @rule(to=MANAGERS, only_running=st.booleans(), redirects=st.booleans())
    def is_asked_to_move(self, to: str, only_running: bool, redirects: bool) -> None:
        self.carry_out(self.handle(MoveAsked(to, "tm1" if self.placed else None, "by hand", only_running, redirects)))

    @precondition(lambda self: self.moving)
    @rule(ends=st.sampled_from(["stopped", "called off", "cannot be stopped"]))
    def is_stopped_for_its_move(self, ends: str) -> None:
        self.moving = False
        if self.starting is not None or not self.placed:  # somebody else has it in hand
            return
        if ends == "called off":
            if self.attached:
                self.report(MoveCalledOff())
        elif ends == "stopped":
            if self.life.state is State.MOVING:
                self.runs.clear()
                self.attached = False
                self.handle(RunEnded())
            self.carry_out(self.handle(MoveStopped()))
        elif self.life.state is State.MOVING and self.life.move is not None and self.life.move.stopped_at is None:
            self.report(Failed("nobody answers", writes_on=bool(self.runs), stopping=True))
            self.attached = False

    @rule()
    def is_asked_to_be_suspended(self) -> None:
        begun = self.handle(SuspendAsked("no room")) == (GoOn(),)
        self.suspending, self.has_room = begun or self.suspending, self.has_room and not begun

    @precondition(lambda self: self.suspending)
    @rule(stops=st.booleans())
    def is_stopped_for_a_plan(self, stops: bool) -> None:
        self.suspending = False
        if stops:
            if self.life.state is State.SUSPENDED:
                self.runs.clear()
                self.attached, self.placed = False, False
                self.handle(RunEnded())
            self.report(Suspended())
        else:
            self.report(SuspendFailed("nobody answers"))

    @rule()
    def may_have_a_place(self) -> None:
        self.has_room = bool(self.life.suspended)
        self.report(RoomCame("tm2 has joined"))

    @precondition(lambda self: self.bound_for and self.starting is None)
    @rule(starts=st.booleans())
    def is_started_where_it_moves_to(self, starts: bool) -> None:
        target, self.bound_for = self.bound_for, ""
        if self.life.state is not State.MOVING:
            return
        if starts:
            self.is_asked_to_start()
            if self.starting is not None:
                self.starts(realtime=False)
        else:
            self.handle(StartAsked())
            event = NotStarted("no jar", target, writes_on=bool(self.runs))
            self.old.append(event)
            self.carry_out(self.handle(event))

    @precondition(lambda self: self.seeking)
    @rule(to=st.none() | MANAGERS)
    def is_looked_for_elsewhere(self, to: str | None) -> None:
        seeking, self.seeking = self.seeking, None
        assert seeking is not None
        found = to is not None and to not in seeking.tried
        self.carry_out(self.handle(OtherFound(str(to)) if found else NoOther()))

    @rule(only_running=st.booleans())
    def is_stopped(self, only_running: bool) -> None:
        found = self.handle(StopAsked(only_running))
        if found and self.starting is None:  # else once the start is answered
            self.stops()

    @precondition(lambda self: self.starting is None)
    @rule()
    def has_a_stop_that_is_undone(self) -> None:
        self.report(StopUndone(self.placed, runs=self.attached, why="not fused"))

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def hears_again_of(self, data: st.DataObject) -> None:
        """What was reported comes once more. The facts in it that the runtime looks up are those of now."""
        event = data.draw(st.sampled_from(self.old))
        if isinstance(event, Failed | StallEnded):
            event = replace(event, writes_on=bool(self.runs))
        if not isinstance(event, RetryDue | CauseGone | StopUndone | WentOn | MoveCalledOff | ServerLost):
            state, failures = self.life.state, self.life.failures
            self.handle(event)
            if state in (State.BACKING_OFF, State.GAVE_UP, State.STOPPED) and isinstance(event, Failed):
                assert (self.life.state, self.life.failures) == (state, failures)

    def report(self, event: Event) -> None:
        self.handle(event)
        if not isinstance(event, Failed) or not event.writes_on:
            self.old.append(event)

    @invariant()
    def has_one_writer(self) -> None:
        assert len(self.runs) <= 1
        assert self.life.writing or not self.runs, "a start would not stop its run first"
        assert self.runs or self.life.state is not State.RUNNING

    @invariant()
    def takes_a_place_that_has_come(self) -> None:
        suspended = self.life.state is State.SUSPENDED and not self.life.suspending
        assert not (suspended and self.has_room)

    @invariant()
    def says_why_it_does_not_run(self) -> None:
        if self.life.state in (State.GAVE_UP, State.BACKING_OFF):
            assert self.life.failure or any(step.event is CauseGone for step in self.life.steps)

    def teardown(self) -> None:
        """Whatever came: with a task manager and time it runs, waits, or was stopped or given up with a reason."""
        for _ in range(6):
            self.now += 1000.0
            if self.starting is not None:
                self.starts(realtime=False)
            if self.stalling:
                self.has_ended_its_stall("cannot be stopped")
            if self.moving:
                self.is_stopped_for_its_move("stopped")
            if self.suspending:
                self.is_stopped_for_a_plan(stops=True)
            if self.bound_for:
                self.is_started_where_it_moves_to(starts=True)
            if self.seeking:
                self.is_looked_for_elsewhere(None)
            asked = self.handle(PlaceAsked()) + self.handle(RetryDue(self.placed))
            if asked or self.life.state in (State.STARTING, State.MOVING):
                self.is_asked_to_start()
        settled = (State.RUNNING, State.GAVE_UP, State.STOPPED, State.WAITING, State.SUSPENDED)
        assert self.life.state in settled, self.life
        assert not self.life.suspending, self.life
        assert self.life.state is not State.GAVE_UP or self.life.failure


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=50, deadline=None
)  # 100 by default, 1,200 in `make test-all`


def test_the_patterns_of_two_tries_are_equal() -> None:
    assert pattern_of(CAST.format(3)) == pattern_of(CAST.format(12))


def test_a_value_that_the_plan_does_not_know_is_no_failure() -> None:
    driven = Driven()
    assert [driven.fail(Cause.PLAN) for _ in range(9)] == [0.0] * 9
    assert driven.life.failures == 0


def test_a_service_that_does_not_answer_is_waited_for_without_an_end() -> None:
    driven = Driven()
    waits = [driven.fail(Cause.SERVICE) for _ in range(8)]
    assert waits[: len(BACK_OFF_S)] == list(BACK_OFF_S)
    assert waits[len(BACK_OFF_S) :] == [BACK_OFF_S[-1]] * 3
    assert driven.life.failures == 0
    assert driven.fail(Cause.SERVICE, batches=1) == BACK_OFF_S[0]
