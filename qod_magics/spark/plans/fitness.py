"""Whether estimates read weights that are those of their rows, and the key by which these were kept. Pure.

A pair of rows from two streams that are shed was kept with both rows, and one of several copies was kept with any of
them: neither with the probability that the `_weight` of one row tells. Where such rows are kept by the key that joins
them, or tells copies apart, they are kept as one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from qod_magics.application.tasks.weight import WEIGHT
from qod_magics.spark.plans.copies import Copies
from qod_magics.spark.plans.plan_text import ID, NAMED, Node, below_at, children_at, split

#: Why an estimate is refused, and what helps in general words.
PAIRS = (
    "an estimate over a join of streams takes the weight of one side for that of a pair: join them in a stream of its "
    "own that keeps _weight of both, or shed both (--shed-by) by columns of one name that join them",
    "",
)
COPIES = (
    "an estimate over rows without duplicates takes the weight of a copy for that of all: {}, or --min-accuracy 1",
    "--shed-by what tells duplicates",
)
COMPUTED = (
    "an estimate takes a column for the key by which rows are shed that only has its name: give that another name, and "
    "keep the key",
    "",
)
#: A column of weights, with its id.
WEIGHTS = re.compile(rf"\b{WEIGHT}#(\d+)", re.IGNORECASE)
#: What estimates read of a key: the values that are counted, and the part in which it is.
_HASHED = re.compile(r"\bcounted, xxhash64\((.*?), 42\)|\bshiftright\(xxhash64\((.*?), 42\), 20\)")


class Fitness:
    """Follows `_weight` through an analyzed plan, inputs first."""

    def __init__(self, nodes: Sequence[Node], inherited: tuple[str, str] | None = None) -> None:
        self._nodes = nodes
        self._weights: set[str] = set()  # ids
        self._unfit: dict[str, tuple[str, str]] = {}  # by id, why
        self._inherited = inherited

    def __repr__(self) -> str:
        return f"fitness: {self._unfit}"

    def pair(self, at: int) -> None:
        """The operator at this position joins streams, not by their key."""
        if all(self._sheds(child) for child in children_at(self._nodes, at)):
            self._mark(at, PAIRS)

    def deduplicate(self, at: int) -> None:
        """The operator at this position removes duplicates, not by the key."""
        if self._sheds(at):
            self._mark(at, COPIES)

    def rename(self, items: Sequence[str]) -> None:
        """A projection or an aggregation has these items: a product of the weights of both sides is that of a pair."""
        for item in items:
            named = NAMED.match(item)
            if named is None or named["expression"] is None:
                continue
            read = {id for id in ID.findall(named["expression"]) if self._is_weight(named["expression"], id)}
            if read and (named["name"].lower() == WEIGHT or ID.sub("", named["expression"]).isidentifier()):
                self._weights.add(named["id"])
                for reason in map(self.why, read):
                    if reason is not None and (reason != PAIRS or len(read) == 1):
                        self._unfit[named["id"]] = reason

    def why(self, id: str) -> tuple[str, str] | None:
        """Why the weight of this id is not that of its rows."""
        return self._unfit.get(id, self._inherited)

    def problem(self, estimate: str, copies: Copies, keys: Collection[tuple[str, ...]]) -> tuple[str, str] | None:
        """Why this item of an aggregation, which is an estimate, is refused; `keys` are those of all inputs."""
        for id in WEIGHTS.findall(estimate):
            if (reason := self.why(id)) is not None:
                return reason
        for hashed in _HASHED.finditer(estimate):
            names = copies.names(split(hashed[1] or hashed[2]))
            if keys and not any(set(key) <= names for key in keys):
                return COMPUTED
        return None

    def _is_weight(self, expression: str, id: str) -> bool:
        return id in self._weights or id in WEIGHTS.findall(expression)

    def _mark(self, at: int, why: tuple[str, str]) -> None:
        for below in below_at(self._nodes, at):
            text = self._nodes[below].text
            self._unfit |= dict.fromkeys((*WEIGHTS.findall(text), *self._weights.intersection(ID.findall(text))), why)

    def _sheds(self, at: int) -> bool:
        """Whether rows that an operator reads are shed."""
        below = [self._nodes[each] for each in (at, *below_at(self._nodes, at))]
        shed = any(node.operator == "CollectMetrics" and node.text.startswith(" shed.") for node in below)
        return shed or any(node.operator == "CTERelationRef" and node.streams for node in below)
