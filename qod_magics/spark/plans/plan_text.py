"""Operators of a logical or physical plan, as Spark writes it, and the lists in their texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: The id of a column, as in "fare#12L".
ID = re.compile(r"#(\d+)")
#: A column of an operator's list, as in "(fare#5 * 2.0) AS twice#12" or "fare#5".
NAMED = re.compile(r"^(?:(?P<expression>.*) AS )?(?P<name>[^#]+)#(?P<id>\d+)L?(?:-T\d+ms)?$", re.DOTALL)
_AND = " AND "
_NUMBER = re.compile(r"\s*(\d+)")
_NODE = re.compile(
    r"^(?P<indent>(?:[ :] {2})*(?:[+:]- )?)(?P<marks>(?:[~!]|\*\(\d+\) )*)(?P<operator>[A-Z]\w*)(?P<text>.*)$"
)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator."""

    depth: int  #: characters before it
    operator: str
    text: str  #: after its name
    streams: bool  #: whether a logical plan marks it as one over a stream


def nodes_of(text: str) -> Iterator[Node]:
    """The operators, as they stand: each before its inputs."""
    for line in text.splitlines():
        if (node := _NODE.match(line)) is not None:
            yield Node(len(node["indent"]), node["operator"], node["text"], "~" in node["marks"])


def children(nodes: Sequence[Node], at: int) -> Iterator[Node]:
    """The inputs of the operator at this position."""
    return (nodes[child] for child in children_at(nodes, at))


def children_at(nodes: Sequence[Node], at: int) -> Iterator[int]:
    """Where the inputs of the operator at this position stand."""
    return (below for below in below_at(nodes, at) if nodes[below].depth == nodes[at].depth + 3)


def below_at(nodes: Sequence[Node], at: int) -> Iterator[int]:
    """Where all operators stand from which the rows of this one come."""
    for below in range(at + 1, len(nodes)):
        if nodes[below].depth <= nodes[at].depth:
            return
        yield below


def inputs_first(nodes: Sequence[Node]) -> list[int]:
    """Where the operators stand, each behind those that its rows come from; a first input behind the others."""
    order, open_ones = list[int](), list(_tops(nodes, range(len(nodes))))[::-1]
    while open_ones:
        at = open_ones.pop()
        order.append(at)
        inputs = list(_tops(nodes, below_at(nodes, at)))  # of common table expressions the last reads the others
        open_ones += inputs if nodes[at].operator == "WithCTE" else reversed(inputs)
    return order[::-1]


def _tops(nodes: Sequence[Node], among: Iterable[int]) -> Iterator[int]:
    """Those of some operators that are below none of them; subqueries in columns stand deeper than inputs."""
    depth: int | None = None
    for at in among:
        if depth is None or nodes[at].depth <= depth:
            depth = nodes[at].depth
            yield at


def definition_of(nodes: Sequence[Node], reference: Node) -> int | None:
    """Where the common table expression is defined that is referred to."""
    wanted = _NUMBER.match(reference.text)
    for at, node in enumerate(nodes):
        found = _NUMBER.match(node.text) if node.operator == "CTERelationDef" else None
        if found is not None and wanted is not None and found[1] == wanted[1]:
            return at
    return None


def above(nodes: Sequence[Node], at: int) -> Iterator[Node]:
    """The operators that the rows of this one pass through on their way to the result, the nearest first."""
    depth = nodes[at].depth
    for node in reversed(nodes[:at]):
        if node.depth < depth:  # the others are of another branch
            depth = node.depth
            yield node


def lists_of(text: str) -> list[list[str]]:
    """The bracketed lists of an operator's text, each split at its commas."""
    lists: list[list[str]] = []
    depth, start = 0, 0
    for position, sign in enumerate(text):
        if sign in "[(":
            if depth == 0 and sign == "[":
                start = position + 1
            depth += 1
        elif sign in "])":
            depth -= 1
            if depth == 0 and sign == "]":
                lists.append(split(text[start:position]))
    return lists


def split(text: str, opening: str = "[(", closing: str = "])") -> list[str]:
    """Parts at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(text):
        if sign in opening:
            depth += 1
        elif sign in closing:
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def ids_of(items: Iterable[str]) -> list[str]:
    """The ids of the columns of a list."""
    return [named["id"] for item in items if (named := NAMED.match(item)) is not None]


def conjuncts(condition: str) -> list[str]:
    """The conditions that all have to hold, each in the brackets that Spark sets."""
    depth, cut = 0, None
    for position, sign in enumerate(condition):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and position < len(condition) - 1:
            return [condition]  # no brackets around it
        if depth == 1 and cut is None and condition.startswith(_AND, position):
            cut = position
    return [condition] if cut is None else [*conjuncts(condition[1:cut]), *conjuncts(condition[cut + len(_AND) : -1])]


def names_of(header: str) -> list[str]:
    """Names of the columns in "a: int, b: struct<x:int,y:int>"."""
    return [item.partition(": ")[0] for item in split(header, "[(<", "])>")]
