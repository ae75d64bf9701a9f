"""A throw-away query that makes a task manager load its classes and compile the code of every pipeline."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TypeVar

from confluent_kafka import Producer
from pyspark.sql import functions as F

from qod_magics.application.stream import Mode
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.jvm.jars import connector_advice
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.offsets import end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.machine.directory import temporary
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.plans.pipeline import Feed, Job
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.realtime import refuses_realtime
from qod_magics.spark.servers.task_manager import TaskManager
from qod_magics.spark.servers.timeouts import call_within

T = TypeVar("T")

_ROWS = 2_000
_SCHEMA = "id LONG, zone INT, amount DOUBLE, at TIMESTAMP"


class WarmUp:
    """One small query of the usual shape (read, shed, parse, window, aggregate, send) on one task manager.

    `prepare` needs no server: it can be done while that starts. `clean` is to be called in any case; nothing waits for
    it.

    Args:
        kafka: the broker.
        board: of the session.
        task_manager: its id.
        checkpoints: where they go; None: into a temporary directory.

    """

    def __init__(self, kafka: Kafka, board: DialBoard, task_manager: str, checkpoints: str | None = None) -> None:
        self._kafka = kafka
        self._board = board
        self._id = task_manager
        self._checkpoints = checkpoints
        self._topic = f"qod.{board.session}.{task_manager}.warm"
        self._out = f"{self._topic}.out"
        self._directory: str | None = None  #: made here
        self._manager: TaskManager | None = None  #: once it is warm
        self._instance: Instance | None = None

    def __repr__(self) -> str:
        return f"warm-up of {self._id}"

    def prepare(self) -> None:
        """Create its topics, and send its rows. Raises KafkaError."""
        create_topics(self._kafka, {self._topic: 1, self._out: 1}, retention=self._kafka.own_retention)
        producer = Producer(self._kafka.client_config())
        for i in range(_ROWS):
            producer.produce(
                self._topic,
                f'{{"id":{i},"zone":{i % 50},"amount":{i / 7},"at":"2026-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}Z"}}',
            )
        producer.flush(10)

    def run(
        self, manager: TaskManager, timeout_s: float = 180.0, *, whole_batch: bool = False, mode: Mode = "auto"
    ) -> float:
        """Run it until its first output rows; returns the seconds that it took.

        `mode` is the query's; "auto" means micro-batches here, since it keeps state. With `whole_batch`, also wait for
        the end of the batch: in real-time mode five seconds after its start.

        Raises:
            TaskManagerError, KafkaError: the query can't run: nor would any other.
            SetupError: there is no room for its files.

        """
        begun = time.monotonic()
        deadline = begun + timeout_s
        job = self._job()
        instance = self._instance = Instance(job, self._checkpoint(), mode)

        def asked(call: Callable[[], T]) -> T:  # one that hangs answers no call, and none of Spark's has a timeout
            return call_within(call, max(deadline - time.monotonic(), 1.0), f"warming {self._id} up")

        def start() -> None:
            options = dict(self._kafka.spark_options())
            dials = {self._board.source(job.task): 1.0}
            asked(lambda: instance.start(manager, self._board, options, dials))

        try:
            start()
        except TaskManagerError as error:
            if manager.kind != "local" and lacks_connector(str(error)):
                raise TaskManagerError(
                    f"{self._id} has no Kafka connector: {connector_advice(manager.spark.version)}"
                ) from error
            raise
        while not (asked(instance.poll) if whole_batch else _has_rows(self._kafka, self._out)):
            why = asked(instance.failed)
            if why is not None and instance.mode == "real-time" and refuses_realtime(why):
                instance.fall_back(why)
                start()
                continue
            if why is not None or time.monotonic() > deadline:
                raise TaskManagerError(f"{self._id} can't run a query: {why or f'no row in {timeout_s:g} s'}")
            time.sleep(0.05)
        self._manager = manager
        return time.monotonic() - begun

    def clean(self) -> None:
        """Warm up the server's REST API, too, if the query has run; then stop the query, and remove its topics and
        files."""
        instance = self._instance
        if instance is not None:
            with suppress(Exception):
                if self._manager is not None:
                    self._manager.works_on(instance.run_id or "")
            with suppress(Exception):
                call_within(instance.stop, 10.0, "stopping the warm-up query")
        with suppress(Exception):
            delete_topics(self._kafka, [self._topic, self._out], timeout_s=5.0)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _job(self) -> Job:
        @contextmanager
        def build(spark, inputs):  # type: ignore[no-untyped-def]
            rows = inputs["source"].withWatermark("at", "10 seconds")
            yield rows.groupBy(F.window("at", "10 seconds"), "zone").agg(
                F.sum("_weight").alias("n"), F.avg("amount").alias("mean")
            )

        task = f"warm.{self._id}"
        feed = Feed(task, ("source",), self._topic, (0,), {0: 0}, _SCHEMA, False)
        return Job(task, task, 0, (feed,), build, (f"{task}>out",), ((self._out, 1, None),), None, None, None)

    def _checkpoint(self) -> str:
        if self._checkpoints is not None:
            return f"{self._checkpoints}/warm.{self._id}"
        self._directory = str(temporary("qod-warm-"))
        return self._directory


def warm_up(manager: TaskManager, kafka: Kafka, board: DialBoard, *, whole_batch: bool, mode: Mode) -> float:
    """Prepare, run and clean a `WarmUp`; returns the seconds of the run. Raises as that."""
    query = WarmUp(kafka, board, manager.id)
    try:
        query.prepare()
        return query.run(manager, whole_batch=whole_batch, mode=mode)
    finally:
        query.clean()


def _has_rows(kafka: Kafka, topic: str) -> bool:
    """Whether the topic has rows yet; False if the broker is too busy to answer."""
    with suppress(KafkaError):
        return any(end_offsets(kafka, [topic])[topic].values())
    return False


def lacks_connector(text: str) -> bool:
    """Whether Spark says here that it has no Kafka connector."""
    return bool(re.search(r"[Ff]ailed to find (?:the )?data source: kafka", text))
