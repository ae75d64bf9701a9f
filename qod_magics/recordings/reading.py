"""Recordings read: their phases, events and cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from qod_magics.controller.journal import Said, narrate, narrate_event
from qod_magics.controller.log import Cycle, Decision, DecisionLog, Entry
from qod_magics.controller.record import Record, RecordingError, Records, instant, read, record_from_json
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Plan
from qod_magics.core.policy import Policy, Reasons, StagedPolicy, Unexplained, reasons_of
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import QodError, UsageProblem, listed
from qod_magics.policies import PAPER_POLICY
from qod_magics.policies import policy as policy_named

# --- Phases and events ------------------------------------------------------------------------------------------------
# Queries, sources, streams and events of records; seconds, phases and the settled part of each phase. Pure.
#
# A recording is a sequence of records, one per controller cycle. A scripted run annotates them with `phase`, the name
# of its current part.


@dataclass(frozen=True, slots=True)
class Query:
    """A task without downstream tasks, and its restrictions."""

    id: str
    priority: int  #: higher wins
    min_accuracy: float  #: 0..1
    max_latency_s: float | None = None  #: target of the 95th percentile of its latency, seconds
    p50_s: float | None = None  #: its median latency, seconds
    oldest_s: float | None = None  #: age of the oldest row that is not in its result, seconds


def queries(record: Record) -> dict[str, Query]:
    """Return the queries of a record's snapshot, by id."""
    return {
        task.id: Query(task.id, task.priority, task.min_accuracy, task.max_latency_s, task.latency_p50_s, task.oldest_s)
        for task in record.snapshot.tasks
        if task.priority is not None and task.min_accuracy is not None
    }


def sources(record: Record) -> tuple[str, ...]:
    """Return the tasks of a record's snapshot that read external input."""
    return tuple(task.id for task in record.snapshot.tasks if not task.upstream)


def streams(record: Record) -> tuple[str, ...]:
    """Return the streams of a record's snapshot, as "from>to"."""
    return tuple(f"{stream.source}>{stream.target}" for stream in record.snapshot.streams)


def events(records: Records, *kinds: str) -> Iterator[tuple[int, Event]]:
    """(index of the record, event) for the events of these kinds, of all kinds when none is named."""
    for index, record in enumerate(records):
        for event in record.events:
            if not kinds or event.kind in kinds:
                yield index, event


DEFAULT_SETTLE_S = 20.0

#: after one of these the cluster needs time to settle again
DISTURBANCES = frozenset(
    {"move", "stop", "scale", "fuse", "unfuse", "task-manager-up", "task-manager-lost", "query-restarted"}
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive records with the same `phase`. A name that comes back later is another phase."""

    name: str  #: "" for records that name no phase
    first: int  #: index of its first record
    last: int  #: index of its last record
    start_s: float  #: of its first record, seconds since the start of the recording


def seconds(records: Records) -> tuple[float, ...]:
    """Return the instant of each record in seconds since the first one."""
    return tuple((record.at - records[0].at).total_seconds() for record in records)


def phases(records: Records) -> tuple[Phase, ...]:
    """Return the phases in order; one unnamed phase if the recording names none; () for an empty recording."""
    at = seconds(records)
    found = []
    for name, group in groupby(range(len(records)), key=lambda index: records[index].phase):
        indices = list(group)
        found.append(Phase(name, indices[0], indices[-1], at[indices[0]]))
    return tuple(found)


def is_warming_up(record: Record) -> bool:
    """Return whether an instance of the record's snapshot is warming up."""
    return any(instance.warming_up for instance in record.snapshot.instances)


def settled(records: Records, phase: Phase, settle_s: float = DEFAULT_SETTLE_S) -> tuple[int, ...]:
    """Return indices of the records in the settled part of `phase`; () when it never settled.

    Those are the records at least `settle_s` seconds after the start of the phase and after the last disturbance in it
    (a move, a task manager that joined or was lost, a query that restarted or got another minimum accuracy), with no
    instance warming up. Repeated records are left out.
    """
    at = seconds(records)
    indices = range(phase.first, phase.last + 1)
    disturbed = [at[i] for i in indices if any(event.kind in DISTURBANCES for event in records[i].events)]
    disturbed += [at[i] for i in indices[1:] if _other_minimums(records[i - 1], records[i])]
    from_s = max([phase.start_s, *disturbed]) + settle_s
    return tuple(i for i in indices if at[i] >= from_s and not is_warming_up(records[i]) and not records[i].repeated)


def _other_minimums(before: Record, record: Record) -> bool:
    """Return whether a query of both records has another minimum accuracy in the second one."""
    ours, theirs = (
        {task.id: task.min_accuracy for task in each.snapshot.tasks if task.min_accuracy is not None}
        for each in (before, record)
    )
    return any(ours.get(name, minimum) != minimum for name, minimum in theirs.items())


# --- Recorded cycles: stages, reasons, entries ------------------------------------------------------------------------
# A `Cycle` is made from each record, so that the code that explains a live run explains a recorded one.

#: The stage that sheds: every policy of stages has it, and it can't be paused by itself.
SHED = "shed"
PAUSED, IDLE = "paused", "nothing to do"


@dataclass(frozen=True, slots=True)
class StageNote:
    """What a stage does in one cycle."""

    stage: str
    words: str  #: `PAUSED`, `IDLE`, or a clause that says what it did, or why it did nothing


def policy_notes(policy: Policy, snapshot: Snapshot | None, plan: Plan | None) -> tuple[StageNote, ...]:
    """Return the notes of a policy's stages on `plan`, which it made for this snapshot; () for a policy without stages.
    Before the first cycle there is neither."""
    return _notes(policy.stage_names, policy.paused, snapshot, plan) if isinstance(policy, StagedPolicy) else ()


def recorded_notes(record: Record, paused: Collection[str]) -> tuple[StageNote, ...]:
    """Return the notes of the stages in a recorded cycle, in which these were paused. Of a policy that is not installed
    here: of the stages that had something to say."""
    told = record.plan.stages
    names = _stage_names(record.policy or PAPER_POLICY) or tuple(stage for stage in told if stage != SHED)
    return _notes(names, paused, record.snapshot, record.plan)


def paused_after(paused: frozenset[str], events: Iterable[Event]) -> frozenset[str]:
    """Return the stages that are paused once these events have happened to the controller; `paused`: before."""
    for event in events:
        match event.kind:
            case "policy":  # another one decides, with nothing paused
                paused = frozenset()
            case "stage-paused":
                paused |= {str(event.detail.get("stage"))}
            case "stage-resumed":
                paused -= {str(event.detail.get("stage"))}
    return paused


def _notes(
    names: Sequence[str], paused: Collection[str], snapshot: Snapshot | None, plan: Plan | None
) -> tuple[StageNote, ...]:
    if not names:
        return ()
    told: Mapping[str, str] = {} if plan is None else plan.stages
    found = [StageNote(name, PAUSED if name in paused else told.get(name, IDLE)) for name in names]
    shed = [told[SHED]] if SHED in told else []
    if snapshot is not None and plan is not None:
        shed += _shedding(snapshot, plan)
    return (*found, StageNote(SHED, "; ".join(shed) or IDLE))


def _shedding(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the queries that the plan sheds, with the fraction of their input that they keep."""
    queries = [task.id for task in snapshot.tasks if task.min_accuracy is not None]
    shed = [f"{id} keeps {plan.desired[id]:.2f}" for id in queries if plan.desired.get(id, 1.0) < FULL_ACCURACY]
    return [f"{listed(shed)} of the input"] if shed else []


@cache
def _stage_names(policy: str) -> tuple[str, ...]:
    """Return the stages of the policy of this name that can be paused; () where it has none, or is not installed
    here."""
    try:
        named = policy_named(policy)
    except UsageProblem:
        return ()
    return named.stage_names if isinstance(named, StagedPolicy) else ()


def cycle_of(record: Record) -> Cycle:
    """Return the cycle that a record was made from."""
    policy = record.policy or PAPER_POLICY
    return Cycle(
        number=record.number,
        at=record.at,
        period_s=record.period_s,
        decision=Decision(
            record.snapshot,
            record.measured,
            record.plan,
            record.dials,
            policy,
            record.policy_ms,
            record.current_accuracy,
            _reasons(policy, record.snapshot, record.plan),
        ),
        applied=record.applied,
        events=record.events,
        annotations=record.annotations,
    )


class Narrator:
    """Puts records into words, one after the other, oldest first, and appends the entries to `log`."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._said = Said()

    def entries(self, record: Record) -> tuple[Entry, ...]:
        """Return the entries of the next record for the decision log."""
        cycle = cycle_of(record)
        entries: tuple[Entry, ...] = tuple(
            narrate_event(event, cycle) for event in cycle.events if event.kind not in ("starved", "starved-over")
        )
        if not record.repeated and cycle.decision is not None:
            decided, self._said = narrate(cycle, cycle.decision, self._said)
            entries += decided
        cycle = replace(cycle, entries=entries)
        self._log.append(entries)
        self._log.decided(cycle)
        return entries


def narrated(records: Records, log: DecisionLog) -> Iterator[tuple[Record, tuple[Entry, ...]]]:
    """Yield each record with its entries for the decision log, which are appended to `log` on the way."""
    narrator = Narrator(log)
    for record in records:
        yield record, narrator.entries(record)


def _reasons(name: str, snapshot: Snapshot, plan: Plan) -> Reasons:
    """Return the reasons given by the policy that decided; Unexplained if it is not installed here."""
    try:
        return reasons_of(policy_named(name), snapshot, plan)
    except UsageProblem:
        return Unexplained(name)


# --- Reading and checking lines ---------------------------------------------------------------------------------------


def load(path: Path, since: datetime | None = None, say: Callable[[str], object] = lambda _: None) -> Records:
    """Return the records of a recording, in order; of several sessions that recorded in one file, those of the last.

    Args:
        path: the recording.
        since: only of a session that began then and appends to the file.
        say: receives a line where the file has several runs.

    Raises:
        RecordingError: that names file, line and field.
        OSError: the file can't be read.

    """
    records: list[Record] = []
    earlier = 0
    for number, line in enumerate(read(path), 1):
        try:
            record = record_from_json(line, number)
            if since is not None and not _is_since(record.at, since):
                continue
            if records and not record.repeated and record.number <= records[-1].number:
                records, earlier = [], earlier + 1  # each session counts its cycles from 1
            if records:
                _check_order(record.at, records[-1].at)
        except (QodError, ValueError) as error:
            raise RecordingError(f"{path}, cycle {number}: {error}") from None
        records.append(record)
    if not records and since is not None:
        raise _nothing_since(path, since)
    if not records:
        raise RecordingError(f"{path} is empty; record a run with --record {path}")
    if earlier:
        say(f"{path} holds {earlier + 1} runs: this is the last, of {len(records)} cycles since {_when(records[0].at)}")
    return records


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _nothing_since(path: Path, since: datetime) -> RecordingError:
    """Return the error of a recording without a cycle of a session that began then."""
    return RecordingError(f"{path} has no cycle since {instant(since)}: wait for the first one", rule="has a cycle")


def _is_since(at: datetime, since: datetime) -> bool:
    """Return whether a record is of then or later; recordings have milliseconds, and the zone unless they are of
    old."""
    return at.tzinfo is not None and at >= since.replace(microsecond=since.microsecond // 1000 * 1000)


def _check_order(at: datetime, previous: datetime) -> None:
    if (at.tzinfo is None) != (previous.tzinfo is None):
        raise ValueError(f"at is {at.isoformat()!r}: either all times name their zone, or none")
    if at < previous:
        raise ValueError(f"at is {instant(at)!r}, before the line above it: one recording holds one run")


def newest_records(
    path: Path, since: datetime, most: int, made: Callable[[Mapping[str, Any], int], Record] = record_from_json
) -> tuple[Records, frozenset[str]]:
    """Return the last `most` records of the session that began at `since`, or all if there are fewer, and the stages
    that were paused before the first of them. Older records are not kept in memory; `made` makes one of its line.

    Raises RecordingError that names file and line, also where there are none; OSError when the file can't be read.
    """
    lines: deque[tuple[int, Mapping[str, Any]]] = deque()
    paused: frozenset[str] = frozenset()
    for number, line in enumerate(read(path), 1):
        if _is_before(line, since):
            continue
        lines.append((number, line))
        if len(lines) > most:
            oldest = lines.popleft()
            if oldest[1].get("events"):
                paused = paused_after(paused, _record(path, *oldest, made).events)
    if not lines:
        raise _nothing_since(path, since)
    return [_record(path, *each, made) for each in lines], paused


def _is_before(line: Mapping[str, Any], since: datetime) -> bool:
    try:
        at = datetime.fromisoformat(line["at"])
    except (KeyError, TypeError, ValueError):
        return False  # refused where it is needed
    return not _is_since(at, since)


def _record(
    path: Path,
    number: int,
    line: Mapping[str, Any],
    made: Callable[[Mapping[str, Any], int], Record] = record_from_json,
) -> Record:
    try:
        return made(line, number)
    except (QodError, ValueError) as error:
        raise RecordingError(f"{path}, cycle {number}: {error}") from None
