"""Applications without state whose rows cost about a millisecond each, so that broker and injector need little
CPU beside them: separate queries, and a chain of tasks that are a Spark query each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from qod_magics.session.session import Session

SCHEMA = "id LONG"
DATA = {"generator": "points", "rows": 20_000, "seed": 7}
#: Of the hash that a row is given: what one core takes is then about a thousand rows/s.
STEPS = 25_000
INNER = 250  #: steps at once: Spark makes an array of their numbers once, when it plans the query


def hashed(steps: int, source: str = "source", seed: str = "id") -> str:
    """SQL: the rows of `source` with a `hash` of `seed`, in this many steps, rounded down to whole `INNER`s."""
    few = f"aggregate(sequence(1, {INNER}), outer, (inner, step) -> xxhash64(inner, step))"
    hash = f"aggregate(sequence(1, {steps // INNER}), {seed}, (outer, part) -> {few})" if steps else seed
    return f"SELECT id, {hash} AS hash FROM {source}"


def start_queries(session: Session, topics: Mapping[str, str], **restrictions: Any) -> None:
    """Queries without sources of their own, each on one instance; `topics`: what each reads."""
    for name, topic in topics.items():
        session.stream(name, hashed(STEPS), topic=topic, schema=SCHEMA, mode="realtime", **restrictions)


def start_chain(
    session: Session,
    topic: str,
    steps: Mapping[str, int],
    *,
    max_parallelism: int | None = None,
    fuse: bool = False,
    **restrictions: Any,
) -> None:
    """Tasks in a row, each on one instance; `steps`: of the hash in each. Only the last one has restrictions. `fuse`:
    they may be one query, and are unfused once they are declared."""
    before = ""
    for name, count in steps.items():
        last = restrictions if name == [*steps][-1] else {}
        if before:
            recipe, feed = hashed(count, before, "hash"), {"from_": before, "max_parallelism": max_parallelism}
        else:
            recipe, feed = hashed(count), {"topic": topic, "schema": SCHEMA}
        session.stream(name, recipe, fuse=fuse, mode="realtime", **feed, **last)  # type: ignore[arg-type]
        before = name
    if fuse:
        for first, second in pairwise(steps):
            session.unfuse(first, second)
