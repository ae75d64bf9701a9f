"""Kafka for a session: the user's cluster, or a broker of its own."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.external import ExternalKafka
from qod_magics.kafka.topics import topic_partitions

#: A Kafka cluster that can be reached answers within this.
ANSWER_S = 10.0


def access(bootstrap: str | None, options: Mapping[str, str] | None, cpus: set[int] | None = None) -> Kafka:
    """The user's cluster, once it has answered, or a broker of our own, once it is up.

    Args:
        bootstrap: `host:port` of the user's; None starts one.
        options: of its clients, as librdkafka names them.
        cpus: cores for the broker that is started, default all.

    Raises:
        SetupError, KafkaError: nothing is left behind then.

    """
    if bootstrap is None:
        embedded = EmbeddedBroker(cpus=cpus)
        embedded.start()
        return embedded
    external = ExternalKafka(bootstrap, dict(options or {}))
    topic_partitions(external, timeout_s=ANSWER_S)
    return external
