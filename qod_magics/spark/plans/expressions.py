"""What load shedding does to an expression of columns and aggregates, as an analyzed plan has it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum

from qod_magics.application.weights import WEIGHT
from qod_magics.spark.plans.plan_text import ID, NAMED, Copies, Node, below_at, children_at, split

# --- Fitness of weights -----------------------------------------------------------------------------------------------
# Whether estimates read weights that are those of their rows, and the key by which these were kept. Pure.
#
# A pair of rows from two streams that are shed was kept with both rows, and one of several copies was kept with any of
# them: neither with the probability that the `_weight` of one row tells. Where such rows are kept by the key that joins
# them, or tells copies apart, they are kept as one.

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
        """Return why the weight column with this id is not the weight of its rows."""
        return self._unfit.get(id, self._inherited)

    def problem(self, estimate: str, copies: Copies, keys: Collection[tuple[str, ...]]) -> tuple[str, str] | None:
        """Return why an estimate among the items of an aggregation is refused; `keys`: shed keys of all inputs."""
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
        """Return whether rows that an operator reads are shed."""
        below = [self._nodes[each] for each in (at, *below_at(self._nodes, at))]
        shed = any(node.operator == "CollectMetrics" and node.text.startswith(" shed.") for node in below)
        return shed or any(node.operator == "CTERelationRef" and node.streams for node in below)


class Label(IntEnum):
    """How right a column is under shedding, the best first."""

    EXACT = 0
    INTERVAL = 1  #: an estimate with an interval
    ESTIMATE = 2  #: an estimate without one: weighted, or an average, which needs no weights where all are alike
    KEPT = 3  #: a count or a sum of the rows kept
    NOT_ESTIMABLE = 4


#: Aggregate functions by what is left of them when rows are dropped.
_TOTALS = ("count", "count_if", "sum", "try_sum")
_AVERAGES = tuple(
    re.findall(
        r"\w+",
        """approx_percentile avg corr covar_pop covar_samp kurtosis mean median mode percentile percentile_approx
        percentile_cont percentile_disc skewness std stddev stddev_pop stddev_samp try_avg var_pop var_samp variance""",
    )
)
_OTHERS = tuple(
    re.findall(
        r"\w+",
        """any any_value approx_count_distinct approx_top_k array_agg bit_and bit_or bit_xor bool_and bool_or
        collect_list collect_set count_min_sketch every first first_value histogram_numeric hll_sketch_agg last
        last_value listagg max max_by min min_by some string_agg""",
    )
)
_OVER = " / "
#: How an estimate of `qod_magics.estimate` begins.
ESTIMATE = "element_at(transform(array(struct("
#: A call of one of these, or an estimate.
_CALL = re.compile(
    rf"\b({'|'.join((*_TOTALS, *_AVERAGES, *_OTHERS))}|element_at(?=\(transform\(array\(struct\())\(", re.IGNORECASE
)


def worst(expression: str, found: Mapping[str, Label]) -> Label:
    """Return the worst label of the columns that an expression reads; `found` by id."""
    return max((found.get(id, Label.EXACT) for id in ID.findall(expression)), default=Label.EXACT)


def aggregated(expression: str, found: Mapping[str, Label], groups: set[str]) -> Label:
    """Return the label of an aggregation's item, of columns with these labels, where its groups are not kept whole."""
    if expression.startswith(ESTIMATE) and expression.endswith(")") and WEIGHTS.search(expression):
        return Label.INTERVAL
    calls = list(_calls(expression))
    if not calls:
        grouped = {id for group in groups for id in ID.findall(group)}
        known = set(ID.findall(expression)) <= grouped
        return worst(expression, found) if known else Label.NOT_ESTIMABLE
    ratios = list(_ratios(expression))
    called = [(_called(name, arguments, found), at) for at, name, arguments in calls]
    return max(
        Label.ESTIMATE if label == Label.KEPT and any(at in ratio for ratio in ratios) else label
        for label, at in called
    )


def _called(name: str, arguments: str, found: Mapping[str, Label]) -> Label:
    """Return the label of one call of an aggregate function."""
    below = worst(arguments, found)
    if name == "element_at" and below != Label.NOT_ESTIMABLE:
        return Label.ESTIMATE  # of which a part is read, or more is computed
    if name in _OTHERS or below == Label.NOT_ESTIMABLE or arguments.startswith("distinct "):
        return Label.NOT_ESTIMABLE
    if name in _TOTALS:
        weighted = WEIGHTS.search(arguments) is not None or below in (Label.INTERVAL, Label.ESTIMATE)
        return Label.ESTIMATE if weighted else Label.KEPT
    return Label.ESTIMATE if below == Label.EXACT else Label.NOT_ESTIMABLE


def _ratios(expression: str) -> Iterator[range]:
    """Yield where an aggregate is divided by another one, in the brackets that Spark sets around each operator."""
    opened: list[int] = []
    slashes: dict[int, int] = {}  #: by the bracket around it
    for at, sign in enumerate(expression):
        if sign == "(":
            opened.append(at)
        elif sign == ")" and opened:
            start = opened.pop()
            slash = slashes.get(start, start)
            if _CALL.search(expression, start, slash) and _CALL.search(expression, slash, at):
                yield range(start, at)
        elif opened and expression.startswith(_OVER, at) and not expression[opened[-1] - 1 : opened[-1]].isalnum():
            slashes[opened[-1]] = at


def _calls(expression: str) -> Iterator[tuple[int, str, str]]:
    """Yield the outermost calls of aggregate functions, and estimates: position, name in lower case, and arguments."""
    position = 0
    while (call := _CALL.search(expression, position)) is not None:
        depth, end = 1, call.end()
        while end < len(expression) and depth:
            depth += {"(": 1, ")": -1}.get(expression[end], 0)
            end += 1
        yield call.start(), call[1].lower(), expression[call.end() : end - 1]
        position = end
