"""What happened to the loop: events, lasting faults, the decision log and the recording."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qod_magics.controller.clock import Clock
from qod_magics.controller.cycle import Cycle, Decision, Entry
from qod_magics.controller.log import DecisionLog
from qod_magics.controller.narration import Said, narrate, narrate_event
from qod_magics.controller.record import RESERVED, Record, record_of, record_to_json
from qod_magics.controller.recording import Recording
from qod_magics.core.plan import Action, Refusal
from qod_magics.core.runtime import Event, refused
from qod_magics.errors import QodError, UsageProblem

LOG = logging.getLogger(__name__)

#: events kept for the recording while no cycle has a line to put them on
UNRECORDED = 1000


class Journal:
    """Collects events between two cycles and reports each once in the log, the cycle and the recording.

    At any given time an event is in exactly one of: collected, waiting for a line, recorded.
    """

    def __init__(self, log: DecisionLog, recording: Recording | None, clock: Clock) -> None:
        self.log = log
        self.recording = recording
        self.cycle = 0  #: number of the cycle under way
        self.annotations: Mapping[str, Any] = {}  #: further keys of the recording's lines
        self._clock = clock
        self._faults = _Faults()
        self._happened: deque[tuple[Event, Entry | None]] = deque()
        self._waiting: deque[Event] = deque(maxlen=UNRECORDED)
        self._said = Said()
        self._refused: set[tuple[Action, str]] = set()  # in the last cycle, with the reason
        self._recorded: tuple[Cycle, Decision] | None = None

    def annotate(self, annotations: Mapping[str, Any]) -> None:
        """Add further keys to the recording's lines; None takes one away. Raises UsageProblem for the format's own."""
        for taken in sorted(RESERVED & annotations.keys()):
            raise UsageProblem(f"a recording's lines have a {taken!r} of their own; annotate with another name")
        merged = {**self.annotations, **annotations}
        self.annotations = {key: value for key, value in merged.items() if value is not None}

    def happened(self, *events: Event) -> None:
        """Collect events. Safe from any thread."""
        self._happened.extend((event, None) for event in events)

    def note(self, kind: str, words: str, **detail: Any) -> None:
        """Collect something that happened to the loop itself. Safe from any thread."""
        entry = Entry(self.cycle, self._clock.wall(), kind, (), words)
        self._happened.append((Event(kind, {"why": words, **detail}), entry))

    def fault(self, kind: str, words: str, **detail: Any) -> None:
        """Report a fault; noted when it is news."""
        LOG.warning("%s: %s", kind, words)
        if self._faults.report(kind, words, self.cycle):
            self.note(kind, words, **detail)

    def skipped(self, kind: str, words: str, **detail: Any) -> str:
        """Report a fault that leaves the cycle without a decision; returns the words."""
        self.fault(kind, words, **detail)
        return words

    def recovered(self, kind: str, words: str) -> None:
        """Report success; noted when it ends a fault."""
        fault = self._faults.clear(kind)
        if fault is not None:
            cycles = "1 cycle" if fault.cycles == 1 else f"{fault.cycles} cycles"
            self.note(f"{kind}-over", f"{words} ({cycles} since cycle {fault.since})", cycles=fault.cycles)

    def refused(self, refusals: Sequence[Refusal]) -> None:
        """Collect an event for each refused action of a plan, unless it was refused for the same reason in the cycle
        before."""
        before, self._refused = self._refused, {(refusal.action, refusal.why) for refusal in refusals}
        self.happened(*(refused(each) for each in refusals if (each.action, each.why) not in before))

    def tell(self, cycle: Cycle) -> Cycle:
        """Log the collected events and the cycle's decision; returns the cycle with the events and entries."""
        events = []
        entries = []
        while self._happened:
            event, entry = self._happened.popleft()
            events.append(event)
            entries.append(entry or narrate_event(event, cycle))
        if cycle.decision is not None:
            try:
                decided, self._said = narrate(cycle, cycle.decision, self._said)
            except Exception as error:  # its wording must not cost a decision
                self.fault("log-failed", f"the decision can't be put into words: {describe(error)}")
            else:
                self.recovered("log-failed", "decisions are put into words again")
                entries += decided
                events += [_starved(entry) for entry in decided if entry.kind in ("starved", "starved-over")]
        cycle = replace(cycle, events=tuple(events), entries=tuple(entries))
        for entry in entries:
            LOG.info("#%d %s: %s", entry.cycle, entry.kind, entry.words)
        self.log.append(entries)
        self.log.decided(cycle)
        return cycle

    def record(self, cycle: Cycle) -> None:
        """Append the cycle to the recording; the events of a cycle without decision wait for the next with one."""
        if self.recording is None:
            return
        if cycle.decision is None:
            self._waiting.extend(cycle.events)
            return
        self._recorded = (cycle, cycle.decision)
        events = (*self._waiting, *cycle.events)
        if self._append(record_of(cycle, cycle.decision, events)):
            self._waiting.clear()
        else:
            self._waiting.extend(cycle.events)

    def close(self, applied: bool = False) -> None:
        """Close the recording. Pending events get a line that repeats the last decision."""
        if self.recording is None:
            return
        while self._happened:
            event, entry = self._happened.popleft()
            self._waiting.append(event)
            if entry is not None:
                self.log.append([entry])  # no cycle will
        if self._waiting and self._recorded is not None:
            cycle, decision = self._recorded
            again = replace(cycle, at=self._clock.wall(), applied=applied)
            if self._append(record_of(again, decision, tuple(self._waiting), repeated=True)):
                self._waiting.clear()
        self.recording.close()

    def _append(self, record: Record) -> bool:
        assert self.recording is not None
        try:
            self.recording.append(record_to_json(record))
        except Exception as error:
            self.fault("recording-failed", f"cycles can't be recorded in {self.recording.path}: {describe(error)}")
            return False
        self.recovered("recording-failed", f"cycles are recorded in {self.recording.path} again")
        return True


def describe(error: BaseException | None) -> str:
    """An error on one line: its message, with its type unless it is a QodError. The whole error is logged."""
    if error is not None:
        LOG.debug("an error of a cycle", exc_info=error)
    words = " ".join(str(error).split())
    if isinstance(error, QodError) and words:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _starved(entry: Entry) -> Event:
    return Event(entry.kind, {"task_manager": entry.names[0], "why": entry.words})


@dataclass(frozen=True, slots=True)
class _Fault:
    """Something that goes wrong at present."""

    words: str
    since: int  #: number of the first cycle
    cycles: int = 1  #: in how many cycles it occurred


class _Faults:
    """The open faults, by kind."""

    def __init__(self) -> None:
        self._open: dict[str, _Fault] = {}

    def report(self, kind: str, words: str, cycle: int) -> bool:
        """Note a fault of this `cycle`. Returns whether it is news: its kind was not open, or had other words."""
        known = self._open.get(kind)
        if known is None:
            self._open[kind] = _Fault(words, cycle)
            return True
        self._open[kind] = _Fault(words, known.since, known.cycles + 1)
        return known.words != words

    def clear(self, kind: str) -> _Fault | None:
        """End and return the fault of this kind; None when there is none."""
        return self._open.pop(kind, None)

    def open(self) -> dict[str, _Fault]:
        """A copy of the open faults, by kind."""
        return dict(self._open)
