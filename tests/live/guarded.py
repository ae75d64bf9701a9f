"""A Kafka broker as companies run it: a login may do on a topic what its ACLs say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from qod_magics.kafka.broker import EmbeddedBroker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
READER, PASSWORD = "reader", "reads"
#: What a login needs to read a topic, and to write to it.
READS = (AclOperation.READ, AclOperation.DESCRIBE)
WRITES = (*READS, AclOperation.WRITE)


class GuardedBroker(EmbeddedBroker):
    """A broker with ACLs. Its own login is the administrator's; that of `reader` begins without rights."""

    @property
    def reader(self) -> dict[str, Any]:
        """`kafka` and `kafka_options` of a session with the rights of `reader`."""
        login = {"sasl.username": READER, "sasl.password": PASSWORD}
        return {"kafka": self.bootstrap, "kafka_options": {**self.credentials, **login}}

    def allow(
        self,
        topic: str,
        *operations: AclOperation,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
        kind: ResourceType = ResourceType.TOPIC,
    ) -> None:
        """Let `reader` do this with a topic, or with all whose names begin so."""
        there = kind, topic, pattern, f"User:{READER}", "*"
        acls = [AclBinding(*there, operation, AclPermissionType.ALLOW) for operation in operations]
        for done in self.admin().create_acls(acls).values():
            done.result(10.0)

    def _configure(self, directory: Path, controller_port: int) -> None:
        super()._configure(directory, controller_port)
        file = Path(self._properties_file)
        jaas = self._login.jaas()
        text = file.read_text("utf-8").replace(jaas, jaas.replace(";", f' user_{READER}="{PASSWORD}";'))
        assert READER in text
        file.write_text(f"{text}authorizer.class.name={AUTHORIZER}\nsuper.users=User:qod\n", "utf-8")
        with (directory / "log4j2.properties").open("a", encoding="utf-8") as logged:
            logged.write("logger.authorizer.name = kafka.authorizer.logger\nlogger.authorizer.level = info\n")

    @property
    def denied(self) -> set[tuple[str, str]]:
        """What `reader` has asked for and may not do: operations and resources."""
        found = re.findall(r"User:\w+ is Denied operation = (\w+) from .* on resource = (\S+) for", self.log(100_000))
        return set(found)


@contextmanager
def running(*brokers: EmbeddedBroker) -> Iterator[None]:
    """Start brokers, and stop them."""
    try:
        for broker in brokers:
            broker.start()
        yield
    finally:
        for broker in brokers:
            broker.stop()
