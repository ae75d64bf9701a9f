"""Which columns of its JSON input a plan reads: the others need not be parsed. Pure.

Spark prunes the columns of files, but parses every field of a Kafka record's JSON, used or not: in a windowed query
that reads four of eleven columns, the unused ones are a sixth of the cost per row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qod_magics.spark.plans.plan_text import Node, above, nodes_of

#: Operators whose text lists all columns that they read; they output no others.
_NAMES_ALL = frozenset({"Project", "HashAggregate", "ObjectHashAggregate"})
#: Operators that pass their child's rows through unchanged; their text lists the columns that they read.
_PASS_THROUGH = frozenset({"Filter", "EventTimeWatermark", "CollectMetrics"})
_PARSE = re.compile(r" inline\(array\((?:coalesce\()?from_json\(.*, (?:true|false), \[(?P<out>.*)\]$")
_ID = re.compile(r"#(\d+)")
_OUT_ID = re.compile(r"#(\d+)L?(?=, |$)")
_COUNTED = re.compile(r"^ (shed\.[^,]+),")


def columns_read(plan: str, columns: Mapping[str, Sequence[str]]) -> Mapping[str, frozenset[str]]:
    """The columns that a plan reads of each input, where the plan shows it.

    Args:
        plan: the untruncated physical plan, as `explain()` shows it, of the rows packed into one struct column.
        columns: those of each input, in order, by the name of its metrics in the plan ("shed.trips").

    Returns:
        The columns read, by name of the input; inputs of which all are read, or for which the plan does not show it,
        are left out.

    """
    lines = _lines(plan)
    found: dict[str, set[str]] = {}
    unknown: set[str] = set()
    for at, line in enumerate(lines):
        parse = _PARSE.search(line.text) if line.operator == "Generate" else None
        if parse is None:
            continue
        name = _input_of(lines, at)
        if name is None or name not in columns:
            return {}
        ids = _OUT_ID.findall(parse["out"])
        named = _named_above(lines, at)
        if named is None or len(ids) != len(columns[name]):
            unknown.add(name)
            continue
        found.setdefault(name, set()).update(c for c, i in zip(columns[name], ids, strict=True) if i in named)
    return {n: frozenset(read) for n, read in found.items() if n not in unknown and len(read) < len(columns[n])}


def _lines(plan: str) -> Sequence[Node]:
    """The operators of a plan; [] if some line is not an operator, as with a string literal of several lines."""
    texts = [text for text in plan.splitlines() if text.strip() and not text.startswith("==")]
    nodes = list(nodes_of(plan))
    inputs = all(node.depth for node in nodes[1:])
    return nodes if inputs and len(nodes) == len(texts) else []


def _input_of(lines: Sequence[Node], at: int) -> str | None:
    """The metrics name of the input whose records this line parses."""
    for line in lines[at + 1 :]:
        if line.depth <= lines[at].depth:
            return None
        if (counted := _COUNTED.search(line.text)) is not None:
            return counted[1]
    return None


def _named_above(lines: Sequence[Node], at: int) -> set[str] | None:
    """Ids of all columns named from this line up to the next projection or aggregation; None if an operator there does
    not list the columns that it reads."""
    named: set[str] = set()
    for line in above(lines, at):
        if line.operator not in _PASS_THROUGH and line.operator not in _NAMES_ALL:
            return None
        named.update(_ID.findall(line.text))
        if line.operator in _NAMES_ALL:
            return named
    return None
