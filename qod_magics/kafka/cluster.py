"""What the rest of the package asks of a Kafka cluster, embedded or the user's own."""

from __future__ import annotations

import logging
import os
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

#: What librdkafka says of its own accord (lost connections, retries) goes here, and nowhere unless a handler is added.
LOG = logging.getLogger("qod_magics.kafka.client")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False


class Kafka(Protocol):
    """A Kafka cluster."""

    @property
    def bootstrap(self) -> str:
        """`host:port[,host:port ...]`."""
        ...

    def admin(self) -> AdminClient:
        """A client for topics and offsets: one per process, made at the first call."""
        ...

    def client_config(self) -> dict[str, Any]:
        """Options for a `confluent_kafka` Producer or Consumer (librdkafka names): a copy to add to."""
        ...

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's Kafka source and sink, `kafka.bootstrap.servers` among them (Java names, `kafka.` before)."""
        ...


class Admin:
    """The one admin client of a process: a fork gets its own, for librdkafka's threads do not cross it."""

    def __init__(self) -> None:
        self._of: int | None = None
        self._client: AdminClient | None = None

    def get(self, config: dict[str, Any]) -> AdminClient:
        if self._client is None or self._of != os.getpid():
            self._client = AdminClient(dict(config), logger=LOG)
            self._of = os.getpid()
        return self._client

    def close(self) -> None:
        self._client = None
