"""Joins of streams in an analyzed plan: which columns they equate, and which they make null. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qod_magics.spark.plans.copies import output_of
from qod_magics.spark.plans.plan_text import ID, Node, below_at, children, children_at, conjuncts, split

#: By the kind of an outer join, the sides that are empty where a row has no partner.
_OUTER = {"LeftOuter": (1,), "RightOuter": (0,), "FullOuter": (0, 1)}
_EQUATED = re.compile(r"\((\w+#\d+)L? = (\w+#\d+)L?\)")
#: The same, also of times with a watermark.
_SAME = re.compile(r"\([^()]+#(\d+)L?(?:-T\d+ms)? = [^()]+#(\d+)L?(?:-T\d+ms)?\)")


def joins_streams(nodes: Sequence[Node], at: int) -> bool:
    """Whether the operator at this position joins a stream with another one."""
    return nodes[at].operator == "Join" and all(child.streams for child in children(nodes, at))


def equated(nodes: Sequence[Node], at: int) -> list[tuple[str, str]]:
    """The columns, "name#id", that a join equates, or, without a condition, the filter on it."""
    found = (_EQUATED.fullmatch(each) for each in _conditions(nodes, at))
    return [(equal[1], equal[2]) for equal in found if equal is not None]


def same(nodes: Sequence[Node], at: int) -> set[frozenset[str]]:
    """The ids of the columns, by pairs, that are equal wherever a join finds a partner."""
    found = (_SAME.fullmatch(each) for each in _conditions(nodes, at))
    return {frozenset(equal.groups()) for equal in found if equal is not None}


def _conditions(nodes: Sequence[Node], at: int) -> list[str]:
    """Of a join, or, without any, of the filter on it: those that have to hold in every case."""
    around = nodes[at - 1] if at and nodes[at].text.strip() in ("Inner", "Cross") else None
    filtered = around is not None and around.operator == "Filter" and around.depth == nodes[at].depth - 3
    whole = [nodes[at - 1].text.strip()] if filtered else split(nodes[at].text)[1:2]
    return [each for condition in whole for each in conjuncts(condition)]


def emptied(nodes: Sequence[Node], at: int) -> set[str]:
    """Ids of the columns that a join makes null where it finds no partner for a row."""
    sides, found = list(children_at(nodes, at)), set[str]()
    for side in _OUTER.get("".join(split(nodes[at].text)[:1]), ()):
        columns = output_of(nodes, sides[side])
        below = (nodes[each].text for each in (sides[side], *below_at(nodes, sides[side])))
        found |= set(ID.findall(" ".join(below)) if columns is None else columns)
    return found
