"""What may happen to a query and what is then to be done: states, events, instructions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class State(Enum):
    """Where a query is in its life."""

    WAITING = "waiting"  #: for a task manager
    STARTING = "starting"
    RUNNING = "running"
    MOVING = "moving"
    STALLED = "stalled"  #: no batch ends: its run is being stopped, and is restarted then
    BACKING_OFF = "backing off"  #: failed; starts again at `retry_at`
    GAVE_UP = "given up"
    SUSPENDED = "suspended"  #: by a plan, as it has no place: it starts again when it is moved, or a task manager joins
    STOPPED = "stopped"  #: by a deployment, which may undo that


class Cause(Enum):
    """What a failure says about the next try."""

    MAY_PASS = "may pass"  #: of the broker, of the network, of a task manager
    ROWS = "rows"  #: the same rows fail again unless what they depend on is fixed
    CERTAIN = "certain"  #: the same rows fail in any case
    MODE = "mode"  #: Spark refuses real-time mode, and micro-batches work: this is no failure
    PLAN = "plan"  #: it met a value that its plan does not know, and the next one does: this is no failure
    SERVICE = "service"  #: a service beside the cluster does not answer: it is tried again without an end


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened to a query, or is asked for."""


class StartAsked(Event):
    """It is to start on a task manager, now."""


@dataclass(frozen=True, slots=True)
class Started(Event):
    """Its run has begun."""

    run: int  #: of the `StartQuery` that it follows
    realtime: bool = False


@dataclass(frozen=True, slots=True)
class BatchEnded(Event):
    """A batch of its present run has ended, with rows or without."""


class RunEnded(Event):
    """Its run was stopped, and writes no more."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a query's story."""

    at: float  #: as given to `QueryLife.handle`
    event: type[Event]
    before: State
    after: State
    why: str = ""
    wait_s: float = 0.0  #: the back-off that begins, seconds


@dataclass(frozen=True, slots=True)
class Follows(Event):
    """It takes the place of other queries, which were stopped."""

    writes_on: bool = False  #: whether another one's run may still write to its checkpoint
    why: str = ""
    steps: tuple[Step, ...] = ()  #: of their stories


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """Its run has ended by itself, or it could not be started, or not be stopped for a move."""

    why: str
    cause: Cause = Cause.MAY_PASS
    run: int | None = None  #: the run that it is about, if one had begun or was asked for; None: none was
    writes_on: bool = False  #: whether its run may still write: it is stopped before the next one starts
    row_limit: int | None = None  #: bytes that a row may have, if one was larger
    leaving: bool = False  #: its task manager leaves: attempts to move it off there are not its failures
    put_back: bool = False  #: it was detached, can start nowhere else, and is tried again where it ran
    stopping: bool = False  #: it could not be stopped for its move


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """No batch has ended, or read a row, for long. Next, its run is stopped: `StallEnded`, or `WentOn` if one does
    before that."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class StallEnded(Event):
    """Its run was stopped after a stall, or could not be."""

    why: str
    stalled_s: float
    writes_on: bool = False
    leaving: bool = False


class WentOn(Event):
    """A batch of a stalled query has ended, or read a row, after all, before it was stopped."""


@dataclass(frozen=True, slots=True)
class RetryDue(Event):
    """Time has passed. Next, it is started if its back-off is over: `StartAsked`."""

    placed: bool = True  #: whether it has a task manager


@dataclass(frozen=True, slots=True)
class CauseGone(Event):
    """The cause of its failures is gone, such as a missing topic, or somebody asks for another try. `RetryDue` follows,
    or `PlaceAsked` where it waits for a task manager."""

    placed: bool = True


@dataclass(frozen=True, slots=True)
class RestartAsked(Event):
    """It is to restart where it runs. Next, it is stopped at a batch's end, and started: `StartAsked`."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class MoveAsked(Event):
    """It is to run on another task manager."""

    target: str = ""
    source: str | None = None  #: its task manager now; None: it has none
    why: str = ""
    only_running: bool = False  #: a plan asks: only if it runs, and nothing where that move is under way or done
    redirects: bool = False  #: whether one that is on its way can still be sent elsewhere


@dataclass(frozen=True, slots=True)
class MoveCalledOff(Event):
    """It was not stopped for its move, and goes on where it runs."""

    why: str = ""


class MoveStopped(Event):
    """Its run was stopped for its move."""


@dataclass(frozen=True, slots=True)
class NotStarted(Event):
    """It could not be started on the task manager that it moves to."""

    why: str
    on: str
    writes_on: bool = False  #: whether its earlier run may still write


@dataclass(frozen=True, slots=True)
class OtherFound(Event):
    """There is another task manager for a query that could not be started where it should move to."""

    target: str


class NoOther(Event):
    """No other task manager can take it."""


@dataclass(frozen=True, slots=True)
class FirstReported(Event):
    """The first batch of its present run was reported."""

    ago_s: float = 0.0  #: how long ago it ended


@dataclass(frozen=True, slots=True)
class PlaceAsked(Event):
    """There is a task manager for it, which somebody has found since it waits. Next, it is started: `StartAsked`."""

    target: str = ""


class NotPlaced(Event):
    """There is no task manager for it."""


@dataclass(frozen=True, slots=True)
class ServerLost(Event):
    """Its task manager is gone, and its run with it."""

    why: str = ""
    source: str | None = None  #: the task manager, if it was lost or removed: its next start is a move from there


@dataclass(frozen=True, slots=True)
class SuspendAsked(Event):
    """A plan stops it where it runs, as it has no place: its state and its rows wait. Next, it is stopped at a batch's
    end, and detached from its task manager: `Suspended`, or `SuspendFailed`."""

    why: str = ""


class Suspended(Event):
    """Its run has ended, and it waits for a place."""


@dataclass(frozen=True, slots=True)
class SuspendFailed(Event):
    """It could not be stopped."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class RoomCame(Event):
    """There may be a place for it now."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """It is to end. Next, its run is stopped: `RunEnded`."""

    only_running: bool = False  #: and stays as it is unless it runs
    why: str = ""


@dataclass(frozen=True, slots=True)
class StopUndone(Event):
    """The deployment that stopped it has failed: it goes on as before."""

    placed: bool
    runs: bool = False  #: whether it was not stopped yet
    why: str | None = None  #: what it tells as its failure; None: as before


# -- instructions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instruction:
    """What is to be done next with a query."""


class GoOn(Instruction):
    """It is as the event asked: who reported the event does what it says comes next."""


@dataclass(frozen=True, slots=True)
class StartQuery(Instruction):
    """Stop a run of it that may write on and report `RunEnded`; then start it from its checkpoint, and report `Started`
    or `Failed`."""

    run: int
    row_limit: int | None = None  #: bytes of a row that this run checks, to tell which column is too large


class StopForMove(Instruction):
    """Stop its run at a batch's end; report `MoveStopped`, `MoveCalledOff`, or `Failed` if it can't be stopped."""


@dataclass(frozen=True, slots=True)
class StartOn(Instruction):
    """Ask for its start on this task manager; report `NotStarted` if that fails."""

    target: str


@dataclass(frozen=True, slots=True)
class FindOther(Instruction):
    """Find a task manager for it that is none of these; report `OtherFound` or `NoOther`."""

    tried: frozenset[str]


@dataclass(frozen=True, slots=True)
class PutBack(Instruction):
    """Report `Failed` on this task manager, where it is tried again; `ServerLost` if that is gone."""

    target: str


@dataclass(frozen=True, slots=True)
class Refuse(Instruction):
    """Do nothing, and say why: a predicate of the query, such as "is being moved already"."""

    why: str
    rule: str = "running"  #: that is broken, a short word for programs


class DropRun(Instruction):
    """Forget its run; one that may still write is kept, to be stopped before the next start."""


@dataclass(frozen=True, slots=True)
class RetryAt(Instruction):
    """Report `RetryDue` at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class Tell(Instruction):
    """Publish an event."""

    kind: str
    detail: Mapping[str, Any] = field(default_factory=dict)


Instructions = tuple[Instruction, ...]


# --- The story of a query ---------------------------------------------------------------------------------------------
# The story of a query: what happened to it, and why, in words. Pure.

#: What each event means to a reader.
WORDS: Mapping[type[Event], str] = {
    Follows: "it takes the place of another",
    StartAsked: "it is started",
    Started: "its run began",
    Failed: "it failed",
    Stalled: "it stalled",
    StallEnded: "its stalled run was stopped",
    WentOn: "a batch ended after all",
    RetryDue: "its back-off is over",
    CauseGone: "its cause is gone, or another try was asked for",
    RestartAsked: "it restarts between two batches",
    MoveAsked: "a move was asked for",
    MoveCalledOff: "the move was called off",
    NotStarted: "it could not be started there",
    PlaceAsked: "a task manager takes it",
    NotPlaced: "no task manager takes it",
    ServerLost: "it was detached from its task manager",
    SuspendAsked: "a plan stops it, and its rows wait",
    SuspendFailed: "it could not be stopped",
    RoomCame: "there may be a place for it",
    StopAsked: "a change stops it",
    StopUndone: "the change was undone",
}


def told(steps: Iterable[Step]) -> list[tuple[float, str]]:
    """Return when each step took place, and what it was, such as "running -> backing off for 10 s: it failed: ..."."""
    return [(step.at, _words(step)) for step in steps]


def _words(step: Step) -> str:
    after = step.after.value + (f" for {step.wait_s:.3g} s" if step.wait_s else "")
    why = f": {step.why}" if step.why else ""
    return f"{step.before.value} -> {after}: {WORDS[step.event]}{why}"
