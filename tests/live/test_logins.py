"""Logins at Kafka clusters as companies have them: SCRAM, tokens, certificates. With each, clients of the notebook
write, and executors of Spark read."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.tokens import Token
from qod_magics.machine.java import HOST, free_ports
from qod_magics.session.session import Session
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.queries.warm_up import check_kafka
from tests.live.conftest import PATIENCE_S, eventually
from tests.live.guarded import running

SECURITY = "org.apache.kafka.common.security"
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required"
USER, PASSWORD = "ann", "pass"
#: Whom the function below has given a token to, in this process.
asked: list[str] = []


def token(user: str) -> Token:
    """Return an unsecured token, which a broker takes that checks no signature."""
    asked.append(user)
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 300})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{'.'.join(encoded)}.", now + 300


class OpenBroker(EmbeddedBroker):
    """A broker with further logins, and with a second address at which clients show a certificate.

    Args:
        folder: has the certificates that `certified` makes.

    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        (port,) = free_ports(1)
        self.certified_at = f"{HOST}:{port}"

    def _configure(self, directory: Path, controller_port: int) -> None:
        super()._configure(directory, controller_port)
        file = Path(self._properties_file)
        lines = dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())
        also = f",CERTIFIED://{self.certified_at}"
        lines["listeners"] += also
        lines["advertised.listeners"] += also
        lines["listener.security.protocol.map"] += ",CERTIFIED:SSL"
        lines["ssl.client.auth"] = "required"
        for store, names in {"keystore": ("broker.key", "broker.pem"), "truststore": ("ca.pem",)}.items():
            joined = self.folder / f"{store}.pem"
            joined.write_text("".join((self.folder / name).read_text("ascii") for name in names), "ascii")
            lines |= {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": str(joined)}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), "utf-8")
        settings = {
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
            "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTH};",
        }
        with Path(self._properties_file).open("a", encoding="utf-8") as file:
            file.write("".join(f"{name}={value}\n" for name, value in settings.items()))


def certified(folder: Path, *names: str) -> None:
    """Make an authority, and a key and a certificate of it for each name, as PEM files."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)

    new = "-newkey", "rsa:2048", "-nodes", "-keyout"
    openssl("req", "-x509", *new, "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in names:
        host = "-addext", f"subjectAltName=IP:{HOST}"
        openssl("req", *new, f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", *host)
        signed = "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-copy_extensions", "copy"
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
        # a key in the old form, converted by the command of the error message
        openssl("rsa", "-in", f"{name}.key", "-traditional", "-out", "old")
        openssl("pkcs8", "-topk8", "-nocrypt", "-in", "old", "-out", f"{name}.key")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBroker]:
    folder = tmp_path_factory.mktemp("certificates")
    certified(folder, "broker", USER)
    made = OpenBroker(folder)
    with running(made):
        of_user = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        added = UserScramCredentialUpsertion(USER, of_user, PASSWORD.encode())
        for done in made.admin().alter_user_scram_credentials([added]).values():
            done.result(PATIENCE_S)
        yield made


def scram(broker: OpenBroker) -> tuple[str, Mapping[str, Any]]:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
    return broker.bootstrap, {"security.protocol": "SASL_PLAINTEXT", **login}


def by_token(broker: OpenBroker) -> tuple[str, Mapping[str, Any]]:
    of_spark = {"kafka.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="{USER}";'}
    login = {"oauth_cb": f"{__name__}:token", "sasl.oauthbearer.config": USER, **of_spark}
    return broker.bootstrap, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **login}


def by_certificate(broker: OpenBroker) -> tuple[str, Mapping[str, Any]]:
    files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": f"{USER}.pem", "ssl.key.location": f"{USER}.key"}
    paths = {name: str(broker.folder / file) for name, file in files.items()}
    return broker.certified_at, {"security.protocol": "SSL", **paths}


@pytest.mark.parametrize("login", [scram, by_token, by_certificate])
def test_the_notebooks_clients_write_and_sparks_read(cluster: Session, broker: OpenBroker, login: Any) -> None:
    asked.clear()
    kafka = ExternalKafka(*login(broker))
    check_kafka(cluster.runtime.task_managers["tm1"], kafka, DialBoard("logins"))
    scenario = {
        "duration_s": 0.2,
        "topics": [{"topic": login.__name__, "data": {"generator": "taxi-trips"}, "rate": 100}],
    }
    injector = Injector.into(kafka, scenario, None, None)
    injector.start()
    try:
        eventually(lambda: end_offsets(kafka, [login.__name__])[login.__name__][0] == 20, what="a process of its own")
    finally:
        injector.stop()
        kafka.close()
    assert set(asked) == ({USER} if login is by_token else set())
