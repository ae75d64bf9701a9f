"""The embedded broker's configuration, before any broker runs."""

from __future__ import annotations

from pathlib import Path

from qod_magics.kafka.broker import EmbeddedBroker, cluster_id
from qod_magics.kafka.properties import Login, Retention, log4j_properties, server_properties

LOGIN = Login("wor d")


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_every_address_is_on_loopback() -> None:
    made = properties(server_properties(1234, 1235, Path("/data"), Retention(), LOGIN))
    addresses = [made[name] for name in ("listeners", "advertised.listeners", "controller.quorum.voters")]
    hosts = [part.rpartition(":")[0] for value in addresses for part in value.split(",")]
    assert {host.rpartition("/")[2].rpartition("@")[2] for host in hosts} == {"127.0.0.1"}
    assert made["advertised.listeners"].endswith(":1234")
    assert made["controller.quorum.voters"].endswith(":1235")


def test_every_port_asks_for_a_login() -> None:
    made = properties(server_properties(1, 2, Path("/data"), Retention(), LOGIN))
    protocols = dict(pair.split(":") for pair in made["listener.security.protocol.map"].split(","))
    assert {part.partition("://")[0] for part in made["listeners"].split(",")} == set(protocols)
    for name, protocol in protocols.items():
        assert protocol == "SASL_PLAINTEXT"
        assert 'user_qod="wor d"' in made[f"listener.name.{name.lower()}.plain.sasl.jaas.config"]


def test_a_password_is_in_no_repr() -> None:
    assert "wor d" not in repr(LOGIN)
    broker = EmbeddedBroker()
    assert broker.credentials["sasl.password"] not in repr(broker)
    assert broker.credentials["sasl.password"] != EmbeddedBroker().credentials["sasl.password"]


def test_data_is_bounded_in_bytes_and_time() -> None:
    made = properties(server_properties(1, 2, Path("/data"), Retention(bytes=10, seconds=60, segment_bytes=5), LOGIN))
    assert (made["log.retention.bytes"], made["log.retention.ms"], made["log.segment.bytes"]) == ("10", "60000", "5")
    assert int(made["log.roll.ms"]) < 60_000, "a segment that never ends never grows old"


def test_history_with_its_own_timestamps_is_deleted_by_size_alone() -> None:
    """Kafka goes by the timestamps of records, and those of a replay may be years old."""
    broker = EmbeddedBroker()
    made = properties(server_properties(1, 2, Path("/data"), broker.retention, LOGIN))
    assert made["log.retention.ms"] == "-1"
    assert int(made["log.retention.bytes"]) > 0
    assert int(made["log.roll.ms"]) >= 24 * 3600 * 1000, (
        "else a year of history is a segment for each quarter of an hour"
    )
    own = broker.own_retention
    assert (own.bytes, own.seconds) == (broker.retention.bytes, 3600)


def test_a_typo_makes_no_topic() -> None:
    made = properties(server_properties(1, 2, Path("/data"), Retention(), LOGIN))
    assert made["auto.create.topics.enable"] == "false"
    assert made["num.partitions"] == "1"


def test_the_log_is_bounded_and_not_on_the_console() -> None:
    text = log4j_properties(Path("/data/broker.log"))
    assert "Console" not in text
    assert "strategy.max = 1" in text


def test_one_that_was_never_started_is_harmless() -> None:
    broker = EmbeddedBroker()
    assert (broker.pid, broker.directory, broker.log()) == (None, None, "")
    assert not broker.health().ok
    broker.kill()
    broker.stop()


def test_no_cluster_id_looks_like_an_option_to_kafkas_tool() -> None:
    made = {cluster_id() for _ in range(2000)}  # one in 64 would
    assert len(made) == 2000
    assert all(len(each) == 22 and not each.startswith("-") for each in made)
