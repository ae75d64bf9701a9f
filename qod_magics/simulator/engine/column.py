"""Mappings by name as arrays in a fixed order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import numpy as np

from qod_magics.core.keyed import Keyed, Keys
from qod_magics.simulator.engine.wiring import Array

_Name = TypeVar("_Name")


class Column(Generic[_Name]):
    """Turns mappings into arrays in the order of its names."""

    def __init__(self, names: Iterable[_Name]) -> None:
        self._names = tuple(names)
        self._order: Keys[_Name] | None = None  #: keys of the last mapping
        self._known = self._places = np.zeros(0, int)

    def __repr__(self) -> str:
        return f"column of {len(self._names)} names"

    def of(self, mapping: Mapping[_Name, float | None], last: Array) -> Array:
        """The values of a mapping in the order of the names, NaN for None; from `last` where a name is missing."""
        if not isinstance(mapping, Keyed):
            pairs = zip(self._names, last.tolist(), strict=True)
            return np.array([mapping.get(name, was) for name, was in pairs], float)
        if mapping.order is not self._order:
            position = mapping.order.position
            self._order = mapping.order
            self._known = np.array([i for i, name in enumerate(self._names) if name in position], int)
            self._places = np.array([position[self._names[i]] for i in self._known.tolist()], int)
        found: Array = last.copy()
        found[self._known] = np.array(mapping.column, float)[self._places]
        return found
