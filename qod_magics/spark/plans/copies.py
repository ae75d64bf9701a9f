"""Which columns of a plan's operators are columns of its inputs as they are, whatever they are called. Pure.

Names are in lower case, since Spark names a column of an operator as the query spells it.

A column is recognised by its id: another one of the same name, or one that a recipe computes, is none of these. A cast
column stands for what it was where the cast keeps values apart and their texts, whose hash is the key, the same: one to
string, and one of an integer to bigint. `CAST(fare AS INT)` makes one value of several, and a double has another text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from qod_magics.spark.plans.plan_text import (
    NAMED,
    Node,
    children_at,
    definition_of,
    ids_of,
    inputs_first,
    lists_of,
    names_of,
    nodes_of,
    split,
)

#: How a record is parsed into a row, or none.
PARSES = re.compile(r"inline\(array\((?:coalesce\()?from_json\(")
_COLUMN = re.compile(r"(?:cast\()?[^()#]+#(?P<id>\d+)(?P<long>L?)(?:-T\d+ms)?(?: as (?:string|(?P<bigint>bigint))\))?")
#: A field of the parsed record that is an integer narrower than a bigint.
_NARROW = re.compile(r"StructField\(([^,()]+),(?:Byte|Short|Integer)Type,(?:true|false)\)")
#: Operators whose rows have the columns of their first input, in its order.
SAME_COLUMNS = frozenset(
    {
        *("CollectMetrics", "CTERelationDef", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"),
        *("GlobalLimit", "LocalLimit", "Offset"),
        *("EventTimeWatermark", "Exchange", "Filter", "RebalancePartitions", "Repartition", "RepartitionByExpression"),
        *("ResolvedHint", "Sample", "Sort", "SubqueryAlias", "Union", "UnresolvedHint", "View"),
    }
)
_PLAN_ID = re.compile(r"\[plan_id=\d+\]")


class Copies:
    """Names that the columns of an analyzed or a physical plan have in the topics or streams that they come from."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by id
        self._narrow: set[str] = set()  # names that are narrow integers in some input
        self._others: set[str] = set()  # names that are of another type, or of one not known, in some input

    def __repr__(self) -> str:
        return f"copies: {self._names}"

    def follow(self, nodes: Sequence[Node], at: int) -> None:
        """What the operator at this position does to columns; inputs first."""
        node = nodes[at]
        lists = lists_of(node.text)
        if node.operator.startswith("StreamingRelation"):  # of raw records
            for items in lists:
                self._read(items)
        elif node.operator == "Generate" and lists and PARSES.search(node.text):
            self._read(lists[-1], _narrow_integers(node.text))
        elif node.operator in ("Project", "Aggregate") and lists:
            self._rename(lists[-1])
        elif node.operator == "Union":
            self._unite(nodes, at)
        elif node.operator == "CTERelationRef" and lists:
            self._refer(nodes, definition_of(nodes, node), lists[-1])
        elif node.operator == "ReusedExchange" and lists:
            self._refer(nodes, _exchange_of(nodes, node), lists[0])

    def name(self, column: str) -> str | None:
        """What an input calls this column ("user#3L"), also of a cast that keeps its text; None: it is computed."""
        plain = _COLUMN.fullmatch(column)
        name = None if plain is None else self._names.get(plain["id"])
        if plain is None or name is None or not plain["bigint"] or plain["long"]:
            return name
        return name if name in self._narrow - self._others else None

    def names(self, columns: Iterable[str]) -> set[str]:
        """What the inputs call those of these columns that are theirs."""
        return {name for name in map(self.name, columns) if name is not None}

    def _read(self, items: Iterable[str], narrow: Collection[str] = ()) -> None:
        for item in items:
            if (named := NAMED.match(item)) is not None and named["expression"] is None:
                name = self._names[named["id"]] = named["name"].lower()
                (self._narrow if name in narrow else self._others).add(name)

    def _rename(self, items: Iterable[str]) -> None:
        for item in items:
            named = NAMED.match(item)
            if named is not None and named["expression"] is not None:
                self._set(named["id"], self.name(named["expression"]))

    def _unite(self, nodes: Sequence[Node], at: int) -> None:
        """The columns of a union have the ids that they have in its first input."""
        branches = [output_of(nodes, child) for child in children_at(nodes, at)]
        if not branches or any(branch is None or len(branch) != len(branches[0] or ()) for branch in branches):
            self._names.clear()
            return
        for columns in zip(*(branch or () for branch in branches), strict=True):
            names = {self._names.get(id) for id in columns}
            self._set(columns[0], names.pop() if len(names) == 1 else None)

    def _refer(self, nodes: Sequence[Node], to: int | None, items: Sequence[str]) -> None:
        """The columns of another operator, with ids of their own where it is read once more."""
        columns = None if to is None else output_of(nodes, to)
        for id, of in zip(ids_of(items), columns or (), strict=False):
            self._set(id, self._names.get(of))

    def _set(self, id: str, name: str | None) -> None:
        if name is None:
            self._names.pop(id, None)
        else:
            self._names[id] = name


def _narrow_integers(parse: str) -> set[str]:
    """The fields of a record that are integers narrower than a bigint, from the text of the operator that parses it."""
    start = PARSES.search(parse)
    fields = [] if start is None else split(parse[start.end() :])
    return {narrow[1].lower() for field in fields if (narrow := _NARROW.fullmatch(field)) is not None}


def _exchange_of(nodes: Sequence[Node], reused: Node) -> int | None:
    """Where the exchange stands that a physical plan reads once more."""
    wanted = _PLAN_ID.search(reused.text)
    found = (at for at, node in enumerate(nodes) if node.operator == "Exchange" and wanted and wanted[0] in node.text)
    return next(found, None)


def output_of(nodes: Sequence[Node], at: int) -> list[str] | None:
    """The ids of an operator's columns, in their order; None where its text does not tell."""
    node = nodes[at]
    lists = lists_of(node.text)
    if node.operator in ("Project", "Aggregate") and lists:
        return ids_of(lists[-1])
    if node.operator == "WithCTE":
        return output_of(nodes, max(children_at(nodes, at)))
    inputs = list(children_at(nodes, at))
    if node.operator == "Join" and len(inputs) == 2:
        left, right = (output_of(nodes, each) for each in inputs)
        if node.text.startswith((" LeftSemi", " LeftAnti")):
            return left
        return None if left is None or right is None else [*left, *right]
    first = next(iter(inputs), None)
    return output_of(nodes, first) if first is not None and node.operator in SAME_COLUMNS else None


def kept_columns(plan: str) -> frozenset[str]:
    """The columns of a result that are columns of its inputs of the same names, in each branch of a union.

    Args:
        plan: the analyzed logical plan as text, from the line with the columns on, untruncated.

    """
    header, _, rest = plan.strip().partition("\n")
    nodes, copies = list(nodes_of(rest)), Copies()
    for at in inputs_first(nodes):
        copies.follow(nodes, at)
    columns = output_of(nodes, 0) if nodes else None
    named = zip(names_of(header), columns or (), strict=False)
    return frozenset(name for name, id in named if copies.name(f"{name}#{id}") == name.lower())
