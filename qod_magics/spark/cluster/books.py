"""Row accounting ("the books"): every row of a source or stream is processed, dropped, waiting or unreported.

For each feed (a source's topic, or a stream's), arrivals come from the broker's end offsets, reads from each batch's
offsets, and kept rows from its observed metrics. `arrived = processed + dropped + waiting + unreported` holds exactly,
at any instant.

Topics that are written in transactions, or compacted, have offsets without a record. Those that a batch passed are
unreported until a look at the topic says that they hold no row (`Account.gap`), and those at the end of a topic wait
until then (`Account.empty`): real-time mode ends a batch behind the last record that it read, so it never passes the
record with which the last transaction was committed. Neither are rows that arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from qod_magics.application.streams.topic_input import rejects_of
from qod_magics.core.runtime import MISFITS, Count
from qod_magics.spark.cluster.repeats import Repeats
from qod_magics.spark.plans.parsing import SAMPLE, SHOWN
from qod_magics.spark.queries.progress import FeedCount

if TYPE_CHECKING:
    from qod_magics.application.streams.topic_input import Malformed


# --- Incomplete results -----------------------------------------------------------------------------------------------
# Results that lack rows though no shedder dropped them: rows behind a watermark, and state that was lost. Pure.


@dataclass(slots=True)
class Incomplete:
    """What the results of tasks lack, by task, since the start."""

    late: dict[str, int] = field(default_factory=dict)  #: rows that came behind a watermark; see `Batch.late`
    grouped: set[str] = field(default_factory=set)  #: the tasks of which these are rows of groups: at least so many
    watermarks: dict[str, str] = field(default_factory=dict)  #: where they were when rows came late last
    lost_at: dict[str, float] = field(default_factory=dict)  #: when its state was lost, seconds since the epoch

    def add(self, task: str, late: int, grouped: bool, watermark: str | None = None) -> None:
        """Count the late rows of a batch."""
        if late:
            self.late[task] = self.late.get(task, 0) + late
            self.grouped |= {task} if grouped else set()
            self.watermarks |= {task: watermark} if watermark else {}

    def lose_state(self, task: str, at: float) -> None:
        """Note that a task's state was lost at this time, seconds since the epoch."""
        self.lost_at[task] = at

    def restore(self, before: Incomplete) -> None:
        """Return to what was known `before`, and keep what was counted since."""
        self.late = {**before.late, **self.late}
        self.grouped |= before.grouped
        self.watermarks = {**before.watermarks, **self.watermarks}
        self.lost_at = dict(before.lost_at)

    def forget(self, task: str) -> None:
        """Drop a task that is gone."""
        self.late.pop(task, None)
        self.grouped.discard(task)
        self.watermarks.pop(task, None)
        self.lost_at.pop(task, None)

    def copy(self) -> Incomplete:
        """Return a copy for a rollback."""
        return Incomplete(dict(self.late), set(self.grouped), dict(self.watermarks), dict(self.lost_at))

    def texts(self, task: str) -> list[str]:
        """Return a sentence for each reason for which a task's results are incomplete."""
        told = []
        if rows := self.late.get(task):
            told.append(late_text(rows, task in self.grouped, self.watermarks.get(task)))
        if (since := self.lost_at.get(task)) is not None:
            told.append(f"{lost_text(since)}; its results are incomplete there")
        return told


def late_text(rows: int, grouped: bool, watermark: str | None = None) -> str:
    """Such as: at least 3 rows came behind the watermark and are in none of its results, whose sums lack them.

    Args:
        rows: how many.
        grouped: whether there may be more.
        watermark: where it is; a single time far ahead of the others moves it there for good.

    """
    least = "at least " if grouped else ""
    came, are, them = ("row came", "is", "it") if rows == 1 else ("rows came", "are", "them")
    at = f", which was at {watermark}," if watermark else ""
    return (
        f"{least}{rows:,} {came} behind the watermark{at} and {are} in none of its results, whose sums and counts lack "
        f"{them}; a longer delay in withWatermark() waits for such rows"
    )


def lost_text(since: float) -> str:
    """Such as: its state began empty at 12:00:05: windows and groups that were open then lack the rows from before."""
    at = datetime.fromtimestamp(since).astimezone()
    return f"its state began empty at {at:%H:%M:%S}: windows and groups that were open then lack the rows from before"


def deleted_text(rows: int) -> str:
    """Such as: 3 rows were deleted by the topic's retention before they were read, and are in no result."""
    were, are, them = ("row was", "is", "it was") if rows == 1 else ("rows were", "are", "they were")
    return f"{rows:,} {were} deleted by the topic's retention before {them} read, and {are} in no result"


def gone_text(topic: str, rows: int) -> str:
    """Such as: topic trips-3 was deleted, and 12 rows of it that were not read are in no result."""
    if not rows:
        return f"topic {topic} was deleted, and each of its rows that is known was read"
    were, are = ("row", "was not read is") if rows == 1 else ("rows", "were not read are")
    return f"topic {topic} was deleted, and {rows:,} {were} of it that {are} in no result"


def left_text(rows: int, sender: str) -> str:
    """Such as: 3 rows that Trips had sent with other columns are in no result, as they were not read yet."""
    noun, are, they = ("row", "is", "it was") if rows == 1 else ("rows", "are", "they were")
    return f"{rows:,} {noun} that {sender} had sent with other columns {are} in no result, as {they} not read yet"


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets within batches for which no row was counted."""

    starts: Mapping[int, int]  #: by partition with rows or gaps, the first offset of these batches
    offsets: int  #: how many have none, in all partitions

    def and_then(self, starts: Mapping[int, int], offsets: int) -> Gap:
        """Add the gap of a later batch."""
        lowest = {p: min(at, self.starts.get(p, at)) for p, at in starts.items()}
        return Gap({**self.starts, **lowest}, self.offsets + offsets)


@dataclass(slots=True)
class Account:
    """The row accounting of one source or stream."""

    topic: str
    first: dict[int, int]  #: by partition, the offset at which the account was opened
    position: dict[int, int] = field(default_factory=dict)  #: the next offset to read
    processed: int = 0
    dropped: int = 0
    dropped_before: int = 0  #: by the sender's shedder: rows never written to the topic
    unreported: int = 0
    again: int = 0  #: read a second time, as the batch that had read them did not end
    deleted: int = 0  #: of those unreported: deleted by the topic's retention before they were read
    malformed: int = 0  #: of those processed, not parsed
    sample: str | None = None  #: the beginning of such a value, the latest
    tombstones: int = 0  #: of those processed: without a value
    columnless: int = 0  #: of those processed: without any of the columns read
    implausible: int = 0  #: of those processed: with a time outside of the years 1 to 9999
    late_time: str | None = None  #: such a time, the latest, as in `FeedCount`
    misfit: str | None = None  #: what does not fit in the sample, as a clause
    columns: tuple[str, ...] = ()  #: those of its schema, once it is columnless
    found: tuple[str, ...] | None = None  #: the columns that its records have in their place; None: not looked yet
    gap: Gap | None = None  #: of the batches since the last look at the topic
    empty: dict[int, tuple[int, int]] = field(default_factory=dict)  #: by partition, offsets that are known to be empty
    repeats: Repeats = field(default_factory=Repeats)  #: of a stream between tasks: rows that it has twice
    #: by partition, when the batch ended that read up to its position, seconds since 1970: its rows were sent before
    last_read: dict[int, float] = field(default_factory=dict)
    #: by partition, the end of a topic of a pattern that was deleted, as far as it was known; None: it is there
    gone: dict[int, int] | None = None

    def __post_init__(self) -> None:
        self.position = {**self.first, **self.position}

    def next_offset(self, partition: int) -> int:
        """Return the offset from which a partition is read on: 0 in one that is not known yet."""
        return self.position.get(partition, self.first.get(partition, 0))

    def reopened(self, topic: str, begins: Mapping[int, int]) -> Account:
        """Return the account of the same stream on a new topic, which is read from these offsets on: its counts go on
        where they were when the last row of the old topic had been read, or deleted."""
        unreported = self.unreported + self.lost
        arrived = self.processed + self.dropped + unreported
        return replace(
            self,
            topic=topic,
            first={**begins, 0: begins.get(0, 0) - arrived},
            position=dict(begins),
            unreported=unreported,
            deleted=self.deleted_unread,
            gone=None,
            gap=None,
            empty={},
            repeats=Repeats(self.repeats.rows),
            last_read={},
        )

    @property
    def lost(self) -> int:
        """Return the rows of a topic that was deleted which no batch has read. A batch that was under way when it was
        found deleted may still report some."""
        return 0 if self.gone is None else sum(self._unread(self.gone).values())

    @property
    def deleted_unread(self) -> int:
        """Return the rows that were deleted before they were read, by the topic's retention or with the topic."""
        return self.deleted + self.lost

    def take(self, feed: FeedCount, ended: float | None = None) -> float:
        """Enter one batch, which has `ended` (seconds since 1970).

        Rows between the last known position and the batch's start are unreported: read in a batch whose report was lost
        (task manager killed), or deleted by the broker's retention. Rows re-read from before that position count as
        arrived again. A batch that ends before its start has read nothing: the topic was deleted and created again
        meanwhile, and Spark goes on at its end, past the rows there, which are unreported. Before the first batch of a
        new generator of rows there are none.

        Returns how many times the batch counted each row: 2.0 for a recipe that reads its input twice, 1.0 where its
        counts are known to be of one pass.
        """
        read, began = 0, {}
        for partition, end in feed.end.items():
            known = self.position.get(partition, self.first.setdefault(partition, 0))
            start = began[partition] = known if feed.start is None else feed.start.get(partition, known)
            if start < known:  # re-read from an older checkpoint, or the topic was recreated: arrived again
                self.first[partition] -= known - start
                self.again += known - start
                self.empty.pop(partition, None)
            elif feed.restarted:
                self.first[partition] += start - known
            else:
                self.unreported += start - known
            if end < start:
                self.first[partition] -= start
                self.unreported += end
                self.empty.pop(partition, None)
            else:
                read += end - start
            self.position[partition] = end
            if end != known:
                self._read_by(partition, ended)
        times = max((feed.read or 0) / max(read, 1), 1.0)
        feed = feed.counted_once(read)
        if feed.read is None or feed.kept is None:
            self.unreported += read
            return 1.0
        self.processed += feed.kept
        self.malformed += feed.malformed
        self.sample = feed.sample or self.sample
        self.tombstones += feed.tombstones
        self.columnless += feed.columnless
        self.implausible += feed.implausible
        self.late_time = feed.late_time or self.late_time
        self.dropped += feed.read - feed.kept
        if read > feed.read:
            self.unreported += read - feed.read
            starts = {partition: end for partition, end in began.items() if end < feed.end[partition]}
            self.gap = (
                Gap(starts, read - feed.read) if self.gap is None else self.gap.and_then(starts, read - feed.read)
            )
        return times

    def go_on(self, ended: Mapping[int, int], again: int) -> int:
        """Go on where a checkpoint is, which is ahead of these books: rows in between were read, but their reports were
        lost. `again`: rows of a batch that was under way, which is read a second time. Returns the rows in between."""
        between = sum(max(offset - self.next_offset(p), 0) for p, offset in ended.items())
        for partition, offset in ended.items():
            if offset > self.next_offset(partition):
                self.position[partition] = offset
                self._read_by(partition, None)
        self.unreported += between
        self.again += again
        return between

    def _read_by(self, partition: int, at: float | None) -> None:
        """Note when the position of a partition was reached; None: not known."""
        if at is None:
            self.last_read.pop(partition, None)
        else:
            self.last_read[partition] = at

    def settle(self, gap: Gap) -> None:
        """Take the offsets of a gap for offsets without a row: no row has arrived there."""
        self.unreported -= gap.offsets
        partition = min(gap.starts, default=0)
        self.first[partition] = self.first.get(partition, 0) + gap.offsets

    @property
    def is_columnless(self) -> bool:
        """Return whether all rows so far were JSON objects without any of the columns read."""
        rows = self.processed - self.malformed - self.tombstones - self.implausible
        return self.columnless > 0 and self.columnless >= rows

    @property
    def next_rows(self) -> dict[int, int]:
        """`next_row` of each partition."""
        return {partition: self.next_row(partition) for partition in self.position}

    def next_row(self, partition: int) -> int:
        """Return the first offset of a partition that may hold a row which has not been read."""
        position = self.next_offset(partition)
        begin, end = self.empty.get(partition, (0, 0))
        return end if begin <= position < end else position

    def waiting(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Return rows that wait to be read by partition, given the broker's end offsets; see `count`."""
        return self._unread(ends) if self.gone is None else {}

    def _unread(self, ends: Mapping[int, int]) -> dict[int, int]:
        return {
            partition: max(ends.get(partition, 0) - max(self.next_row(partition), self.next_offset(partition)), 0)
            for partition in sorted(ends.keys() | self.position.keys())
        }

    def count(self, ends: Mapping[int, int]) -> Count:
        """Return the row counts now, given the broker's end offsets. These may predate the last batch entered: rows
        that it read count as arrived."""
        waiting, lost = sum(self.waiting(ends).values()), self.lost
        known = (ends if self.gone is None else self.gone).keys() | self.position.keys()
        read = sum(self.next_offset(p) - self.first.get(p, 0) for p in known)
        arrived = waiting + lost + read
        misfits = {kind: getattr(self, kind) for kind in MISFITS}
        repeated = {"read_again": self.again, "sent_again": self.repeats.rows}
        unreported = self.unreported + lost
        return Count(arrived, self.processed, self.dropped, waiting, unreported, **misfits, **repeated)


def furthest_behind(accounts: Sequence[Account]) -> Account:
    """Return the account of a task that takes the place of all readers of a topic, one or more: that of the slowest.
    Where none is behind the others in every partition, one that is opened at the lowest offsets: its counts begin
    there, as those of no other are about the rows from there on. What the others have read already is read again."""
    partitions = sorted({p for account in accounts for p in account.first.keys() | account.position.keys()})
    lowest = {p: min(account.next_offset(p) for account in accounts) for p in partitions}
    last = (a for a in accounts if all(a.next_offset(p) == offset for p, offset in lowest.items()))
    return next(last, Account(accounts[0].topic, lowest))


# --- Malformed rows ---------------------------------------------------------------------------------------------------
# There is an event when they begin, then at most one a minute by feed and kind; a status has all of them.

#: Seconds between two events of one feed.
EVERY_S = 60.0
#: Seconds of a year, and within how many years after 1970 a number of milliseconds is likely meant.
YEAR_S, LIKELY_YEARS = 365.2425 * 86_400, 200
#: What became of such values, as the end of a sentence.
_OUTCOME: Mapping[Malformed, str] = {
    "drop": "dropped",
    "keep": "kept, with null where a value does not fit",
    "fail": "the reason why the query failed",
}


def outcome(malformed: Malformed) -> str:
    """Return what became of malformed values, as the end of a sentence."""
    rejects = rejects_of(malformed)
    return _OUTCOME[malformed] if rejects is None else f"sent to the topic {rejects}"


@dataclass(slots=True)
class _Feed:
    untold: int = 0  #: rows since the last event
    told_at: float | None = None  #: seconds of the clock given; None: never


@dataclass(slots=True)
class MalformedReports:
    """Decides when an event is due."""

    feeds: dict[str, _Feed] = field(default_factory=dict)

    def add(self, feed: str, rows: int, now: float) -> int:
        """Add rows that a batch of this feed could not parse, at `now` (seconds of any one clock). Returns how many an
        event is due for, 0: none."""
        known = self.feeds.setdefault(feed, _Feed())
        known.untold += rows
        if not known.untold or (known.told_at is not None and now - known.told_at < EVERY_S):
            return 0
        due, known.untold, known.told_at = known.untold, 0, now
        return due


def malformed_event(topic: str, task: str, rows: int, why: str) -> dict[str, Any]:
    """Return the detail of an event about values of a topic."""
    return {"topic": topic, "task": task, "rows": rows, "why": why}


def malformed_text(
    rows: int, sample: str | None, malformed: Malformed, misfit: str | None = None, form: str = "JSON"
) -> str:
    """Such as: 3 values are not JSON of its schema and were dropped, such as 'not json'.

    Args:
        rows: how many.
        sample: the beginning of one.
        malformed: what happens to them.
        misfit: what does not fit in the sample, as a clause; None: unknown.
        form: the format.

    """
    values, were = ("1 value is", "was") if rows == 1 else (f"{rows:,} values are", "were")
    text = " ".join((sample or "").split())
    example = f", such as {text if len(text) <= SHOWN else f'{text[: SHOWN - 1]}…'!r}" if text else ""
    because = f": {misfit}" if misfit and text else ""
    return f"{values} not {form} of its schema and {were} {outcome(malformed)}{example}{because}"


def tombstones_text(rows: int, malformed: Malformed) -> str:
    """Such as: 3 records have no value (tombstones) and make no row."""
    records, have = ("1 record has", "makes") if rows == 1 else (f"{rows:,} records have", "make")
    outcome = f"{have} a row of nulls" if malformed == "keep" else f"{have} no row"
    return f"{records} no value (tombstones) and {outcome}"


def implausible_text(rows: int, late_time: str | None, malformed: Malformed) -> str:
    """Such as: 2 rows have a time outside of the years 1 to 9999 and were dropped, such as at = 1764201600000 ..."""
    values, were = ("1 row has", "was") if rows == 1 else (f"{rows:,} rows have", "were")
    return f"{values} a time outside of the years 1 to 9999 and {were} {outcome(malformed)}{_example(late_time)}"


def _example(late_time: str | None) -> str:
    if late_time is None:
        return ""
    column, _, micros = late_time.rpartition("=")
    seconds = int(micros) // 1_000_000
    year = 1970 + int(seconds / YEAR_S)
    told = f", such as {column} = {seconds} in the year {year}: numbers are seconds since 1970"
    if 0 < seconds / 1e3 / YEAR_S < LIKELY_YEARS:
        meant = datetime.fromtimestamp(seconds / 1e3, UTC)
        return f"{told}, --time-unit ms reads it as {meant:%Y-%m-%d %H:%M:%S}"
    return f"{told}, --time-unit ms, us or ns reads others"


def columnless_text(rows: int, columns: Sequence[str], found: Sequence[str]) -> str:
    """Such as: no record of 5 has a column of the schema that is read (zone, fare); found: Zone, Fare."""
    records = "its only record has no column" if rows == 1 else f"no record of {rows:,} has a column"
    of = f"the schema that is read ({', '.join(columns)})" if columns else "the schema"
    there = f"; found: {', '.join(found)}" if found else ""
    cases = {name.lower() for name in columns} & {name.lower() for name in found}
    case = " (upper and lower case matter)" if cases else ""
    return f"{records} of {of}{there}{case}"


def misfits(account: Account, malformed: Malformed, form: str = "JSON") -> list[str]:
    """Return a sentence for each kind of records of a topic that do not fit its schema; `form`: the format of its
    values."""
    told = []
    if account.malformed:
        told.append(malformed_text(account.malformed, account.sample, malformed, account.misfit, form))
    if account.tombstones:
        told.append(tombstones_text(account.tombstones, malformed))
    if account.implausible:
        told.append(implausible_text(account.implausible, account.late_time, malformed))
    if account.is_columnless and account.columns and account.found is not None:
        told.append(columnless_text(account.columnless, account.columns, account.found))
    return told


def is_cut(sample: str) -> bool:
    """Return whether a sample may be only the beginning of a value."""
    return len(sample) >= SAMPLE
