"""What the UI of a task manager hides. Java's expressions are the same here as Python's."""

from __future__ import annotations

import re

import pytest

from qod_magics.spark.servers.conf import CONF

OPTIONS = CONF["spark.sql.redaction.options.regex"]
TEXT = CONF["spark.sql.redaction.string.regex"]


@pytest.mark.parametrize(
    "name",
    ["kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.keystore.password", "kafka.ssl.key.password"],
)
def test_options_with_secrets_are_hidden(name: str) -> None:
    assert re.search(OPTIONS, name)
    assert re.search(CONF["spark.redaction.regex"], name)


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "subscribe", "kafka.sasl.mechanism", "startingOffsets"])
def test_others_are_shown(name: str) -> None:
    assert not re.search(OPTIONS, name)


@pytest.mark.parametrize(
    "value",
    [
        r'''value: "org.apache.kafka.common.security.plain.PlainLoginModule required password=\"SECRET;MORE\";"''',
        r'''key: "kafka.ssl.keystore.password" value: "SEC\"RET;MORE"''',
        '''key: "kafka.ssl.keystore.key"\n  value: "-----BEGIN SECRET MORE-----"''',
    ],
)
def test_a_statement_shows_no_part_of_a_secret(value: str) -> None:
    shown = re.sub(TEXT, "***", f'options {{ {value} }} key: "subscribe" value: "trips"')
    assert "SECRET" not in shown
    assert "MORE" not in shown
    assert "RET" not in shown
    assert shown.endswith('"trips"')
