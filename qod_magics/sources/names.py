"""Names of sources: "trips" is a Kafka topic, "json:/data/in" a source of another kind."""

from __future__ import annotations

import re

from qod_magics.errors import ApplicationError

#: The kind of a name without one: a topic.
KAFKA = "kafka"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def divided(name: str) -> tuple[str, str]:
    """Return kind and place of a source by its name: "json:/data" is ("json", "/data"), "trips" ("kafka", "trips")."""
    kind, colon, place = name.partition(":")
    return (kind, place) if colon else (KAFKA, name)


def is_topic(name: str) -> bool:
    """Tell whether a source is a Kafka topic."""
    return divided(name)[0] == KAFKA


def check_topic(topic: str) -> str:
    """Return the topic itself, if Kafka allows the name; raise ApplicationError otherwise."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ApplicationError(
            f"{topic!r} can't name a Kafka topic: 1 to 249 letters, digits, dots, underscores and hyphens are allowed."
        )
    return topic
