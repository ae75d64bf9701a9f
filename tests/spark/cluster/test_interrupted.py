"""What is counted of a batch that did not end, when its query runs again: no server, no broker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import Failed
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.reports import run_ended
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.queries.instance import Instance
from tests.spark.fakes import Parts, Query, cluster, instance, manager

#: When the last batch of the checkpoint was committed, ms.
COMMITTED = 1_750_000_000_000


def log(checkpoint: Path, name: str, batch: int, end: int | None = None) -> None:
    """Write a file of a checkpoint's log, as Spark does."""
    path = checkpoint / name / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1\n{}" if end is None else f"v1\n{{}}\n{json.dumps({'t': {'0': end}})}")
    os.utime(path, (COMMITTED / 1000, COMMITTED / 1000))


@pytest.fixture
def made(tmp_path: Path) -> tuple[Cluster, Instance]:
    """An instance that sends rows of `t` to another task; a batch of 40 rows has ended, one of 25 was under way."""
    home = manager()
    one = instance(home, Query())
    feed = Feed("T", ("T",), "t", (0,), {0: 0}, None, stream=False)
    one.job = replace(one.job, index=1, feeds=(feed,), outlets=("T>q",), topics=(("s", 1, None),))
    one.checkpoint, one.begun = str(tmp_path), True
    log(tmp_path, "offsets", 0, 40)
    log(tmp_path, "commits", 0)
    log(tmp_path, "offsets", 1, 65)
    found = cluster(home, instances=(one,))
    found.deployment.accounts = {"T": Account("t", {0: 0}, {0: 40}), "T>q": Account("s", {0: 0})}
    found.deployment.accounts["T>q"].repeats.known_until[1] = COMMITTED - 5000
    return found, one


def fails(one: Instance, home: object) -> None:
    one.fail(Failed("it broke"), home, ended=True)  # type: ignore[arg-type]


def is_lost(one: Instance, home: object) -> None:
    one.detach("tm1 was lost", "tm1")


def is_stopped_at_once(one: Instance, home: object) -> None:
    one.stop()


def is_stopped_without_a_report(one: Instance, home: object) -> None:
    one.stop(0.05)


def is_stopped_at_last(one: Instance, home: object) -> None:
    one.query, one.unended = None, one.query
    one.stop(5.0, ended=True)  # the batch that had ended then is not its last


@pytest.mark.parametrize("ends", [fails, is_lost, is_stopped_at_once, is_stopped_without_a_report, is_stopped_at_last])
def test_the_batch_is_read_again_and_what_it_had_sent_is_looked_for(
    made: tuple[Cluster, Instance], ends: Callable[[Instance, object], None]
) -> None:
    found, one = made
    ends(one, one.task_manager)
    assert one.has_ended
    run_ended(found, one)
    source, stream = (found.deployment.accounts[name] for name in ("T", "T>q"))
    assert source.count({0: 65}).read_again == 25
    assert [(each.sender, each.after) for each in stream.repeats.open] == [(1, COMMITTED)]
    assert [(event.kind, event.detail["rows"]) for event in found.events] == [("rows-read-again", 25)]
    run_ended(found, one)  # its start fails, and is tried once more
    assert source.again == 25
    assert len(stream.repeats.open) == 1


def test_of_a_query_that_was_stopped_at_the_end_of_a_batch_nothing_is_read_again(
    made: tuple[Cluster, Instance],
) -> None:
    """The next one is planned, and held: it has read no row."""
    found, one = made
    one.stop(ended=True)
    run_ended(found, one)
    assert found.deployment.accounts["T"].again == 0


def test_a_run_that_could_not_be_stopped_may_have_read_until_the_next_one_starts(
    made: tuple[Cluster, Instance],
) -> None:
    found, one = made
    home = one.task_manager
    assert home is not None
    one.query, one.unended = None, one.query
    one.fail(Failed("it could not be stopped"), home, ended=False)
    one.life.retry_at = 0.0
    with pytest.raises(TaskManagerError):  # the stand-in runs no query
        Parts(found).lifecycle.start(one, home)
    assert one.unended is None
    assert found.deployment.accounts["T"].again == 25


def test_rows_of_a_query_that_nobody_continues_are_read_again_only_once_it_is_put_back(
    made: tuple[Cluster, Instance],
) -> None:
    found, one = made
    Parts(found).lifecycle.stop(one, read_on=False)
    account = found.deployment.accounts["T"]
    assert (account.again, found.events) == (0, [])
    run_ended(found, one)  # as its next start does
    assert account.again == 25


@pytest.mark.parametrize("ends", [fails, is_lost, is_stopped_at_once, is_stopped_without_a_report])
@pytest.mark.parametrize("reported", [0, 15, 40])
def test_rows_of_batches_without_a_report_are_counted_before_a_new_checkpoint_begins(
    made: tuple[Cluster, Instance], ends: Callable[[Instance, object], None], reported: int
) -> None:
    """It begins at the position of the account: behind the old one, rows would be written twice."""
    found, one = made
    account = found.deployment.accounts["T"] = Account("t", {0: 0}, {0: reported}, processed=reported)
    ends(one, one.task_manager)
    stop = Parts(found).lifecycle.stop
    stop(one, read_on=False)
    stop(one, read_on=False)
    assert (account.position, account.unreported, account.again) == ({0: 40}, 40 - reported, 0)
    count = account.count({0: 65})
    assert (count.arrived, count.processed, count.waiting) == (65, reported, 25)


def test_of_another_topic_nothing_is_counted_by_a_checkpoint(
    made: tuple[Cluster, Instance],
) -> None:
    found, one = made
    other = found.deployment.accounts["T"] = Account("u", {0: 0}, {0: 7})
    Parts(found).lifecycle.stop(one, read_on=False)
    assert (other.position, other.unreported) == ({0: 7}, 0)


def test_a_new_checkpoint_has_sent_nothing(made: tuple[Cluster, Instance], tmp_path: Path) -> None:
    found, one = made
    one.checkpoint = str(tmp_path / "2")
    run_ended(found, one)
    assert found.deployment.accounts["T>q"].repeats.open == []


def test_where_the_checkpoint_can_not_be_read_the_first_start_tells_nothing(made: tuple[Cluster, Instance]) -> None:
    found, one = made
    one.checkpoint, one.begun = "s3a://bucket/cp", False
    run_ended(found, one)
    repeats = found.deployment.accounts["T>q"].repeats
    assert repeats.open == []
