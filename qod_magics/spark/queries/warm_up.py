"""A throw-away query that makes a task manager load its classes and compile the code of every pipeline."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pyspark.sql import functions as F

from qod_magics.application.streams.stream import Mode
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.names import own_topic
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.machine.child import temporary
from qod_magics.machine.jars import connector_advice
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.plans.job import Feed, Job
from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.modes import refuses_realtime
from qod_magics.spark.servers.connection import call_within, reason
from qod_magics.spark.servers.task_manager import TaskManager

T = TypeVar("T")

_ROWS = 2_000
_SCHEMA = "id LONG, zone INT, amount DOUBLE, at TIMESTAMP"


def warm_up(
    manager: TaskManager,
    kafka: Kafka,
    board: DialBoard,
    checkpoints: str | None,
    timeout_s: float = 180.0,
    *,
    whole_batch: bool = False,
    mode: Mode = "auto",
    needed: Callable[[], bool] = lambda: True,
    query: Callable[[Job, str, Mode], Instance] = Instance,
) -> float:
    """Run one small query of the usual shape (read, shed, parse, window, aggregate, send) until its first output rows;
    returns the seconds it took.

    `mode` is the query's; "auto" means micro-batches here, since it keeps state. With `whole_batch`, also wait for the
    end of the batch: in real-time mode five seconds after its start. It ends early once it is not `needed` any more.
    `query` makes the query of a job, with its directory and mode.

    Raises:
        TaskManagerError, KafkaError: the query can't run: nor would any other.
        SetupError: there is no room for its files.

    """
    from contextlib import contextmanager

    begun = time.monotonic()
    topic, out = (own_topic(kafka.prefix, board.session, f"{manager.id}.{name}") for name in ("warm", "warm.out"))
    create_topics(kafka, {topic: 1, out: 1}, retention=kafka.own_retention)
    producer = kafka.producer(kafka.client_config())
    for i in range(_ROWS):
        producer.produce(
            topic,
            f'{{"id":{i},"zone":{i % 50},"amount":{i / 7},"at":"2026-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}Z"}}',
        )
    producer.flush(10)

    @contextmanager
    def build(spark, inputs):  # type: ignore[no-untyped-def]
        rows = inputs["source"].withWatermark("at", "10 seconds")
        yield rows.groupBy(F.window("at", "10 seconds"), "zone").agg(
            F.sum("_weight").alias("n"), F.avg("amount").alias("mean")
        )

    task = f"warm.{manager.id}"
    feed = Feed(task, ("source",), topic, (0,), {0: 0}, _SCHEMA, False)
    job = Job(task, task, 0, (feed,), build, (f"{task}>out",), ((out, 1, None),), None, None, None)
    directory = str(temporary("qod-warm-")) if checkpoints is None else f"{checkpoints}/{task}"
    instance = query(job, directory, mode)

    def start() -> None:
        dials = {board.source(task): 1.0}
        call_within(
            lambda: instance.start(manager, board, dict(kafka.spark_options()), dials, sources=Sources(Context(kafka))),
            timeout_s,
            f"warming {manager.id} up",
        )

    try:
        try:
            start()
        except TaskManagerError as error:
            if manager.kind != "local" and lacks_connector(str(error)):
                raise _without_connector(manager) from error
            raise
        manager.works_on(instance.run_id or "")  # warms up its REST API, too
        deadline = time.monotonic() + timeout_s

        def asked(call: Callable[[], T]) -> T:  # one that hangs answers no call, and none of Spark's has a timeout
            return call_within(call, max(deadline - time.monotonic(), min(1.0, timeout_s)), f"warming {manager.id} up")

        while needed() and not (asked(instance.poll) if whole_batch else _has_rows(kafka, out)):
            why = asked(instance.failed)
            if why is not None and instance.mode == "real-time" and refuses_realtime(why):
                instance.fall_back(why)
                start()
                continue
            if why is not None or time.monotonic() > deadline:
                raise TaskManagerError(f"{manager.id} can't run a query: {why or f'no row in {timeout_s:g} s'}")
            time.sleep(0.1)
    finally:
        with suppress(Exception):
            call_within(instance.stop, 10.0, "stopping the warm-up query")
        with suppress(Exception):
            delete_topics(kafka, [topic, out], timeout_s=5.0)
        if (place := local_path(directory)) is not None:
            shutil.rmtree(place, ignore_errors=True)
    return time.monotonic() - begun


def check_kafka(manager: TaskManager, kafka: Kafka, board: DialBoard) -> None:
    """Let the executors of a task manager read a row from a topic: what takes seconds, where a warm-up takes far more.

    Raises:
        TaskManagerError, KafkaError: they can't: nor could any query.

    """
    topic = own_topic(kafka.prefix, board.session, f"{manager.id}.probe")
    create_topics(kafka, {topic: 1}, retention=kafka.own_retention)
    try:
        producer = kafka.producer(kafka.client_config())
        producer.produce(topic, b"{}")
        producer.flush(10)
        options = {**kafka.spark_options(), "subscribe": topic}
        rows = manager.spark.read.format("kafka").options(**options)
        found = manager.ask(lambda: rows.load().count(), "reading a topic", 60.0)
        why = f"got {found} of 1 row"
    except TaskManagerError as error:
        found, why = 0, f"got: {reason(error)}"
    except KafkaError:
        raise
    except Exception as error:
        if lacks_connector(str(error)):
            raise _without_connector(manager) from error
        found, why = 0, f"got: {reason(error)}"
    finally:
        with suppress(Exception):
            delete_topics(kafka, [topic], timeout_s=5.0)
    if found != 1:
        raise TaskManagerError(
            f"executors of {manager.id} must be able to read topics at {kafka.bootstrap}, {why}; use a broker that "
            "they reach (--kafka HOST:PORT)",
            name=manager.id,
            rule="reads topics",
        )


def _has_rows(kafka: Kafka, topic: str) -> bool:
    """Return whether the topic has rows yet; False if the broker is too busy to answer."""
    with suppress(KafkaError):
        return any(end_offsets(kafka, [topic])[topic].values())
    return False


def _without_connector(manager: TaskManager) -> TaskManagerError:
    return TaskManagerError(f"{manager.id} has no Kafka connector: {connector_advice(manager.spark.version)}")


def lacks_connector(text: str) -> bool:
    """Return whether Spark says here that it has no Kafka connector."""
    return bool(re.search(r"[Ff]ailed to find (?:the )?data source: kafka", text))
