"""The names of the topics that sessions make for themselves, behind a prefix of the user's. Pure."""

from __future__ import annotations

import re

from qod_magics.errors import UsageProblem

#: How the names begin, behind the prefix.
OWN = "qod."
#: The id of a session, behind its name if it has one.
_SESSION = r"(?:[A-Za-z][\w-]{0,39}-)?[0-9a-f]{6}"
#: What sessions call their topics: streams between tasks and results, numbered; those of a task manager; their mark.
_NAME = r"[^.]+\.[^.]+\.\d+|[^.]+\.(?:dials|warm|warm\.out|probe)|alive"
_OWN = re.compile(rf".*{re.escape(OWN)}{_SESSION}\.(?:{_NAME})")
#: Leaves room for the names of streams: Kafka allows 249 characters.
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,80}")


def check_prefix(prefix: str) -> str:
    """Return a prefix of topics and consumer groups; raise UsageProblem unless Kafka allows it in their names. With two
    underscores begin those of Kafka's own topics, which are never listed."""
    if not _PREFIX.fullmatch(prefix) or prefix.startswith("__"):
        raise UsageProblem(
            "--kafka-prefix must be at most 80 letters, digits, dots, underscores and hyphens, and not begin with two "
            f"underscores, got {prefix!r}",
            option="--kafka-prefix",
            value=prefix,
            rule="name",
        )
    return prefix


def own_topic(prefix: str, session: str, name: str) -> str:
    """Return the name of a topic that a session makes for itself."""
    return f"{prefix}{OWN}{session}.{name}"


def is_own(topic: str) -> bool:
    """Tell whether some session has made a topic for itself, whatever its prefix, by the form of the name."""
    return _OWN.fullmatch(topic) is not None


def is_of(session: str, topic: str) -> bool:
    """Tell whether this session has made a topic for itself, with this prefix or, under an earlier kernel, another."""
    return bool(session) and own_topic("", session, "") in topic


def session_of(prefix: str, topic: str) -> str | None:
    """Return the id of the session, one without a name, that has made a topic with this prefix; None: none has."""
    found = re.fullmatch(rf"{re.escape(prefix + OWN)}([0-9a-f]{{6}})\..+", topic)
    return None if found is None else found[1]
