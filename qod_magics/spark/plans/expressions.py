"""What load shedding does to an expression of columns and aggregates, as an analyzed plan has it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum

from qod_magics.spark.plans.fitness import WEIGHTS
from qod_magics.spark.plans.plan_text import ID


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
    """The worst label of the columns that an expression reads; `found` by id."""
    return max((found.get(id, Label.EXACT) for id in ID.findall(expression)), default=Label.EXACT)


def aggregated(expression: str, found: Mapping[str, Label], groups: set[str]) -> Label:
    """The label of an aggregation's item, of columns with these labels, where its groups are not kept whole."""
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
    """The label of one call of an aggregate function."""
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
    """Where an aggregate is divided by another one, in the brackets that Spark sets around each operator."""
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
    """The outermost calls of aggregate functions, and estimates: position, name in lower case, and arguments."""
    position = 0
    while (call := _CALL.search(expression, position)) is not None:
        depth, end = 1, call.end()
        while end < len(expression) and depth:
            depth += {"(": 1, ")": -1}.get(expression[end], 0)
            end += 1
        yield call.start(), call[1].lower(), expression[call.end() : end - 1]
        position = end
