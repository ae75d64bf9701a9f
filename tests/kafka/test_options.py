"""Client options of the user's own Kafka, for confluent_kafka and for Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.properties import client_options, spark_options
from tests.raising import breaks

SASL = {"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password": "pass"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password_becomes_a_java_login(name: str, mechanism: str, module: str) -> None:
    assert spark_options({**SASL, name: mechanism}) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": (
            f'org.apache.kafka.common.security.{module} required username="ann" password="pass";'
        ),
    }


@given(st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1))
def test_any_password_survives_the_quotes(password: str) -> None:
    made = spark_options({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": password})
    quoted = made["kafka.sasl.jaas.config"].partition(" password=")[2]
    assert quoted.startswith('"')
    assert quoted.endswith('";')
    inner = quoted[1:-2]
    unescaped, rest = "", inner
    while rest:
        escaped = rest[0] == "\\"
        assert escaped or rest[0] != '"', "a quote inside ends the value"
        unescaped, rest = unescaped + rest[escaped], rest[1 + escaped :]
    assert unescaped == password


def test_oauth_becomes_a_java_login() -> None:
    made = spark_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        }
    )
    assert made["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
    assert made["kafka.sasl.jaas.config"].endswith('required clientId="me" clientSecret="secret";')
    assert made["kafka.sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert "kafka.sasl.oauthbearer.method" not in made


def test_kerberos_becomes_a_java_login() -> None:
    base = {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "bus"}
    ticket = spark_options(base)
    assert ticket["kafka.sasl.kerberos.service.name"] == "bus"
    assert ticket["kafka.sasl.jaas.config"].endswith("Krb5LoginModule required useTicketCache=true;")
    keytab = spark_options({**base, "sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "ann@X"})
    assert 'keyTab="/k" principal="ann@X" useKeyTab=true storeKey=true;' in keytab["kafka.sasl.jaas.config"]


KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIFHDBO\n-----END ENCRYPTED PRIVATE KEY-----\n"


def test_certificates_in_files(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("CERTIFICATE")
    (tmp_path / "key.pem").write_text(KEY)
    made = spark_options(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "/etc/ca.pem",
            "ssl.certificate.location": str(tmp_path / "cert.pem"),
            "ssl.key.location": str(tmp_path / "key.pem"),
            "ssl.key.password": "open",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert made == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CERTIFICATE",
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "open",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def test_a_key_of_its_own_form_for_spark_is_taken() -> None:
    old = {"ssl.certificate.pem": "C", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}
    assert spark_options({**old, "kafka.ssl.keystore.key": KEY})["kafka.ssl.keystore.key"] == KEY


def test_certificates_as_text() -> None:
    made = spark_options({"ssl.ca.pem": "CA", "ssl.certificate.pem": "CERTIFICATE", "ssl.key.pem": KEY})
    assert made["kafka.ssl.truststore.certificates"] == "CA"
    assert made["kafka.ssl.keystore.key"] == KEY


def test_a_key_store_file() -> None:
    made = spark_options({"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "open"})
    assert made == {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": "/me.p12",
        "kafka.ssl.keystore.password": "open",
    }


def test_what_tunes_librdkafka_stays_there_and_javas_own_goes_to_spark() -> None:
    options: dict[str, Any] = {
        "socket.timeout.ms": 5000,
        "client.id": "me",
        "kafka.client.id": "spark-me",
        "kafka.max.partition.fetch.bytes": 1000,
    }
    assert client_options(options) == {"socket.timeout.ms": 5000, "client.id": "me"}
    assert spark_options(options) == {"kafka.client.id": "spark-me", "kafka.max.partition.fetch.bytes": "1000"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable.ssl.certificate.verification": "false"}, r"ssl\.ca\.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}, "password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MAGIC"}, r"MAGIC.*kafka\.sasl\.jaas\.config"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, r"token\.endpoint\.url"),
        ({"ssl.certificate.pem": "CERTIFICATE"}, r"ssl\.key\.location"),
        ({"ssl.certificate.location": "/nowhere.pem", "ssl.key.pem": "KEY"}, r"/nowhere\.pem"),
        ({"ssl.certificate.pem": "C", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}, r"PKCS#8.*RSA.*openssl pkcs8"),
        ({"ssl.certificate.pem": "C", "ssl.key.pem": "C"}, r"PKCS#8.*no key"),
    ],
)
def test_what_spark_cant_have_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaError, match=message):
        spark_options(options)


def test_a_login_written_for_java_is_left_alone() -> None:
    made = spark_options(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM", "kafka.sasl.jaas.config": "Theirs required;"}
    )
    assert made["kafka.sasl.jaas.config"] == "Theirs required;"
    assert made["kafka.sasl.mechanism"] == "AWS_MSK_IAM"


def test_both_sides_get_the_servers() -> None:
    kafka = ExternalKafka("one:9092, two:9093", {"security.protocol": "SSL"})
    assert kafka.client_config()["bootstrap.servers"] == "one:9092,two:9093"
    assert kafka.spark_options() == {
        "kafka.bootstrap.servers": "one:9092,two:9093",
        "kafka.security.protocol": "SSL",
    }
    assert "SSL" not in repr(kafka)


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:", ":9092", "localhost:0", "a:9092,b", "a:http"])
def test_servers_have_a_host_and_a_port(bootstrap: str) -> None:
    with pytest.raises(KafkaError, check=breaks("host:port")):
        ExternalKafka(bootstrap)
