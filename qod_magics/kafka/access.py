"""Kafka for a session: the user's cluster or an embedded broker."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.errors import UsageProblem
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import ExternalKafka, Kafka
from qod_magics.kafka.topics import topic_partitions

#: Timeout for the first answer of the user's cluster.
ANSWER_S = 10.0


def configure(bootstrap: str | None, options: Mapping[str, str] | None, cpus: set[int] | None = None) -> Kafka:
    """The user's cluster, not yet connected to, or an embedded broker, not yet started: nothing is downloaded or run.

    Args:
        bootstrap: `host:port` of the user's cluster; None means an embedded broker.
        options: client options in librdkafka's names.
        cpus: cores for the embedded broker, default all.

    Raises:
        KafkaError: `bootstrap` is not of that form, or Spark does not support an option.
        UsageProblem: an option is for the other kind of broker.

    """
    if bootstrap is None and options:
        raise UsageProblem(f"--kafka-option {next(iter(options))} is for your own broker: name it, --kafka HOST:PORT")
    if bootstrap is not None and cpus is not None:
        raise UsageProblem("--kafka-cpus pins the broker that is started here, and --kafka names yours: leave one out")
    if bootstrap is None:
        return EmbeddedBroker(cpus=cpus)
    kafka = ExternalKafka(bootstrap, options)
    kafka.spark_options()  # one that Spark does not support is refused before anything starts
    return kafka


def access(kafka: Kafka) -> Kafka:
    """Start the embedded broker, or connect to the user's cluster; return `kafka` once it answers.

    Raises:
        SetupError, KafkaError: nothing is left running.

    """
    if isinstance(kafka, EmbeddedBroker):
        kafka.start()
    else:
        topic_partitions(kafka, timeout_s=ANSWER_S)
    return kafka
