"""The interface of a Kafka cluster, and the user's own cluster, reached with the user's client options."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from qod_magics.errors import KafkaError
from qod_magics.kafka.names import check_prefix
from qod_magics.kafka.properties import Retention, client_options, spark_options
from qod_magics.kafka.tokens import with_tokens

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


#: The option of Spark's Kafka source for the names of its consumer groups.
GROUP_PREFIX = "groupIdPrefix"


class Kafka(Protocol):
    """A Kafka cluster."""

    @property
    def bootstrap(self) -> str:
        """`host:port[,host:port ...]`."""
        ...

    def admin(self) -> AdminClient:
        """Return a client for topics and offsets: one per process, created at the first call."""
        ...

    def client_config(self) -> dict[str, Any]:
        """Return options for a `confluent_kafka` Producer or Consumer (librdkafka names): a fresh copy."""
        ...

    def producer(self, config: Mapping[str, Any]) -> Producer:
        """Return a client that writes records, with these options alone."""
        ...

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        """Return a client that reads records, with these options alone."""
        ...

    def spark_options(self) -> dict[str, str]:
        """Return options for Spark's Kafka source and sink: Java's names prefixed with `kafka.`, bootstrap servers
        too."""
        ...

    @property
    def own_retention(self) -> Retention | None:
        """Retention of the topics that a session makes for itself; None: the cluster's default."""
        ...

    @property
    def prefix(self) -> str:
        """What begins the names of these topics, and of consumer groups: see `names.own_topic`."""
        ...


class Admin:
    """The admin client of a process: a fork gets its own, since librdkafka's threads do not survive it."""

    def __init__(self) -> None:
        self._owner: int | None = None
        self._client: AdminClient | None = None

    def get(self, config: dict[str, Any]) -> AdminClient:
        """Return the client, created with `config` at the first call."""
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


class Clients:
    """The clients of `confluent_kafka` for records; their messages go to `LOG`.

    Attributes:
        prefix: begins the names of consumer groups.

    """

    prefix: str = ""

    def producer(self, config: Mapping[str, Any]) -> Producer:
        """Return a client that writes records, with these options alone."""
        return Producer({**config}, logger=LOG)

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        """Return a client that reads records, with these options alone; its group's name gets the prefix."""
        group = config.get("group.id")
        return Consumer({**config, **({} if group is None else {"group.id": f"{self.prefix}{group}"})}, logger=LOG)


class ExternalKafka(Clients):
    """A cluster that this package does not run.

    Args:
        bootstrap: `host:port[,host:port ...]`.
        options: client options, in librdkafka's names (`security.protocol`, `sasl.username`, `ssl.ca.location` ...) or
            in Java's prefixed with `kafka.` (for Spark only). `qod_magics.kafka.properties` lists the translation.
        prefix: of the topics that a session makes for itself, and of consumer groups.

    Raises:
        KafkaError: `bootstrap` is not of that form.
        UsageProblem: Kafka does not allow the prefix in names.

    """

    def __init__(self, bootstrap: str, options: Mapping[str, Any] | None = None, prefix: str = "") -> None:
        self._bootstrap, self.prefix = _checked(bootstrap), check_prefix(prefix)
        self._client = client_options(options or {})
        self._options = dict(options or {})
        self._admin = Admin()

    @property
    def bootstrap(self) -> str:
        """As it was given."""
        return self._bootstrap

    def admin(self) -> AdminClient:
        """Return a client for topics and offsets, one per process.

        Raises:
            KafkaError: librdkafka refuses an option.

        """
        try:
            return self._admin.get(self.client_config())
        except KafkaException as error:
            raise KafkaError(f"Kafka client options for {self._bootstrap}: {error.args[0].str()}.") from error

    def client_config(self) -> dict[str, Any]:
        """Return options for confluent_kafka. Raises KafkaError, SetupError: there is no function that returns tokens,
        where they are to have one."""
        return {**QUIET, "bootstrap.servers": self._bootstrap, **with_tokens(self._client, self._bootstrap)}

    def spark_options(self) -> dict[str, str]:
        """Return options for Spark's source and sink. Raises KafkaError: Spark does not support one of them; it is
        named."""
        group = {GROUP_PREFIX: f"{self.prefix}qod"} if self.prefix else {}
        return {"kafka.bootstrap.servers": self._bootstrap, **group, **spark_options(self._options)}

    @property
    def own_retention(self) -> Retention:
        """Return a day and 1 GiB of each partition: a session that is killed leaves its topics behind."""
        return Retention(bytes=1 << 30, seconds=24 * 3600)

    def close(self) -> None:
        """Close the connection; the cluster itself is not touched."""
        self._admin.close()

    def __repr__(self) -> str:
        """Without the options: they may hold passwords."""
        return f"ExternalKafka({self._bootstrap!r})"


def _checked(bootstrap: Any) -> str:
    if not isinstance(bootstrap, str):
        raise KafkaError(
            f"a Kafka server must be text, host:port[,host:port ...], got {bootstrap!r}; write localhost:9092",
            value=bootstrap,
            rule="host:port",
        )
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise KafkaError(
                f"{server!r} is not a Kafka server: write host:port[,host:port ...], as in localhost:9092.",
                value=server,
                rule="host:port",
            )
    return bootstrap.replace(" ", "")
