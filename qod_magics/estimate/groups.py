"""How the rows that a recipe reads were sampled, and whether they are groups with estimates in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from qod_magics.errors import UsageProblem

#: The columns of a stream by whose values its rows were kept together. None: each row by itself; (): together, but by
#: columns that the stream doesn't have, or by several.
Key: TypeAlias = "tuple[str, ...] | None"
#: Spark's type of an estimate.
ESTIMATE = "struct<value:double,low:double,high:double>"


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that are groups of an aggregation of sampled rows, or derive from such groups."""

    estimates: frozenset[str]  #: columns that are structs of value, low and high
    shared: bool  #: whether a row, or rows of a key that are kept together, may be in several groups
    begins: bool = False  #: whether `_weight` counts from the aggregation on, which every group that is there has left


@dataclass(slots=True)
class Inputs:
    """The inputs of the recipe that is being built."""

    key: Key = None  #: () also where the keys of its inputs differ
    groups: Groups | None = None  #: None: all its inputs are of single rows
    estimated: bool = False  #: whether an estimate of it has been built


_inputs: ContextVar[Inputs | None] = ContextVar("inputs of the recipe that is being built", default=None)


@contextmanager
def recipe_over(keys: Sequence[Key], groups: Groups | None = None) -> Iterator[Inputs]:
    """While the context is open, estimates are of a recipe that reads inputs with these keys, and with these groups."""
    known = set(keys)
    inputs = Inputs(known.pop() if len(known) == 1 else None if not known else (), groups)
    token = _inputs.set(inputs)
    try:
        yield inputs
    finally:
        _inputs.reset(token)


def input_key() -> Key:
    """Return the key of the inputs of the recipe that is being built; () where they differ."""
    inputs = _inputs.get()
    return None if inputs is None else inputs.key


def groups_read(function: str, column: str | None) -> Groups | None:
    """Return the groups that an estimate is of, if it is a sum of their estimates in this column; None if it is of
    rows.

    Raises:
        UsageProblem: it is of groups, but what it asks for can't be told from them.

    """
    inputs = _inputs.get()
    if inputs is None:
        return None
    inputs.estimated = True
    groups = inputs.groups
    if groups is None:
        return None
    known = {name.casefold() for name in groups.estimates}
    if function == "sum" and column is not None and column.casefold() in known:
        return groups
    if not known:
        raise UsageProblem(
            "the rows are groups, and the sum of their weights tells no interval: take est.count() or est.sum() of the "
            "rows before, and est.sum() of that here"
        )
    raise UsageProblem(
        f"the rows are groups of estimates, of which only sums carry their intervals on: take est.sum of "
        f"{' or '.join(sorted(groups.estimates))}, and other estimates of the rows before they are grouped",
        rule="sums of groups",
    )
