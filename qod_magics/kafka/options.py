"""Kafka client options: librdkafka's names (confluent_kafka) translated to Java's (Spark).

The user writes librdkafka's names once; Spark's are derived from them. An option prefixed with `kafka.` has a Java name
and goes to Spark only. The translation for Spark:

    security.protocol, ssl.key.password, ssl.keystore.password,
    client.id, client.dns.lookup, client.rack                  the same
    sasl.mechanism, sasl.mechanisms                            sasl.mechanism
    sasl.username + sasl.password                              sasl.jaas.config (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)
    sasl.oauthbearer.client.id, .client.secret, .scope, .token.endpoint.url
                                                               sasl.jaas.config, sasl.oauthbearer.token.endpoint.url,
                                                               sasl.login.callback.handler.class
    sasl.kerberos.service.name, .principal, .keytab            sasl.kerberos.service.name, sasl.jaas.config
    ssl.ca.location, ssl.ca.pem                                ssl.truststore.type=PEM with its path or its text
    ssl.certificate.location + ssl.key.location, or .pem       ssl.keystore.type=PEM with their texts
    ssl.keystore.location                                      the same, ssl.keystore.type=PKCS12
    ssl.endpoint.identification.algorithm                      the same; "none" becomes ""

Any other option tunes librdkafka (timeouts, buffers) and is not translated; for Spark, give Java's name with `kafka.`.
Files are read on the notebook's machine, except ssl.ca.location and ssl.keystore.location, which each task manager
reads. Java accepts an OAuth token URL only if the system property `org.apache.kafka.sasl.oauthbearer.allowed.urls` of
each task manager lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qod_magics.errors import KafkaError

_PREFIX = "kafka."
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
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for confluent_kafka: all but those prefixed with `kafka.`."""
    return {name: value for name, value in options.items() if not name.startswith(_PREFIX)}


def spark_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Options for Spark's Kafka source and sink, prefixed with `kafka.`: the translated ones, overridden by Java's own.

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
    own = {name: str(value) for name, value in options.items() if name.startswith(_PREFIX)}
    return {**{_PREFIX + name: value for name, value in java.items()}, **own}


def _sasl(options: Mapping[str, Any]) -> dict[str, str]:
    protocol = str(options.get("security.protocol", "PLAINTEXT")).upper()
    if not protocol.startswith("SASL"):
        return {}
    mechanism = str(options.get("sasl.mechanism", options.get("sasl.mechanisms", "GSSAPI"))).upper()
    if f"{_PREFIX}sasl.jaas.config" in options:
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
    known = ", ".join([*_LOGIN_MODULE, "OAUTHBEARER", "GSSAPI"])
    raise KafkaError(f"sasl.mechanism={mechanism} is none of {known}: give Spark's as kafka.sasl.jaas.config.")


def _oauth(options: Mapping[str, Any]) -> dict[str, str]:
    prefix = "sasl.oauthbearer."
    url = options.get(f"{prefix}token.endpoint.url")
    if url is None:
        raise KafkaError(f"sasl.mechanism=OAUTHBEARER needs {prefix}token.endpoint.url.")
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
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


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
