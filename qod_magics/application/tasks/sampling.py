"""How the rows of a stream were sampled: each by itself, or all rows of a key together (`--shed-by`).

A key is kept while its hash is below the accuracy: the same keys in every topic that is shed by a key, and a subset of
them at a lower accuracy. So a pair of rows with the same key is kept with the smaller of their probabilities, where
rows that are sampled by themselves are kept with the product.

Names of columns are compared in any case, as Spark does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

from qod_magics.estimate.sampled import Key

#: The pairs of columns, left and right, that a join equates, in lower case.
Equated = frozenset[tuple[str, str]]


def key_of(inputs: Sequence[Key], columns: Collection[str], by_key: bool = False) -> Key:
    """The key of a recipe's result; () where the keys of its inputs differ, as in a union of streams of several.

    Args:
        inputs: the keys of its inputs.
        columns: of the result, as the inputs have them.
        by_key: whether it joins them by their keys, which then are equal in value, whatever their names.

    """
    if all(key is None for key in inputs):
        return None
    apart = not by_key and len(set(inputs)) > 1
    if apart or any(not key for key in inputs):  # some rows by themselves, or by an unknown key
        return ()
    there = {name.lower() for name in columns}
    return next((key for key in inputs if key is not None and {name.lower() for name in key} <= there), ())


def joins_by_key(inputs: Collection[Key], joins: Sequence[Equated]) -> bool:
    """Whether each of these joins, one or more, pairs only rows of the same key."""
    keys = [tuple(name.lower() for name in key) for key in inputs if key]
    if not joins or len(keys) < len(inputs):
        return False
    sides = list(permutations(keys, 2)) if len(keys) > 1 else [(key, key) for key in keys]  # one with itself
    same = [set(zip(one, other, strict=True)) for one, other in sides if len(one) == len(other)]
    return all(any(pairs <= equated for pairs in same) for equated in joins)
