"""Which plans keep state between batches: aggregations, deduplication, joins of two streams, arbitrary state. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.application.merging import Merge, Merges
from qod_magics.spark.plans.plan_text import (
    NAMED,
    Node,
    above,
    definition_of,
    is_cut,
    lists_of,
    names_of,
    nodes_of,
    split,
)

#: Operators of a streaming query's physical plan that read or write a state store.
_KEEPS_STATE = re.compile(
    r"\b(\w*StateStore\w*|Streaming(?:Deduplicate|SymmetricHashJoin|GlobalLimit)\w*|\w+WithState\w*)\b"
)
#: The operator of an aggregation that emits its groups: in update mode each time that they have changed.
_EMITS_GROUPS = re.compile(r"(?:SessionWindow)?StateStoreSave")
#: A column of event times with a watermark, as in "window#8-T1000ms".
_EVENT_TIME = re.compile(r"#\d+L?-T\d+ms")


@dataclass(frozen=True, slots=True)
class TaskState:
    """What a task's plan says of its state."""

    keeps: bool
    aggregates: bool = False
    chains: bool = False  #: whether it keeps state of groups that it aggregates itself
    completes: bool = True  #: whether a watermark tells when each of its groups is complete


def task_state(plan: str) -> TaskState:
    """Return what a physical plan, as `explain()` shows it of a streaming DataFrame, says of state."""
    return TaskState(keeps_state(plan), aggregates(plan), chains(plan), completes(plan))


def chained(states: Mapping[str, TaskState], upstream: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the tasks whose groups an operator with state reads, in their own plans or downstream, there directly or
    through tasks without state; each with the task of that operator. In update mode, it would count a group each time
    that it has changed.

    Args:
        states: by task, inputs first.
        upstream: the inputs of each task.

    """
    found = {task: task for task, state in states.items() if state.chains}
    groups: dict[str, set[str]] = {}  #: the tasks whose groups are in a task's output
    for task, state in states.items():
        read = set().union(*(groups[name] for name in upstream[task]))
        if state.keeps:
            for name in read:
                found.setdefault(name, task)
        groups[task] = {task} if state.aggregates else set() if state.keeps else read
    return found


def keeps_state(plan: str) -> bool:
    """Return whether a physical plan, as `explain()` shows it of a streaming DataFrame, has an operator with state."""
    return _KEEPS_STATE.search(plan) is not None


def aggregates(plan: str) -> bool:
    """Return whether a physical plan has an aggregation: in update mode it emits a group each time that it has
    changed."""
    return any(_EMITS_GROUPS.fullmatch(node.operator) for node in nodes_of(plan))


def completes(plan: str) -> bool:
    """Return whether each aggregation of a physical plan groups by a column of event times with a watermark."""
    nodes = list(nodes_of(plan))
    emitting = (at for at, node in enumerate(nodes) if _EMITS_GROUPS.fullmatch(node.operator))
    return all(any(_EVENT_TIME.search(_keys(node)) for node in [*above(nodes, at)][:1]) for at in emitting)


def _keys(aggregate: Node) -> str:
    """Return what an aggregation groups by, as text. Its functions, behind that, may have columns with a watermark,
    too, which says nothing of when a group is complete."""
    keys, _, _ = aggregate.text.partition("functions=")
    return keys


def chains(plan: str) -> bool:
    """Return whether a physical plan has an operator with state that reads the groups of an aggregation: in update mode
    it would count, join or keep a group each time that it has changed."""
    nodes = list(nodes_of(plan))
    emitting = (at for at, node in enumerate(nodes) if _EMITS_GROUPS.fullmatch(node.operator))
    return any(_KEEPS_STATE.fullmatch(node.operator) for at in emitting for node in above(nodes, at))


#: Operators that a state depends on.
_OF_STATE = re.compile(
    r"(?:Hash|ObjectHash|Sort)Aggregate|EventTimeWatermark|\w*StateStore\w*|StreamingDeduplicate\w*|MergingSessions|"
    r"UpdatingSessions"
)
#: Operators that do not change the rows that pass, but for the columns that they define or leave out; and those of
#: subqueries, with which dials are read on some servers.
_STATELESS = frozenset(
    {
        *("Project", "Filter", "CollectMetrics", "Exchange", "Sort", "StreamingRelation", "Scan"),
        *("Subquery", "LocalTableScan"),
    }
)
_COLUMN = re.compile(r"([\w.$`]+)#(\d+)L?(-T\d+ms)?")
#: What differs between two plans of one recipe.
_OF_A_RUN = re.compile(
    r"state info \[[^\]]*\]|\[plan_id=\d+\]|(?:Append|Update|Complete)(?:, -?\d+)*|\*?\(\d+\) |"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def state_signature(plan: str) -> str | None:
    """Return a signature of a task's state from its physical plan, equal if one may go on with the state of the other.

    Such plans may differ in their filters, and in the columns that no operator with state reads.

    Spark itself compares only the types of what is kept: with another sum of the same type it would go on, too. None:
    the task keeps no state, or the plan does not tell what it means: functions in Python are only named there, of
    several inputs columns may have the same name, and the text may be cut.
    """
    if not keeps_state(plan) or is_cut(plan):
        return None
    nodes = list(nodes_of(plan))
    inputs = [node for node in nodes if node.operator == "Generate"]
    if len(inputs) > 1 or any("from_json(" not in node.text for node in inputs):
        return None
    others = (node.operator for node in nodes if node.operator not in _STATELESS and node.operator != "Generate")
    if not all(_OF_STATE.fullmatch(operator) for operator in others):
        return None
    definitions: dict[str, str] = {}
    for node in nodes:
        for items in lists_of(node.text) if node.operator == "Project" else ():
            for item in items:
                named = NAMED.match(item)
                if named is not None and named["expression"] is not None:
                    definitions[named["id"]] = named["expression"]

    def meaning(text: str, depth: int = 0) -> str:
        def of(column: re.Match[str]) -> str:
            name, id, watermark = column.groups()
            if id in definitions and depth < 20:
                return f"({meaning(definitions[id], depth + 1)}){watermark or ''}"
            return f"{name}{watermark or ''}"

        return _COLUMN.sub(of, text)

    kept = [f"{node.operator}{_OF_A_RUN.sub('', node.text)}" for node in nodes if _OF_STATE.fullmatch(node.operator)]
    return "\n".join(meaning(line) for line in kept)


def stateful_operators(plan: str) -> list[str]:
    """Return the operators of a physical plan that keep state."""
    return [node.operator for node in nodes_of(plan) if _KEEPS_STATE.fullmatch(node.operator)]


#: Operators whose state is a table with one row for each of their keys, which `assigned_state.scala` can divide.
_DIVISIBLE = re.compile(r"StateStore(?:Save|Restore)|StreamingDeduplicate(?:WithinWatermark)?")


def state_columns(plan: str) -> frozenset[str]:
    """Return the input columns that are part of every state key; empty if the plan keeps state otherwise (sessions,
    joins) or does not tell. Rows that differ in one of them never share state.

    Args:
        plan: the physical plan, as `explain()` shows it of a streaming DataFrame.

    """
    nodes = list(nodes_of(plan))
    inputs = [node for node in nodes if node.operator == "Generate"]
    keeping = [node for node in nodes if _KEEPS_STATE.fullmatch(node.operator)]
    if len(inputs) != 1 or "from_json(" not in inputs[0].text:
        return frozenset()
    if not keeping or not all(_DIVISIBLE.fullmatch(node.operator) for node in keeping):
        return frozenset()
    read = set(_plain((lists_of(inputs[0].text) or [[]])[-1]))
    common = set.intersection(*(set(_plain((lists_of(node.text) or [[]])[0])) for node in keeping))
    return frozenset(name for name, _ in common & read)


def _plain(items: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and id of each column of a list, without expressions, which another operator computes under other ids."""
    for item in items:
        if (column := _COLUMN.fullmatch(item)) is not None:
            yield column[1], column[2]


# --- Keys of results --------------------------------------------------------------------------------------------------
# Which columns tell the rows of a result apart: a query that groups writes a row again whenever its group has changed.
#
# From the analyzed plan, as `plan_text` reads it. Pure.

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
    """Return the columns of a result that have the values of the groups it is aggregated by; () if it is one row.

    None where each row stands for itself, where the columns do not have all groups, so that nothing tells rows of
    different ones apart, or where the text is cut.

    Args:
        plan: the analyzed logical plan as text, from the line with the columns on.
        inputs: these columns of the stream that it reads, if another task aggregates.

    """
    if is_cut(plan):
        return None
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
    """Return the projections above the first operator that combines rows or reads them, and that operator."""
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
    """Return the output of a projection."""
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


# --- Results in parts -------------------------------------------------------------------------------------------------
# Which results can be computed in parts, by instances that share the rows of a group.
#
# From the plans, as `plan_text` reads them: one aggregation by groups that the result names, of counts, sums, least and
# greatest numbers, and means with their counts. Everything below it treats each row by itself.


#: An aggregate over single rows; others of its names have a mark of their own, such as "distinct".
_OVER_ROWS = re.compile(r"^(count|count_if|sum|min|max|avg)\((?!distinct )(.+)\)$", re.DOTALL | re.IGNORECASE)
#: A column alone.
_ALONE = re.compile(r"^[^#()]+#(\d+)L?(?:-T\d+ms)?$")
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
            column = _ALONE.match(text)
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
