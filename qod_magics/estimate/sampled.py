"""How the rows that a recipe reads were sampled: each by itself, or all rows of a key together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

#: The columns of a stream by whose values its rows were kept together. None: each row by itself; (): together, but by
#: columns that the stream doesn't have, or by several.
Key: TypeAlias = "tuple[str, ...] | None"

_inputs: ContextVar[Key] = ContextVar("sampling of the inputs", default=None)


@contextmanager
def recipe_over(inputs: Sequence[Key]) -> Iterator[None]:
    """While the context is open, `input_key` is that of these inputs: estimates in a recipe depend on it."""
    known = set(inputs)
    token = _inputs.set(known.pop() if len(known) == 1 else None if not known else ())
    try:
        yield
    finally:
        _inputs.reset(token)


def input_key() -> Key:
    """The key of the inputs of the recipe that is being built; () where they differ."""
    return _inputs.get()
