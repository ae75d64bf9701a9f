"""Dials on servers whose SQL may not call methods of Java: a topic that each plan reads when a batch is planned.

A record holds all dials of one task manager as JSON, and the newest one counts: `plans.dial` has the SQL that reads it.
Records before it are deleted now and then, so that a read stays short. Each dial of a plan is one read of the topic in
each batch. What a server refuses can be known only by trying it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.spark.plans.dial import VIEW, DialReading, read_sql, record
from qod_magics.spark.servers.connection import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qod_magics.spark.servers.task_manager import TaskManager

LOG = logging.getLogger(__name__)
#: Records that are left behind the newest one before they are deleted.
KEPT = 50
#: For a record to be acknowledged, and for others to be deleted, seconds.
PATIENCE_S = 5.0
#: For a task manager to read a new topic, seconds.
PROBE_S = 60.0
#: The newest record is in the segment that is written, which Kafka never deletes.
RETENTION = Retention(bytes=16 << 20, seconds=None, segment_bytes=16 << 20)
_PROBE = "probe"


class DialTopic:
    """The topic of one task manager's dials, made when this is, and the view through which its session reads it.

    Args:
        kafka: where the topic is.
        name: of the topic.

    Raises:
        KafkaError: the topic can't be made.

    """

    def __init__(self, kafka: Kafka, name: str) -> None:
        self.name, self._kafka = name, kafka
        self._producer = kafka.producer({**kafka.client_config(), "linger.ms": 0, "enable.idempotence": True})
        self._values: dict[str, float] = {}  #: of all dials that were to be set, whether or not Kafka had them
        self._oldest = 0  #: offset before which records are deleted
        create_topics(kafka, {name: 1}, retention=RETENTION)

    def __repr__(self) -> str:
        return f"dials in topic {self.name}"

    def reads(self, spark: SparkSession) -> bool:
        """Give a session the view of the topic, and return whether it reads through it what was written. Raises
        whatever Spark raises, or TaskManagerError."""
        options = {**self._kafka.spark_options(), "subscribe": self.name, "failOnDataLoss": "false"}
        spark.read.format("kafka").options(**options).load().createOrReplaceTempView(VIEW)
        self._send({_PROBE: 0.25})
        row = spark.sql(f"SELECT {read_sql(_PROBE, DialReading.TOPIC)} AS value").collect()[0]
        return bool(row["value"] == 0.25)

    def write(self, values: Mapping[str, float]) -> None:
        """Set these dials; all others keep their values. What could not be written is set by the next call.

        Raises:
            TaskManagerError: Kafka has not acknowledged them in time.

        """
        self._values.update(values)
        self._send(self._values)

    def _send(self, values: Mapping[str, float]) -> None:
        """Write the record of these dials."""
        written: list[int] = []
        failed: list[str] = []

        def told(error: object, message: object) -> None:
            if error is None:
                written.append(message.offset())  # type: ignore[attr-defined]
            else:
                failed.append(str(error))

        self._producer.produce(self.name, record(values), partition=0, on_delivery=told)
        self._producer.flush(PATIENCE_S)
        if not written:
            why = failed[0] if failed else f"no answer within {PATIENCE_S:g} s"
            raise TaskManagerError(f"dials in topic {self.name} are not set: {why}", name=self.name, rule="answers")
        if written[0] - self._oldest > KEPT:
            self._forget(written[0])

    def close(self) -> None:
        """Delete the topic, as far as Kafka answers."""
        with suppress(KafkaError):
            delete_topics(self._kafka, [self.name], timeout_s=PATIENCE_S)

    def _forget(self, newest: int) -> None:
        """Delete the records before the newest one; where Kafka refuses that, they stay, and reads take longer."""
        self._oldest = newest
        asked = self._kafka.admin().delete_records(
            [TopicPartition(self.name, 0, newest)], request_timeout=PATIENCE_S, operation_timeout=PATIENCE_S
        )
        for each in asked.values():
            try:
                each.result(PATIENCE_S)
            except (KafkaException, TimeoutError) as error:
                LOG.warning("old dials in topic %s can't be deleted: %s", self.name, error)


def read_from_topic(manager: TaskManager, kafka: Kafka, name: str) -> None:
    """Move the dials of a task manager that refuses `reflect` to a topic. Where its Spark can't read that, queries go
    on restarting for new values.

    Raises:
        KafkaError: the topic can't be made.
        LostError: the task manager's process is gone.
        TaskManagerError: it has not answered in time.

    """
    if manager.reading is not DialReading.RESTART:
        return

    made: list[DialTopic] = []
    abandoned = Event()

    def opened() -> DialTopic | None:
        topic = DialTopic(kafka, name)
        made.append(topic)
        try:
            if not abandoned.is_set() and topic.reads(manager.spark) and not abandoned.is_set():
                return topic
            LOG.warning("%s does not read from %s what was written", manager.id, topic)
        except Exception as error:
            LOG.warning("%s can't read %s: %s", manager.id, topic, reason(error))
        topic.close()
        return None

    try:
        topic: DialTopic | None = manager.ask(opened, "reading dials from a topic", PROBE_S)
    except BaseException:
        abandoned.set()  # a late answer closes what it has made
        for each in made:
            each.close()
        raise
    if topic is not None:
        manager.take_topic(topic)
