"""The life of one instance's query: how it starts, fails, is tried again, moved, given up and stopped. Pure.

A runtime reports events to `QueryLife.handle` and carries out the instructions that it returns: `GoOn` where the event
itself says what comes next. It looks for queries that wait for a task manager, and for due retries, by itself. No other
code changes a field of `QueryLife`. `TRANSITIONS` says which events count in which states; others change nothing, so an
event may come late or twice.

A query that fails is tried again after a back-off that grows, and is given up after the last one. Each try writes the
rows before the failing row once more. Rows that fail by their values are therefore tried fewer times, further apart.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from qod_magics.lifecycle.events import (
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
    Step,
    StopAsked,
    StopForMove,
    StopUndone,
    SuspendAsked,
    Suspended,
    SuspendFailed,
    Tell,
    WentOn,
)

#: Back-off before each restart of a failing query, seconds; after the last it stays stopped.
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: The same where rows fail by their values. The wait leaves time to fix a cause outside of the rows, such as a table
#: that a function reads.
ROWS_BACK_OFF_S = (10.0,)
#: The failure count is reset by this many seconds without a failure, in one run or in several, if a batch ended.
RECOVERED_AFTER_S = 60.0
#: The same if no batch ended: no rows may have arrived, or its first batch may take long and fail.
RECOVERED_IDLE_S = 3600.0
#: After this many batches a run has passed the rows at which the run before it failed; by whether it is in real-time
#: mode. Spark repeats a failed micro-batch as it was. A real-time batch ends after its time, and on a busy machine that
#: may be before those rows.
PASSED_BATCHES: Mapping[bool, int] = {True: 3, False: 1}
#: Latest steps that a query's story keeps.
STEPS_KEPT = 100


@dataclass(frozen=True, slots=True)
class OngoingMove:
    """A move under way, until the first report of the run on the new task manager."""

    source: str | None  #: None: it had no task manager
    target: str  #: "": its task manager was lost, and no other is chosen yet
    why: str
    stopped_at: float | None = None  #: when its run ended; None: it has not yet
    tried: frozenset[str] = frozenset()  #: task managers not to try: where it was, where it did not start


@dataclass(slots=True, repr=False)
class QueryLife:
    """The state of one instance's query. Times are seconds of any clock that never goes back.

    `check` raises unless: failures are 0 or more; a query that backs off or was given up has a story; one that runs may
    write to its checkpoint; and a move under way has stopped its run, or is still about to.
    """

    state: State = State.WAITING
    run: int = 0  #: ordinal of the present run, or of the last one
    begun: bool = False  #: whether it has begun
    over: bool = False  #: whether the failure of the present run was counted
    writing: bool = False  #: whether a run may write to the checkpoint
    realtime: bool = False  #: whether the present run is in real-time mode
    batches: int = 0  #: that the present run has ended
    started_at: float = 0.0  #: when the present run began; 0 once its failure was counted
    ended_at: float = 0.0  #: when it was stopped or lost; 0: it goes on
    before_s: float = 0.0  #: how long before its present run it had not failed, if each run since then ended a batch
    failures: int = 0  #: one after the other, without a long time in between
    failure: str = ""  #: the last one
    final: bool = False  #: whether it was given up for a cause that does not pass by itself
    retry_at: float = 0.0
    service_wait_s: float = 0.0  #: the last back-off for a service; 0 once a batch has ended since
    row_limit: int | None = None  #: the next run looks for rows of more bytes, as Kafka refused one; None: it does not
    move: OngoingMove | None = None
    suspended: str = ""  #: why a plan has stopped it, until it is to start again
    suspending: bool = False  #: whether its run has not ended yet
    room: str | None = None  #: why there may be a place for it; None: there is none, or it is no longer suspended
    #: by pattern of a failure that no run has passed since: how many tries it had, and from when the next one counts
    unpassed: dict[str, tuple[int, float]] = field(default_factory=dict)
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))

    TRANSITIONS: ClassVar[Mapping[type[Event], tuple[frozenset[State], Callable[..., Instructions]]]]

    def __repr__(self) -> str:
        return f"query {self.state.value}, run {self.run}, {self.failures} failures"

    def handle(self, event: Event, now: float) -> Instructions:
        """Take note of an event and return what is to be done. An event that does not count in this state changes
        nothing, and returns nothing."""
        states, react = self.TRANSITIONS[type(event)]
        before = self.state
        if before not in states:
            return ()
        instructions = react(self, event, now)
        if self.state is not before:
            why = self.failure if isinstance(event, Failed | StallEnded) else getattr(event, "why", None) or ""
            if isinstance(event, MoveAsked | OtherFound | PlaceAsked) and event.target:
                why = f"to {event.target}" + (f", {why}" if why else "")
            wait_s = max(self.retry_at - now, 0.0) if self.state is State.BACKING_OFF else 0.0
            self.steps.append(Step(now, type(event), before, self.state, why, wait_s))
        return instructions

    def check(self) -> None:
        """Raise AssertionError unless what always holds does."""
        assert self.failures >= 0, self
        assert self.state not in (State.GAVE_UP, State.BACKING_OFF) or self.steps, self
        assert self.state is not State.RUNNING or self.writing, self
        assert self.move is None or self.move.stopped_at is not None or self.state is State.MOVING, self
        assert self.state is not State.SUSPENDED or (self.suspended and self.move is None), self
        assert not self.suspending or self.suspended, self
        assert self.room is None or (self.suspended and (self.suspending or self.state is State.STOPPED)), self

    # -- start and end -------------------------------------------------------------------------------------------------

    def _follows(self, event: Follows, now: float) -> Instructions:
        self.writing = event.writes_on
        self.steps.extend(sorted(event.steps, key=lambda step: step.at))
        if event.why:
            self.steps.append(Step(now, Follows, State.STOPPED, self.state, event.why))
        return ()

    def _start_asked(self, event: StartAsked, now: float) -> Instructions:
        self._call_off()
        self.state = State.STARTING
        self._unsuspend()
        self.run, self.begun, self.over = self.run + 1, False, False
        return (StartQuery(self.run, self.row_limit),)

    def _started(self, event: Started, now: float) -> Instructions:
        if event.run != self.run or self.begun:
            return ()
        self.before_s = self.before_s + self._ran_s(now) if self.started_at and self.batches else 0.0
        self.begun, self.over, self.ended_at = True, False, 0.0
        self.writing, self.realtime, self.batches, self.started_at = True, event.realtime, 0, now
        moving = self.move is not None and self.move.stopped_at is None  # it is stopped for its move once it has begun
        if self.state is not State.STOPPED and not moving:  # else it began while it was to be stopped or moved
            self.state = State.RUNNING
        return ()

    def _batch_ended(self, event: BatchEnded, now: float) -> Instructions:
        self.batches += self.begun and not self.over
        if self.batches >= PASSED_BATCHES[self.realtime]:
            self.unpassed.clear()
        self.service_wait_s = 0.0
        return ()

    def _run_ended(self, event: RunEnded, now: float) -> Instructions:
        self.writing = False
        self.ended_at = self.ended_at or now
        return ()

    def _stop_asked(self, event: StopAsked, now: float) -> Instructions:
        if event.only_running and self.state is not State.RUNNING:
            return ()
        self._call_off()
        self.state = State.STOPPED
        return (GoOn(),)

    def _stop_undone(self, event: StopUndone, now: float) -> Instructions:
        if event.why is not None:
            self.failure = event.why
        if self.suspended:
            self.state = State.SUSPENDED
            self._take_room(now)
            return ()
        if not event.placed:
            self.state = State.WAITING
            return ()
        if event.runs:
            self.state, self.writing = State.RUNNING, True
            return ()
        return self._back_off_until(now)

    # -- a plan stops it -----------------------------------------------------------------------------------------------

    def _suspend_asked(self, event: SuspendAsked, now: float) -> Instructions:
        if self.state is State.SUSPENDED:
            return ()
        if self.state is not State.RUNNING:
            return (Refuse(f"is {self.state.value}"),)
        self.move = None  # one that is over and not reported yet
        self.state, self.suspended, self.suspending = State.SUSPENDED, event.why or "a plan stops it", True
        return (GoOn(),)

    def _suspended(self, event: Suspended, now: float) -> Instructions:
        if not self.suspending:
            return ()
        self.suspending = False
        told = Tell("stop", {"why": self.suspended})
        self._take_room(now)
        return (told,)

    def _suspend_failed(self, event: SuspendFailed, now: float) -> Instructions:
        """Start it again where it ran, which stops it before; if its task manager was lost, it is suspended."""
        if not self.suspending or not self.writing:
            return self._suspended(Suspended(), now)
        if self.state is not State.SUSPENDED:  # a deployment stops it meanwhile
            self._unsuspend()
            return ()
        self.failure = f"not suspended, for {event.why}"
        self._unsuspend()
        return self._back_off_until(now)

    def _room_came(self, event: RoomCame, now: float) -> Instructions:
        """Place it now or, while it is being stopped, once its stop has ended: the event comes only once."""
        if self.suspended:
            self.room = event.why
        self._take_room(now)
        return ()

    def _take_room(self, now: float) -> None:
        if self.room is None or self.suspending or self.state is not State.SUSPENDED:
            return
        self.state, self.move = State.WAITING, OngoingMove(None, "", self.room, now)
        self._unsuspend()

    def _unsuspend(self) -> None:
        self.suspended, self.suspending, self.room = "", False, None

    # -- failures ------------------------------------------------------------------------------------------------------

    def _failed(self, event: Failed, now: float) -> Instructions:
        if self.state is State.WAITING and not event.put_back:
            return ()  # a late report of a run that was lost
        if event.run is not None and (event.run != self.run or self.over):
            return ()  # a late report, or the second one of this run
        move = self.move
        if move is not None and move.stopped_at is None:
            self.move = None
            if event.stopping:
                event = replace(event, why=f"not moved to {move.target}, for it could not be stopped: {event.why}")
        elif move is not None and event.put_back and move.source is not None:
            self.move = None  # it is where it was
        self._count_recovery(now)
        checks, self.row_limit = self.row_limit is None, None
        if event.row_limit is not None and checks:
            self.row_limit = event.row_limit  # tried once more, with a plan that says which column is too large
            return self._try_again(event, "query-failed", now)
        if event.cause in (Cause.MODE, Cause.PLAN):
            return self._refused(event, now)
        if event.cause is Cause.SERVICE:
            return self._await_service(event, now)
        if event.cause is Cause.CERTAIN:
            return self._give_up(event, "query-failed", certain=True, now=now)
        if event.cause is Cause.ROWS:
            return self._rows_failed(event, now)
        return self._try_again(event, "query-failed", now)

    def _rows_failed(self, event: Failed, now: float) -> Instructions:
        """Try by `ROWS_BACK_OFF_S`. A try that began sooner, such as by a move, is none of these: nothing outside of
        the rows had the time to change."""
        pattern = pattern_of(event.why)
        tries, due = self.unpassed.get(pattern, (0, 0.0))
        if now < due:
            return self._try_again(event, "query-failed", now, due - now)
        if tries >= len(ROWS_BACK_OFF_S):
            return self._give_up(event, "query-failed", certain=True, now=now)
        wait_s = ROWS_BACK_OFF_S[tries]
        self.unpassed[pattern] = tries + 1, now + wait_s
        return self._try_again(event, "query-failed", now, wait_s)

    def _refused(self, event: Failed, now: float) -> Instructions:
        self.failure, self.writing = event.why, event.writes_on
        return (DropRun(), *self._back_off_until(now), Tell("query-failed", {"why": event.why, "retry_in_s": 0.0}))

    def _await_service(self, event: Failed, now: float) -> Instructions:
        """Back off without counting the failure: the service may be away for long."""
        wait_s = min(max(2 * self.service_wait_s, BACK_OFF_S[0]), BACK_OFF_S[-1])
        self.failure, self.writing, self.service_wait_s = event.why, event.writes_on, wait_s
        told = Tell("query-failed", {"why": event.why, "retry_in_s": wait_s})
        return (DropRun(), *self._back_off_until(now + wait_s), told)

    def _stalled(self, event: Stalled, now: float) -> Instructions:
        self.state = State.STALLED
        return (GoOn(),)

    def _stall_ended(self, event: StallEnded, now: float) -> Instructions:
        self._count_recovery(now - event.stalled_s)
        return self._try_again(event, "query-stalled", now)

    def _went_on(self, event: WentOn, now: float) -> Instructions:
        self.state = State.RUNNING
        return ()

    def _count_recovery(self, until: float) -> None:
        """End the present run: reset the failure count if the time without a failure was long enough."""
        least_s = RECOVERED_AFTER_S if self.batches or self.before_s else RECOVERED_IDLE_S
        if self.started_at and self.before_s + self._ran_s(until) > least_s:
            self.failures = 0
        self.started_at, self.before_s, self.batches, self.over = 0.0, 0.0, 0, True

    def _ran_s(self, until: float) -> float:
        """Return how long the present run has run; time in which it was stopped, or waited for a place, is none."""
        return min(until, self.ended_at or until) - self.started_at

    def _try_again(self, event: Failed | StallEnded, kind: str, now: float, least_s: float = 0.0) -> Instructions:
        """Back off for at least `least_s` seconds, or give up after the last try."""
        if self.failures >= len(BACK_OFF_S) and not event.leaving:
            return self._give_up(event, kind, certain=False, now=now)
        wait_s = max(BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)], least_s)
        self.failures += not event.leaving
        self.failure, self.writing = event.why, event.writes_on
        return (
            DropRun(),
            *self._back_off_until(now + wait_s),
            Tell(kind, {"why": self.failure, "retry_in_s": wait_s}),
        )

    def _give_up(self, event: Failed | StallEnded, kind: str, *, certain: bool, now: float) -> Instructions:
        if event.leaving:
            return self._try_again(event, kind, now)
        self.failure = final_text(event.why, self.failures + 1) if certain else event.why
        self.state, self.writing, self.final = State.GAVE_UP, event.writes_on, certain
        return DropRun(), Tell(kind, {"why": self.failure, "gave_up": True, "failures": self.failures})

    def _back_off_until(self, at: float) -> Instructions:
        self.state, self.retry_at = State.BACKING_OFF, at
        return (RetryAt(at),)

    def _retry_due(self, event: RetryDue, now: float) -> Instructions:
        if now < self.retry_at or not event.placed:
            return ()
        self.state = State.STARTING
        return (GoOn(),)

    def _cause_gone(self, event: CauseGone, now: float) -> Instructions:
        self.failures, self.retry_at = 0, now
        self.unpassed.clear()
        if self.state is not State.GAVE_UP:
            return ()
        if not event.placed:  # lost since
            self.state = State.WAITING
            return (GoOn(),)
        return self._back_off_until(now)

    # -- task managers -------------------------------------------------------------------------------------------------

    def refresh_due(self, every_s: float, now: float, *, idle: bool = False) -> bool:
        """Return whether its run is to restart, as it began `every_s` seconds ago or earlier. It must have ended
        a batch, so that batches longer than `every_s` end; or it is `idle`: no rows wait for it."""
        return self.state is State.RUNNING and (idle or self.batches > 0) and now - self.started_at >= every_s

    def _restart_asked(self, event: RestartAsked, now: float) -> Instructions:
        self.state = State.STARTING
        return (GoOn(),)

    def _move_asked(self, event: MoveAsked, now: float) -> Instructions:
        """Stop its run, to move it, or refuse. A plan (`only_running`) may ask for a move that is under way or done:
        that changes nothing."""
        move = self.move
        if self.state is State.STOPPED:
            return (Refuse("was stopped: its task is being deployed again or scaled"),)
        if self.state is State.MOVING and not event.redirects:
            if event.only_running and move is not None and move.target == event.target:
                return ()
            why = "is being moved already: move it again once it is there"
            return (Refuse(f"is {self.state.value}" if event.only_running else why, "one move at a time"),)
        if self.suspending:
            return (Refuse("is being suspended: move it once it has stopped"),)
        if event.only_running and self.state not in (State.RUNNING, State.SUSPENDED):
            return (Refuse(f"is {self.state.value}"),)
        if self.state is State.RUNNING and event.source == event.target:
            return ()
        stops = event.source is not None
        tried = frozenset() if event.source is None else frozenset({event.source})
        self.state = State.MOVING
        self._unsuspend()
        self.move = OngoingMove(event.source, event.target, event.why, None if stops else now, tried)
        return (StopForMove() if stops else StartOn(event.target),)

    def _move_called_off(self, event: MoveCalledOff, now: float) -> Instructions:
        if self._call_off():
            self.state = State.RUNNING
        return ()

    def _call_off(self) -> bool:
        """Forget a move whose run was not stopped yet; return whether there was one."""
        moving = self.move is not None and self.move.stopped_at is None
        if moving:
            self.move = None
        return moving

    def _move_stopped(self, event: MoveStopped, now: float) -> Instructions:
        if self.move is None or self.move.stopped_at is not None:
            return ()
        self.move = replace(self.move, stopped_at=now)
        return (StartOn(self.move.target),)

    def _not_started(self, event: NotStarted, now: float) -> Instructions:
        """Try the other task managers, each once; then where it was. It stays where it was if its earlier run could not
        be stopped: a start elsewhere would be a second writer."""
        move = self.move
        if move is None or move.stopped_at is None or move.target != event.on:
            return ()  # the move was called off, or goes elsewhere by now
        failed = Tell("query-failed", {"why": event.why})
        self.state = State.MOVING
        if event.writes_on:
            return failed, PutBack(move.source or move.target)
        self.writing = False
        self.run += 1  # what this start still reports counts no more
        self.move = replace(move, tried=move.tried | {event.on})
        return failed, DropRun(), FindOther(self.move.tried)

    def _other_found(self, event: OtherFound, now: float) -> Instructions:
        if self.move is None or self.move.stopped_at is None:
            return ()
        self.move = replace(self.move, target=event.target)
        return (StartOn(event.target),)

    def _no_other(self, event: NoOther, now: float) -> Instructions:
        return () if self.move is None else (PutBack(self.move.source or self.move.target),)

    def _first_reported(self, event: FirstReported, now: float) -> Instructions:
        """Tell of a move that is over."""
        move, self.move = self.move, None
        if move is None or move.stopped_at is None:
            return ()
        took_s = round(max(now - event.ago_s - move.stopped_at, 0.0), 3)
        detail = {"from": move.source, "to": move.target, "took_s": took_s, "why": move.why}
        return (Tell("move", {name: each for name, each in detail.items() if each is not None}),)

    def _not_placed(self, event: NotPlaced, now: float) -> Instructions:
        self.state = State.WAITING
        return ()

    def _place_asked(self, event: PlaceAsked, now: float) -> Instructions:
        self.state = State.MOVING
        if self.move is not None:
            self.move = replace(self.move, target=event.target)
        return (GoOn(),)

    def _server_lost(self, event: ServerLost, now: float) -> Instructions:
        self.writing = False
        self.ended_at = self.ended_at or now
        self.run += 1  # what the lost run still reports counts no more
        if event.source is not None:
            self.move = OngoingMove(event.source, "", event.why, now)
        elif self.move is not None and self.move.stopped_at is None:
            self.move = replace(self.move, stopped_at=now)
        if self.state is State.SUSPENDED:
            self.move = None
        if self.state not in (State.GAVE_UP, State.STOPPED, State.SUSPENDED):
            self.state = State.WAITING
        return (DropRun(),)


_ANY = frozenset(State)
_OPEN = _ANY - {State.STOPPED}  #: stopped is final, unless the deployment that stopped it is undone
_TRYING = frozenset({State.WAITING, State.STARTING, State.RUNNING, State.MOVING})

#: By event: the states in which it counts, and what it does.
QueryLife.TRANSITIONS = {
    Follows: (frozenset({State.WAITING, State.STARTING}), QueryLife._follows),
    StartAsked: (_OPEN, QueryLife._start_asked),
    Started: (_ANY, QueryLife._started),
    BatchEnded: (_ANY, QueryLife._batch_ended),
    RunEnded: (_ANY, QueryLife._run_ended),
    Failed: (_TRYING, QueryLife._failed),
    Stalled: (frozenset({State.RUNNING}), QueryLife._stalled),
    WentOn: (frozenset({State.STALLED}), QueryLife._went_on),
    StallEnded: (frozenset({State.STALLED}), QueryLife._stall_ended),
    RetryDue: (frozenset({State.BACKING_OFF}), QueryLife._retry_due),
    CauseGone: (_OPEN, QueryLife._cause_gone),
    RestartAsked: (frozenset({State.RUNNING}), QueryLife._restart_asked),
    MoveAsked: (_ANY, QueryLife._move_asked),
    MoveCalledOff: (frozenset({State.MOVING}), QueryLife._move_called_off),
    MoveStopped: (frozenset({State.MOVING}), QueryLife._move_stopped),
    NotStarted: (frozenset({State.MOVING, State.STARTING}), QueryLife._not_started),
    OtherFound: (frozenset({State.MOVING}), QueryLife._other_found),
    NoOther: (frozenset({State.MOVING}), QueryLife._no_other),
    FirstReported: (frozenset({State.RUNNING}), QueryLife._first_reported),
    PlaceAsked: (frozenset({State.WAITING}), QueryLife._place_asked),
    NotPlaced: (frozenset({State.STARTING}), QueryLife._not_placed),
    ServerLost: (_ANY, QueryLife._server_lost),
    SuspendAsked: (_ANY, QueryLife._suspend_asked),
    Suspended: (_ANY, QueryLife._suspended),
    SuspendFailed: (_ANY, QueryLife._suspend_failed),
    RoomCame: (frozenset({State.SUSPENDED, State.STOPPED}), QueryLife._room_came),
    StopAsked: (_OPEN, QueryLife._stop_asked),
    StopUndone: (frozenset({State.STOPPED}), QueryLife._stop_undone),
}


def pattern_of(why: str) -> str:
    """Return a failure without the numbers of its rows, tasks and stages: equal for two tries of the same rows."""
    return re.sub(r"\d+", "0", why)


def final_text(why: str, tries: int) -> str:
    """Return the message of a query that is given up after this many tries."""
    times = "once" if tries == 1 else "twice" if tries == 2 else f"{tries} times"
    return (
        f"{why}; it is not tried again, as these rows would fail again: rows in front of them in the batch may have "
        f"been written {times}"
    )
