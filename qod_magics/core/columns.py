"""Columns of rows, and values by keys in an order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress, count
from operator import attrgetter, ne
from typing import Any, Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """Return the values of one field, row by row."""
    return list(map(attrgetter(name), rows))


class Keys(Generic[_Key]):
    """Keys in an order, each of them once."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        self.all = tuple(keys)

    @cached_property
    def position(self) -> Mapping[_Key, int]:
        """Position of each key."""
        return {key: i for i, key in enumerate(self.all)}

    def mapping(self, values: Sequence[_Value]) -> dict[_Key, _Value]:
        """Return these values by key. Raises ValueError unless each key has one."""
        return dict(zip(self.all, values, strict=True))

    def values(self, mapping: Mapping[_Key, _Value]) -> list[_Value]:
        """Return the values of a mapping in the order of the keys. Raises KeyError for a missing key."""
        return [mapping[key] for key in self.all]


def differing(these: Sequence[object], those: Sequence[object]) -> list[int]:
    """Return indices where two sequences of equal length differ."""
    return list(compress(count(), map(ne, these, those)))
