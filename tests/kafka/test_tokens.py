"""Functions that return tokens, by their names, and the login at Amazon MSK. On a broker: live/test_logins.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from qod_magics.errors import KafkaError, QodError, SetupError
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.tokens import MSK_IAM, Tokens, region_of
from tests.raising import breaks

MSK = {"security.protocol": "SASL_SSL", "sasl.mechanism": MSK_IAM}
SIGNING = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
BROKERS = "b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098"


def made(argument: str) -> tuple[str, float]:
    return f"token of {argument}", 9.0


def test_a_function_is_named_by_its_module() -> None:
    found = ExternalKafka("host:1", {"oauth_cb": f"{__name__}:made"}).client_config()["oauth_cb"]
    assert found("me") == ("token of me", 9.0)
    assert str(found) == f"{__name__}:made"
    again = ExternalKafka("host:1", {"oauth_cb": made}).client_config()["oauth_cb"]
    assert again is made


@pytest.mark.parametrize("name", ["made", "no.such:made", f"{__name__}:none", ":made", "", "os:sep"])
def test_a_function_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(KafkaError, check=breaks("function", value=name)):
        ExternalKafka("host:1", {"oauth_cb": name}).client_config()


def test_a_module_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_tokens.py").write_text("raise RuntimeError('no vault\\nanywhere')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KafkaError, match="RuntimeError", check=breaks("function", value="failing_tokens:made")):
        ExternalKafka("host:1", {"oauth_cb": "failing_tokens:made"}).client_config()


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The regions that AWS's signer is asked for a token of."""
    asked: list[str] = []

    def generate_auth_token(region: str) -> tuple[str, int]:
        asked.append(region)
        return "signed", 1_700_000_000_000

    package, module = ModuleType("aws_msk_iam_sasl_signer"), ModuleType(SIGNING)  # as it is installed
    module.generate_auth_token = generate_auth_token  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, SIGNING, module)
    return asked


def test_at_msk_both_sides_log_in_by_iam(signer: list[str]) -> None:
    kafka = ExternalKafka(BROKERS, MSK)
    config = kafka.client_config()
    assert config["sasl.mechanism"] == "OAUTHBEARER"
    assert config["oauth_cb"](config["sasl.oauthbearer.config"]) == ("signed", 1_700_000_000.0)
    assert signer == ["eu-west-1"]
    java = kafka.spark_options()
    assert java["kafka.sasl.mechanism"] == MSK_IAM
    assert java["kafka.sasl.jaas.config"].endswith(".IAMLoginModule required;")
    assert java["kafka.sasl.client.callback.handler.class"].endswith(".IAMClientCallbackHandler")

    sent = json.loads(json.dumps({k: str(v) if isinstance(v, Tokens) else v for k, v in config.items()}))
    there = ExternalKafka(BROKERS, sent).client_config()
    assert there["oauth_cb"] == config["oauth_cb"], "a process of its own gets the name"


def test_the_signer_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SIGNING, None)
    with pytest.raises(SetupError, check=breaks("installed")):
        ExternalKafka(BROKERS, MSK).client_config()


def test_the_region_is_that_of_the_address_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert region_of("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com:9098") == "us-east-1"
    with pytest.raises(QodError, check=breaks("region")):
        region_of("msk.example:9098")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert region_of("msk.example:9098") == "eu-north-1"
