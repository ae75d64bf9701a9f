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

from qod_magics.application.shed_keys import Ask, Place
from qod_magics.application.weights import WEIGHT
from qod_magics.spark.plans.expressions import ESTIMATE, WEIGHTS, Fitness, Label, aggregated, worst
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
    joins_streams,
    lists_of,
    names_of,
    nodes_of,
    output_of,
    same,
    split,
)

# --- The key by which a query's topics would have to be shed for its result to be right by key. Pure ------------------
# Joins, sessions, distinct values and their counts need all rows of a key or none. The columns that all such operators
# of a query have among theirs make that key, if they are columns of the topics: a key that a recipe computes can't be
# shed by.

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
        """What the topics call those of these columns that are theirs as they are."""
        return [place.column for place in map(self._place, columns) if place is not None]

    def narrow(self, columns: Iterable[str]) -> None:
        """An operator needs all rows that are equal in these columns."""
        self._narrow([(place, place) for place in map(self._place, columns) if place is not None])

    def narrow_to_equal(self, pairs: Iterable[tuple[str, str]]) -> None:
        """A join needs all rows of both sides that are equal in these columns."""
        places = [(self._place(left), self._place(right)) for left, right in pairs]
        self._narrow([(left, right) for left, right in places if left is not None and right is not None])

    def advice(self) -> str | None:
        """The options that would do, "--shed-by user"; None where no operator asks for them, or no columns would do."""
        if not self._common:
            return None
        left, right = ([pair[side] for pair in self._common] for side in (0, 1))
        options = [f"--shed-by {' '.join(names)}" for names in ([left] if left == right else [left, right])]
        return " and ".join(options)

    def asks(self) -> tuple[Ask, ...]:
        """What each operator asks for, by topic; () where `advice` is None, or the plan names no topics."""
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


WORDS = {
    Label.EXACT: "exact",
    Label.INTERVAL: "estimated, with an interval",
    Label.ESTIMATE: "estimated, without an interval",
    Label.KEPT: "of the rows kept only",
    Label.NOT_ESTIMABLE: "not estimable",
}
#: Where there is more to be had.
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
    missing: str | None = None  #: what becomes of whole rows of the result, if it depends on several rows of the input
    advice: str | None = None  #: `--shed-by` a key of the topics that would keep or drop whole groups, pairs and values
    asks: tuple[Ask, ...] = ()  #: the same, of each operator: by topic
    refused: str | None = None  #: why estimates of it can't be those of all rows
    unfit: tuple[str, str] | None = None  #: why those of its rows couldn't be: a template, and what helps in general

    @property
    def are_exact(self) -> bool:
        """Whether each row of the result is as it would be without shedding, and depends on one row of the input."""
        return self.missing is None and all(column.label is Label.EXACT for column in self.columns)

    def __str__(self) -> str:
        return self._told(hints=True)

    @property
    def short(self) -> str:
        """The same without what could be done about it."""
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
    """The labels of a query's columns; None if the text does not tell.

    Args:
        plan: the analyzed logical plan as text, from the line with the columns on, untruncated.
        keys: of its inputs, if all of them are shed by a key: by which columns.
        inputs: labels of columns that other tasks computed, by name; None: it reads topics only.
        unfit: why the weights of its inputs are not those of their rows.

    """
    header, _, rest = plan.strip().partition("\n")
    nodes = list(nodes_of(rest))
    if not nodes:
        return None
    known = _Known()
    missing: set[str] = set()
    helped: set[tuple[str, str]] = set()  #: what is missing without a key: a template, and the key in general words
    refused: list[tuple[str, str]] = []  #: alike
    keys = [tuple(column.lower() for column in key) for key in keys]
    choice, copies, fitness = KeyChoice(), Copies(), Fitness(nodes, unfit)
    shed = _Shed(copies, keys if _one_key(nodes, keys) else ())
    output: list[Column] | None = None
    columns: list[str] = []  #: of it, "name#id"
    for at in inputs_first(nodes):
        node = nodes[at]
        copies.follow(nodes, at)
        if node.operator == "Project" or node.operator == "Aggregate":
            lists = lists_of(node.text)
            if not lists:
                return None
            groups = None if node.operator == "Project" else set(lists[0]) if len(lists) > 1 else set()
            if groups is not None:
                known.advice |= _key_counted(lists[-1], choice)
            output = [_column(item, known, groups, shed) for item in lists[-1]]
            columns = [f"{named['name']}#{named['id']}" for item in lists[-1] if (named := NAMED.match(item))]
            choice.rename(lists[-1])
            fitness.rename(lists[-1])
            if groups is not None and (estimates := [item for item in lists[-1] if ESTIMATE in item]):
                refused += (why for item in estimates if (why := fitness.problem(item, copies, keys)) is not None)
                if not keys and any(_explodes(nodes[below]) for below in below_at(nodes, at)):
                    missing.add(_EXPLODED)
            if groups:
                weighed = any(item not in groups and WEIGHTS.search(item) for item in lists[-1])
                missing.add(_GROUPS if not shed.by_key(groups) else _WHOLE if weighed else _KEYS)
                others = " ".join(item for item in lists[-1] if _WHILE_EXACT not in item)
                if any(known.labels.get(id) == Label.NOT_ESTIMABLE for id in ID.findall(others)):
                    choice.narrow(lists[0])
        elif node.operator == "Generate" and PARSES.search(node.text) and (lists := lists_of(node.text)):
            for item in lists[-1]:
                if (named := NAMED.match(item)) is not None:
                    known.labels[named["id"]] = (inputs or {}).get(named["name"], Label.EXACT)
            if inputs is None:
                choice.read(lists[-1], _topic_of(nodes, at))
        elif node.operator == "Filter" and worst(node.text, known.labels) >= Label.INTERVAL:
            missing.add(_FILTERED)
        elif node.operator == "GlobalLimit" and node.streams:
            missing.add(_CUT)
        elif node.operator in ("Distinct", "Deduplicate", "DeduplicateWithinWatermark"):
            of = lists_of(node.text)[0] if node.operator != "Distinct" and lists_of(node.text) else columns
            choice.narrow(of)
            if shed.by_key(of):
                missing.add(_KEYS)
            else:
                helped.add(_DEDUPLICATED)
                fitness.deduplicate(at)
        elif joins_streams(nodes, at):
            choice.narrow_to_equal(equal := equated(nodes, at))
            if shed.joined_by_key(equal):
                missing.add(_KEYS)
            else:
                helped.add(_JOIN_PAIRS)
                fitness.pair(at)
                shed.keys = ()  # a row has the keys of both
                if empty := emptied(nodes, at):
                    known.doubtful |= dict.fromkeys(empty, _JOINED_BY)
                    known.same |= same(nodes, at)
                    missing.add(_EMPTY_SIDES)
        elif node.streams and node.operator not in _FOLLOWED and any(children_at(nodes, at)):
            grouped = _grouped_by(nodes, at)
            whole = shed.by_key(grouped)
            if grouped:
                choice.narrow(grouped)
                missing.add(_KEYS if whole else _GROUPS)
            if made := known.compute(node, None if grouped else _ROW_BY_ROW, whole):
                output, columns = [_column(item, known, None, shed) for item in made], made
        else:
            known.follow(nodes, at)
    if output is None or [column.name for column in output] != names_of(header):
        return None
    advice = choice.advice()
    shown = tuple(
        replace(column, advice=advice or _JOINED_BY) if column.advice == _JOINED_BY else column
        for column in output
        if column.name != WEIGHT
    )
    missing |= {words.format(advice or general) for words, general in helped}
    missing -= {_KEYS} if missing - {_KEYS} else set()
    refusal = next((words.format(advice or general) for words, general in refused), None)
    weight = next((column.partition("#")[2] for column in columns if column.startswith(f"{WEIGHT}#")), None)
    return Labels(
        shown,
        "; ".join(sorted(missing)) or None,
        advice,
        choice.asks(),
        refusal,
        None if weight is None else fitness.why(weight),
    )


def _topic_of(nodes: Sequence[Node], at: int) -> str:
    """The topic whose records this operator parses; "" if the plan does not tell."""
    for node in nodes[at + 1 :]:
        if node.depth <= nodes[at].depth:
            break
        if node.operator == "CollectMetrics" and (counted := _SHED.match(node.text)) is not None:
            return counted[1]
    return ""


def _key_counted(items: Sequence[str], choice: KeyChoice) -> dict[str, str]:
    """By the ids of columns that count different values, which can't be estimated: by what to shed that they could."""
    advised = {}
    for item in items:
        named, counted = NAMED.match(item), _COUNTED.search(item)
        if named is not None and counted is not None and _WHILE_EXACT in item:
            columns = split(counted[1])
            choice.narrow(columns)
            advised[named["id"]] = f"--shed-by {' '.join(choice.names(columns)) or 'what it counts'}"
    return advised


def _column(item: str, known: _Known, groups: set[str] | None, shed: _Shed) -> Column:
    """An item of a projection or an aggregation; remembers what is known of it by the id."""
    named = NAMED.match(item)
    if named is None:
        return Column(item, Label.NOT_ESTIMABLE)
    expression = named["expression"]
    if expression is None:
        label = known.labels.get(named["id"], Label.EXACT)
    elif groups is None:
        label = worst(expression, known.labels)
    elif _WHILE_EXACT in expression:
        label = Label.NOT_ESTIMABLE
    elif shed.by_key(groups) and not WEIGHTS.search(expression):  # else it is of other groups, too
        label = Label.EXACT
    else:
        label = aggregated(expression, known.labels, groups)
    if groups is not None and named["name"].startswith(_SESSION) and not shed.by_key(groups):
        label = Label.NOT_ESTIMABLE  # a dropped row may have joined two sessions
    elif groups is not None and not shed.by_key(groups) and any(g.startswith(f"{_SESSION}#") for g in groups):
        label = label if item in groups else Label.NOT_ESTIMABLE
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


@dataclass(slots=True)
class _Known:
    """What is known of the columns of operators, by id."""

    labels: dict[str, Label] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)  #: what would make one estimable that counts different values
    #: What would make those estimable that are wrong where rows are dropped; None: a key of the groups.
    doubtful: dict[str, str | None] = field(default_factory=dict)
    same: set[frozenset[str]] = field(default_factory=set)  #: pairs of columns that an outer join equates

    def doubts(self, ids: Iterable[str]) -> list[str | None]:
        """What would make those of these columns estimable that are wrong where rows are dropped."""
        return [self.doubtful[id] for id in ids if id in self.doubtful]

    def derive(self, id: str, ids: Sequence[str]) -> None:
        """A column has values of these, or is computed from them row by row."""
        self.labels[id] = max((self.labels.get(each, Label.EXACT) for each in ids), default=Label.EXACT)
        for each in ids:
            if each in self.doubtful:
                self.doubtful[id] = self.doubtful[each]
            if each in self.advice:
                self.advice[id] = self.advice[each]

    def follow(self, nodes: Sequence[Node], at: int) -> None:
        """What an operator of `_FOLLOWED` does to columns, and one that reads no other."""
        node, lists = nodes[at], lists_of(nodes[at].text)
        if node.operator == "Generate" and lists:
            for id in ids_of(lists[-1]):
                self.derive(id, ID.findall(node.text))
        elif node.operator == "Expand" and len(lists) > 1:
            rows = [split(row[1:-1]) for row in lists[0]]
            for n, id in enumerate(ids_of(lists[-1])):
                of = [row[n] for row in rows] if all(len(row) == len(lists[-1]) for row in rows) else [node.text]
                self.derive(id, ID.findall(" ".join(of)))
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

    def compute(self, node: Node, advice: str | None, whole: bool) -> list[str]:
        """The columns that a function in an operator computes of rows; right if these are `whole` groups."""
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
        """Whether these columns, "name#id", have a key among them."""
        names = self.copies.names(columns)
        return any(set(key) <= names for key in self.keys)

    def joined_by_key(self, equal: Sequence[tuple[str, str]]) -> bool:
        """Whether a join that equates these columns pairs only rows of the same key."""
        named = {(self.copies.name(a), self.copies.name(b)) for a, b in equal}
        named |= {(b, a) for a, b in named}
        return any(
            len(one) == len(other) and set(zip(one, other, strict=True)) <= named
            for one in self.keys
            for other in self.keys
        )


def _one_key(nodes: Sequence[Node], keys: Sequence[tuple[str, ...]]) -> bool:
    """Whether all inputs have one key, or keys that all joins of streams equate."""
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
    """The columns, "name#id", by which an operator groups the rows that it hands to a function; [] if it does not."""
    node, lists = nodes[at], lists_of(nodes[at].text)
    if node.operator.startswith("FlatMapGroups") and lists:
        return lists[0]
    counted = _FIRST_COLUMNS.search(node.text) if node.operator.startswith("TransformWithState") else None
    given = nodes[next(children_at(nodes, at))].text if counted is not None else ""
    items = [NAMED.match(item) for items in lists_of(given)[-1:] for item in items]
    return [f"{item['name']}#{item['id']}" for item in items if item is not None][: int(counted[1]) if counted else 0]


def _explodes(node: Node) -> bool:
    """Whether an operator makes several rows of one."""
    return node.operator == "Generate" and PARSES.search(node.text) is None
