"""Streams by their names: which names are valid, and the DAG that they form. Pure."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from qod_magics.errors import ApplicationError

# --- Names ------------------------------------------------------------------------------------------------------------
# Valid names of streams and topics, and the names of a topic inside a recipe.

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
    """Return the name itself, if valid for a stream: it becomes a Python variable, an SQL view and a query's name.

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
    """Return the second name of a topic inside a recipe: its own, when that is a free Python identifier; else None."""
    usable = topic.isidentifier() and not keyword.iskeyword(topic) and topic not in RESERVED
    return topic if usable else None


# --- The DAG: consumers, ancestors, cycles, order ---------------------------------------------------------------------
# The stream DAG: consumers, ancestors, cycles, order. Pure functions of name -> names of its inputs.

Upstreams = Mapping[str, tuple[str, ...]]


def consumers(upstreams: Upstreams) -> dict[str, tuple[str, ...]]:
    """Return direct readers of each name, in order."""
    readers: dict[str, list[str]] = {name: [] for name in upstreams}
    for name, inputs in upstreams.items():
        for upstream in inputs:
            readers.setdefault(upstream, []).append(name)
    return {name: tuple(names) for name, names in readers.items()}


def ancestors(upstreams: Upstreams, names: Iterable[str]) -> frozenset[str]:
    """Return the names and everything upstream of them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(upstreams[name])
    return frozenset(found)


def cycle(upstreams: Upstreams) -> tuple[str, ...]:
    """Return a cycle along the flow of rows, first and last name the same: (a, b, a); () if there is none."""
    try:
        TopologicalSorter(upstreams).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def ordered(upstreams: Upstreams) -> tuple[str, ...]:
    """Return all names in topological order, inputs first, else as given. They must form a DAG."""
    # By hand: graphlib puts all names without inputs first.
    placed: dict[str, None] = {}
    waiting = list(upstreams)[::-1]
    while waiting:
        missing = [upstream for upstream in upstreams[waiting[-1]] if upstream not in placed]
        if missing:
            waiting.extend(reversed(missing))
        else:
            placed[waiting.pop()] = None
    return tuple(placed)
