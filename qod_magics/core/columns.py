"""Columns of rows, and mappings with shared keys. Pure.

A plan has a value for each task and each stream: `Keyed` is a list of values with keys that stay the same from cycle to
cycle, since building dicts of 20,000 tasks every cycle takes longer than computing them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property
from itertools import compress, count
from operator import attrgetter, ne
from typing import Any, Generic, TypeVar


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """Return the values of one field, row by row."""
    return list(map(attrgetter(name), rows))


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

#: other key orders for which `Keys.places` is cached
ASKERS = 3


class Keys(Generic[_Key]):
    """Keys in an order, each of them once."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        self.all = tuple(keys)
        self._places: tuple[tuple[Keys[_Key], list[int] | None], ...] = ()  #: cache, newest first

    @cached_property
    def position(self) -> Mapping[_Key, int]:
        """Position of each key."""
        return {key: i for i, key in enumerate(self.all)}

    def places(self, of: Keys[_Key]) -> list[int] | None:
        """Return positions of the keys of `of` among these; None: the same keys in the same order. Cached for repeated
        calls. Raises KeyError for a missing key."""
        for known, places in self._places:
            if known is of:
                return places
        found = None if of.all == self.all else [self.position[key] for key in of.all]
        self._places = ((of, found), *self._places[: ASKERS - 1])
        return found


class Keyed(Mapping[_Key, _Value]):
    """An immutable mapping from the keys in `order` to the values in `column`, one each."""

    __slots__ = ("column", "order")

    def __init__(self, order: Keys[_Key], column: Sequence[_Value]) -> None:
        if len(order.all) != len(column):
            raise ValueError(f"{len(order.all)} keys and {len(column)} values; give each key its value")
        self.order = order
        self.column = column

    def __getitem__(self, key: _Key) -> _Value:
        return self.column[self.order.position[key]]

    def __contains__(self, key: object) -> bool:
        return key in self.order.position

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.order.all)

    def __len__(self) -> int:
        return len(self.column)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Keyed) and other.order is self.order:
            return list(self.column) == list(other.column)
        return super().__eq__(other)

    def values(self) -> ValuesView[_Value]:
        """As for any mapping; fast to iterate."""
        return _Values(self)

    def items(self) -> ItemsView[_Key, _Value]:
        """As for any mapping; fast to iterate."""
        return _Items(self)

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class _Values(ValuesView[_Value]):
    _mapping: Keyed[object, _Value]

    def __iter__(self) -> Iterator[_Value]:
        return iter(self._mapping.column)


class _Items(ItemsView[_Key, _Value]):
    _mapping: Keyed[_Key, _Value]

    def __iter__(self) -> Iterator[tuple[_Key, _Value]]:
        return zip(self._mapping.order.all, self._mapping.column, strict=True)


def differing(these: Sequence[object], those: Sequence[object]) -> list[int]:
    """Return indices where two sequences of equal length differ."""
    return list(compress(count(), map(ne, these, those)))


def in_order(mapping: Mapping[_Key, _Value], order: Keys[_Key]) -> Sequence[_Value]:
    """Return the values of these keys, in their order. Raises KeyError for a missing one."""
    if not isinstance(mapping, Keyed):
        return [mapping[key] for key in order.all]
    column = mapping.column
    if mapping.order is order or (places := mapping.order.places(order)) is None:
        return column
    return [column[i] for i in places]
