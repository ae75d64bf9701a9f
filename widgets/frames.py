"""Tidy pandas frames of a recording: one observation a row, ready for a chart or a table. Pure.

Every function takes the lines of a recording (one a controller cycle). Column `t` is seconds since its first line.
CPU is % of one core, rates are rows/s, accuracies are fractions of 1. A frame without observations has its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from qod_magics.recordings.lines import events as recorded_events
from qod_magics.recordings.lines import queries, sources, streams
from qod_magics.recordings.phases import Line, Lines, is_repeated, period_s, phases, seconds
from qod_magics.recordings.verdict import overload_lag

OTHER = "other processes"
MEASURED, PLANNED, MINIMUM = "measured", "planned", "minimum"
ARRIVING, READ, PROCESSED = "arriving", "read", "processed"

LAG_PERIODS = 2

#: what a reader of a chart wants to see; warm-ups and the controller's own troubles are in its log
SHOWN = (
    "move",
    "task-manager-up",
    "task-manager-lost",
    "query-failed",
    "query-stalled",
    "query-restarted",
    "reports-missing",
    "starved",
    "dial-fallback",
)
#: of these, what is wrong rather than news
ALARMING = frozenset(
    {"task-manager-lost", "query-failed", "query-stalled", "reports-missing", "starved", "dial-fallback"}
)


def tasks(lines: Lines) -> tuple[str, ...]:
    """Every task of the run: sources first, then the others, each in order of first appearance."""
    found = dict.fromkeys(task["id"] for line in lines for task in line["snapshot"]["tasks"])
    roots = {source for line in lines for source in sources(line)}
    return tuple(sorted(found, key=lambda task: task not in roots))


def edges(lines: Lines) -> tuple[str, ...]:
    """Every source and stream ("from>to") of the run that was measured: sources first, in order of the tasks."""
    measured = {name for line in lines for what in ("lag", "dropped", "counts") for name in _measured(line, what)}
    declared = dict.fromkeys(name for line in lines for name in (*sources(line), *streams(line)))
    known = [name for name in declared if name in measured]
    return tuple(sorted([*known, *sorted(measured - set(known))], key=lambda name: ">" in name))


def cpu(lines: Lines) -> pd.DataFrame:
    """t, task_manager, task, cpu: CPU by task manager and task; the rest of its CPU is the task 'other processes'.

    A task manager has rows from the cycle in which it joins; 0 while it is gone.
    """
    rows: list[tuple[float, str, str, float]] = []
    order = (*tasks(lines), OTHER)
    seen: dict[str, None] = {}
    for t, line in zip(seconds(lines), lines, strict=True):
        there = {manager["id"]: manager["cpu"] for manager in line["snapshot"]["task_managers"]}
        seen |= dict.fromkeys(there)
        for manager in seen:
            used = dict.fromkeys(order, 0.0)
            for instance in line["snapshot"]["instances"]:
                if instance["task_manager"] == manager:
                    used[instance["task"]] += instance["cpu"]
            used[OTHER] = max(there.get(manager, 0.0) - sum(used.values()), 0.0)
            rows += [(t, manager, task, value) for task, value in used.items()]
    return pd.DataFrame(rows, columns=["t", "task_manager", "task", "cpu"])


def capacity(lines: Lines) -> pd.DataFrame:
    """t, task_manager, capacity: 100 * cores from the cycle in which it joins; missing while it is gone."""
    rows: list[tuple[float, str, float | None]] = []
    seen: dict[str, None] = {}
    for t, line in zip(seconds(lines), lines, strict=True):
        there = {manager["id"]: 100.0 * manager["cores"] for manager in line["snapshot"]["task_managers"]}
        seen |= dict.fromkeys(there)
        rows += [(t, manager, there.get(manager)) for manager in seen]
    return pd.DataFrame(rows, columns=["t", "task_manager", "capacity"]).astype({"capacity": float})


def accuracy(lines: Lines) -> pd.DataFrame:
    """t, query, kind, accuracy.

    kind: measured (over the cycle that ends at t; absent without input), planned (the desired accuracy in force from
    t), minimum.
    """
    rows = []
    for t, line in zip(seconds(lines), lines, strict=True):
        planned = (line.get("plan") or {}).get("desired", {})
        for query, task in queries(line).items():
            values = {
                MEASURED: _measured(line, "accuracy").get(query),
                PLANNED: planned.get(query),
                MINIMUM: task["min_accuracy"],
            }
            rows += [(t, query, kind, value) for kind, value in values.items() if value is not None]
    return pd.DataFrame(rows, columns=["t", "query", "kind", "accuracy"])


def throughput(lines: Lines) -> pd.DataFrame:
    """t, source, kind, rate (rows/s).

    kind: arriving (at the broker), read (processed + dropped since the cycle before; absent where there are no
    counts), processed (what the source's instances took in after its shedder).
    """
    rows: list[tuple[float, str, str, float]] = []
    before: dict[str, tuple[float, int]] = {}  # by source: when its rows were counted last, and how many it had read
    for t, line in zip(seconds(lines), lines, strict=True):
        for source in sources(line):
            arriving = _measured(line, "input_rate").get(source)
            if arriving is not None:
                rows.append((t, source, ARRIVING, float(arriving)))
            if (count := _measured(line, "counts").get(source)) and not is_repeated(line):
                read = count["processed"] + count["dropped"]
                since, earlier = before.get(source, (t, read))
                if t > since:
                    rows.append((t, source, READ, (read - earlier) / (t - since)))
                before[source] = (t, read)
            taken = sum(i["in_rate"] for i in line["snapshot"]["instances"] if i["task"] == source)
            rows.append((t, source, PROCESSED, float(taken)))
    return pd.DataFrame(rows, columns=["t", "source", "kind", "rate"])


def lag(lines: Lines) -> pd.DataFrame:
    """t, edge, lag, bound (rows): rows not yet read, and what 2 periods of input would be (missing: rate unknown)."""
    rows = []
    for t, line in zip(seconds(lines), lines, strict=True):
        rates = _measured(line, "input_rate")
        for edge, value in _measured(line, "lag").items():
            rate = rates.get(edge)
            rows.append((t, edge, value, None if rate is None else LAG_PERIODS * period_s(line) * rate))
    return pd.DataFrame(rows, columns=["t", "edge", "lag", "bound"]).astype({"bound": float})


def dropped(lines: Lines) -> pd.DataFrame:
    """t, edge, rows: rows dropped since the start, by source and stream."""
    rows = [
        (t, edge, value)
        for t, line in zip(seconds(lines), lines, strict=True)
        for edge, value in _measured(line, "dropped").items()
    ]
    return pd.DataFrame(rows, columns=["t", "edge", "rows"])


def phase_bands(lines: Lines) -> pd.DataFrame:
    """phase, start, end (seconds): the named phases in order. A line stands for the cycle that it ends."""
    at = seconds(lines)
    rows = [(part.name, at[max(part.first - 1, 0)], at[part.last]) for part in phases(lines) if part.name]
    return pd.DataFrame(rows, columns=["phase", "start", "end"])


def events(lines: Lines) -> pd.DataFrame:
    """t, kind, label: what happened to the cluster, in order; what only repeats in the next cycle is left out."""
    at = seconds(lines)
    rows: list[tuple[float, str, str]] = []
    last_seen: dict[str, int] = {}
    for index, event in recorded_events(lines, *SHOWN):
        label = event_label(event)
        if last_seen.get(label, -2) < index - 1:
            rows.append((at[index], str(event.get("kind")), label))
        last_seen[label] = index
    return pd.DataFrame(rows, columns=["t", "kind", "label"])


def event_label(event: Mapping[str, Any]) -> str:
    """A few words for a chart."""
    kind = str(event.get("kind"))
    what = str(next((event[key] for key in ("instance", "task_manager", "query", "task", "id") if event.get(key)), ""))
    match kind:
        case "move":
            return f"{what} → {event.get('to')}"
        case "task-manager-up":
            return f"{what} joins"
        case "task-manager-lost":
            return f"{what} lost"
        case "query-failed" | "query-restarted":
            return f"{what} {kind.removeprefix('query-')}"
        case "query-stalled":
            return f"{what} stands still"
        case "reports-missing":
            return f"{what} not counted"
        case _:
            return f"{what} {kind}".strip()


def moves(lines: Lines) -> pd.DataFrame:
    """t, instance, from, to, took_s, why: a row a move."""
    at = seconds(lines)
    rows = [
        (at[index], *(event.get(key) for key in ("instance", "from", "to", "took_s", "why")))
        for index, event in recorded_events(lines, "move")
    ]
    return pd.DataFrame(rows, columns=["t", "instance", "from", "to", "took_s", "why"])


def books(lines: Lines) -> pd.DataFrame:
    """edge, arrived, processed, dropped, waiting, unreported: the last counts of each source and stream, in rows."""
    columns = ["arrived", "processed", "dropped", "waiting", "unreported"]
    last: dict[str, Mapping[str, int]] = {}
    for line in lines:
        last.update(_measured(line, "counts"))
    rows = [(edge, *(last[edge].get(column, 0) for column in columns)) for edge in edges(lines) if edge in last]
    return pd.DataFrame(rows, columns=["edge", *columns])


def comparison(run: Lines, off: Lines) -> pd.DataFrame:
    """Columns t (seconds since the overload began), controller ("on", "off"), lag (rows, all sources and streams)."""
    rows = [
        (t, controller, rows) for controller, lines in (("off", off), ("on", run)) for t, rows in overload_lag(lines)
    ]
    return pd.DataFrame(rows, columns=["t", "controller", "lag"])


def _measured(line: Line, what: str) -> Mapping[str, Any]:
    return (line.get("measured") or {}).get(what) or {}
