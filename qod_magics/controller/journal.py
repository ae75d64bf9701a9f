"""What happened to the loop: events, lasting faults, the decision log and the recording."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from qod_magics.controller.clock import Clock
from qod_magics.controller.log import Cycle, Decision, DecisionLog, Entry, batches
from qod_magics.controller.record import RESERVED, Record, Recording, record_of, record_to_json
from qod_magics.core.dag import Dag
from qod_magics.core.plan import Action, AddNode, Fuse, Lend, Move, Refusal, ReleaseNode, Scale, SetBatch, Stop, Unfuse
from qod_magics.core.policy import Reasons
from qod_magics.core.runtime import Event, refused
from qod_magics.core.snapshot import Instance, Keys, differing, is_suspended, replace
from qod_magics.errors import QodError, UsageProblem, counted

# --- Narration: only changes that matter ------------------------------------------------------------------------------

#: actions that are logged once, when a plan first has them
Resizing: TypeAlias = Scale | SetBatch | Lend | Fuse | Unfuse | AddNode | ReleaseNode | Stop

#: a desired accuracy that differs by no more from the last one logged is not worth an entry
WORTH_SAYING = 0.01

#: kinds of entries for events whose own kind is that of the decision
DONE = {"move": "moved", "scale": "scaled", "fuse": "fused", "unfuse": "unfused", "stop": "suspended"}

#: keys of an event's detail that name what it is about
SUBJECTS = ("instance", "task", "task_manager", "from", "to", "source", "stream", "query")

#: as what the ends of a stream run, by kind of event
FUSIONS = {"fuse": "one query", "unfuse": "two queries"}

#: what became of a task manager of a budget, by kind of event
NODES = {
    "task-manager-starting": "starts",
    "task-manager-standby": "stands by",
    "task-manager-failed": "failed",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What the log last reported, so that it is not repeated."""

    desired: Mapping[str, float] = field(default_factory=dict)  #: by task
    moving: Mapping[str, str] = field(default_factory=dict)  #: instance -> task manager
    starved: frozenset[str] = frozenset()
    resizing: frozenset[Action] = frozenset()  #: asked for: parallelism of tasks, fusion, task managers


def narrate(cycle: Cycle, decision: Decision, said: Said) -> tuple[tuple[Entry, ...], Said]:
    """Return the log entries for a cycle's decision, and what the log has reported once they are in it."""
    plan = decision.plan
    dag = Dag.of(decision.snapshot)
    tasks = dag.tasks
    wanted = tasks.values(plan.desired)
    desired = _last_said(said, tasks)
    changed = [t for t in differing(desired, wanted) if abs(wanted[t] - desired[t]) > WORTH_SAYING]
    moves = decision.accepted.moves
    rows = {each.id: each for each in decision.snapshot.instances} if moves else {}
    # a recorded plan may name missing instances: such moves were refused
    going = [move for move in moves if move.instance in rows and _goes(move, rows[move.instance])]
    starved = frozenset(plan.starved)
    entries: list[Entry] = []
    if changed:
        names = [tasks.all[t] for t in changed]
        causes = decision.reasons.shedding(names)
        for t, task in zip(changed, names, strict=True):
            entries.append(_shedding(cycle, task, desired[t], wanted[t], causes[task]))
            desired[t] = wanted[t]
    for move in going:
        if said.moving.get(move.instance) != move.to:
            entries.append(_move(cycle, rows[move.instance], move, decision.reasons))
    resizing = [action for action in decision.accepted.actions if isinstance(action, Resizing)]
    entries += [_resize(cycle, action) for action in resizing if _worth_saying(action) not in said.resizing]
    entries += _starving(cycle, starved, said.starved, decision)
    moving = {move.instance: move.to for move in going}
    return tuple(entries), Said(tasks.mapping(desired), moving, starved, frozenset(map(_worth_saying, resizing)))


def _goes(move: Move, row: Instance) -> bool:
    """Return whether a move changes anything. A suspended instance, which has no task manager, is listed on any."""
    return move.to != row.task_manager or is_suspended(row)


def _worth_saying(action: Resizing) -> Resizing:
    """Return what is worth an entry of an action: that batches take turns, or that rows are lent, not when each is due,
    nor how many: that varies."""
    if isinstance(action, Lend):
        return replace(action, share=0.0)
    turns = isinstance(action, SetBatch) and action.due_s is not None
    return replace(action, due_s=0.0) if turns else action


def _last_said(said: Said, tasks: Keys[str]) -> list[float]:
    """Return the desired accuracies of these tasks that the log last reported; 1 where it reported none."""
    return [said.desired.get(task, 1.0) for task in tasks.all]


def narrate_event(event: Event, cycle: Cycle) -> Entry:
    """Return the log entry for something that happened in the cluster."""
    detail = event.detail
    names = dict.fromkeys(str(detail[key]) for key in SUBJECTS if isinstance(detail.get(key), str))
    numbers = {k: float(v) for k, v in detail.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    kind = DONE.get(event.kind, event.kind)
    return Entry(cycle.number, cycle.at, kind, tuple(names), _words(event), numbers)


def _words(event: Event) -> str:
    detail = event.detail
    reason = f": {detail['why']}" if detail.get("why") else ""
    if event.kind == "stop" and "instance" in detail:
        return f"{detail['instance']} is suspended, and its rows wait{reason}"
    if event.kind == "move" and "instance" in detail and "from" not in detail:
        return f"{detail['instance']} starts on {detail.get('to')}{_took(detail)}{reason}"
    if event.kind == "move" and "instance" in detail:
        return f"{detail['instance']} moved from {detail.get('from')} to {detail.get('to')}{_took(detail)}{reason}"
    if event.kind == "scale" and "task" in detail:
        after, before = counted(detail.get("to"), "instance"), detail.get("from")
        return f"{detail['task']} runs as {after} in place of {before}{_took(detail)}{reason}"
    if event.kind in FUSIONS and "from" in detail:
        return f"{detail['from']} and {detail.get('to')} run as {FUSIONS[event.kind]}{_took(detail)}{reason}"
    if event.kind == "task-manager-up" and "task_manager" in detail:
        return f"{detail.get('task_manager')} is up{_took(detail)}{reason}"
    if event.kind == "task-manager-removed":
        return f"{detail.get('task_manager')} is released{_took(detail, 'after')}{reason}"
    if event.kind in ("warm-up", "warm-up-over"):
        return f"{detail['instance']}{reason}"
    if event.kind in NODES and "task_manager" in detail:
        again = f"; the next start is in {detail['retry_in_s']:.0f} s" if "retry_in_s" in detail else ""
        return f"{detail['task_manager']} {NODES[event.kind]}{_took(detail, 'after')}{reason}{again}"
    facts = [f"{key} {_short(value)}" for key, value in detail.items() if key != "why"]
    return f"{', '.join(facts)}{reason}" if facts else event.kind + reason


def _took(detail: Mapping[str, Any], word: str = "in") -> str:
    return f" {word} {detail['took_s']:.1f} s" if isinstance(detail.get("took_s"), (int, float)) else ""


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(each)}" for key, each in value.items())
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _shedding(cycle: Cycle, task: str, before: float, after: float, because: str) -> Entry:
    verb = ("sheds more" if after < before else "sheds less") if after < 1 else "sheds nothing any more"
    words = f"{task} {verb}: from {before:.2f} to {after:.2f} of its input; {because}"
    return Entry(cycle.number, cycle.at, "shedding", (task,), words, {"before": before, "after": after})


def _starving(cycle: Cycle, now: frozenset[str], before: frozenset[str], decision: Decision) -> Iterator[Entry]:
    if now == before:
        return
    there = {manager.id for manager in decision.snapshot.task_managers}
    for name in sorted((now ^ before) & there):
        numbers = decision.reasons.numbers(name)
        if name in now:
            yield Entry(cycle.number, cycle.at, "starved", (name,), decision.reasons.starved(name), numbers)
        else:
            supply = decision.reasons.supply(name)
            words = f"{name} is no longer starved{': ' if supply else ''}{supply}"
            yield Entry(cycle.number, cycle.at, "starved-over", (name,), words, numbers)


def _move(cycle: Cycle, row: Instance, move: Move, reasons: Reasons) -> Entry:
    source = row.task_manager
    if is_suspended(row):
        words = f"{move.instance} {'starts' if cycle.applied else 'should start'} on {move.to}, where it has a place"
        return Entry(cycle.number, cycle.at, "move", (move.instance, row.task, move.to), words, {})
    verb = "moves" if cycle.applied else "should move"
    because = f": {move.why}" if move.why else ""
    words = f"{move.instance} {verb} from {source} to {move.to}{because}"
    names = tuple(dict.fromkeys((move.instance, row.task, source, move.to)))
    return Entry(cycle.number, cycle.at, "move", names, words, reasons.numbers(source))


def _resize(cycle: Cycle, action: Resizing) -> Entry:
    because = f": {action.why}" if action.why else ""
    if isinstance(action, Scale):
        verb = "is rescaled" if cycle.applied else "should be rescaled"
        words = f"{action.task} {verb} to {counted(action.parallelism, 'instance')}{because}"
        return Entry(cycle.number, cycle.at, "scale", (action.task, *action.to), words, {})
    verb = "is" if cycle.applied else "should be"
    if isinstance(action, SetBatch):
        asked = batches(action.seconds, action.due_s, "begin" if cycle.applied else "should begin")
        turn = {} if action.due_s is None else {"due_s": action.due_s}
        words = f"batches of {action.task} {asked}{because}"
        return Entry(cycle.number, cycle.at, "gap", (action.task,), words, {"gap_s": action.seconds, **turn})
    if isinstance(action, Lend):
        should = "are" if cycle.applied else "should be"
        words = f"{action.share:.0%} of the rows of {action.instance} {should} lent to {action.to}{because}"
        names = (action.task, action.instance, action.to)
        return Entry(cycle.number, cycle.at, "lend", names, words, {"share": action.share})
    if isinstance(action, Fuse | Unfuse):
        kind = "fuse" if isinstance(action, Fuse) else "unfuse"
        should = "are to run" if cycle.applied else "should run"
        words = f"{' and '.join(action.edge)} {should} as {FUSIONS[kind]}{because}"
        return Entry(cycle.number, cycle.at, kind, action.edge, words, {})
    if isinstance(action, Stop):
        words = f"{action.instance} {verb} suspended{because}"
        return Entry(cycle.number, cycle.at, "stop", (action.instance,), words, {})
    if isinstance(action, AddNode):
        words = f"a task manager of kind {action.kind} {verb} started{because}"
        return Entry(cycle.number, cycle.at, "add-node", (), words, {})
    return Entry(cycle.number, cycle.at, "release-node", (action.id,), f"{action.id} {verb} released{because}", {})


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
            raise UsageProblem(
                f"a recording's lines have a {taken!r} of their own; annotate with another name",
                name=taken,
                rule="free name",
            )
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
        """Report a fault; it becomes an event only if it is news."""
        LOG.warning("%s: %s", kind, words)
        if self._faults.report(kind, words, self.cycle):
            self.note(kind, words, **detail)

    def skipped(self, kind: str, words: str, **detail: Any) -> str:
        """Report a fault that leaves the cycle without a decision; return its words."""
        self.fault(kind, words, **detail)
        return words

    def recovered(self, kind: str, words: str) -> None:
        """Report a success; it becomes an event only if it ends a fault."""
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
            LOG.info("#%d %s: %s", entry.cycle, entry.kind, entry.words, extra={"entry": entry})
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
    """Return an error on one line: its message, with its type unless it is a QodError. The log gets the whole error."""
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
    """A fault that is not over."""

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
