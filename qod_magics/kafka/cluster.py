"""What the rest of the package asks of a Kafka cluster, embedded or the user's own."""

from __future__ import annotations

import logging
import os
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

from qod_magics.kafka.properties import Retention

#: Lost connections and retries are told by what fails for them, not printed into the notebook by librdkafka's threads.
QUIET = {"log_level": 2}
#: What the admin client still has to say goes here, and nowhere unless a handler is added.
LOG = logging.getLogger("qod_magics.kafka.client")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

#: Clients of the process that this one was forked from: to destroy one here would wait for threads that aren't here.
_INHERITED: list[AdminClient] = []


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
        """Options for Spark's Kafka source and sink: Java's names with `kafka.` before, the bootstrap servers too."""
        ...

    @property
    def own_topics(self) -> Retention | None:
        """How much is kept of the topics that a session makes for itself; None: the cluster's own setting."""
        ...


class Admin:
    """The one admin client of a process: a fork gets its own, for librdkafka's threads do not cross it."""

    def __init__(self) -> None:
        self._of: int | None = None
        self._client: AdminClient | None = None

    def get(self, config: dict[str, Any]) -> AdminClient:
        """The client, made with `config` at the first call."""
        if self._client is not None and self._of != os.getpid():
            _INHERITED.append(self._client)
            self._client = None
        if self._client is None:
            self._client = AdminClient(dict(config), logger=LOG)
            self._of = os.getpid()
        return self._client

    def close(self) -> None:
        """Let go of the client."""
        self._client = None
