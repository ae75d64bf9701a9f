"""Changes of tasks: fusing, unfusing and rescaling, step by step, and what is put back where a step fails. Pure.

A runtime reports events to `TaskChange.handle` and carries out the instructions that it returns. What stops does so at
the end of a batch, so that the next offset of each partition is known. A task whose input topic goes away, or gets more
partitions for its keys, first reads that topic to its end, while its senders stand still. Then the new instances take
over, from the same offsets. Until the new instances run, a failure puts back what ran before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from qod_magics.lifecycle.events import Instruction, Instructions, Tell

#: For how long a task may take to read its topics to the end, seconds; the tasks before it stand still meanwhile.
DRAIN_S = 60.0


class Kind(Enum):
    """What is done with tasks; the value is the kind of the event at its end."""

    FUSE = "fuse"
    UNFUSE = "unfuse"
    SCALE = "scale"

    @property
    def done(self) -> str:
        """Return the participle: "fused"."""
        return f"{self.value.removesuffix('e')}ed"


class Group(Enum):
    """Some of the instances that a change concerns."""

    SENDERS = "senders"  #: those that send to a task that is rescaled
    FIRST = "first"  #: of the task that reads the input of both
    SECOND = "second"  #: of the task that reads the other
    OLD = "old"  #: those that get other partitions, or leave; of the task that is unfused
    NEW = "new"  #: those that take over
    READERS = "readers"  #: of those that take over: all that do not read the input of the change
    ONE = "one"  #: of those that take over and read the input, one
    OTHERS = "others"  #: the others of these


# -- instructions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopAll(Instruction):
    """Stop these at the ends of their batches, or none of them."""

    group: Group


@dataclass(frozen=True, slots=True)
class Drain(Instruction):
    """Look, now or a little later, whether these have read their topics to the end; report `RowsLeft`."""

    group: Group


class GrowTopics(Instruction):
    """Add partitions to the topics that have too few for the new instances."""


class CopyCheckpoints(Instruction):
    """Copy the checkpoints that hold state for the instances that take over, each with the state of its own keys."""


class SwitchOver(Instruction):
    """Put the new instances in the places of the old ones."""


@dataclass(frozen=True, slots=True)
class StartAll(Instruction):
    """Start these. Of new instances, and of those that the change does not change, some may fail: they are tried again
    like any other query, which is no failure of the change."""

    group: Group


@dataclass(frozen=True, slots=True)
class Resume(Instruction):
    """Start these, which were stopped for the change, where they ran."""

    group: Group


class RollBack(Instruction):
    """Stop the new instances, put the old ones in their places, and start these."""


@dataclass(frozen=True, slots=True)
class GiveUp(Instruction):
    """Say that the change was not made, and why."""

    why: str


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """What has happened to a change."""


class ChangeBegins(ChangeEvent):
    """It has been accepted."""


@dataclass(frozen=True, slots=True)
class StandsStill(ChangeEvent):
    """Its first instance stops at this time; else it takes the time from its begin."""

    at: float


@dataclass(frozen=True, slots=True)
class StepEnded(ChangeEvent):
    """An instruction was carried out."""

    step: Instruction


@dataclass(frozen=True, slots=True)
class StepFailed(ChangeEvent):
    """An instruction could not be carried out, or only in part."""

    step: Instruction
    why: str


@dataclass(frozen=True, slots=True)
class RowsLeft(ChangeEvent):
    """These topics are being read to their ends, and this number of rows is left."""

    step: Drain
    rows: int
    idle: bool = True  #: whether no batch is under way


@dataclass(frozen=True, slots=True)
class Overtaken(ChangeEvent):
    """Its tasks are stopped or replaced: it ends where it is."""


# -- the machine -------------------------------------------------------------------------------------------------------


def steps_of(kind: Kind, *, drains: bool = False, carries: bool = False) -> tuple[Instruction, ...]:
    """Return what a change does, in order.

    Args:
        kind: the change.
        drains: a rescaling adds partitions to a topic that is partitioned by a key; a row would otherwise overtake
            older rows of its key, which wait in another partition.
        carries: a task that is rescaled keeps state.

    """
    if kind is Kind.FUSE:
        stops: tuple[Instruction, ...] = (StopAll(Group.FIRST), Drain(Group.SECOND), StopAll(Group.SECOND))
    elif kind is Kind.UNFUSE:
        stops = (StopAll(Group.OLD),)
    else:
        first = (StopAll(Group.SENDERS), Drain(Group.OLD)) if drains else ()
        last = (Resume(Group.SENDERS),) if drains else ()
        copies = (CopyCheckpoints(),) if carries else ()
        stops = (GrowTopics(), StopAll(Group.OLD), *copies)
        return (*first, *stops, SwitchOver(), *last, StartAll(Group.NEW))
    # readers first: nothing is read before all can start; once a reader of rows runs, the change can't be undone
    starts = (StartAll(Group.READERS), StartAll(Group.ONE), StartAll(Group.OTHERS))
    return (*stops, CopyCheckpoints(), SwitchOver(), *starts)


@dataclass(slots=True, repr=False)
class TaskChange:
    """One change of tasks. Times are seconds of any clock that never goes back.

    What always holds (`check`): what is stopped when it ends without success is resumed, or all is rolled back; the new
    instances start only after the old ones have stopped.
    """

    kind: Kind
    name: str  #: the task, or the stream "from>to"
    reader: str = ""  #: the task that reads a topic to its end for it
    drains: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)  #: of the event at its end
    drain_s: float = DRAIN_S
    carries: bool = False
    steps: tuple[Instruction, ...] = field(init=False)
    at: int = -1  #: the present step; -1: it has not begun
    began_at: float = 0.0
    drains_since: float = 0.0
    rows_left: int = 0  #: that the reader had not read when that was looked at last
    stopped: list[Group] = field(default_factory=list)  #: groups that stand still for it
    switched: bool = False  #: whether the new instances have taken over
    ended: bool = False
    refusal: str = ""  #: why it was not made

    def __post_init__(self) -> None:
        self.steps = steps_of(self.kind, drains=self.drains, carries=self.carries)

    def __repr__(self) -> str:
        return f"{self.kind.value} {self.name}: {self.step if self.step is not None else 'ended'}"

    @property
    def step(self) -> Instruction | None:
        """Return the instruction that is carried out now."""
        return self.steps[self.at] if 0 <= self.at < len(self.steps) and not self.ended else None

    def handle(self, event: ChangeEvent, now: float) -> Instructions:
        """Take note of an event and return what is to be done. What comes late or twice changes nothing."""
        if self.ended:
            return ()
        match event:
            case ChangeBegins() if self.at < 0:
                self.began_at = now
                return self._next(now)
            case StandsStill(at) if not self.stopped:
                self.began_at = at
            case StepEnded(step) if step == self.step and not isinstance(step, Drain):
                self._note(step)
                return self._next(now)
            case RowsLeft(step, rows, idle) if step == self.step:
                return self._drained(step, rows, idle, now)
            case StepFailed(step) if step == self.step and self.kind is Kind.SCALE and self.switched:
                return self._next(now)  # what did not start is tried again like any other query
            case StepFailed(step, why) if step == self.step:
                return self._undo(why)
            case Overtaken():
                self.ended = True
                return () if self.switched else tuple(Resume(group) for group in self.stopped)
        return ()

    def check(self) -> None:
        """Raise AssertionError unless what always holds does."""
        assert not self.switched or not {Group.OLD, Group.FIRST, Group.SECOND}.isdisjoint(self.stopped), self
        assert not self.refusal or self.ended, self

    def _next(self, now: float) -> Instructions:
        self.at += 1
        step = self.step
        if step is None:
            self.ended = True
            detail = {**self.detail, "took_s": round(now - self.began_at, 3)}
            return (Tell(self.kind.value, detail),)
        if isinstance(step, Drain):
            self.drains_since = now
        return (step,)

    def _note(self, step: Instruction) -> None:
        if isinstance(step, StopAll):
            self.stopped.append(step.group)
        elif isinstance(step, SwitchOver):
            self.switched = True

    def _drained(self, step: Drain, rows: int, idle: bool, now: float) -> Instructions:
        self.rows_left = rows
        if not rows and idle:
            return self._next(now)
        if now - self.drains_since > self.drain_s:
            return self._undo(f"{self.reader} still has {rows} rows to read after {self.drain_s:g} s: it is behind")
        return (step,)

    def _undo(self, why: str) -> Instructions:
        """Put back what ran before."""
        self.ended, self.refusal = True, why
        if self.switched:
            return RollBack(), GiveUp(why)
        return (*(Resume(group) for group in self.stopped), GiveUp(why))
