"""Queries that stand still: noticed, told of, restarted, given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.cluster import Patience
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.spark.batches import batch
from tests.spark.fakes import Parts, Query, Script, cluster, instance, kinds, manager, soon
from tests.texts import tells

PATIENCE = Patience()


def standing(
    home: TaskManager,
    counted_s: float,
    query: Query | None = None,
    poll: Callable[[Instance], bool] | None = None,
) -> Instance:
    """An instance in real-time mode that has been watched for so long."""
    one = instance(home, query or Query(), Script(poll=poll).make)
    one.mode, one.life.started_at = "real-time", time.monotonic() - counted_s
    one.stall.look(time.monotonic(), "r", -1, 1.0)
    one.stall.counted_s = one.stall.watched_s = counted_s
    return one


LONG_S = 2 * PATIENCE.stalled_s


def noticed_and_hanging(stop_s: float = 20.0) -> tuple[Instance, Query, Parts]:
    """An instance of which it was just noticed that it stands still; its query does not end before its gate opens."""
    home, query = manager(), Query()
    query.gate.clear()
    one = standing(home, LONG_S, query)
    watched = Parts(cluster(home, instances=(one,)))
    watched.cluster.patience = replace(watched.cluster.patience, stop_s=stop_s)
    watched.recovery.notice()
    return one, query, watched


def test_a_query_that_stands_still_is_restarted_as_one_that_failed(back_off: tuple[float, ...]) -> None:
    home = manager()
    one = standing(home, LONG_S)
    made = cluster(home, instances=(one,))
    watched = Parts(made)
    watched.recovery.notice()
    soon(lambda: bool(made.events))
    watched.recovery.notice()
    assert kinds(made) == ["query-stalled"]
    detail = made.events[0].detail
    assert tells(detail["why"], "120 s", "CPU")
    assert detail["retry_in_s"] == back_off[0]
    assert one.state is State.BACKING_OFF
    assert one.query is None
    assert one.life.retry_at - time.monotonic() == pytest.approx(back_off[0], abs=0.5)


def test_micro_batches_have_longer_and_longer_and_are_due_only_while_rows_wait(back_off: tuple[float, ...]) -> None:
    """A slow sink makes a batch long, and each restart begins it again."""
    home = manager()
    one = standing(home, 2.5 * PATIENCE.stalled_s)
    one.mode = "micro-batch"
    made = cluster(home, instances=(one,))
    watched = Parts(made)
    watched.recovery.notice(rows_waiting=lambda _: 7)
    assert one.state is State.RUNNING
    one.stall.counted_s = one.stall.watched_s = 4 * PATIENCE.stalled_s
    one.life.failures = 1
    watched.recovery.notice(rows_waiting=lambda _: 7)
    assert one.state is State.RUNNING
    one.life.failures = 0
    watched.recovery.notice(rows_waiting=lambda _: 7)
    soon(lambda: one.state is State.BACKING_OFF)
    soon(lambda: kinds(made) == ["query-stalled"])
    assert made.events[0].detail["retry_in_s"] == back_off[0]


def test_time_in_which_no_row_waits_does_not_count() -> None:
    home = manager()
    one = standing(home, 4 * PATIENCE.stalled_s)
    one.mode = "micro-batch"
    watched = Parts(cluster(home, instances=(one,)))
    watched.recovery.notice(rows_waiting=lambda _: 0)
    watched.recovery.notice(rows_waiting=lambda _: 7)
    assert one.state is State.RUNNING
    assert one.stall.counted_s == 0.0


def test_one_that_stands_still_at_every_start_is_given_up(back_off: tuple[float, ...]) -> None:
    """The time in which it stood still is none in which it recovered."""
    home = manager()
    made = cluster(home)
    one = standing(home, LONG_S)
    for _ in (*back_off, "once more"):
        one.query, one.run_id, one.life.state = Query(), "r", State.RUNNING  # type: ignore[assignment]
        one.life.started_at = time.monotonic() - LONG_S
        one.stall.counted_s = one.stall.watched_s = LONG_S
        made.instances[one.id] = one
        seen = len(made.events)
        Parts(made).recovery.notice()
        soon(lambda seen=seen: len(made.events) > seen)  # type: ignore[misc]
    assert [event.detail.get("retry_in_s") for event in made.events] == [*back_off, None]
    assert made.events[-1].detail["gave_up"]
    assert one.state is State.GAVE_UP


def test_one_whose_batch_had_ended_unseen_goes_on() -> None:
    home = manager()
    one = standing(home, LONG_S, poll=lambda _: True)
    made = cluster(home, instances=(one,))
    query = one.query
    Parts(made).recovery.notice()
    soon(lambda: one.state is State.RUNNING)
    assert one.query is query
    assert kinds(made) == []


def test_one_that_can_not_be_asked_is_stopped_before_it_starts_again(back_off: tuple[float, ...]) -> None:
    """Its run may go on: a second one of its name is refused by Spark, and after some tries it was left to itself."""

    def poll(_: Instance) -> bool:
        raise ConnectionError("nobody answers")

    home = manager()
    one = standing(home, LONG_S, poll=poll)
    query = one.query
    made = cluster(home, instances=(one,))
    Parts(made).recovery.notice()
    soon(lambda: kinds(made) == ["query-stalled"])
    assert (one.state, one.query, one.unended) == (State.BACKING_OFF, None, query)


def test_one_that_takes_long_to_end_is_started_again_when_it_has(back_off: tuple[float, ...]) -> None:
    one, query, watched = noticed_and_hanging(stop_s=0.1)
    soon(lambda: bool(watched.cluster.events))
    assert tells(watched.cluster.events[0].detail["why"], "tm1")
    watched.recovery.retry()
    assert one.state is State.STALLED
    query.gate.set()
    soon(lambda: len(watched.cluster.events) > 1)
    assert [event.detail.get("retry_in_s") for event in watched.cluster.events] == [None, back_off[0]]


def test_who_took_it_in_hand_meanwhile_keeps_it() -> None:
    one, query, watched = noticed_and_hanging()
    one.life.state = State.STOPPED  # by a new deployment
    query.gate.set()
    soon(lambda: one.query is None)
    soon(lambda: not any(thread.name == "qod-revive-T.1" for thread in threading.enumerate()))
    assert one.state is State.STOPPED
    assert kinds(watched.cluster) == []


def test_one_that_may_only_be_slow_is_told_of_once_a_run() -> None:
    home = manager()
    one = standing(home, 0.0)
    one.stall.watched_s = 3 * PATIENCE.stalled_s
    made = cluster(home, instances=(one,))
    watched = Parts(made)
    watched.recovery.notice()
    watched.recovery.notice()
    assert kinds(made) == ["query-stalled"]
    assert tells(made.events[0].detail["why"], "180 s", "tm1")
    assert one.state is State.RUNNING


@pytest.mark.parametrize("other", ["a batch ended", "a new run", "silent", "no broker", "long batches"])
def test_others_do_not_stand_still(other: str) -> None:
    home = manager()
    one = standing(home, LONG_S)
    if other == "a batch ended":
        one.meter.add(batch(0, time.time() - 1.0, time.time(), run="r"))
    elif other == "a new run":
        one.run_id = "s"
    elif other == "silent":
        home.silent_since = time.monotonic()
    elif other == "long batches":
        one.meter.add(batch(0, time.time() - 3 * LONG_S, time.time() - 2 * LONG_S, run="r"))
    made = cluster(home, instances=(one,))
    Parts(made).recovery.notice(broker_answers=other != "no broker")
    assert one.state is State.RUNNING
    assert kinds(made) == []


def reading_nothing(home: TaskManager, poll: Callable[[Instance], bool] | None = None) -> Instance:
    """An instance in real-time mode whose batches end and, after the first, have read no row for long."""
    one = standing(home, 0.0, poll=poll)
    for number in range(6):
        end = time.time() - 5.0 * (6 - number)
        one.meter.add(batch(number, end - 5.0, end, run="r", read=408 if number == 0 else 0))
    one.unread.look(time.monotonic(), "r", 0, 1.0)
    one.unread.counted_s = one.unread.watched_s = LONG_S
    return one


def test_one_whose_batches_end_and_read_no_row_that_waits_is_restarted(back_off: tuple[float, ...]) -> None:
    """Batches that go on ending, without a row, do not save it."""

    def poll(one: Instance) -> bool:
        return one.meter.add(batch(6, time.time() - 5.0, time.time(), run="r"))

    home = manager()
    one = reading_nothing(home, poll)
    made = cluster(home, instances=(one,))
    Parts(made).recovery.notice(rows_waiting=lambda _: 592)
    soon(lambda: kinds(made) == ["query-stalled"])
    assert tells(made.events[0].detail["why"], "row", "120 s", "wait")
    assert made.events[0].detail["retry_in_s"] == back_off[0]
    assert one.state is State.BACKING_OFF


def test_one_that_reads_a_row_after_all_goes_on() -> None:
    def poll(one: Instance) -> bool:
        return one.meter.add(batch(6, time.time() - 5.0, time.time(), run="r", read=592))

    home = manager()
    one = reading_nothing(home, poll)
    made = cluster(home, instances=(one,))
    Parts(made).recovery.notice(rows_waiting=lambda _: 592)
    soon(lambda: one.last_read() == 6)
    soon(lambda: one.state is State.RUNNING)
    assert kinds(made) == []


def test_one_that_reads_nothing_after_a_restart_is_told_of_and_goes_on() -> None:
    """What waits may be no rows: those of an aborted transaction count as offsets, and a consumer that reads what is
    committed gets none of them."""
    home = manager()
    one = reading_nothing(home)
    made = cluster(home, instances=(one,))
    watched = Parts(made)
    watched.recovery.notice(rows_waiting=lambda _: 592)
    soon(lambda: one.state is State.BACKING_OFF)
    for _ in range(2):
        one.query, one.run_id, one.life.state, one.life.over = Query(), "s", State.RUNNING, False  # type: ignore[assignment]
        one.meter.add(batch(len(one.batches), time.time() - 5.0, time.time(), run="s"))
        watched.recovery.notice(rows_waiting=lambda _: 592)
        one.unread.counted_s = one.unread.watched_s = LONG_S
        watched.recovery.notice(rows_waiting=lambda _: 592)
        assert one.state is State.RUNNING
    assert kinds(made) == ["query-stalled"] * 2
    assert tells(made.events[1].detail["why"], "120 s", "592")
    one.meter.add(batch(7, time.time() - 5.0, time.time(), run="s", read=592))
    watched.recovery.notice(rows_waiting=lambda _: 100)
    one.unread.counted_s = one.unread.watched_s = LONG_S
    watched.recovery.notice(rows_waiting=lambda _: 100)
    soon(lambda: kinds(made) == ["query-stalled"] * 3)
    assert one.state is State.BACKING_OFF


@pytest.mark.parametrize("ends", [True, False])
def test_on_busy_cores_only_batches_that_end_and_read_nothing_count(ends: bool) -> None:
    """One whose batch takes long there may still read: a restart would only add load."""
    home = manager()
    home.cpu_meter = SimpleNamespace(mean=lambda *_: 90.0, cores=1)  # type: ignore[assignment]
    one = standing(home, 0.0)
    age_s = 0.0 if ends else LONG_S
    one.meter.add(batch(0, time.time() - age_s - 5.0, time.time() - age_s, run="r"))
    one.life.started_at = time.monotonic() - LONG_S
    one.unread.look(time.monotonic() - 1.0, "r", -1, 1.0)
    watched = Parts(cluster(home, instances=(one,)))
    watched.recovery.notice(rows_waiting=lambda _: 592)
    assert (one.unread.counted_s > 0.0) is ends
    assert one.unread.watched_s > 0.0


@pytest.mark.parametrize("other", ["no row waits", "a marker waits", "a row was read", "a new run"])
def test_others_read_what_there_is(other: str) -> None:
    home = manager()
    one = reading_nothing(home)
    if other == "a row was read":
        one.meter.add(batch(6, time.time() - 5.0, time.time(), run="r", read=1))
    elif other == "a new run":
        one.run_id = "s"
    made = cluster(home, instances=(one,))
    waiting = {"no row waits": 0, "a marker waits": round(one.width)}.get(other, 592)
    Parts(made).recovery.notice(rows_waiting=lambda _: waiting)
    assert one.state is State.RUNNING
    assert kinds(made) == []
