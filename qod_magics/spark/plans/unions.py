"""Unions whose inputs have a column at different positions: columns are paired by position, not by name. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from qod_magics.spark.plans.copies import SAME_COLUMNS
from qod_magics.spark.plans.plan_text import NAMED, Node, children_at, lists_of, nodes_of


def positions(plan: str, column: str) -> tuple[int, ...]:
    """The positions, from 1 on, that a column has in the inputs of a union; () where they are the same in each union,
    as far as the plan tells.

    Args:
        plan: the analyzed logical plan as text, untruncated.
        column: its name.

    """
    nodes = list(nodes_of(plan))
    for at, node in enumerate(nodes):
        if node.operator == "Union":
            found = tuple(dict.fromkeys(p for each in children_at(nodes, at) if (p := _position(nodes, each, column))))
            if len(found) > 1:
                return found
    return ()


def _position(nodes: Sequence[Node], at: int, column: str) -> int | None:
    """The position of a column in an operator's output; None if it has none, or the plan does not tell."""
    while nodes[at].operator in SAME_COLUMNS and at + 1 < len(nodes):
        at += 1
    if nodes[at].operator not in ("Project", "Aggregate") or not (lists := lists_of(nodes[at].text)):
        return None
    names = [named["name"].lower() if (named := NAMED.match(item)) else "" for item in lists[-1]]
    return names.index(column) + 1 if names.count(column) == 1 else None
