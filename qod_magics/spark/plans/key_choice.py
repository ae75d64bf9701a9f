"""The keys that a query would have to be shed by. Pure.

Joins, sessions, distinct values and their counts need all rows of a key or none. The columns that all such operators
of a query have among theirs make that key, if they are columns of the topics: a key that a recipe computes can't be
shed by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qod_magics.application.shed_keys import Ask, Place
from qod_magics.spark.plans.plan_text import NAMED

_COLUMN = re.compile(r"\w+#(\d+)L?(?:-T\d+ms)?")


class KeyChoice:
    """Collects the columns of a query's operators, inputs first, each as a text of the plan ("user#3L")."""

    def __init__(self) -> None:
        self._columns: dict[str, Place] = {}  # columns of topics, by the ids that they have in the plan
        self._asks: list[Ask] = []
        self._common: list[tuple[str, str]] | None = None  # that all operators have; those of a join: left and right

    def __repr__(self) -> str:
        return f"key choice: {self.advice() or 'none'}"

    def read(self, columns: Iterable[str], topic: str = "") -> None:
        """These are columns of a topic; "": the plan does not name it."""
        for column in columns:
            if (named := NAMED.match(column)) is not None:
                self._columns[named["id"]] = Place(topic, named["name"])

    def rename(self, items: Iterable[str]) -> None:
        """A projection or an aggregation has these items; some give a column another name."""
        for item in items:
            named = NAMED.match(item)
            if named is not None and (of := self._place(named["expression"] or "")) is not None:
                self._columns[named["id"]] = of

    def names(self, columns: Iterable[str]) -> list[str]:
        """Return the names in the topics of the columns that come from them unchanged."""
        return [place.column for place in map(self._place, columns) if place is not None]

    def narrow(self, columns: Iterable[str]) -> None:
        """Narrow the key to these columns: an operator needs all rows that are equal in them."""
        self._narrow([(place, place) for place in map(self._place, columns) if place is not None])

    def narrow_to_equal(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Narrow the key to these columns: a join needs all rows of both sides that are equal in them."""
        places = [(self._place(left), self._place(right)) for left, right in pairs]
        self._narrow([(left, right) for left, right in places if left is not None and right is not None])

    def advice(self) -> str | None:
        """Return the options that would do, "--shed-by user"; None where no operator asks for them, or no columns would
        do."""
        if not self._common:
            return None
        left, right = ([pair[side] for pair in self._common] for side in (0, 1))
        options = [f"--shed-by {' '.join(names)}" for names in ([left] if left == right else [left, right])]
        return " and ".join(options)

    def asks(self) -> tuple[Ask, ...]:
        """Return the keys that each operator asks for, by topic; () if `advice` is None or the plan names no topics."""
        named = all(place.of for ask in self._asks for places in ask for place in places)
        return tuple(self._asks) if named and self._common else ()

    def _narrow(self, found: list[tuple[Place, Place]]) -> None:
        self._asks.append(tuple(tuple(dict.fromkeys(places)) for places in found))
        names = [(left.column, right.column) for left, right in found]
        known = self._common
        self._common = list(dict.fromkeys(names)) if known is None else [pair for pair in known if pair in names]

    def _place(self, column: str) -> Place | None:
        plain = _COLUMN.fullmatch(column)
        return None if plain is None else self._columns.get(plain[1])
