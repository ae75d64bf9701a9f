"""Exact figures for a query that sheds: a slow batch runs its recipes again over the same offsets of Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from qod_magics.application.streams.sink import Memory
from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import QodError, TaskManagerError, UsageProblem, counted
from qod_magics.kafka.reading import end_offsets, peek
from qod_magics.kafka.rows import Record
from qod_magics.results.exact import CPU, MARGIN_S, Exact, Span, Stretch, chosen, compared, span_of, unknown, whole_from
from qod_magics.results.result import Kind
from qod_magics.session.recomputing import (
    ANSWER_S,
    Query,
    accounts_of,
    idlest,
    query_of,
    recomputed,
    stretch_of,
    written_by,
)
from qod_magics.session.status import instances_with
from qod_magics.spark.queries.progress import report_json
from qod_magics.spark.servers.connection import call_within, reason
from qod_magics.spark.servers.joining import release
from qod_magics.spark.servers.task_manager import INQUIRY_S

if TYPE_CHECKING:
    from qod_magics.session.interface import SessionInterface
    from qod_magics.spark.cluster.books import Account
    from qod_magics.spark.cluster.deployment import Deployment


def exact(
    session: SessionInterface,
    name: str,
    start: str | datetime,
    end: str | datetime,
    *,
    margin_s: float | None = None,
    cpu: float = CPU,
    merge: bool = False,
    began: float | None = None,
    send: Callable[[str, list[Record]], object] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Exact:
    """Return the exact figures of a query's windows: see `session.Session.exact`.

    Args:
        session: the session.
        name: the query.
        start: of the span, and
        end: of the span.
        margin_s: how much earlier and later rows may have been sent, seconds.
        cpu: share of a core that the batch takes.
        merge: whether the figures are written to the query's sink.
        began: when the query began in the middle of its input, seconds since the epoch.
        send: writes records to a topic.
        say: receives a line before the batch begins.

    """
    if not 0.0 < cpu <= 1.0:
        raise UsageProblem(f"--cpu must be above 0 and at most 1, got {cpu:g}", option="--cpu", value=cpu, rule="range")
    if margin_s is not None and margin_s < 0:
        raise UsageProblem(f"--margin must be at least 0 s, got {margin_s:g}", option="--margin", rule="range")
    now = datetime.now(UTC)
    span, query = span_of(start, end, now), query_of(session, name)
    margin = max(MARGIN_S, query.delay_s or 0.0) if margin_s is None else margin_s
    if merge:
        check_merge(session, query, span)
    stretches = {
        stream.name: stretch_of(session, query.spec, stream, span, margin)
        for stream in query.spec.streams
        if stream.topic is not None
    }
    offsets = sum(each.offsets for each in stretches.values())
    topics = sorted({stream.topic.topic for stream in query.spec.streams if stream.topic is not None})
    say(f"reading {offsets:,} offsets of {', '.join(topics)}, with at most {cpu:.0%} of a core")
    begun = time.monotonic()
    manager = idlest(session)
    spark = call_within(manager.for_batch, INQUIRY_S, f"{manager.id}: a session for the batch")
    try:
        texts, read, cpu_s = recomputed(session, manager, spark, query, stretches, span, cpu)
        written = written_by(session, query, span, spark)
    except QodError:
        raise
    except BaseException as error:
        with suppress(Exception):  # Ctrl-C: nothing goes on
            spark.interruptAll()
        if isinstance(error, Exception):
            raise TaskManagerError(
                f"{manager.id} did not finish the batch: {reason(error)}", name=manager.id
            ) from error
        raise
    finally:
        release(spark)
    rows = [json.loads(text) for text in texts]
    whole_since, deleted = _whole_since(session, query.spec, stretches)
    first = max(filter(None, (began, session.runtime.incomplete.lost_at.get(name))), default=None)
    began_at = None if first is None else datetime.fromtimestamp(first, UTC)
    counting = chosen(rows, query.by.name, span, whole_since, began_at)
    groups = compared(counting.rows, written or (), query.columns, query.keys)
    notes = [
        f"rows sent from {margin:g} s before the span to {margin:g} s behind it were read; windows count that lie in "
        "the span as a whole",
        *deleted,
        *_notes(session, query, span, stretches, margin, now),
    ]
    if written is None:
        sink = session.application[name].effective_sink
        notes.append(f"{name} writes to {sink}, which can't be read here: nothing stands beside the exact figures")
    if not manager.reading.reflects and cpu < 1.0:
        notes.append(f"queries on {manager.id} may not sleep: the batch was not held to {cpu:.0%} of a core")
    if counting.cut:
        notes.append(f"{counted(counting.cut, 'group')} left out, as the topic no longer has all rows of their windows")
    if counting.partial:
        notes.append(f"{counted(counting.partial, 'group')} left out: {name} began within their windows, or later")
    if outside := unknown(written or (), rows, query.keys):
        notes.append(
            f"{counted(outside, 'group')} that {name} wrote {'has' if outside == 1 else 'have'} no row among those "
            "read: their rows were sent outside of the margin (--margin), or deleted"
        )
    if read is None:
        read = offsets
        notes.append("Spark did not tell how many rows were read: each offset counts as one")
    elif read < offsets:
        notes.append(f"{offsets - read:,} offsets hold no row: transactions, compaction, or deleted meanwhile")
    there = {id(row) for row in counting.rows}
    found = Exact(
        query=name,
        span=span,
        columns=query.columns,
        keys=query.keys,
        groups=groups,
        notes=tuple(notes),
        rows_read=read,
        seconds=time.monotonic() - begun,
        cpu_s=cpu_s,
        beside=written is not None,
        texts=tuple(text for text, row in zip(texts, rows, strict=True) if id(row) in there),
    )
    return _merged(session, found, send) if merge and send is not None else found


# --- What is said -----------------------------------------------------------------------------------------------------


def _whole_since(
    session: SessionInterface, spec: TaskSpec, stretches: Mapping[str, Stretch]
) -> tuple[datetime | None, list[str]]:
    """Return since when topics have all rows, None: since the span began; and what was deleted."""
    since: datetime | None = None
    told = []
    for stream in spec.streams:
        found = stretches.get(stream.name)
        if stream.topic is None or found is None or not found.cut:
            continue
        topic = stream.topic.topic
        ends = end_offsets(session.kafka, [topic], timeout_s=ANSWER_S)[topic]
        accounts = accounts_of(session.runtime.deployment, spec, topic)
        times = [
            whole_from(
                _first(session, topic, p, found.start[p], found.end[p]),
                found.start[p] >= ends[p],
                last_read(accounts, p, ends[p]),
            )
            for p in sorted(found.cut)
        ]
        latest = max(times)
        since = latest if since is None else max(since, latest)
        told.append(
            f"rows of {topic} that were sent before {latest:%Y-%m-%d %H:%M:%S} UTC were deleted, by retention or by "
            f"hand (partition{'s'[: len(found.cut) - 1]} {', '.join(map(str, sorted(found.cut)))})"
        )
    return since, told


def last_read(accounts: Sequence[Account], partition: int, end: int) -> datetime | None:
    """Return when the last row of a partition had been read, by the first reader that reached its end; None: no reader
    has, or when is not known."""
    there = [account.last_read.get(partition) for account in accounts if account.next_offset(partition) >= end]
    at = min((each for each in there if each is not None), default=None)
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _first(session: SessionInterface, topic: str, partition: int, start: int, end: int) -> datetime:
    """Return when the oldest record of a partition was sent; now, if the span has none."""
    seen = peek(session.kafka, topic, partition, start, end, timeout_s=ANSWER_S) if start < end else None
    return (
        datetime.now(UTC) if seen is None or seen.first_ms is None else datetime.fromtimestamp(seen.first_ms / 1e3, UTC)
    )


def _notes(
    session: SessionInterface,
    query: Query,
    span: Span,
    stretches: Mapping[str, Stretch],
    margin_s: float,
    now: datetime,
) -> list[str]:
    """Return why figures may differ from the estimates other than by chance, a sentence each."""
    notes = []
    if query.by.kind is not Kind.WINDOW:
        notes.append(f"the column {query.by.name} was taken for the begin of a window that ends with the next one")
    to_come = margin_s - (now - span.end).total_seconds()
    if to_come > 0:
        notes.append(f"rows of the span that arrive in the next {to_come:.0f} s are not in the exact figures")
    unread = _unread(session.runtime.deployment, query.spec, stretches)
    if unread:
        notes.append(f"{query.name} has yet to read {unread:,} of these offsets: its estimates lack them")
    return [*notes, *session.runtime.incomplete.texts(query.name)]


def _unread(deployment: Deployment, spec: TaskSpec, stretches: Mapping[str, Stretch]) -> int:
    """Return how many of the offsets the running tasks have not read yet."""
    unread = 0
    for stream in spec.streams:
        if stream.topic is None:
            continue
        found, accounts = stretches[stream.name], accounts_of(deployment, spec, stream.topic.topic)
        for partition, end in found.end.items():
            reached = min((account.next_offset(partition) for account in accounts), default=end)
            unread += max(end - max(reached, found.start[partition]), 0)
    return unread


# --- Merging ----------------------------------------------------------------------------------------------------------


def check_merge(session: SessionInterface, query: Query, span: Span) -> None:
    """Raise UsageProblem, one line, where exact figures would not take the place of the estimates for good."""
    sink = session.application[query.name].effective_sink
    if not isinstance(sink, Memory):
        raise UsageProblem(
            f"--merge must be into a memory sink, where the newest row of a group is the result, got {sink}, whose "
            "readers would have both rows; write qod.exact(...).frame where they expect it",
            option="--merge",
            name=query.name,
            rule="sink",
        )
    if session.runtime.deployment.lends(query.name):
        raise UsageProblem(
            f"--merge must be of groups with one row each, got parts of groups, since {query.name} was declared with "
            "--lend; write qod.exact(...).frame where readers expect it",
            option="--merge",
            name=query.name,
            rule="one row",
        )
    closed = watermark(session, query.name) if query.delay_s is not None else None
    if closed is None or closed < span.end:
        where = "no watermark" if closed is None else f"one at {closed:%Y-%m-%d %H:%M:%S} UTC"
        raise UsageProblem(
            f"--merge must wait until the watermark of {query.name} has passed --to, as the query may write these "
            f"windows again, got {where}; leave --merge out",
            option="--merge",
            name=query.name,
            rule="closed",
        )


def watermark(session: SessionInterface, name: str) -> datetime | None:
    """Return how far the watermark of a query has come, the earliest of its instances; None: not known."""
    found = []
    for instance in instances_with(session, name):
        query, manager = instance.query, instance.task_manager
        if query is None or manager is None:
            return None
        told = call_within(partial(getattr, query, "lastProgress"), ANSWER_S, f"{instance.id}: its progress")
        report = report_json(told)
        text = ((report or {}).get("eventTime") or {}).get("watermark")
        if text is None:
            return None
        found.append(datetime.fromisoformat(text))
    return min(found, default=None)


def _merged(session: SessionInterface, found: Exact, send: Callable[[str, list[Record]], object]) -> Exact:
    """Write the exact groups behind the estimates: the newest row of a group is the result."""
    topic = session.runtime.deployment.results[found.query]
    send(topic, [Record(text.encode()) for text in found.texts])
    return replace(found, merged=len(found.texts))
