"""Valid names of streams and topics, and the names of a topic inside a recipe."""

from __future__ import annotations

import builtins
import keyword
import re

from qod_magics.errors import ApplicationError

#: name of the topic's DataFrame in every recipe
SOURCE = "source"
#: names already in use in recipes and notebooks, and for what
RESERVED: dict[str, str] = {
    SOURCE: "the topic inside a recipe",
    "spark": "the Spark session inside a recipe",
    "F": "pyspark.sql.functions inside a recipe",
    "stream": "a word of Spark's SQL (FROM STREAM ...)",
    "qod": "the session in the notebook",
    "display": "IPython's own",
    "get_ipython": "IPython's own",
    "In": "IPython's own",
    "Out": "IPython's own",
}


def check_stream_name(name: str) -> str:
    """The name itself, if valid for a stream: it becomes a Python variable, an SQL view and a query's name.

    Raises ApplicationError for a name that is no identifier, a keyword, reserved, a Python builtin, or private.
    """
    if not name.isidentifier() or not name.isascii():
        hint = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_0123456789") or "trips"
        raise ApplicationError(f"{name!r} can't name a stream: a Python identifier is needed, such as {hint!r}.")
    if keyword.iskeyword(name):
        raise ApplicationError(f"{name!r} can't name a stream: it is a Python keyword. Take {name + '_'!r}, say.")
    if name in RESERVED:
        raise ApplicationError(f"{name!r} can't name a stream: it is reserved for {RESERVED[name]}.")
    if hasattr(builtins, name):
        raise ApplicationError(
            f"{name!r} can't name a stream: the notebook would lose the Python builtin. Take {name + '_rows'!r}, say."
        )
    if name.startswith("_"):
        raise ApplicationError(f"{name!r} can't name a stream: names that begin with an underscore are internal.")
    return name


def topic_alias(topic: str) -> str | None:
    """The second name of a topic inside a recipe: its own, when that is a free Python identifier; else None."""
    usable = topic.isidentifier() and not keyword.iskeyword(topic) and topic not in RESERVED
    return topic if usable else None
