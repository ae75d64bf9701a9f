"""Algorithm 6.1, corrected (2.3; errata E1 to E9), and as printed.

Each message keeps its stored laxity; the *marks* are those whose value is smaller than that of all behind them.

`add`, `poll` and `remove` rewrite everything behind: O(n). The dispatchers use `laxity_queue.LaxityQueue`; these two
are what it is compared with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[int, int]

FAR = 1 << 62


class StaircaseQueue(Generic[Item]):
    """Messages by (deadline, arrival), with their stored laxities and the marks. Times and costs in ns."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._items: list[Item] = []
        self._costs: list[int] = []
        self._stored: list[int] = []
        self._mark_keys: list[Key] = []  #: rising, and so are their values
        self._mark_values: list[int] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._keys)

    def _ahead(self, position: int) -> int:
        """Return the cost of the messages before a position (Eq. 5)."""
        return self._keys[position - 1][0] - self._stored[position - 1] if position else 0

    def check(self, deadline: int, cost: int, free_at: int) -> bool:
        """Return whether a message fits (Eq. 6): O(log n)."""
        key = (deadline, FAR)
        if free_at + self._ahead(bisect_right(self._keys, key)) + cost > deadline:
            return False
        behind = bisect_right(self._mark_keys, key)
        return behind == len(self._mark_keys) or self._mark_values[behind] - free_at > cost

    def add(self, deadline: int, cost: int, item: Item) -> bool:
        """Insert; whether the message is a mark (E9)."""
        self._number += 1
        key = (deadline, self._number)
        position = bisect_right(self._keys, key)
        laxity = deadline - cost - self._ahead(position)
        for each in range(position, len(self._keys)):
            self._stored[each] -= cost
        at = bisect_right(self._mark_keys, key)
        for each in range(at, len(self._mark_keys)):
            self._mark_values[each] -= cost
        low = self._mark_values[at] if at < len(self._mark_keys) else FAR
        kept = bisect_left(self._mark_values, min(laxity, low), 0, at)
        del self._mark_keys[kept:at], self._mark_values[kept:at]
        if laxity < low:
            self._mark_keys.insert(kept, key)
            self._mark_values.insert(kept, laxity)
        self._keys.insert(position, key)
        self._items.insert(position, item)
        self._costs.insert(position, cost)
        self._stored.insert(position, laxity)
        return laxity < low

    def poll(self) -> Item:
        """Take the first: what is behind gains its cost."""
        cost = self._costs[0]
        key, item = self._take(0)
        self._stored = [laxity + cost for laxity in self._stored]
        if self._mark_keys and self._mark_keys[0] == key:
            del self._mark_keys[0], self._mark_values[0]
        self._mark_values = [laxity + cost for laxity in self._mark_values]
        return item

    def remove(self, item: Item) -> None:
        """Remove a message from any position, and find the marks again."""
        position = self._items.index(item)
        cost = self._costs[position]
        self._take(position)
        for each in range(position, len(self._keys)):
            self._stored[each] += cost
        low = FAR
        self._mark_keys, self._mark_values = [], []
        for key, laxity in zip(reversed(self._keys), reversed(self._stored), strict=True):
            if laxity < low:
                low = laxity
                self._mark_keys.append(key)
                self._mark_values.append(laxity)
        self._mark_keys.reverse()
        self._mark_values.reverse()

    def _take(self, position: int) -> tuple[Key, Item]:
        del self._costs[position], self._stored[position]
        return self._keys.pop(position), self._items.pop(position)

    def stored(self) -> dict[Item, int]:
        """Return the stored laxity by message (Eq. 3), first to run first."""
        return dict(zip(self._items, self._stored, strict=True))

    def marks(self) -> dict[Item, int]:
        """Return the marks and their values (Eq. 7)."""
        names = dict(zip(self._keys, self._items, strict=True))
        return {names[key]: value for key, value in zip(self._mark_keys, self._mark_values, strict=True)}


class PrintedQueue(StaircaseQueue[Item]):
    """Algorithm 6.1 with errors of its printed form, by erratum: for tests of the errata.

    E1: the first message of an empty queue never becomes a mark; E2: marks ahead go only where the new message is a
    mark; E3: a poll raises no mark; E4: messages of an equal deadline count as ahead and as behind. E5 and E6 are
    corrected, as it does not run with them.
    """

    def __init__(self, errata: Collection[str] = ("E1", "E2", "E3", "E4")) -> None:
        super().__init__()
        self.errata = frozenset(errata)

    def check(self, deadline: int, cost: int, free_at: int) -> bool:
        """Check as printed: E4."""
        if "E4" not in self.errata:
            return super().check(deadline, cost, free_at)
        if free_at + self._ahead(bisect_right(self._keys, (deadline, FAR))) + cost > deadline:
            return False
        behind = bisect_left(self._mark_keys, (deadline, 0))
        return behind == len(self._mark_keys) or self._mark_values[behind] - free_at > cost

    def add(self, deadline: int, cost: int, item: Item) -> bool:
        """Insert as printed: E1, E2 and E4."""
        before = list(zip(self._mark_keys, self._mark_values, strict=True))
        first = not self._keys
        mark = super().add(deadline, cost, item)
        if first and "E1" in self.errata:
            self._set_marks([])
            return False
        new = (deadline, self._number)
        marks = dict(zip(self._mark_keys, self._mark_values, strict=True))
        for key, value in before:
            equal = "E4" in self.errata and key[0] == deadline
            if key < new and ((not mark and "E2" in self.errata) or equal):
                marks[key] = value
        self._set_marks(sorted(marks.items()))
        return mark

    def poll(self) -> Item:
        """Take the first as printed: E3."""
        before = dict(zip(self._mark_keys, self._mark_values, strict=True))
        item = super().poll()
        if "E3" in self.errata:
            self._set_marks([(key, before[key]) for key in self._mark_keys])
        return item

    def _set_marks(self, marks: Sequence[tuple[Key, int]]) -> None:
        self._mark_keys = [key for key, _ in marks]
        self._mark_values = [value for _, value in marks]
