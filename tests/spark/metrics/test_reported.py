"""Every report of a batch enters the books, once, whatever becomes of the call that asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.reports import take_reports
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import FeedCount
from qod_magics.spark.servers.conf import REPORTS_KEPT
from qod_magics.spark.servers.connection import begin
from qod_magics.spark.servers.task_manager import TaskManager
from tests.spark.batches import batch
from tests.spark.fakes import Parts, cluster, instance, manager, soon


def idle(number: int) -> dict[str, Any]:
    """What a trigger without new rows reports, under the number of the batch that comes next."""
    return {
        "runId": "r",
        "batchId": number,
        "timestamp": f"2026-03-01T10:00:{number:02d}.000Z",
        "durationMs": {"triggerExecution": 10},
        "sources": [{"startOffset": str(number), "endOffset": str(number), "numInputRows": 0}],
        "observedMetrics": {},
    }


def done(number: int) -> dict[str, Any]:
    """The report of a batch of ten rows, six of them kept."""
    return {
        **idle(number),
        "sources": [{"startOffset": str(number), "endOffset": str(number + 1), "numInputRows": 10}],
        "observedMetrics": {"shed.0": {"rows": 10, "kept": 6}, "out": {"rows": 6}},
    }


class Reporting:
    """A query whose connection breaks where the test says so."""

    runId = "r"

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.last_gasp: list[dict[str, Any]] = []  #: what it reports just before it is found to have ended
        self.active = True
        self.breaks: set[str] = set()

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:
        self._reach("isActive")
        self.recentProgress += self.last_gasp
        self.last_gasp = []
        return self.active

    def exception(self) -> Exception:
        return Exception("it broke")

    def stop(self) -> None:
        self._reach("stop")
        self.recentProgress += self.last_gasp
        self.active = False

    def _reach(self, what: str) -> None:
        if what in self.breaks:
            raise ConnectionError(f"{what}: nobody answers")


class Watched:
    """A recipe with a source of its own, at work."""

    def __init__(self) -> None:
        self.query = Reporting()
        self.home: TaskManager = manager()
        self.one: Instance = instance(self.home, self.query)  # type: ignore[arg-type]
        self.one.mode = "micro-batch"
        self.cluster: Cluster = cluster(self.home, instances=(self.one,))
        self.parts = Parts(self.cluster)

    @property
    def booked(self) -> list[int]:
        """Rows kept and dropped, as the books have them."""
        return self.cluster.own_source.get("T", [0, 0])


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_idle_triggers_hide_no_batch(watched: Watched) -> None:
    for number in range(3):
        watched.query.recentProgress.append(idle(number))
        watched.parts.collector.poll(watched.home)
        watched.query.recentProgress.append(done(number))
        watched.parts.collector.poll(watched.home)
        assert watched.booked == [6 * (number + 1), 4 * (number + 1)]


def test_a_batch_that_was_heard_of_before_the_connection_broke_is_entered_when_it_is_back(watched: Watched) -> None:
    watched.query.recentProgress.append(done(0))
    watched.query.breaks = {"isActive"}
    with pytest.raises(ConnectionError):
        watched.parts.collector.poll(watched.home)
    watched.query.breaks = set()
    watched.parts.collector.poll(watched.home)
    watched.parts.collector.poll(watched.home)
    assert watched.booked == [6, 4]


def test_queries_that_their_task_manager_lists_as_active_are_not_asked_one_by_one(watched: Watched) -> None:
    watched.query.recentProgress.append(done(0))
    watched.query.breaks = {"isActive"}
    watched.home.spark.queries = [watched.query]  # type: ignore[attr-defined]
    watched.parts.collector.poll(watched.home)
    assert watched.booked == [6, 4]


def test_what_a_query_reported_just_before_it_failed_is_entered(watched: Watched) -> None:
    watched.query.active = False
    watched.query.last_gasp = [done(0)]
    watched.parts.collector.poll(watched.home)
    assert watched.one.state is State.RUNNING  # observing changes nothing
    assert watched.booked == [6, 4]
    watched.parts.recovery.restart_ended()
    assert watched.one.state is State.BACKING_OFF


def test_a_run_that_ended_is_not_held_against_the_one_after_it(watched: Watched) -> None:
    watched.query.active = False
    watched.parts.collector.poll(watched.home)
    watched.one.run_id = "next"
    watched.parts.recovery.restart_ended()
    assert watched.one.state is State.RUNNING
    assert watched.cluster.events == []


def test_batches_that_are_many_for_a_period_are_asked_for_in_between(watched: Watched) -> None:
    watched.query.recentProgress = [done(n) for n in range(9)]  # a second each
    watched.parts.collector.poll(watched.home)
    assert watched.one.unpolled() < 1.0
    watched.query.recentProgress.append(done(9))
    watched.parts.collector.keep_up()
    time.sleep(0.1)
    assert watched.booked == [54, 36]  # it is not time yet
    watched.one.polled_at -= REPORTS_KEPT / 2
    watched.parts.collector.keep_up()
    soon(lambda: watched.booked == [60, 40])
    assert watched.one.unpolled() < 1.0


def test_stages_of_several_queries_are_asked_for_before_spark_discards_them(watched: Watched) -> None:
    watched.query.recentProgress = [done(n) for n in range(9)]  # a second each
    watched.parts.collector.poll(watched.home)
    watched.query.recentProgress.append(done(9))
    watched.one.polled_at -= REPORTS_KEPT / 4  # too few for a query alone
    watched.parts.collector.keep_up()
    time.sleep(0.1)
    assert watched.booked == [54, 36]
    for number in range(2, 5):
        other = instance(watched.home, Reporting())  # type: ignore[arg-type]
        other.polled_at, other.life.started_at = watched.one.polled_at, watched.one.polled_at
        other.meter.spans.extend(watched.one.meter.spans)
        watched.cluster.instances[f"T.{number}"] = other
    watched.parts.collector.keep_up()
    soon(lambda: watched.booked == [60, 40])


def _restart(watched: Watched) -> None:
    watched.parts.mover.restart(watched.one)


def _move(watched: Watched) -> None:
    away = manager("tm2")
    watched.cluster.task_managers["tm2"] = away
    watched.parts.lifecycle.start = lambda one, there: None  # type: ignore[method-assign]
    watched.parts.move(watched.one, away, "by hand")


@pytest.mark.parametrize("breaks", [set(), {"stop"}, {"isActive"}])
@pytest.mark.parametrize("ends", [_restart, _move])
def test_what_was_reported_until_a_run_ended_is_entered(
    watched: Watched, ends: Callable[[Watched], None], breaks: set[str]
) -> None:
    """Also where the stop fails; then what it reports afterwards can't be heard."""
    watched.parts.lifecycle.start = lambda one, there: None  # type: ignore[method-assign]
    watched.query.recentProgress.append(done(0))
    watched.query.last_gasp = [done(1)]
    watched.query.breaks = breaks
    watched.cluster.patience = Patience()  # the last report is waited for
    ends(watched)
    batches = 1 if "isActive" in breaks else 2
    assert watched.booked == [6 * batches, 4 * batches]


def test_a_restart_whose_stop_fails_is_tried_again(watched: Watched) -> None:
    watched.query.breaks = {"stop"}
    watched.query.last_gasp = [done(0)]
    watched.parts.mover.restart(watched.one)
    assert watched.one.state is State.BACKING_OFF
    (event,) = watched.cluster.events
    assert event.kind == "query-failed"
    assert "nobody answers" in event.detail["why"]


def test_a_late_answer_of_the_run_before_hides_no_batch_of_this_one(watched: Watched) -> None:
    """A call hung on a task manager; its answer comes when the instance is at work elsewhere."""
    asked, answer = threading.Event(), threading.Event()

    class Hanging(Reporting):
        @property
        def lastProgress(self) -> dict[str, Any] | None:
            asked.set()
            answer.wait(30)
            return {**done(7), "runId": "before"}

    before = Hanging()
    before.recentProgress = [{**done(n), "runId": "before"} for n in range(8)]
    watched.one.query, watched.one.run_id = before, "before"  # type: ignore[assignment]
    late = begin(watched.one.poll, "late")
    assert asked.wait(30)
    watched.one.query, watched.one.run_id = watched.query, "r"  # type: ignore[assignment]
    answer.set()
    assert late.result(30)
    assert watched.one.ended() == -1
    watched.query.recentProgress = [done(n) for n in range(9)]
    watched.parts.collector.poll(watched.home)
    assert watched.booked == [6 * 17, 4 * 17]


def test_batches_whose_reports_are_gone_are_told_of(watched: Watched) -> None:
    def told() -> list[int]:
        return [event.detail["batches"] for event in watched.cluster.events if event.kind == "reports-missing"]

    watched.query.recentProgress = [done(n) for n in range(2, 5)]  # of a new query: 0 and 1 are missing
    watched.parts.collector.poll(watched.home)
    assert told() == [2]
    watched.query.recentProgress = [idle(5), done(5), idle(6)]
    watched.parts.collector.poll(watched.home)
    assert told() == [2]
    watched.query.recentProgress = [done(n) for n in range(40, 50)]
    watched.parts.collector.poll(watched.home)
    watched.parts.collector.poll(watched.home)
    assert told() == [2, 34]
    assert watched.booked == [14 * 6, 14 * 4]


def test_a_first_batch_that_read_its_input_twice_drops_no_row_twice_at_its_sending_end() -> None:
    """It does not say where it began; the books know."""
    home = manager()
    feed = Feed("trips", ("trips",), "trips-topic", (0,), {0: 0}, None, stream=False)
    job = replace(instance(home).job, feeds=(feed,), outlets=("trips>fares",))
    one = instance(home)
    one.job = job
    made = cluster(home, instances=(one,))
    topics = {"trips": "trips-topic", "trips>fares": "fares-topic"}
    made.deployment.accounts.update({name: Account(topic, {0: 0}) for name, topic in topics.items()})
    twice = FeedCount("trips-topic", None, {0: 10}, read=20, kept=12)
    one.reported.append(batch(0, 0.0, 1.0, feeds=(twice,), out=12, sent={"0": 4}))
    once = FeedCount("trips-topic", {0: 10}, {0: 20}, read=10, kept=6)
    one.reported.append(batch(1, 1.0, 2.0, feeds=(once,), out=6, sent={"0": 2}))
    take_reports(made, one)
    assert made.deployment.accounts["trips"].dropped == 8
    assert made.deployment.accounts["trips>fares"].dropped_before == 8


def test_a_run_that_ends_without_its_last_report_leaves_the_books_behind(watched: Watched) -> None:
    """Until the next run reports where it began."""

    class Mute(Reporting):
        @property
        def lastProgress(self) -> dict[str, Any] | None:
            if not self.active:
                raise ConnectionError("nobody answers")
            return super().lastProgress

    one = watched.one
    one.query = Mute()  # type: ignore[assignment]
    with pytest.raises(ConnectionError):
        one.stop()
    assert one.books_differ
    one.query, one.run_id = watched.query, "r"  # type: ignore[assignment]
    one.poll()
    assert one.books_differ
    watched.query.recentProgress = [done(3)]
    one.poll()
    assert not one.books_differ


def test_a_late_report_of_a_stream_that_was_removed_is_not_of_the_stream_of_that_name_since() -> None:
    """Its offsets are of a topic that is gone: a rescaling would start to read the new one there."""
    home = manager()
    old = instance(home)
    feed = Feed("trips>fares", ("trips",), "s.trips.fares.1", (0,), {0: 0}, None, stream=True)
    old.job = replace(old.job, feeds=(feed,))
    made = cluster(home)
    account = made.deployment.accounts["trips>fares"] = Account("s.trips.fares.2", {0: 0}, {0: 10})
    read = FeedCount("s.trips.fares.1", {0: 4000}, {0: 5000}, read=1000, kept=1000)
    old.reported.append(batch(7, 0.0, 1.0, feeds=(read,)))
    take_reports(made, old)
    assert (account.position, account.processed, account.unreported) == ({0: 10}, 0, 0)


def test_a_report_that_comes_after_one_of_the_run_that_followed_is_not_entered(watched: Watched) -> None:
    """That run has read those rows again: entered late, they would put the books back to before it."""
    one, following = watched.one, watched.query

    class Late(Reporting):
        @property
        def lastProgress(self) -> dict[str, Any] | None:
            one.query, one.run_id = following, "r"  # type: ignore[assignment]
            following.recentProgress = [done(n) for n in range(9)]
            watched.parts.collector.poll(watched.home)
            return {**done(7), "runId": "before"}

    before = Late()
    before.recentProgress = [{**done(n), "runId": "before"} for n in range(8)]
    one.query, one.run_id = before, "before"  # type: ignore[assignment]
    assert not one.poll()
    watched.parts.collector.poll(watched.home)
    assert watched.booked == [6 * 9, 4 * 9]
