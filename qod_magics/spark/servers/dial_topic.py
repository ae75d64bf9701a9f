"""Dials on servers whose SQL may not call methods of Java: a topic that each plan reads when a batch is planned.

A record holds all dials of one task manager as JSON, and the newest one counts: `plans.dial` has the SQL that reads it.
Records before it are deleted now and then, so that a read stays short. A read takes some tens of milliseconds of each
batch. What a server refuses can be known only by trying it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.spark.plans.dial import VIEW, DialReading, read_sql, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qod_magics.spark.servers.task_manager import TaskManager

LOG = logging.getLogger(__name__)
#: Records that are left behind the newest one before they are deleted.
KEPT = 50
#: For a record to be acknowledged, and for others to be deleted, seconds.
PATIENCE_S = 5.0
#: The newest record is in the segment that is written, which Kafka never deletes.
RETENTION = Retention(bytes=16 << 20, seconds=None, segment_bytes=16 << 20)
_PROBE = "probe"


class DialTopic:
    """The topic of one task manager's dials, made when this is, and the view through which its session reads it.

    Args:
        kafka: where the topic is.
        name: of the topic.
        spark: the session, which gets the view.

    Raises:
        KafkaError: the topic can't be made.

    """

    def __init__(self, kafka: Kafka, name: str, spark: SparkSession) -> None:
        create_topics(kafka, {name: 1}, retention=RETENTION)
        self.name, self._kafka = name, kafka
        self._producer = kafka.producer({**kafka.client_config(), "linger.ms": 0, "enable.idempotence": True})
        self._oldest = 0  #: offset before which records are deleted
        options = {**kafka.spark_options(), "subscribe": name, "failOnDataLoss": "false"}
        spark.read.format("kafka").options(**options).load().createOrReplaceTempView(VIEW)

    def __repr__(self) -> str:
        return f"dials in topic {self.name}"

    def write(self, values: Mapping[str, float]) -> None:
        """Set the dials to these values, which are all that are set from now on.

        Raises:
            TaskManagerError: Kafka has not acknowledged them in time.

        """
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
    """Have the plans of a task manager that refuses `reflect` read their dials from a topic, if its Spark runs such a
    read; otherwise it stays as it is: a new value restarts its queries.

    Raises:
        KafkaError: the topic can't be made.
        LostError: the task manager's process is gone.

    """
    if manager.reading is not DialReading.RESTART:
        return

    def opened() -> DialTopic | None:
        made = DialTopic(kafka, name, manager.spark)
        try:
            made.write({_PROBE: 0.25})
            row = manager.spark.sql(f"SELECT {read_sql(_PROBE, DialReading.TOPIC)} AS value").collect()[0]
            if row["value"] == 0.25:
                return made
            LOG.warning("%s reads %s from %s, not what was written", manager.id, row["value"], made)
        except Exception as error:
            LOG.warning("%s can't read %s: %s", manager.id, made, error)
        made.close()
        return None

    topic: DialTopic | None = manager.ask(opened, "reading dials from a topic", 60.0)
    if topic is not None:
        manager.take_topic(topic)
