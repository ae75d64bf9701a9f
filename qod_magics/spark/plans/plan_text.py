"""Operators of a logical or physical plan, as Spark writes it, and the lists in their texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

#: The id of a column, as in "fare#12L".
ID = re.compile(r"#(\d+)")
#: A column of an operator's list, as in "(fare#5 * 2.0) AS twice#12" or "fare#5".
NAMED = re.compile(r"^(?:(?P<expression>.*) AS )?(?P<name>[^#]+)#(?P<id>\d+)L?(?:-T\d+ms)?$", re.DOTALL)
#: What Spark writes for the rest of a text that it cuts: of a list at `spark.sql.debug.maxToStringFields`, of a whole
#: plan at `spark.sql.maxPlanStringLength`. Servers may fix these settings.
_PLAN_CUT = r"\.\.\. \d+ more characters|^Truncated plan of \d+ characters"
_LACKS_OPERATORS = re.compile(_PLAN_CUT, re.MULTILINE)
_CUT = re.compile(rf"\.\.\. \d+ more fields|{_PLAN_CUT}", re.MULTILINE)
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
    """Yield the operators, as they stand: each before its inputs."""
    for line in text.splitlines():
        if (node := _NODE.match(line)) is not None:
            yield Node(len(node["indent"]), node["operator"], node["text"], "~" in node["marks"])


def is_cut(text: str) -> bool:
    """Return whether Spark has left out something of a plan: what it does not show may be there."""
    return _CUT.search(text) is not None


def lacks_operators(text: str) -> bool:
    """Return whether Spark has left out operators of a plan, and not only items of lists."""
    return _LACKS_OPERATORS.search(text) is not None


def children(nodes: Sequence[Node], at: int) -> Iterator[Node]:
    """Return the inputs of the operator at this position."""
    return (nodes[child] for child in children_at(nodes, at))


def children_at(nodes: Sequence[Node], at: int) -> Iterator[int]:
    """Return where the inputs of the operator at this position stand."""
    return (below for below in below_at(nodes, at) if nodes[below].depth == nodes[at].depth + 3)


def below_at(nodes: Sequence[Node], at: int) -> Iterator[int]:
    """Yield where all operators stand from which the rows of this one come."""
    for below in range(at + 1, len(nodes)):
        if nodes[below].depth <= nodes[at].depth:
            return
        yield below


def inputs_first(nodes: Sequence[Node]) -> list[int]:
    """Return where the operators stand, each behind those that its rows come from; a first input behind the others."""
    order, open_ones = list[int](), list(_tops(nodes, range(len(nodes))))[::-1]
    while open_ones:
        at = open_ones.pop()
        order.append(at)
        inputs = list(_tops(nodes, below_at(nodes, at)))  # of common table expressions the last reads the others
        open_ones += inputs if nodes[at].operator == "WithCTE" else reversed(inputs)
    return order[::-1]


def _tops(nodes: Sequence[Node], among: Iterable[int]) -> Iterator[int]:
    """Return the operators that are below none of the others; subqueries in columns stand deeper than inputs."""
    depth: int | None = None
    for at in among:
        if depth is None or nodes[at].depth <= depth:
            depth = nodes[at].depth
            yield at


def definition_of(nodes: Sequence[Node], reference: Node) -> int | None:
    """Return where the common table expression is defined that is referred to."""
    wanted = _NUMBER.match(reference.text)
    for at, node in enumerate(nodes):
        found = _NUMBER.match(node.text) if node.operator == "CTERelationDef" else None
        if found is not None and wanted is not None and found[1] == wanted[1]:
            return at
    return None


def above(nodes: Sequence[Node], at: int) -> Iterator[Node]:
    """Yield the operators that the rows of this one pass through on their way to the result, the nearest first."""
    depth = nodes[at].depth
    for node in reversed(nodes[:at]):
        if node.depth < depth:  # the others are of another branch
            depth = node.depth
            yield node


def lists_of(text: str) -> list[list[str]]:
    """Return the bracketed lists of an operator's text, each split at its commas."""
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
    """Return parts at the commas outside of brackets."""
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
    """Return the ids of the columns of a list."""
    return [named["id"] for item in items if (named := NAMED.match(item)) is not None]


def conjuncts(condition: str) -> list[str]:
    """Return the conditions that all have to hold, each in the brackets that Spark sets."""
    depth, cut = 0, None
    for position, sign in enumerate(condition):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and position < len(condition) - 1:
            return [condition]  # no brackets around it
        if depth == 1 and cut is None and condition.startswith(_AND, position):
            cut = position
    return [condition] if cut is None else [*conjuncts(condition[1:cut]), *conjuncts(condition[cut + len(_AND) : -1])]


def names_of(header: str) -> list[str]:
    """Return names of the columns in "a: int, b: struct<x:int,y:int>"."""
    return [item.partition(": ")[0] for item in split(header, "[(<", "])>")]


# --- Copies of columns ------------------------------------------------------------------------------------------------
# Which columns of a plan's operators are columns of its inputs as they are, whatever they are called. Pure.
#
# Names are in lower case, since Spark names a column of an operator as the query spells it.
#
# A column is recognised by its id: another one of the same name, or one that a recipe computes, is none of these. A
# cast column stands for what it was where the cast keeps values apart and their texts, whose hash is the key, the same:
# one to string, and one of an integer to bigint. `CAST(fare AS INT)` makes one value of several, and a double has
# another text.

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
        """Follow the columns through the operator at this position; call it for inputs first."""
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
        """Return the name of a column ("user#3L") in the input, also through a cast that keeps its text; None if it is
        computed."""
        plain = _COLUMN.fullmatch(column)
        name = None if plain is None else self._names.get(plain["id"])
        if plain is None or name is None or not plain["bigint"] or plain["long"]:
            return name
        return name if name in self._narrow - self._others else None

    def names(self, columns: Iterable[str]) -> set[str]:
        """Return the names in the inputs of the columns that come from them unchanged."""
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
    """Return the fields of a record that are integers narrower than a bigint, from the text of the operator that parses
    it."""
    start = PARSES.search(parse)
    fields = [] if start is None else split(parse[start.end() :])
    return {narrow[1].lower() for field in fields if (narrow := _NARROW.fullmatch(field)) is not None}


def _exchange_of(nodes: Sequence[Node], reused: Node) -> int | None:
    """Return where the exchange stands that a physical plan reads once more."""
    wanted = _PLAN_ID.search(reused.text)
    found = (at for at, node in enumerate(nodes) if node.operator == "Exchange" and wanted and wanted[0] in node.text)
    return next(found, None)


def output_of(nodes: Sequence[Node], at: int) -> list[str] | None:
    """Return the ids of an operator's columns, in their order; None where its text does not tell."""
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
    """Return the columns of a result that are columns of its inputs of the same names, in each branch of a union.

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


# --- Joins ------------------------------------------------------------------------------------------------------------

#: By the kind of an outer join, the sides that are empty where a row has no partner.
_OUTER = {"LeftOuter": (1,), "RightOuter": (0,), "FullOuter": (0, 1)}
_EQUATED = re.compile(r"\((\w+#\d+)L? = (\w+#\d+)L?\)")
#: The same, also of times with a watermark.
_SAME = re.compile(r"\([^()]+#(\d+)L?(?:-T\d+ms)? = [^()]+#(\d+)L?(?:-T\d+ms)?\)")


def joins_streams(nodes: Sequence[Node], at: int) -> bool:
    """Return whether the operator at this position joins a stream with another one."""
    return nodes[at].operator == "Join" and all(child.streams for child in children(nodes, at))


def equated(nodes: Sequence[Node], at: int) -> list[tuple[str, str]]:
    """Return the columns, "name#id", that a join equates, or, without a condition, the filter on it."""
    found = (_EQUATED.fullmatch(each) for each in _conditions(nodes, at))
    return [(equal[1], equal[2]) for equal in found if equal is not None]


def same(nodes: Sequence[Node], at: int) -> set[frozenset[str]]:
    """Return the ids of the columns, by pairs, that are equal wherever a join finds a partner."""
    found = (_SAME.fullmatch(each) for each in _conditions(nodes, at))
    return {frozenset(equal.groups()) for equal in found if equal is not None}


def _conditions(nodes: Sequence[Node], at: int) -> list[str]:
    """Return the conjuncts of the join condition, or of the filter above the join."""
    around = nodes[at - 1] if at and nodes[at].text.strip() in ("Inner", "Cross") else None
    filtered = around is not None and around.operator == "Filter" and around.depth == nodes[at].depth - 3
    whole = [nodes[at - 1].text.strip()] if filtered else split(nodes[at].text)[1:2]
    return [each for condition in whole for each in conjuncts(condition)]


def emptied(nodes: Sequence[Node], at: int) -> set[str]:
    """Return the ids of the columns that an outer join makes null for a row without a match."""
    sides, found = list(children_at(nodes, at)), set[str]()
    for side in _OUTER.get("".join(split(nodes[at].text)[:1]), ()):
        columns = output_of(nodes, sides[side])
        below = (nodes[each].text for each in (sides[side], *below_at(nodes, sides[side])))
        found |= set(ID.findall(" ".join(below)) if columns is None else columns)
    return found


# --- Unions -----------------------------------------------------------------------------------------------------------
# Unions whose inputs have a column at different positions: columns are paired by position, not by name. Pure.


def positions(plan: str, column: str) -> tuple[int, ...]:
    """Return the positions, from 1 on, that a column has in the inputs of a union; () where they are the same in each
    union, as far as the plan tells.

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
    """Return the position of a column in an operator's output; None if it has none, or the plan does not tell."""
    while nodes[at].operator in SAME_COLUMNS and at + 1 < len(nodes):
        at += 1
    if nodes[at].operator not in ("Project", "Aggregate") or not (lists := lists_of(nodes[at].text)):
        return None
    names = [named["name"].lower() if (named := NAMED.match(item)) else "" for item in lists[-1]]
    return names.index(column) + 1 if names.count(column) == 1 else None
