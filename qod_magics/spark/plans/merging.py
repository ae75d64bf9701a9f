"""Which results can be computed in parts, by instances that share the rows of a group. Pure.

From the plans, as `plan_text` reads them: one aggregation by groups that the result names, of counts, sums, least and
greatest numbers, and means with their counts. Everything below it treats each row by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qod_magics.application.merging import Merge, Merges
from qod_magics.spark.plans.plan_text import NAMED, Node, is_cut, lists_of, names_of, nodes_of, split
from qod_magics.spark.plans.state import completes, key_columns, stateful_operators

#: An aggregate over single rows; others of its names have a mark of their own, such as "distinct".
_OVER_ROWS = re.compile(r"^(count|count_if|sum|min|max|avg)\((?!distinct )(.+)\)$", re.DOTALL | re.IGNORECASE)
#: A column alone.
_COLUMN = re.compile(r"^[^#()]+#(\d+)L?(?:-T\d+ms)?$")
#: Operators between the aggregation and the result that leave rows alone.
_ABOVE = frozenset({"CollectMetrics", "Project", "SubqueryAlias", "View"})
#: The type of a window of time.
_WINDOW = re.compile(r"struct<start:\s*timestamp(_ntz)?,\s*end:\s*timestamp(_ntz)?>")
#: Types whose least and greatest values are merged.
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


def merges_of(analyzed: str, physical: str | None) -> Merges | str:
    """Return how each column of a result is merged that is no part of its groups; or, as a clause, why parts of the
    groups can't be merged.

    Args:
        analyzed: the logical plan as text, from the line with the columns on.
        physical: the physical plan; None where Spark tells none.

    """
    if is_cut(analyzed):
        return "its task manager refuses to show whole plans (spark.sql.debug.maxToStringFields)"
    keys = key_columns(analyzed)
    stateful = [] if physical is None else stateful_operators(physical)
    if keys is None or stateful.count("StateStoreSave") != 1:
        return "it must be one aggregation whose groups are all among its columns"
    other = next((each for each in stateful if each not in ("StateStoreSave", "StateStoreRestore")), None)
    if other is not None:
        return f"{other} keeps state of single rows or sessions, which parts don't share"
    header, _, rest = analyzed.strip().partition("\n")
    types = _types(header)
    if not completes(physical or "") and not any(_WINDOW.match(types[key]) for key in keys):
        return "parts that change no more are deleted, so group by a window, too: window(time, '1 minute')"
    return _merges(names_of(header), types, list(nodes_of(rest)), keys)


def _merges(names: Sequence[str], types: Mapping[str, str], nodes: Sequence[Node], keys: Sequence[str]) -> Merges | str:
    at = next(number for number, node in enumerate(nodes) if node.operator == "Aggregate")
    other = next((node.operator for node in nodes[:at] if node.operator not in _ABOVE), None)
    if other is not None:
        return f"{other} after the aggregation needs whole groups: leave it out"
    texts = _items(nodes[at])
    for project in reversed([node for node in nodes[:at] if node.operator == "Project"]):
        texts = {id: (name, texts[text][1] if text in texts else text) for id, (name, text) in _items(project).items()}
    by_name = dict(texts.values())
    found: dict[str, Merge] = {}
    for name in names:
        if name not in keys:
            merge = _merge(name, by_name.get(name, ""), by_name, types[name])
            if isinstance(merge, str):
                return merge
            found[name] = merge
    return found


def _items(node: Node) -> dict[str, tuple[str, str]]:
    """Return the name of each column of an operator and its expression, by the column's id; the id where it is a column
    of the operator's input."""
    found = {}
    for item in (lists_of(node.text) or [[]])[-1]:
        named = NAMED.match(item)
        if named is not None:
            text = named["expression"] or item
            column = _COLUMN.match(text)
            found[named["id"]] = named["name"], text if column is None else column[1]
    return found


def _merge(name: str, text: str, texts: Mapping[str, str], type: str) -> Merge | str:
    """Return how a column is merged; a clause that says why it isn't."""
    over_rows = _OVER_ROWS.match(text)
    if over_rows is None:
        return f"its column {name} must be count, sum, min, max or avg of the rows of a group, got {_shown(text)}"
    function, argument = over_rows[1].lower(), over_rows[2]
    if type not in _NUMBERS:
        return f"its column {name} must be a whole number or a double, got {type}"
    if function == "avg":
        count = next((other for other, each in texts.items() if each == f"count({argument})"), None)
        if count is None:
            return f"its column {name} is a mean: add count({_shown(argument)}) to the columns"
        return Merge("mean", count)
    return Merge("min" if function == "min" else "max" if function == "max" else "sum")


def _shown(text: str) -> str:
    return re.sub(r"#\d+L?(-T\d+ms)?", "", text) or "nothing"


def _types(header: str) -> Mapping[str, str]:
    """Return the types of the columns in the first line of a plan."""
    return {name: type for name, _, type in (item.partition(": ") for item in split(header, "[(<", "])>"))}
