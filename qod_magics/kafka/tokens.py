"""Logins by token (OAUTHBEARER): the function that librdkafka's clients call for one, and that of Amazon MSK's IAM."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from qod_magics.errors import KafkaError, SetupError

#: The option with the function, and the one whose text it is called with.
CALLBACK, ARGUMENT = "oauth_cb", "sasl.oauthbearer.config"
#: What Java's clients call the mechanism of Amazon MSK; its tokens pass for those of OAUTHBEARER.
MSK_IAM = "AWS_MSK_IAM"
#: What librdkafka calls the mechanism of a login; the first that is given counts for Spark.
MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
#: The package that signs them, and the address of a broker, which has the region.
SIGNER = "aws-msk-iam-sasl-signer-python"
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")

#: A token, and when it expires, seconds since 1970.
Token = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The function that returns a token, by its name: a process that is started gets it as text."""

    name: str  #: "module:function"

    def __call__(self, argument: str) -> Token:
        """Return a new token. librdkafka calls it before the last one expires."""
        found: Token = self.function()(argument)
        return found

    def __str__(self) -> str:
        return self.name

    def function(self) -> Callable[[str], Token]:
        """Return the function. Raises KafkaError: there is none, or its module can't be imported."""
        module, _, name = self.name.partition(":")
        try:
            found = getattr(import_module(module), name)
        except Exception as error:  # whatever the user's module raises when it is imported
            why = " ".join(f"{type(error).__name__}: {error}".split())
        else:
            if callable(found):
                return found  # type: ignore[no-any-return]
            why = f"this is of type {type(found).__name__}"
        raise KafkaError(
            f"{CALLBACK} must be MODULE:FUNCTION, got {self.name!r} ({why}); the module must be on Python's path",
            value=self.name,
            rule="function",
        )


def with_tokens(options: Mapping[str, Any], bootstrap: str) -> dict[str, Any]:
    """Return options of librdkafka's clients in which a function returns tokens, where they name one or log in to
    Amazon MSK by IAM. Raises KafkaError: there is no such function, or the region is not known; SetupError."""
    found = dict(options)
    if uses_msk_iam(options):
        for name in MECHANISMS:
            found.pop(name, None)
        found |= {"sasl.mechanism": "OAUTHBEARER", CALLBACK: f"{__name__}:{msk_iam.__name__}"}
        found[ARGUMENT] = region_of(bootstrap)
        _signer()
    if isinstance(found.get(CALLBACK), str):
        found[CALLBACK] = Tokens(found[CALLBACK])
        found[CALLBACK].function()
    return found


def uses_msk_iam(options: Mapping[str, Any]) -> bool:
    """Tell whether these options log in to Amazon MSK by IAM."""
    return any(str(options.get(name, "")).upper() == MSK_IAM for name in MECHANISMS)


def region_of(bootstrap: str) -> str:
    """Return the region of AWS in which brokers are. Raises KafkaError: neither their address nor the environment has
    it."""
    if found := _BROKER.search(bootstrap):
        return found[1]
    for name in _REGIONS:
        if region := os.environ.get(name):
            return region
    raise KafkaError(
        f"sasl.mechanism={MSK_IAM} must know the region of {bootstrap}, got none; set {_REGIONS[0]} before the kernel "
        "starts",
        rule="region",
    )


def msk_iam(region: str) -> Token:
    """Return a token of Amazon MSK for the credentials that AWS's own tools find (`AWS_PROFILE` names some)."""
    token, expires_ms = _signer().generate_auth_token(region)
    return token, expires_ms / 1000


def _signer() -> Any:
    try:
        return import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        raise SetupError(
            f"sasl.mechanism={MSK_IAM} must have the Python package {SIGNER}, got none; pip install {SIGNER}",
            value=SIGNER,
            rule="installed",
        ) from None
