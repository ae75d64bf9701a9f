"""Logins at Kafka clusters as companies have them: SCRAM, tokens. With each, the notebook's clients write, and
executors of Spark read."""

from __future__ import annotations

import base64
import json
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
    """A broker with further logins."""

    def _configure(self, directory: Path, controller_port: int) -> None:
        super()._configure(directory, controller_port)
        settings = {
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
            "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTH};",
        }
        with Path(self._properties_file).open("a", encoding="utf-8") as file:
            file.write("".join(f"{name}={value}\n" for name, value in settings.items()))


@pytest.fixture(scope="module")
def broker() -> Iterator[OpenBroker]:
    made = OpenBroker()
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


@pytest.mark.parametrize("login", [scram, by_token])
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
