"""Which columns of its JSON input a plan reads: the others need not be parsed. Pure.

Spark prunes the columns of files, but parses every field of a JSON text in a Kafka record, also those that a query
never uses: of a windowed query that reads four of eleven columns, a sixth of what a row costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Operators that name all columns that they read, and hand on no others.
_NAMES_ALL = frozenset({"Project", "HashAggregate", "ObjectHashAggregate"})
#: Operators that hand on the rows of their child as they are, and name what they read besides.
_HANDS_ON = frozenset({"Filter", "EventTimeWatermark", "CollectMetrics"})
_NODE = re.compile(r"^(?P<indent>(?:[ :] {2})*(?:[+:]- )?)(?:\*\(\d+\) )?(?P<operator>\w+)")
_PARSE = re.compile(r"Generate inline\(array\(from_json\(.*, (?:true|false), \[(?P<out>.*)\]$")
_ID = re.compile(r"#(\d+)")
_OUT_ID = re.compile(r"#(\d+)L?(?=, |$)")
_COUNTED = re.compile(r"CollectMetrics (shed\.[^,]+),")


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int  #: where the operator's name begins
    operator: str
    text: str


def columns_read(plan: str, columns: Mapping[str, Sequence[str]]) -> Mapping[str, frozenset[str]]:
    """The columns that a plan reads of each input, where that can be told.

    Args:
        plan: the physical plan as `explain()` shows it, whole, of rows that are all put into one column.
        columns: those of each input, in order, by the name under which the plan counts its records ("shed.trips").

    Returns:
        By name of the input, some of its columns; an input of which all are read, or of which that can't be told,
        is not in it.

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


def _lines(plan: str) -> Sequence[_Line]:
    """The operators of a plan; none where a line is no operator, as where a text in the plan has several lines."""
    lines: list[_Line] = []
    for text in plan.splitlines():
        if not text.strip() or text.startswith("=="):
            continue
        node = _NODE.match(text)
        if node is None or (lines and not node["indent"].endswith("- ")):
            return []
        lines.append(_Line(len(node["indent"]), node["operator"], text))
    return lines


def _input_of(lines: Sequence[_Line], at: int) -> str | None:
    """The name under which the records are counted that this line parses."""
    for line in lines[at + 1 :]:
        if line.depth <= lines[at].depth:
            return None
        if (counted := _COUNTED.search(line.text)) is not None:
            return counted[1]
    return None


def _named_above(lines: Sequence[_Line], at: int) -> set[str] | None:
    """The ids of all columns that the next projection or aggregation above this line, and what is between, name; None:
    what is there does not say which columns it reads."""
    named: set[str] = set()
    depth = lines[at].depth
    for line in reversed(lines[:at]):
        if line.depth >= depth:  # of another branch
            continue
        depth = line.depth
        if line.operator not in _HANDS_ON and line.operator not in _NAMES_ALL:
            return None
        named.update(_ID.findall(line.text))
        if line.operator in _NAMES_ALL:
            return named
    return None
