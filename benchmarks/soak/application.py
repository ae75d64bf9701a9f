"""The streams of the soak, their load, and the faults that happen to them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.controller import SystemClock
from qod_magics.errors import QodError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import grow_topics
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager

TOPIC, WINDOW_S = "trips", 10
FIRST = "tm1"  #: the task manager that is never killed
SCHEMA = "trip_distance DOUBLE, PULocationID LONG, total_amount DOUBLE"
#: How long a task manager is stopped, and the broker is down; how far the clock jumps; seconds.
FROZEN_S, DOWN_S, JUMP_S = 20.0, 20.0, 600.0
#: How long a shedder is held by hand, and what is waited for at most, seconds.
HELD_S, PATIENCE_S = 10.0, 120.0
LEFT = "is still there"  #: what a fault says of a killed task manager that is not given up in time


class JumpingClock(SystemClock):
    """The machine's clock, which can be set forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds since some instant."""
        return super().monotonic() + self.ahead_s


def counted(records: DataFrame) -> DataFrame:
    """By window of the broker's time: the estimated rows, the variance of that (Horvitz-Thompson), the rows kept."""
    weight = F.col("_weight")
    timed = records.withWatermark("timestamp", "5 minutes")
    return timed.groupBy(F.window("timestamp", f"{WINDOW_S} seconds")).agg(
        F.sum(weight).alias("rows"), F.sum(weight * (weight - 1)).alias("variance"), F.count("*").alias("kept")
    )


def load(rate: float, seconds: float, dice: random.Random) -> dict[str, Any]:
    """A scenario: a rate between a tenth of `rate` (rows/s) and all of it, with a new slope every half minute or so."""
    points, at = [[0.0, rate / 2]], 0.0
    while at < seconds:
        at += dice.uniform(15, 45)
        points.append([at, rate * dice.uniform(0.1, 1.0)])
    feed = {"topic": TOPIC, "partitions": 2, "data": {"generator": "taxi-trips"}, "rate": points}
    return {"seed": dice.randrange(1000), "duration_s": seconds, "topics": [feed]}


@dataclass
class Application:
    """The streams on a session, and what can happen to them. Each fault returns what was done, in words."""

    session: Session
    clock: JumpingClock
    dice: random.Random
    partitions: int = 2
    declared: int = field(default=0, init=False)  #: versions of `far`

    def declare(self) -> None:
        """Declare `counts`, with state, and `trips` > `far`, with a stream between them."""
        self.session.stream("counts", counted, topic=TOPIC, starting="earliest", priority=2, min_accuracy=0.2)
        self.session.stream("trips", topic=TOPIC, schema=SCHEMA, starting="earliest", fuse=False)
        self.redeclare()

    def kill(self) -> str:
        """A task manager is killed by `kill -9`, and another one joins; never the first, whose memory is watched."""
        managers = self.session.runtime.task_managers
        manager = managers[self.dice.choice(sorted(id for id in managers if id != FIRST))]
        os.kill(_pid(manager), signal.SIGKILL)
        begun = time.monotonic()
        if not eventually(lambda: manager.id not in self.session.runtime.task_managers):
            return f"{manager.id} was killed and {LEFT} {PATIENCE_S:g} s later"
        gone_s = time.monotonic() - begun
        return (
            f"{manager.id} was killed, given up after {gone_s:.1f} s; {self.session.add_task_manager(cores=1)} joined"
        )

    def freeze(self) -> str:
        """A task manager is stopped by SIGSTOP for 20 s."""
        manager = self._manager()
        process = psutil.Process(_pid(manager))
        process.suspend()
        time.sleep(FROZEN_S)
        with suppress(psutil.NoSuchProcess):
            process.resume()
        if manager.id in self.session.runtime.task_managers:
            return f"{manager.id} was frozen"
        return f"{manager.id} was frozen and given up, {self.session.add_task_manager(cores=1)} joined"

    def stop_broker(self) -> str:
        """The broker is killed, and restarted after 20 s."""
        broker = self.session.kafka
        assert isinstance(broker, EmbeddedBroker)
        broker.kill()
        time.sleep(DOWN_S)
        broker.restart()
        return "the broker was down"

    def grow(self) -> str:
        """The topic gets one more partition."""
        self.partitions += 1
        grow_topics(self.session.kafka, {TOPIC: self.partitions})
        return f"{TOPIC} has {self.partitions} partitions"

    def end_query(self) -> str:
        """A query ends, and not by the session's doing."""
        instance = self._instance()
        assert instance.query is not None
        instance.query.stop()
        return f"the query of {instance.id} ended"

    def jump(self) -> str:
        """The clock of the loop goes forward by 10 minutes."""
        self.clock.ahead_s += JUMP_S
        return f"the loop's clock jumped by {JUMP_S:g} s"

    def move(self) -> str:
        """An instance is moved by hand."""
        instance = self._instance()
        home = None if instance.task_manager is None else instance.task_manager.id
        target = next(id for id in sorted(self.session.runtime.task_managers) if id != home)
        self.session.move(instance.id, target)
        return f"{instance.id} was moved to {target}"

    def redeclare(self) -> str:
        """The filter is declared anew, with another recipe of the same meaning."""
        self.declared += 1
        always = F.lit(self.declared) > 0
        self.session.stream(
            "far",
            lambda trips: trips.where((F.col("trip_distance") > 2) & always).select("PULocationID", "_weight"),
            from_="trips",
            priority=1,
            min_accuracy=0.1,
            fuse=False,
        )
        return "far was declared anew"

    def hold(self) -> str:
        """A shedder is held by hand for a while."""
        d = self.dice.choice([0.3, 0.6, 0.9])
        self.session.override("counts", d)
        time.sleep(HELD_S)
        self.session.override("counts", None)
        return f"counts was held at {d}"

    def settled(self) -> bool:
        """Whether all instances run, and no row waits by the last cycle."""
        last = self.session.last
        if last is None or last.measured is None:
            return False
        run = all(instance.state is State.RUNNING for instance in self.session.runtime.instances.values())
        return run and not any(count.waiting for count in last.measured.counts.values())

    def _manager(self) -> TaskManager:
        managers = self.session.runtime.task_managers
        return managers[self.dice.choice(sorted(managers))]

    def _instance(self) -> Instance:
        instances = self.session.runtime.instances
        return instances[self.dice.choice(sorted(id for id, i in instances.items() if i.state is State.RUNNING))]


Fault = Callable[[Application], str]
FAULTS: tuple[Fault, ...] = (
    Application.kill,
    Application.freeze,
    Application.stop_broker,
    Application.grow,
    Application.end_query,
    Application.jump,
    Application.move,
    Application.redeclare,
    Application.hold,
)


def faults(application: Application, seconds: float, between_s: float) -> Iterator[str]:
    """Faults one after the other for as long, each once before any comes again; each in words, once it is over. Between
    two, once or twice `between_s` seconds. The topic grows in the first half alone: each partition has its files."""
    left: list[Fault] = []
    start = time.monotonic()
    while (now := time.monotonic()) < start + seconds:
        left = left or application.dice.sample(FAULTS, len(FAULTS))
        if left[-1] is Application.grow and now > start + seconds / 2:
            left.pop()
            continue
        fault, begun = left.pop(), time.monotonic()
        try:
            done = fault(application)
        except QodError as error:
            done = f"{fault.__name__} failed: {type(error).__name__}: {error}"
        yield f"{done} ({time.monotonic() - begun:.1f} s)"
        time.sleep(application.dice.uniform(between_s, 2 * between_s))


def eventually(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> bool:
    """Whether it came to hold within this time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _pid(manager: TaskManager) -> int:
    assert manager.server is not None
    return manager.server.child.pid
