"""The embedded broker's configuration files, as text. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from qod_magics.kafka.options import PLAIN_LOGIN_MODULE
from qod_magics.machine.java import HOST

#: The age at which a segment is rolled where age does not delete it: Kafka's default, a week.
ROLL_MS = 7 * 24 * 3600 * 1000
#: Bytes of a record in topics of our own, and on the broker of our own; Kafka's default of 1 MiB is soon reached by a
#: row that collects others. Producers hold twice as much.
LARGEST_RECORD = 16 << 20
#: The same with the overhead of a batch of one record.
LARGEST_BATCH = LARGEST_RECORD + (1 << 16)


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention per partition: a segment is deleted at the limit reached first, size or age.

    Kafka deletes whole segments, never the active one: a partition takes up to `bytes + segment_bytes` on disk.
    """

    bytes: int = 512 << 20
    seconds: int | None = 3600  #: None: no limit
    segment_bytes: int = 64 << 20

    @property
    def milliseconds(self) -> int:
        """`seconds` in milliseconds; -1: no limit."""
        return -1 if self.seconds is None else self.seconds * 1000

    @property
    def roll_ms(self) -> int:
        """Milliseconds after which a segment is rolled although not full, so that it can expire."""
        return ROLL_MS if self.seconds is None else max(10_000, self.milliseconds // 4)


@dataclass(frozen=True, slots=True)
class Login:
    """The one user of the embedded broker, by SASL/PLAIN: nothing leaves the loopback interface."""

    password: str = field(repr=False)
    user: str = "qod"

    def options(self) -> dict[str, str]:
        """A client's options, librdkafka's names."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def jaas(self) -> str:
        """The broker's: who may log in, and as whom it logs in to its own controller."""
        login = f'username="{self.user}" password="{self.password}" user_{self.user}="{self.password}"'
        return f"{PLAIN_LOGIN_MODULE} required {login};"


def server_properties(port: int, controller_port: int, data: Path, retention: Retention, login: Login) -> str:
    """server.properties of a single-node KRaft broker on the loopback interface; both ports ask for the login."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"CLIENTS://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENTS",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": login.jaas(),
        "listener.name.controller.plain.sasl.jaas.config": login.jaas(),
        "log.dirs": data.as_posix(),
        # One partition by default; no topic created by a typo.
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        # A single node.
        "default.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A small machine: few threads, little memory.
        "num.network.threads": 2,
        "num.io.threads": 2,
        "num.recovery.threads.per.data.dir": 1,
        # After a kill the new process can register once the old one's session has timed out.
        "broker.heartbeat.interval.ms": 1000,
        "broker.session.timeout.ms": 4000,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        # Bounded data, deleted soon after it expires.
        "message.max.bytes": LARGEST_BATCH,
        "replica.fetch.max.bytes": LARGEST_BATCH,
        "log.retention.bytes": retention.bytes,
        "log.retention.ms": retention.milliseconds,
        "log.segment.bytes": retention.segment_bytes,
        "log.roll.ms": retention.roll_ms,
        "log.retention.check.interval.ms": 5000,
        "log.initial.task.delay.ms": 5000,
        "log.segment.delete.delay.ms": 1000,
        "log.index.size.max.bytes": 1 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def log4j_properties(file: Path) -> str:
    """Warnings and errors to a file that is cut at 4 MB; nothing on the console."""
    return (
        "status = error\n"
        "appender.file.type = RollingFile\n"
        "appender.file.name = File\n"
        f"appender.file.fileName = {file.as_posix()}\n"
        f"appender.file.filePattern = {file.as_posix()}.%i\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d %p %c{1}: %m%n\n"
        "appender.file.policies.type = Policies\n"
        "appender.file.policies.size.type = SizeBasedTriggeringPolicy\n"
        "appender.file.policies.size.size = 2MB\n"
        "appender.file.strategy.type = DefaultRolloverStrategy\n"
        "appender.file.strategy.max = 1\n"
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = File\n"
    )
