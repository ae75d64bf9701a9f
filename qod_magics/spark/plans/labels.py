"""What load shedding does to each column of a query's result, from its analyzed plan. Pure.

Of a query that may be shed, a column is

- *exact*: it has the value that it would have without shedding, as a group's key has, or a column of single rows;
- *estimable*: it is an estimate (with an interval if it comes from `qod_magics.estimate`), or could be one: a plain
  count or sum is of the rows kept only, and says so;
- *not estimable*: nothing in the rows kept tells it, as a maximum, or a number of distinct values that are not shed by
  their own key.

Where the rows are shed by a key (`--shed-by`) that a group has among its keys, whole groups are kept or dropped, and
all columns of those kept are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qod_magics.application.shed_keys import Ask
from qod_magics.application.weights import WEIGHT
from qod_magics.spark.plans.expressions import ESTIMATE, WEIGHTS, Fitness, Label, aggregated, worst
from qod_magics.spark.plans.key_choice import KeyChoice
from qod_magics.spark.plans.plan_text import (
    ID,
    NAMED,
    PARSES,
    SAME_COLUMNS,
    Copies,
    Node,
    below_at,
    children_at,
    definition_of,
    emptied,
    equated,
    ids_of,
    inputs_first,
    is_cut,
    joins_streams,
    lists_of,
    names_of,
    nodes_of,
    output_of,
    same,
    split,
)

WORDS = {
    Label.EXACT: "exact",
    Label.INTERVAL: "estimated, with an interval",
    Label.ESTIMATE: "estimated, without an interval",
    Label.KEPT: "of the rows kept only",
    Label.NOT_ESTIMABLE: "not estimable",
}
#: Advice for columns that could be better.
HINTS = {Label.ESTIMATE: "qod_magics.estimate has them", Label.KEPT: "qod_magics.estimate estimates it of all"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a query's result."""

    name: str
    label: Label
    advice: str | None = None  #: what would make it estimable, if it is something else than for the query as a whole


@dataclass(frozen=True, slots=True)
class Labels:
    """What shedding does to a query's result."""

    columns: tuple[Column, ...]
    missing: str | None = None  #: what happens to whole rows of the result, if it depends on several rows of the input
    advice: str | None = None  #: `--shed-by` a key of the topics that would keep or drop whole groups, pairs and values
    asks: tuple[Ask, ...] = ()  #: the same, of each operator: by topic
    refused: str | None = None  #: why estimates of it can't be those of all rows
    unfit: tuple[str, str] | None = None  #: why those of its rows couldn't be: a template, and what helps in general

    @property
    def are_exact(self) -> bool:
        """Return whether each row of the result is as it would be without shedding, and depends on one row of the
        input."""
        return self.missing is None and all(column.label is Label.EXACT for column in self.columns)

    def __str__(self) -> str:
        return self._told(hints=True)

    @property
    def short(self) -> str:
        """Return the labels without advice."""
        return self._told(hints=False)

    def _told(self, hints: bool) -> str:
        by_words: dict[tuple[Label, str], list[str]] = {}
        for column in self.columns:
            words = WORDS[column.label] + (self._hint(column) if hints else "")
            by_words.setdefault((column.label, words), []).append(column.name)
        parts = [f"{', '.join(by_words[label, words])} {words}" for label, words in sorted(by_words)]
        return "; ".join([*parts, *([self.missing] if self.missing else [])])

    def _hint(self, column: Column) -> str:
        if column.label is not Label.NOT_ESTIMABLE:
            return f" ({HINTS[column.label]})" if column.label in HINTS else ""
        shed_by = column.advice or self.advice or "--shed-by a key of its groups"
        return f" (--min-accuracy 1 keeps it exact, or {shed_by})"


#: How one of different values begins that is null where rows are dropped, and what it counts; 42 is Spark's seed.
_WHILE_EXACT = f"{ESTIMATE}while_exact, "
_COUNTED = re.compile(r"\bxxhash64\((.*?), 42\)")
#: How the rows are counted that are read from a topic.
_SHED = re.compile(r" shed\.([^,]+),")
#: Operators of streams that hand rows to no function of the recipe's.
_FOLLOWED = SAME_COLUMNS | {"CTERelationRef", "Expand", "Generate", "Join", "WithCTE"}
_SESSION = "session_window"
#: By how many of the first columns of its input an operator groups.
_FIRST_COLUMNS = re.compile(r"#\d+, (\d+), \[")
#: How a column of both sides of a full outer join is written.
_EITHER = re.compile(r"coalesce\([^()]+, [^()]+\)")
_JOINED_BY = "--shed-by a key that both sides are joined by"
_JOIN_PAIRS = ("pairs of rows are kept only where both rows are ({} keeps them whole)", _JOINED_BY)
_EMPTY_SIDES = "where a side of an outer join is empty, the row there may have been dropped"
_ROW_BY_ROW = "functions of single rows"
_DEDUPLICATED = ("values that few rows have may be missing ({} keeps or drops each as a whole)", "--shed-by them")
_GROUPS = "groups of which no row is kept are missing"
_CUT = "other rows may be among the first"
_FILTERED = "a filter compares an aggregate of the rows kept"
_KEYS = "rows of keys that are dropped are missing"
_WHOLE = f"{_KEYS}; groups of the others are whole, and their plain aggregates exact"
_EXPLODED = "intervals are too narrow where a group has several rows of one record"


def labels(
    plan: str,
    keys: Sequence[tuple[str, ...]] = (),
    inputs: Mapping[str, Label] | None = None,
    unfit: tuple[str, str] | None = None,
) -> Labels | None:
    """Return the labels of a query's columns; None if the text does not tell, as where it is cut.

    Args:
        plan: the analyzed logical plan as text, from the line with the columns on.
        keys: of its inputs, if all of them are shed by a key: by which columns.
        inputs: labels of columns that other tasks computed, by name; None: it reads topics only.
        unfit: why the weights of its inputs are not those of their rows.

    """
    header, _, rest = plan.strip().partition("\n")
    nodes = list(nodes_of(rest))
    if not nodes or is_cut(plan):
        return None
    walk = _Walk(nodes, [tuple(column.lower() for column in key) for key in keys], inputs, unfit)
    if not all(map(walk.step, inputs_first(nodes))):
        return None
    if walk.output is None or [column.name for column in walk.output] != names_of(header):
        return None
    return walk.labels(walk.output)


class _Walk:
    """Visits a plan's operators, inputs first, and collects what shedding does to the columns of each."""

    def __init__(
        self,
        nodes: Sequence[Node],
        keys: Sequence[tuple[str, ...]],
        inputs: Mapping[str, Label] | None,
        unfit: tuple[str, str] | None,
    ) -> None:
        self.nodes, self.keys, self.inputs = nodes, keys, inputs
        self.known = _Known()
        self.missing: set[str] = set()
        self.helped: set[tuple[str, str]] = (
            set()
        )  #: what is missing without a key: a template, the key in general words
        self.refused: list[tuple[str, str]] = []  #: alike
        self.choice, self.copies, self.fitness = KeyChoice(), Copies(), Fitness(nodes, unfit)
        self.shed = _Shed(self.copies, keys if _one_key(nodes, keys) else ())
        self.output: list[Column] | None = None
        self.columns: list[str] = []  #: of the output, "name#id"

    def step(self, at: int) -> bool:
        """Visit one operator. False: its text does not tell."""
        node = self.nodes[at]
        self.copies.follow(self.nodes, at)
        if node.operator in ("Project", "Aggregate"):
            return self._project(at)
        if node.operator == "Generate" and PARSES.search(node.text) and (lists := lists_of(node.text)):
            self._parse(at, lists[-1])
        elif node.operator == "Filter" and worst(node.text, self.known.labels) >= Label.INTERVAL:
            self.missing.add(_FILTERED)
        elif node.operator == "GlobalLimit" and node.streams:
            self.missing.add(_CUT)
        elif node.operator in ("Distinct", "Deduplicate", "DeduplicateWithinWatermark"):
            self._deduplicate(at)
        elif joins_streams(self.nodes, at):
            self._join(at)
        elif node.streams and node.operator not in _FOLLOWED and any(children_at(self.nodes, at)):
            self._call(at)
        else:
            self.known.follow(self.nodes, at)
        return True

    def _project(self, at: int) -> bool:
        """Label the columns of a projection or an aggregation. False: its text does not tell."""
        lists = lists_of(self.nodes[at].text)
        if not lists:
            return False
        items, groups = lists[-1], None
        if self.nodes[at].operator == "Aggregate":
            groups = set(lists[0]) if len(lists) > 1 else set()
            self.known.advice |= _key_counted(items, self.choice)
        self.output = [_column(item, self.known, groups, self.shed) for item in items]
        self.columns = [f"{named['name']}#{named['id']}" for item in items if (named := NAMED.match(item))]
        self.choice.rename(items)
        self.fitness.rename(items)
        if groups is not None:
            self._estimate(at, [item for item in items if ESTIMATE in item])
        if groups:
            self._group(lists[0], groups, items)
        return True

    def _estimate(self, at: int, estimates: Sequence[str]) -> None:
        """Collect why these estimates can't be made, and whether their intervals are too narrow."""
        problems = (self.fitness.problem(item, self.copies, self.keys) for item in estimates)
        self.refused += (why for why in problems if why is not None)
        if estimates and not self.keys and any(_explodes(self.nodes[below]) for below in below_at(self.nodes, at)):
            self.missing.add(_EXPLODED)

    def _group(self, by: Sequence[str], groups: set[str], items: Sequence[str]) -> None:
        """Collect which groups are missing, and whether their values need the key."""
        if not self.shed.by_key(groups):
            self.missing.add(_GROUPS)
        else:
            weighed = any(item not in groups and WEIGHTS.search(item) for item in items)
            self.missing.add(_WHOLE if weighed else _KEYS)
        others = " ".join(item for item in items if _WHILE_EXACT not in item)
        if any(self.known.labels.get(id) == Label.NOT_ESTIMABLE for id in ID.findall(others)):
            self.choice.narrow(by)

    def _parse(self, at: int, items: Sequence[str]) -> None:
        """Records of a topic are parsed into these columns."""
        for item in items:
            if (named := NAMED.match(item)) is not None:
                self.known.labels[named["id"]] = (self.inputs or {}).get(named["name"], Label.EXACT)
        if self.inputs is None:
            self.choice.read(items, _topic_of(self.nodes, at))

    def _deduplicate(self, at: int) -> None:
        node = self.nodes[at]
        lists = lists_of(node.text) if node.operator != "Distinct" else []
        by = lists[0] if lists else self.columns
        self.choice.narrow(by)
        if self.shed.by_key(by):
            self.missing.add(_KEYS)
        else:
            self.helped.add(_DEDUPLICATED)
            self.fitness.deduplicate(at)

    def _join(self, at: int) -> None:
        """Two streams are joined."""
        equal = equated(self.nodes, at)
        self.choice.narrow_to_equal(equal)
        if self.shed.joined_by_key(equal):
            self.missing.add(_KEYS)
            return
        self.helped.add(_JOIN_PAIRS)
        self.fitness.pair(at)
        self.shed.keys = ()  # a row has the keys of both
        if empty := emptied(self.nodes, at):
            self.known.doubtful |= dict.fromkeys(empty, _JOINED_BY)
            self.known.same |= same(self.nodes, at)
            self.missing.add(_EMPTY_SIDES)

    def _call(self, at: int) -> None:
        """A function of the recipe computes rows of rows, or of groups of them."""
        by = _grouped_by(self.nodes, at)
        whole = self.shed.by_key(by)
        if by:
            self.choice.narrow(by)
            self.missing.add(_KEYS if whole else _GROUPS)
        if made := self.known.compute(self.nodes[at], None if by else _ROW_BY_ROW, whole):
            self.output, self.columns = [_column(item, self.known, None, self.shed) for item in made], made

    def labels(self, output: Sequence[Column]) -> Labels:
        """Return the labels of these columns, all operators having been visited."""
        advice = self.choice.advice()
        shown = tuple(
            replace(column, advice=advice or _JOINED_BY) if column.advice == _JOINED_BY else column
            for column in output
            if column.name != WEIGHT
        )
        missing = self.missing | {words.format(advice or general) for words, general in self.helped}
        missing -= {_KEYS} if missing - {_KEYS} else set()
        refusal = next((words.format(advice or general) for words, general in self.refused), None)
        weight = next((column.partition("#")[2] for column in self.columns if column.startswith(f"{WEIGHT}#")), None)
        return Labels(
            shown,
            "; ".join(sorted(missing)) or None,
            advice,
            self.choice.asks(),
            refusal,
            None if weight is None else self.fitness.why(weight),
        )


def _topic_of(nodes: Sequence[Node], at: int) -> str:
    """Return the topic whose records this operator parses; "" if the plan does not tell."""
    for node in nodes[at + 1 :]:
        if node.depth <= nodes[at].depth:
            break
        if node.operator == "CollectMetrics" and (counted := _SHED.match(node.text)) is not None:
            return counted[1]
    return ""


def _key_counted(items: Sequence[str], choice: KeyChoice) -> dict[str, str]:
    """Return by what to shed so that counts of different values can be estimated, by the ids of their columns."""
    advised = {}
    for item in items:
        named, counted = NAMED.match(item), _COUNTED.search(item)
        if named is not None and counted is not None and _WHILE_EXACT in item:
            columns = split(counted[1])
            choice.narrow(columns)
            advised[named["id"]] = f"--shed-by {' '.join(choice.names(columns)) or 'what it counts'}"
    return advised


def _column(item: str, known: _Known, groups: set[str] | None, shed: _Shed) -> Column:
    """Return an item of a projection or an aggregation; remembers what is known of it by the id."""
    named = NAMED.match(item)
    if named is None:
        return Column(item, Label.NOT_ESTIMABLE)
    expression = named["expression"]
    label = _label(named["id"], expression, known, groups, shed)
    if groups is not None and not shed.by_key(groups):
        label = _in_session(item, named["name"], label, groups)
    known.labels[named["id"]] = label
    read = [named["id"], *ID.findall(expression or "")]
    either = _EITHER.fullmatch(expression or "") is not None and frozenset(read[1:]) in known.same
    if label is not Label.INTERVAL and not either and (doubts := known.doubts(read)):
        known.doubtful[named["id"]] = doubts[0]
        return Column(named["name"], Label.NOT_ESTIMABLE, doubts[0])
    advice = None
    if label is Label.NOT_ESTIMABLE and (advice := next(filter(None, map(known.advice.get, read)), None)) is not None:
        known.advice[named["id"]] = advice
    return Column(named["name"], label, advice)


def _label(id: str, expression: str | None, known: _Known, groups: set[str] | None, shed: _Shed) -> Label:
    """Return the label of an item; `expression` None: it is a column of the input."""
    if expression is None:
        return known.labels.get(id, Label.EXACT)
    if groups is None:
        return worst(expression, known.labels)
    if _WHILE_EXACT in expression:
        return Label.NOT_ESTIMABLE
    if shed.by_key(groups) and not WEIGHTS.search(expression):  # else it is of other groups, too
        return Label.EXACT
    return aggregated(expression, known.labels, groups)


def _in_session(item: str, name: str, label: Label, groups: set[str]) -> Label:
    """Return the label of an item of groups that may be sessions: a dropped row may have joined two of them."""
    if name.startswith(_SESSION):
        return Label.NOT_ESTIMABLE
    in_session = any(group.startswith(f"{_SESSION}#") for group in groups)
    return Label.NOT_ESTIMABLE if in_session and item not in groups else label


@dataclass(slots=True)
class _Known:
    """What is known of the columns of operators, by id."""

    labels: dict[str, Label] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)  #: what would make one estimable that counts different values
    #: What would make those estimable that are wrong where rows are dropped; None: a key of the groups.
    doubtful: dict[str, str | None] = field(default_factory=dict)
    same: set[frozenset[str]] = field(default_factory=set)  #: pairs of columns that an outer join equates

    def doubts(self, ids: Iterable[str]) -> list[str | None]:
        """Return what would make these columns estimable, for those that are wrong where rows are dropped."""
        return [self.doubtful[id] for id in ids if id in self.doubtful]

    def derive(self, id: str, ids: Sequence[str]) -> None:
        """Derive a column from others: it has their values, or is computed from them row by row."""
        self.labels[id] = max((self.labels.get(each, Label.EXACT) for each in ids), default=Label.EXACT)
        for each in ids:
            if each in self.doubtful:
                self.doubtful[id] = self.doubtful[each]
            if each in self.advice:
                self.advice[id] = self.advice[each]

    def follow(self, nodes: Sequence[Node], at: int) -> None:
        """Follow the columns through an operator of `_FOLLOWED`, or one that reads no other."""
        node, lists = nodes[at], lists_of(nodes[at].text)
        if node.operator == "Generate" and lists:
            for id in ids_of(lists[-1]):
                self.derive(id, ID.findall(node.text))
        elif node.operator == "Expand" and len(lists) > 1:
            self._expand(node, lists)
        elif node.operator == "Union":
            branches = [output_of(nodes, child) for child in children_at(nodes, at)]
            for ids in zip(*(branch or () for branch in branches), strict=False):
                self.derive(ids[0], ids)
        elif node.operator == "CTERelationRef" and lists:
            defined = definition_of(nodes, node)
            columns = None if defined is None else output_of(nodes, defined)
            for id, defined_id in zip(ids_of(lists[-1]), columns or (), strict=False):
                self.derive(id, [defined_id])
        else:
            for id in ID.findall(node.text):
                self.labels.setdefault(id, Label.EXACT)

    def _expand(self, node: Node, lists: Sequence[Sequence[str]]) -> None:
        """Each column of an Expand has the values of its column in every row of the first list."""
        rows = [split(row[1:-1]) for row in lists[0]]
        for n, id in enumerate(ids_of(lists[-1])):
            of = [row[n] for row in rows] if all(len(row) == len(lists[-1]) for row in rows) else [node.text]
            self.derive(id, ID.findall(" ".join(of)))

    def compute(self, node: Node, advice: str | None, whole: bool) -> list[str]:
        """Note the columns that a function in an operator computes; they are right if its rows are `whole` groups."""
        made = {id for id in ID.findall(node.text) if id not in self.labels}
        self.labels |= dict.fromkeys(made, worst(node.text, self.labels))
        self.doubtful |= {} if whole else dict.fromkeys(made, advice)
        return next((items for items in lists_of(node.text)[::-1] if made.intersection(ids_of(items))), [])


@dataclass(slots=True)
class _Shed:
    """By which keys all rows that an operator reads are kept together."""

    copies: Copies
    keys: Sequence[tuple[str, ...]]  #: any of these; (): by none, or by several

    def by_key(self, columns: Iterable[str]) -> bool:
        """Return whether these columns, "name#id", have a key among them."""
        names = self.copies.names(columns)
        return any(set(key) <= names for key in self.keys)

    def joined_by_key(self, equal: Sequence[tuple[str, str]]) -> bool:
        """Return whether a join that equates these columns pairs only rows of the same key."""
        named = {(self.copies.name(a), self.copies.name(b)) for a, b in equal}
        named |= {(b, a) for a, b in named}
        return any(
            len(one) == len(other) and set(zip(one, other, strict=True)) <= named
            for one in self.keys
            for other in self.keys
        )


def _one_key(nodes: Sequence[Node], keys: Sequence[tuple[str, ...]]) -> bool:
    """Return whether all inputs have one key, or keys that all joins of streams equate."""
    if len(set(keys)) < 2:
        return True
    shed, joins = _Shed(Copies(), keys), list[bool]()
    for at in inputs_first(nodes):
        shed.copies.follow(nodes, at)
        if joins_streams(nodes, at):
            joins.append(shed.joined_by_key(equated(nodes, at)))
        elif nodes[at].operator == "Union":
            return False
    return bool(joins) and all(joins)


def _grouped_by(nodes: Sequence[Node], at: int) -> list[str]:
    """Return the columns, "name#id", by which an operator groups the rows that it hands to a function; [] if it does
    not."""
    node, lists = nodes[at], lists_of(nodes[at].text)
    if node.operator.startswith("FlatMapGroups") and lists:
        return lists[0]
    counted = _FIRST_COLUMNS.search(node.text) if node.operator.startswith("TransformWithState") else None
    given = nodes[next(children_at(nodes, at))].text if counted is not None else ""
    items = [NAMED.match(item) for items in lists_of(given)[-1:] for item in items]
    return [f"{item['name']}#{item['id']}" for item in items if item is not None][: int(counted[1]) if counted else 0]


def _explodes(node: Node) -> bool:
    """Return whether an operator makes several rows of one."""
    return node.operator == "Generate" and PARSES.search(node.text) is None
