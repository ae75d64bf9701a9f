"""The user's own Kafka cluster, reached with the user's client options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import QUIET, Admin
from qod_magics.kafka.options import client_options, spark_options
from qod_magics.kafka.properties import Retention


class ExternalKafka:
    """A cluster that this package does not run.

    Args:
        bootstrap: `host:port[,host:port ...]`.
        options: client options, in librdkafka's names (`security.protocol`, `sasl.username`, `ssl.ca.location` ...) or
            in Java's prefixed with `kafka.` (for Spark only). `qod_magics.kafka.options` lists the translation.

    Raises:
        KafkaError: `bootstrap` is not of that form.

    """

    def __init__(self, bootstrap: str, options: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = _checked(bootstrap)
        self._client = client_options(options or {})
        self._options = dict(options or {})
        self._admin = Admin()

    @property
    def bootstrap(self) -> str:
        """As it was given."""
        return self._bootstrap

    def admin(self) -> AdminClient:
        """A client for topics and offsets, one per process.

        Raises:
            KafkaError: librdkafka refuses an option.

        """
        try:
            return self._admin.get(self.client_config())
        except KafkaException as error:
            raise KafkaError(f"Kafka client options for {self._bootstrap}: {error.args[0].str()}.") from error

    def client_config(self) -> dict[str, Any]:
        """Options for confluent_kafka."""
        return {**QUIET, "bootstrap.servers": self._bootstrap, **self._client}

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's source and sink. Raises KafkaError: Spark does not support one of them; it is named."""
        return {"kafka.bootstrap.servers": self._bootstrap, **spark_options(self._options)}

    @property
    def own_retention(self) -> Retention:
        """A day and 1 GiB of each partition: a session that is killed leaves its topics behind."""
        return Retention(bytes=1 << 30, seconds=24 * 3600)

    def close(self) -> None:
        """Close the connection; the cluster itself is not touched."""
        self._admin.close()

    def __repr__(self) -> str:
        """Without the options: they may hold passwords."""
        return f"ExternalKafka({self._bootstrap!r})"


def _checked(bootstrap: str) -> str:
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise KafkaError(
                f"{server!r} is not a Kafka server: write host:port[,host:port ...], as in localhost:9092."
            )
    return bootstrap.replace(" ", "")
