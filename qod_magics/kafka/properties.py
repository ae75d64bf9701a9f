"""Options of Kafka clients, of Spark's too, and the embedded broker's configuration files, as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qod_magics.errors import KafkaError
from qod_magics.kafka.tokens import CALLBACK, MECHANISMS, MSK_IAM
from qod_magics.machine.java import HOST

# --- Client options: librdkafka's names translated to Java's ----------------------------------------------------------
# The user writes librdkafka's names once; Spark's are derived from them. An option prefixed with `kafka.` has a Java
# name and goes to Spark only. The translation for Spark:
#
#     security.protocol, ssl.key.password, ssl.keystore.password,
#     client.id, client.dns.lookup, client.rack                  the same
#     sasl.mechanism, sasl.mechanisms                            sasl.mechanism
#     sasl.username + sasl.password                              sasl.jaas.config (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)
#     sasl.oauthbearer.client.id, .client.secret, .scope, .token.endpoint.url
#                                                                sasl.jaas.config, sasl.oauthbearer.token.endpoint.url,
#                                                                sasl.login.callback.handler.class
#     sasl.mechanism=AWS_MSK_IAM                                 the same, sasl.jaas.config,
#                                                                sasl.client.callback.handler.class
#     sasl.kerberos.service.name, .principal, .keytab            sasl.kerberos.service.name, sasl.jaas.config
#     ssl.ca.location, ssl.ca.pem                                ssl.truststore.type=PEM with its path or its text
#     ssl.certificate.location + ssl.key.location, or .pem       ssl.keystore.type=PEM with their texts
#     ssl.keystore.location                                      the same, ssl.keystore.type=PKCS12
#     ssl.endpoint.identification.algorithm                      the same; "none" becomes ""
#
# Any other option tunes librdkafka (timeouts, buffers) and is not translated; for Spark, give Java's name with
# `kafka.`. Files are read on the notebook's machine, except ssl.ca.location and ssl.keystore.location, which each task
# manager reads. Java accepts an OAuth token URL only if the system property
# `org.apache.kafka.sasl.oauthbearer.allowed.urls` of each task manager lists it.

#: Records that a poll hands over, at most. After each poll Spark asks the broker for the first and the last offset of
#: the partition, and waits for both answers: with 500, the default, a consumer that drops most of its records spends as
#: long on these requests as on the records.
POLLED = 5_000
_MIB = 1 << 20
#: What a fetch brings of one partition at most, bytes: at least Kafka's default, and less where an instance reads many
#: partitions, since each holds what it has fetched.
FETCHED, LEAST_FETCHED, FETCHED_BY_ALL = 8 * _MIB, _MIB, 64 * _MIB

#: Of options by their Java names, for Spark only.
JAVAS_PREFIX = "kafka."
_SAME = (
    "security.protocol",
    "ssl.key.password",
    "ssl.keystore.password",
    "client.id",
    "client.dns.lookup",
    "client.rack",
)
_MODULES = "org.apache.kafka.common.security"
PLAIN_LOGIN_MODULE = f"{_MODULES}.plain.PlainLoginModule"
_LOGIN_MODULE = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_OAUTH_MODULE = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
#: The login of Java's clients at Amazon MSK by IAM, by its package `software.amazon.msk:aws-msk-iam-auth`.
MSK_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
_MSK_LOGIN = {
    "sasl.jaas.config": f"{MSK_MODULE} required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for confluent_kafka: all but those prefixed with `kafka.`."""
    return {name: value for name, value in options.items() if not name.startswith(JAVAS_PREFIX)}


def spark_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options for Spark's Kafka source and sink, prefixed with `kafka.`: the translated ones, overridden by
    Java's own.

    Raises:
        KafkaError: an option has no counterpart in Java, or a file that it names can't be read.

    """
    if not _is_true(options.get("enable.ssl.certificate.verification", True)):
        raise KafkaError(
            "Spark does not support enable.ssl.certificate.verification=false: give the certificate as ssl.ca.location."
        )
    java = {name: str(options[name]) for name in _SAME if name in options}
    java |= _sasl(options) | _truststore(options) | _keystore(options)
    if (algorithm := options.get("ssl.endpoint.identification.algorithm")) is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else str(algorithm)
    own = {name: str(value) for name, value in options.items() if name.startswith(JAVAS_PREFIX)}
    return {**{JAVAS_PREFIX + name: value for name, value in java.items()}, **own}


def fetch_options(partitions: int) -> Mapping[str, str]:
    """Return options of Spark's Kafka source for an instance that reads this many partitions of a topic."""
    fetched = min(max(FETCHED_BY_ALL // max(partitions, 1), LEAST_FETCHED), FETCHED)
    return {"kafka.max.poll.records": str(POLLED), "kafka.max.partition.fetch.bytes": str(fetched)}


def _sasl(options: Mapping[str, Any]) -> dict[str, str]:
    protocol = str(options.get("security.protocol", "PLAINTEXT")).upper()
    if not protocol.startswith("SASL"):
        return {}
    mechanism = str(next((options[name] for name in MECHANISMS if name in options), "GSSAPI")).upper()
    if mechanism == MSK_IAM:  # `spark_options` lets a login of the user's own take the place of this one
        return {"sasl.mechanism": mechanism, **_MSK_LOGIN}
    if f"{JAVAS_PREFIX}sasl.jaas.config" in options:
        return {"sasl.mechanism": mechanism}
    if mechanism in _LOGIN_MODULE:
        login = _jaas(
            _LOGIN_MODULE[mechanism], username=options.get("sasl.username"), password=options.get("sasl.password")
        )
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, **_oauth(options)}
    if mechanism == "GSSAPI":
        return {"sasl.mechanism": mechanism, **_kerberos(options)}
    known = ", ".join([*_LOGIN_MODULE, "OAUTHBEARER", "GSSAPI", MSK_IAM])
    raise KafkaError(f"sasl.mechanism={mechanism} is none of {known}: give Spark's as kafka.sasl.jaas.config.")


def _oauth(options: Mapping[str, Any]) -> dict[str, str]:
    prefix = "sasl.oauthbearer."
    url = options.get(f"{prefix}token.endpoint.url")
    if url is None:
        raise KafkaError(
            f"sasl.mechanism=OAUTHBEARER must come with {prefix}token.endpoint.url, got none; where {CALLBACK} returns "
            "tokens to the notebook's clients, give the login of Spark's as kafka.sasl.jaas.config",
            rule="login",
        )
    scope = options.get(f"{prefix}scope")
    login = _jaas(
        _OAUTH_MODULE,
        clientId=options.get(f"{prefix}client.id"),
        clientSecret=options.get(f"{prefix}client.secret"),
        **({} if scope is None else {"scope": scope}),
    )
    return {
        "sasl.jaas.config": login,
        "sasl.login.callback.handler.class": _OAUTH_HANDLER,
        f"{prefix}token.endpoint.url": str(url),
    }


def _kerberos(options: Mapping[str, Any]) -> dict[str, str]:
    prefix = "sasl.kerberos."
    java = {f"{prefix}service.name": str(options.get(f"{prefix}service.name", "kafka"))}
    keytab, principal = options.get(f"{prefix}keytab"), options.get(f"{prefix}principal")
    if keytab is None:
        java["sasl.jaas.config"] = f"{_KERBEROS_MODULE} required useTicketCache=true;"
    else:
        login = _jaas(_KERBEROS_MODULE, keyTab=keytab, principal=principal)
        java["sasl.jaas.config"] = f"{login[:-1]} useKeyTab=true storeKey=true;"
    return java


def _jaas(module: str, **values: Any) -> str:
    for name, value in values.items():
        if value is None:
            raise KafkaError(f"The Kafka options lack what Java's {module.rpartition('.')[2]} calls {name}.")
    quoted = " ".join(f"{name}={_quoted(str(value))}" for name, value in values.items())
    return f"{module} required {quoted};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _truststore(options: Mapping[str, Any]) -> dict[str, str]:
    if place := options.get("ssl.ca.location"):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(place)}
    if text := options.get("ssl.ca.pem"):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": str(text)}
    return {}


def _keystore(options: Mapping[str, Any]) -> dict[str, str]:
    if place := options.get("ssl.keystore.location"):
        return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(place)}
    certificate, key = _pem(options, "ssl.certificate"), _pem(options, "ssl.key")
    if certificate is None and key is None:
        return {}
    if certificate is None or key is None:
        lacking = "ssl.certificate.location" if certificate is None else "ssl.key.location"
        raise KafkaError(f"A client certificate needs its key and a key its certificate: {lacking} is missing.")
    kind = _KEY.search(key)
    if f"{JAVAS_PREFIX}ssl.keystore.key" not in options and (kind is None or kind[1] not in _KEYS_OF_JAVA):
        raise KafkaError(
            "the key of ssl.key.location or ssl.key.pem must have the form PKCS#8, "
            f"got {kind[1] if kind else 'no key'}; convert it for Java: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW",
            rule="PKCS#8",
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


#: What the first line of a key says it is, and of these what Java reads.
_KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----")
_KEYS_OF_JAVA = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"


def _pem(options: Mapping[str, Any], name: str) -> str | None:
    if text := options.get(f"{name}.pem"):
        return str(text)
    place = options.get(f"{name}.location")
    if not place:
        return None
    try:
        return Path(str(place)).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaError(f"{name}.location={place} can't be read as PEM: {error}.") from error


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")


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
        """Return milliseconds after which a segment is rolled although not full, so that it can expire."""
        return ROLL_MS if self.seconds is None else max(10_000, self.milliseconds // 4)


@dataclass(frozen=True, slots=True)
class Login:
    """The one user of the embedded broker, by SASL/PLAIN: nothing leaves the loopback interface."""

    password: str = field(repr=False)
    user: str = "qod"

    def options(self) -> dict[str, str]:
        """Return a client's options, librdkafka's names."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def jaas(self) -> str:
        """Return the broker's: who may log in, and as whom it logs in to its own controller."""
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
