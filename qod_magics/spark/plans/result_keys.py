"""Which columns tell the rows of a result apart: a query that groups writes a row anew whenever its group has changed.

From the analyzed plan, as `plan_text` reads it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qod_magics.spark.plans.plan_text import NAMED, Node, definition_of, lists_of, names_of, nodes_of

#: Operators whose output has at most one row for each of their input's.
_ROW_BY_ROW = frozenset(
    {
        *("CollectMetrics", "EventTimeWatermark", "Filter", "Project", "SubqueryAlias", "View"),
        *("GlobalLimit", "LocalLimit", "Offset", "Sort"),
    }
)
#: A column, whole or an end of its window.
_TAKEN = re.compile(r"^[^#]+#(\d+)L?(?:-T\d+ms)?(?:\.(?:start|end))?$")
#: One as text, which tells its values apart, too.
_AS_TEXT = re.compile(r"^cast\((.*) as string\)$")


def key_columns(plan: str, inputs: Sequence[str] | None = None) -> tuple[str, ...] | None:
    """The columns of a result that have the values of the groups it is aggregated by; () if it is one row.

    None where each row stands for itself, or where the columns do not have all groups, so that nothing tells rows of
    different ones apart.

    Args:
        plan: the analyzed logical plan as text, from the line with the columns on, untruncated.
        inputs: these columns of the stream that it reads, if another task aggregates.

    """
    header, _, rest = plan.strip().partition("\n")
    above, last = _way_down(list(nodes_of(rest)))
    found = _of_input(last, inputs) if last is not None and last.operator == "Generate" else _of_groups(last)
    if found is None:
        return None
    output, wanted = found
    for node in reversed(above):
        output = _through(node, output)
    keys = {name: group for name, _, group in output if group is not None}
    whole = [name for name, _, _ in output] == names_of(header)
    return tuple(keys) if whole and set(keys.values()) == wanted else None


_Output = list[tuple[str, str, int | None]]  #: name and id of each column, and the number of the group that it has


def _way_down(nodes: Sequence[Node]) -> tuple[list[Node], Node | None]:
    """The projections above the first operator that combines rows or reads them, and that operator."""
    above: list[Node] = []
    at: int | None = 0
    while at is not None and at < len(nodes):
        node = nodes[at]
        if node.operator == "WithCTE":
            at = max((i for i, other in enumerate(nodes) if other.depth == node.depth + 3), default=None)
        elif node.operator == "CTERelationRef":
            defined = definition_of(nodes, node)
            at = None if defined is None else defined + 1
        elif node.operator in _ROW_BY_ROW:
            above += [node] if node.operator == "Project" else []
            at += 1
        else:
            return above, node
    return above, None


def _of_groups(node: Node | None) -> tuple[_Output, set[int]] | None:
    if node is None or node.operator != "Aggregate" or not (lists := lists_of(node.text)):
        return None
    groups = lists[0] if len(lists) > 1 else []
    output: _Output = []
    for item in lists[-1]:
        named = NAMED.match(item)
        if named is None:
            return None
        taken = _AS_TEXT.sub(r"\1", named["expression"] or item)
        whole = re.sub(r"\.(start|end)$", "", taken)
        group = next((number for number, text in enumerate(groups) if text in (taken, whole)), None)
        output.append((named["name"], named["id"], group))
    return output, set(range(len(groups)))


def _of_input(node: Node, inputs: Sequence[str] | None) -> tuple[_Output, set[int]] | None:
    lists = lists_of(node.text)
    if inputs is None or not lists:
        return None
    numbers = {name: number for number, name in enumerate(inputs)}
    named = [match for item in lists[-1] if (match := NAMED.match(item)) is not None]
    return [(match["name"], match["id"], numbers.get(match["name"])) for match in named], set(numbers.values())


def _through(node: Node, below: _Output) -> _Output:
    """The output of a projection."""
    groups = {id: group for _, id, group in below}
    output: _Output = []
    for item in (lists_of(node.text) or [[]])[-1]:
        named = NAMED.match(item)
        if named is None:
            output.append((item, "", None))
            continue
        taken = _TAKEN.match(_AS_TEXT.sub(r"\1", named["expression"] or item))
        output.append((named["name"], named["id"], groups.get(taken[1]) if taken else None))
    return output
