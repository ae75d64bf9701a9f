"""Enter the reports of batches in the row accounting, and report rows that were lost, late or read again."""

from __future__ import annotations

import time

from qod_magics.application.streams.rules import Broken, RuleCount, broken_text
from qod_magics.formats.format import why_malformed
from qod_magics.lifecycle.events import FirstReported, Tell
from qod_magics.spark.cluster.books import (
    deleted_text,
    implausible_text,
    is_cut,
    late_text,
    malformed_event,
    malformed_text,
)
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.repeats import again_text
from qod_magics.spark.plans.job import reader
from qod_magics.spark.queries.checkpoints import committed_ms, local_path, reached
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.servers.conf import REPORTS_KEPT


def take_reports(cluster: Cluster, instance: Instance) -> None:
    """Enter an instance's reported batches in the row accounting, each once; its first batch completes a move."""
    with cluster.lock:
        # its run may still read topics that its next one does not: those of a pattern that were deleted
        jobs = (instance.job,) if instance.running is None else (instance.running, instance.job)
        names = {feed.topic: feed.name for job in jobs for feed in job.feeds}
        for batch in instance.take_reported():
            times = 1.0  #: that the counts of a first batch, which does not say where it began, hold each row
            for feed in batch.feeds:
                account = cluster.deployment.accounts.get(names.get(feed.topic, ""))
                if account is not None and account.topic == feed.topic:  # not of a stream of this name since
                    times = max(times, account.take(feed, batch.end))
                elif not instance.job.feeds:
                    kept = feed.kept or 0
                    cluster.add_own_rows(instance.job.task, kept, (feed.read or 0) - kept)
            for position, name in enumerate(instance.job.outlets):
                account = cluster.deployment.accounts.get(name)
                if account is not None:
                    account.dropped_before += round((batch.out - batch.sent.get(str(position), 0)) / times)
            _note_misfits(cluster, instance, batch)
            _note_broken(cluster, instance.job.task, batch.broken)
        missed = instance.take_missed()
        if missed and not instance.job.feeds:  # with Kafka, the offsets give the number of rows
            cluster.event(
                "reports-missing",
                instance=instance.id,
                batches=missed,
                why=f"{missed} {'batches' if missed > 1 else 'batch'} ended between two polls, and Spark keeps "
                f"{REPORTS_KEPT} reports: their rows are in the results, but not counted",
            )
        reading = instance.reading(cluster.period_s) if instance.move is not None else None
        if reading is not None:
            for each in instance.handle(FirstReported(time.time() - reading.first_batch_at)):
                if isinstance(each, Tell):
                    cluster.event(each.kind, instance=instance.id, **each.detail)


def reports_ended(cluster: Cluster, instance: Instance) -> None:
    """Count the rows of batches that ended, but were not reported, of an instance that has ended and all of whose
    reports have been taken: a new checkpoint begins where the old one is."""
    if (at := reached(instance.checkpoint)) is None:
        return
    with cluster.lock:
        for feed in instance.job.feeds:
            account = cluster.deployment.accounts.get(feed.name)
            if account is not None and account.topic == feed.topic:
                ended = at.ended.get(feed.topic, {})
                account.go_on({p: offset for p, offset in ended.items() if p in feed.partitions}, 0)


def run_ended(cluster: Cluster, instance: Instance) -> None:
    """Note that no run of an instance is under way: count the rows of a batch that did not end, which the next run
    reads again, and have those looked for that it has sent (`Repeats`)."""
    with cluster.lock:
        if instance.take_interrupted() and (at := reached(instance.checkpoint)) is not None:
            for feed in instance.job.feeds:
                account = cluster.deployment.accounts.get(feed.name)
                rows = 0 if account is None else at.again(feed.topic, account.position)
                if account is not None and rows:
                    account.again += rows
                    why = again_text(rows)
                    cluster.event("rows-read-again", instance=instance.id, topic=feed.topic, rows=rows, why=why)
        if not instance.job.outlets:
            return
        committed = committed_ms(instance.checkpoint)
        if committed is None and local_path(instance.checkpoint) is None and instance.begun:
            last = next((batch for _, batch in reversed(list(instance.meter.spans))), None)
            committed = None if last is None else round(last.end * 1000)  # of the reported ones, at least
        for name in instance.job.outlets:
            if (account := cluster.deployment.accounts.get(name)) is not None:
                account.repeats.run_ended(instance.job.index, committed, round(time.time() * 1000))


def _note_misfits(cluster: Cluster, instance: Instance, batch: Batch) -> None:
    """Count a batch's late rows, find what does not fit in its samples, and report both from time to time."""
    task, now = instance.job.task, time.monotonic()
    feeds = {feed.topic: feed for feed in instance.job.feeds}
    schemas = instance.facts.schemas if instance.facts is not None else {}
    for found in batch.feeds:
        feed = feeds.get(found.topic)
        account = cluster.deployment.accounts.get(feed.name) if feed is not None else None
        if feed is None or account is None:
            continue
        if found.sample is not None and feed.topic in schemas:
            account.misfit = why_malformed(feed.values, found.sample, schemas[feed.topic], is_cut(found.sample))
        name = f"{feed.topic}>{feed.name}"
        if due := cluster.due(name, found.malformed, now):
            told = malformed_text(due, found.sample, feed.malformed, account.misfit, feed.values.label)
            cluster.event("malformed-input", **malformed_event(feed.topic, task, due, told))
        if due := cluster.due(f"{name} times", found.implausible, now):
            told = implausible_text(due, found.late_time, feed.malformed)
            cluster.event("implausible-times", **malformed_event(feed.topic, task, due, told))
    cluster.add_late(task, batch.late, batch.late_groups, batch.watermark)
    if due := cluster.due(f"{task} late", batch.late, now):
        why = late_text(due, task in cluster.incomplete.grouped, cluster.incomplete.watermarks.get(task))
        cluster.event("late-rows", task=task, rows=due, why=why)


def _note_broken(cluster: Cluster, task: str, broken: Broken) -> None:
    """Count rows that break rules, and report them from time to time."""
    spec, now = cluster.deployment.specs.get(task), time.monotonic()
    for stream in spec.streams if spec is not None else ():
        counts = broken.get(stream.name, ())
        if len(counts) != len(stream.expect):  # of the rules that the stream had before
            continue
        for each, rows in zip(stream.expect, counts, strict=True):
            cluster.add_broken(stream.name, each, rows)
            if due := cluster.due(f"{stream.name} breaks {each}", rows, now):
                cluster.event("rule-broken", task=task, rows=due, why=f"{stream.name}: {broken_text(each, due)}")


def rule_counts(cluster: Cluster) -> list[RuleCount]:
    """Return how many rows have broken each rule of the streams that are deployed. Rules that end a query are left
    out: its last batch is not reported."""
    return [
        RuleCount(stream.name, each, cluster.broken.get(stream.name, {}).get(each, 0))
        for spec in list(cluster.deployment.specs.values())
        for stream in spec.streams
        for each in stream.expect
        if each.action != "fail"
    ]


def note_deleted(cluster: Cluster, feed: str, topic: str, rows: int, now: float) -> None:
    """Report rows that a topic's retention deleted before they were read, from time to time."""
    if due := cluster.due(f"{feed} deleted", rows, now):
        cluster.event("rows-deleted", **malformed_event(topic, reader(feed), due, deleted_text(due)))
