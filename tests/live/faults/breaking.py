"""What breaks a cluster, and what must hold of it afterwards."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil
import pytest

from qod_magics.core.snapshot import Freshness
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from qod_magics.spark.servers.task_manager import TaskManager
from tests.live.conftest import eventually
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, counted, running, settled

PERIOD_S = 2.0  #: of the controller: what breaks is noticed by its looking


@dataclass(frozen=True)
class Counting:
    """An application that counts steady input, on a cluster that the controller only watches."""

    session: Session
    topic: str
    steady: Steady


@contextmanager
def patience(session: Session, **seconds: float) -> Iterator[None]:
    """Let a session wait for servers and queries for other times than usual."""
    cluster = session.runtime.cluster
    before, cluster.patience = cluster.patience, replace(cluster.patience, **seconds)
    try:
        yield
    finally:
        cluster.patience = before


def manager(session: Session, id: str) -> TaskManager:
    return session.runtime.task_managers[id]


def pid(session: Session, id: str) -> int:
    server = manager(session, id).server
    assert server is not None
    return server.child.pid


def kill(session: Session, id: str) -> None:
    os.kill(pid(session, id), signal.SIGKILL)


@contextmanager
def frozen(session: Session, id: str) -> Iterator[None]:
    """A task manager that neither answers nor ends, and is not killed for it however long this takes."""
    process = psutil.Process(pid(session, id))
    with patience(session, hung_s=math.inf):
        process.suspend()
        try:
            yield
        finally:
            process.resume()


def ordinal(session: Session) -> int:
    return 0 if session.last is None else session.last.number


def seen(session: Session, instance: str) -> Any:
    """The instance in the last snapshot."""
    cycle = session.last
    if cycle is None or cycle.snapshot is None:
        return None
    return next((i for i in cycle.snapshot.instances if i.id == instance), None)


def fresh(session: Session, instance: str) -> bool:
    """Whether the last snapshot has measured values of it."""
    found = seen(session, instance)
    return found is not None and Freshness.of(found).is_fresh


def processed(session: Session, feed: str) -> int:
    """Rows of a feed that were processed, by the last cycle."""
    cycle = session.last
    return 0 if cycle is None or cycle.measured is None else cycle.measured.counts[feed].processed


def check_nothing_is_lost(session: Session, rows: int) -> None:
    """All rows are in the books of the source, and all that reached the counting query are in its counts, once."""
    found = settled(session, "src", rows, "src>counts")
    source, stream = found["src"], found["src>counts"]
    assert source.processed + source.unreported == rows
    assert source.dropped == stream.dropped == 0
    assert source.unreported >= 0
    assert stream.arrived >= rows  # at least once
    assert stream.processed + stream.unreported == stream.arrived
    eventually(lambda: counted(session) >= stream.arrived, every_s=0.5, what="the last results")
    assert counted(session) == stream.arrived


def check_moved_away(session: Session, events: Events, lost: str, orphans: set[str]) -> None:
    """What was on a killed task manager runs on the others, and it was told."""
    event = events.first("task-manager-lost", task_manager=lost)
    assert set(event["instances"]) == orphans
    assert "SIGKILL" in event["why"]
    for id in orphans:
        moved = events.first("move", instance=id)
        assert moved["from"] == lost
        assert moved["to"] != lost
        assert moved["why"] == f"{lost} was lost"
    eventually(lambda: running(session), what=session.status)
    assert lost not in session.runtime.task_managers


def check_waiting(session: Session, topic: str) -> None:
    """No task manager is left: declared streams wait for one, and the status says so."""
    eventually(lambda: not session.runtime.task_managers, what="all are missed")
    eventually(lambda: {i.state for i in session.runtime.instances.values()} == {State.WAITING}, what="all wait")
    assert "no task manager" in session.status()
    assert "waiting" in session.status()
    with pytest.raises(TaskManagerError, match="add-tm"):
        session.stream("more", topic=topic, schema=SCHEMA, priority=1, min_accuracy=0.1)
    assert "more" not in session.application
