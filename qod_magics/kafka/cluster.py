"""The interface of a Kafka cluster, embedded or the user's own."""

from __future__ import annotations

import logging
import os
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient

from qod_magics.kafka.properties import Retention

#: Lost connections surface as failed calls; librdkafka's threads must not print them into the notebook.
QUIET = {"log_level": 2}
#: Remaining messages of the admin client, discarded unless a handler is added.
LOG = logging.getLogger("qod_magics.kafka.client")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

#: librdkafka's default is five minutes: for as long it asks a broker that is gone, and offsets of no topic are known.
REFRESHED = {"topic.metadata.refresh.interval.ms": 5_000}

#: Clients inherited over a fork, kept: destroying one would wait for threads that this process does not have.
_INHERITED: list[AdminClient] = []


class Kafka(Protocol):
    """A Kafka cluster."""

    @property
    def bootstrap(self) -> str:
        """`host:port[,host:port ...]`."""
        ...

    def admin(self) -> AdminClient:
        """A client for topics and offsets: one per process, created at the first call."""
        ...

    def client_config(self) -> dict[str, Any]:
        """Options for a `confluent_kafka` Producer or Consumer (librdkafka names): a fresh copy."""
        ...

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's Kafka source and sink: Java's names prefixed with `kafka.`, bootstrap servers too."""
        ...

    @property
    def own_retention(self) -> Retention | None:
        """Retention of the topics that a session makes for itself; None: the cluster's default."""
        ...


class Admin:
    """The admin client of a process: a fork gets its own, since librdkafka's threads do not survive it."""

    def __init__(self) -> None:
        self._owner: int | None = None
        self._client: AdminClient | None = None

    def get(self, config: dict[str, Any]) -> AdminClient:
        """The client, created with `config` at the first call."""
        if self._client is not None and self._owner != os.getpid():
            _INHERITED.append(self._client)
            self._client = None
        if self._client is None:
            self._client = AdminClient({**REFRESHED, **config}, logger=LOG)
            self._owner = os.getpid()
        return self._client

    def close(self) -> None:
        """Drop the client."""
        self._client = None
