"""Looks at the records of topics where the books can't tell what their offsets hold.

Each look opens a consumer for a moment, and there is at most one at a time. It is for
 - rows that seem to wait though nothing arrives and nothing is read: offsets at the end of a topic without a record,
   as the one that commits a transaction,
 - offsets that a batch passed without a row: of a topic that is written in transactions or compacted, unless retention
   deleted the rows, which is reported,
 - rows without any of the columns that are read: what their columns are called,
 - runs that ended within a batch: how many rows they had sent, which are there twice (`Repeats`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.history import OffsetHistory
from qod_magics.kafka.reading import beginning_offsets, count_sent, peek
from qod_magics.sources.registry import kind_of
from qod_magics.spark.cluster.books import Account, Gap, columnless_text, malformed_event
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.repeats import Stretch, repeats_text
from qod_magics.spark.cluster.reports import note_deleted
from qod_magics.spark.plans.job import reader
from qod_magics.spark.plans.shedder import sent_by
from qod_magics.spark.servers.connection import begin

#: For so long, seconds, rows must have waited in a partition without a row that arrives or is read.
STUCK_S = 3.0
#: Records read to find out whether the offsets of a topic have gaps, and what its columns are called.
RECORDS, NAMED = 2000, 20
#: Seconds after a look that failed.
AGAIN_S = 10.0


class Peeks:
    """`look` is to be called about once a second, by one thread."""

    def __init__(
        self,
        cluster: Cluster,
        history: OffsetHistory,
        *,
        begin: Callable[[Callable[[], None], str], Future[None]] = begin,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.cluster = cluster
        self.history = history
        self._begin, self._clock, self._wall = begin, clock, wall
        self._looking: Future[None] | None = None
        self._not_before = 0.0  #: monotonic
        self._stuck: dict[tuple[str, int], tuple[int, int, float]] = {}  #: next row, end, and since when
        self._rows: dict[tuple[str, int], int] = {}  #: offsets at which a row has been seen to wait
        self._with_gaps: set[str] = set()  #: topics in which offsets without a record have been found

    def __repr__(self) -> str:
        return f"looks at records of {len(self.cluster.deployment.accounts)} topics"

    def look(self) -> None:
        """Begin a look if one is due and none is under way."""
        with self.cluster.lock:
            due = self._due(self._clock())
        if due is not None and (self._looking is None or self._looking.done()):
            self._looking = self._begin(partial(self._try, due), "peek")

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaError:  # reported by those that need the broker; the rows stay as they are in the books
            self._not_before = self._clock() + AGAIN_S

    def _due(self, now: float) -> Callable[[], None] | None:
        """Return the look at a topic that is due, if one is; the cluster's lock is held."""
        deployment, found = self.cluster.deployment, None
        stuck: dict[tuple[str, int], tuple[int, int, float]] = {}
        for name, account in deployment.accounts.items():
            if account.gone is not None or not kind_of(account.topic).has_gaps:
                continue
            note_deleted(self.cluster, name, account.topic, 0, now)  # of those found before, what is not told yet
            if account.gap is not None:
                found = found or partial(self._explain, name, account, account.gap)
            if name in deployment.pipes:
                stretches = account.repeats.due(round(self._wall() * 1000))
                if stretches:
                    found = found or partial(self._count_repeats, name, account, stretches)
                continue  # our own producers write neither transactions nor tombstones
            ends = self.history.at(account.topic, now)
            for partition, end in ends.items():
                at = account.next_row(partition)
                if at >= int(end):
                    continue
                position, last, since = self._stuck.get((name, partition), (at, int(end), now))
                stuck[name, partition] = (at, int(end), since if (position, last) == (at, int(end)) else now)
                unseen = self._rows.get((name, partition)) != at
                if unseen and now - stuck[name, partition][2] >= STUCK_S:
                    found = found or partial(self._find_rows, name, account, partition, at, int(end))
            if account.is_columnless and account.found is None:
                found = found or partial(self._name_columns, name, account)
        self._stuck = stuck
        self._rows = {key: at for key, at in self._rows.items() if key in stuck}
        return found if now >= self._not_before else None

    def _kafka(self, topic: str) -> Kafka:
        return self.cluster.deployment.sources.context.of(topic)

    def _count_repeats(self, name: str, account: Account, stretches: Sequence[Stretch]) -> None:
        def repeated(at: int, headers: Iterable[tuple[str, bytes]] | None) -> bool:
            sender = sent_by(headers)
            return any(each.holds(sender, at) for each in stretches)

        kafka, first = self._kafka(account.topic), min(each.after for each in stretches)
        rows = count_sent(kafka, account.topic, first, repeated)
        with self.cluster.lock:
            account.repeats.counted(stretches, rows)
            if rows:
                sender = name.rpartition(">")[0]
                why = repeats_text(rows, sender)
                self.cluster.event("rows-sent-again", stream=name, task=sender, rows=rows, why=why)

    def _find_rows(self, name: str, account: Account, partition: int, start: int, end: int) -> None:
        seen = peek(self._kafka(account.topic), account.topic, partition, start, end)
        with self.cluster.lock:
            if not seen.values and seen.reached > start:
                begun, until = account.empty.get(partition, (0, 0))
                account.empty[partition] = (begun if until == start else start, seen.reached)
                self._with_gaps.add(account.topic)
            elif seen.values:
                self._rows[name, partition] = start
            self._stuck.pop((name, partition), None)

    def _explain(self, name: str, account: Account, gap: Gap) -> None:
        kafka, topic = self._kafka(account.topic), account.topic
        starts = beginning_offsets(kafka, [topic])[topic]
        first = {p: min(starts.get(p, 0), account.next_offset(p)) for p in gap.starts}
        deleted = min(sum(max(first[p] - start, 0) for p, start in gap.starts.items()), gap.offsets)
        for partition, start in gap.starts.items():
            if not deleted and topic not in self._with_gaps:
                seen = peek(kafka, topic, partition, start, account.next_offset(partition), RECORDS)
                if seen.has_gaps:
                    self._with_gaps.add(topic)
        with self.cluster.lock:
            if account.gap is not None and account.gap is not gap:
                left = account.gap.offsets - gap.offsets
                since = {p: max(start, first.get(p, start)) for p, start in account.gap.starts.items()}
                account.gap = Gap(since, left) if left > 0 else None
            else:
                account.gap = None
            if not deleted and topic in self._with_gaps:
                account.settle(gap)
            if deleted:
                account.deleted += deleted
                note_deleted(self.cluster, name, topic, deleted, self._clock())

    def _name_columns(self, name: str, account: Account) -> None:
        names: dict[str, None] = {}
        for partition, position in account.next_rows.items():
            start = max(position - NAMED, account.first.get(partition, 0), 0)
            if start < position:
                seen = peek(self._kafka(account.topic), account.topic, partition, start, position, NAMED)
                for value in seen.values.values():
                    names.update(dict.fromkeys(_keys(value)))
        with self.cluster.lock:
            account.found = tuple(names)
            columns = self._columns(name, account.topic)
            if not set(columns).isdisjoint(names):  # they are there, and null
                return
            account.columns = columns
            why = columnless_text(account.columnless, account.columns, account.found)
            detail = malformed_event(account.topic, reader(name), account.columnless, why)
            self.cluster.event("no-column-of-the-schema", **detail)

    def _columns(self, name: str, topic: str) -> tuple[str, ...]:
        """Return the columns that the reader of a topic reads, as far as its plan tells."""
        for facts in (i.facts for i in self.cluster.instances_of(reader(name)) if i.facts is not None):
            if topic in facts.schemas:
                read = facts.read.get(topic)
                return tuple(c for c in facts.schemas[topic].names if read is None or c in read.columns)
        return ()


def _keys(value: bytes | None) -> list[str]:
    """Return the names in a JSON object; none of a value of another form."""
    try:
        found = json.loads(value or b"")
    except ValueError:
        return []
    return list(found) if isinstance(found, dict) else []
