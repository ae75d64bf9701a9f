"""Tidy pandas tables of a recording: one observation a row, ready for a chart or a table. Pure.

Every function takes the records of a run (one a controller cycle). Column `t` is seconds since the first one.
CPU is % of one core, rates are rows/s, accuracies are fractions of 1. A table without observations has its columns.
"""

from __future__ import annotations

from statistics import median

import pandas as pd

from qod_magics.controller.record import Records
from qod_magics.core.runtime import MISFITS, REPEATED, Count, Event
from qod_magics.recordings.frame import OTHER
from qod_magics.recordings.reading import events as recorded_events
from qod_magics.recordings.reading import phases, queries, seconds, sources, streams
from qod_magics.recordings.verdict import overload_lag

MEASURED, PLANNED, MINIMUM = "measured", "planned", "minimum"
LATENCY, TARGET = "95 % of the rows", "target"
ARRIVING, READ, PROCESSED = "arriving", "read", "processed"

LAG_PERIODS = 2

#: events shown in charts; warm-ups and the controller's own errors are only in its log
SHOWN = (
    "move",
    "scale",
    "fuse",
    "unfuse",
    "stop",
    "task-manager-up",
    "task-manager-removed",
    "task-manager-lost",
    "query-failed",
    "query-stalled",
    "query-restarted",
    "reports-missing",
    "starved",
    "dial-fallback",
)
#: the ones that report a problem
ALARMING = frozenset(
    {"task-manager-lost", "query-failed", "query-stalled", "reports-missing", "starved", "dial-fallback"}
)


def tasks(records: Records) -> tuple[str, ...]:
    """Return every task of the run: sources first, then the others, each in order of first appearance."""
    found = dict.fromkeys(task.id for record in records for task in record.snapshot.tasks)
    roots = {source for record in records for source in sources(record)}
    return tuple(sorted(found, key=lambda task: task not in roots))


def edges(records: Records) -> tuple[str, ...]:
    """Return every source and stream ("from>to") of the run that was measured: sources first, in order of the tasks."""
    measured = {
        name
        for record in records
        for values in (record.measured.lag, record.measured.dropped, record.measured.counts)
        for name in values
    }
    declared = dict.fromkeys(name for record in records for name in (*sources(record), *streams(record)))
    known = [name for name in declared if name in measured]
    return tuple(sorted([*known, *sorted(measured - set(known))], key=lambda name: ">" in name))


def cpu(records: Records) -> pd.DataFrame:
    """t, task_manager, task, cpu: CPU by task manager and task; the rest of its CPU is the task 'other processes'.

    A task manager has rows from the cycle in which it joins; 0 while it is gone.
    """
    rows: list[tuple[float, str, str, float]] = []
    order = (*tasks(records), OTHER)
    seen: dict[str, None] = {}
    for t, record in zip(seconds(records), records, strict=True):
        there = {manager.id: manager.cpu for manager in record.snapshot.task_managers}
        seen |= dict.fromkeys(there)
        for manager in seen:
            used = dict.fromkeys(order, 0.0)
            for instance in record.snapshot.instances:
                if instance.task_manager == manager:
                    used[instance.task] += instance.cpu
            used[OTHER] = max(there.get(manager, 0.0) - sum(used.values()), 0.0)
            rows += [(t, manager, task, value) for task, value in used.items()]
    return pd.DataFrame(rows, columns=["t", "task_manager", "task", "cpu"])


def capacity(records: Records) -> pd.DataFrame:
    """t, task_manager, capacity: 100 * cores from the cycle in which it joins; missing while it is gone."""
    rows: list[tuple[float, str, float | None]] = []
    seen: dict[str, None] = {}
    for t, record in zip(seconds(records), records, strict=True):
        there = {manager.id: 100.0 * manager.cores for manager in record.snapshot.task_managers}
        seen |= dict.fromkeys(there)
        rows += [(t, manager, there.get(manager)) for manager in seen]
    return pd.DataFrame(rows, columns=["t", "task_manager", "capacity"]).astype({"capacity": float})


def accuracy(records: Records) -> pd.DataFrame:
    """t, query, kind, accuracy.

    kind: measured (over the cycle that ends at t; absent without input), planned (the desired accuracy in force from
    t), minimum.
    """
    rows = []
    for t, record in zip(seconds(records), records, strict=True):
        for name, query in queries(record).items():
            values = {
                MEASURED: record.measured.accuracy.get(name),
                PLANNED: record.plan.desired.get(name),
                MINIMUM: query.min_accuracy,
            }
            rows += [(t, name, kind, value) for kind, value in values.items() if value is not None]
    return pd.DataFrame(rows, columns=["t", "query", "kind", "accuracy"])


def latency(records: Records) -> pd.DataFrame:
    """t, query, kind, seconds.

    kind: 95 % of the rows (the 95th percentile of the latency in the last results), target (the maximum of that).
    """
    rows = []
    for t, record in zip(seconds(records), records, strict=True):
        for name, query in queries(record).items():
            values = {LATENCY: record.measured.latency_s.get(name), TARGET: query.max_latency_s}
            rows += [(t, name, kind, value) for kind, value in values.items() if value is not None]
    return pd.DataFrame(rows, columns=["t", "query", "kind", "seconds"])


def latencies(records: Records) -> pd.DataFrame:
    """query, p50, p95, target, missed, oldest: by query with a known latency, medians over the cycles of its 50th and
    95th percentile, its last target, the share of the cycles with a target in which the 95th percentile exceeded it,
    and the highest age of a row not in a result. Seconds; missing: not known."""
    rows = []
    for name in dict.fromkeys(name for record in records for name in queries(record)):
        seen = [(record, queries(record)[name]) for record in records if name in queries(record)]
        p95 = [(record.measured.latency_s.get(name), query.max_latency_s) for record, query in seen]
        known = [value for value, _ in p95 if value is not None]
        judged = [value > target for value, target in p95 if value is not None and target is not None]
        p50 = [query.p50_s for _, query in seen if query.p50_s is not None]
        oldest = [query.oldest_s for _, query in seen if query.oldest_s is not None]
        if known:
            missed = sum(judged) / len(judged) if judged else None
            median_50 = median(p50) if p50 else None
            rows.append((name, median_50, median(known), p95[-1][1], missed, max(oldest, default=None)))
    columns = ["query", "p50", "p95", "target", "missed", "oldest"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], float))


def throughput(records: Records) -> pd.DataFrame:
    """t, source, kind, rate (rows/s).

    kind: arriving (at the broker), read (processed + dropped since the cycle before; absent where there are no
    counts), processed (rows that passed the source's shedder).
    """
    rows: list[tuple[float, str, str, float]] = []
    before: dict[str, tuple[float, int]] = {}  # by source: time and rows read of its last count
    for t, record in zip(seconds(records), records, strict=True):
        for source in sources(record):
            arriving = record.measured.input_rate.get(source)
            if arriving is not None:
                rows.append((t, source, ARRIVING, float(arriving)))
            count = record.measured.counts.get(source)
            if count is not None and not record.repeated:
                read = count.processed + count.dropped
                since, earlier = before.get(source, (t, read))
                if t > since and read >= earlier:  # else it was declared again, and counts from 0
                    rows.append((t, source, READ, (read - earlier) / (t - since)))
                before[source] = (t, read)
            taken = sum(each.in_rate for each in record.snapshot.instances if each.task == source)
            rows.append((t, source, PROCESSED, float(taken)))
    return pd.DataFrame(rows, columns=["t", "source", "kind", "rate"])


def lag(records: Records) -> pd.DataFrame:
    """t, edge, lag, bound (rows): rows not yet read, and 2 periods of input as their bound (missing: rate unknown)."""
    rows = []
    for t, record in zip(seconds(records), records, strict=True):
        rates = record.measured.input_rate
        for edge, value in record.measured.lag.items():
            rate = rates.get(edge)
            rows.append((t, edge, value, None if rate is None else LAG_PERIODS * record.period_s * rate))
    return pd.DataFrame(rows, columns=["t", "edge", "lag", "bound"]).astype({"bound": float})


def dropped(records: Records) -> pd.DataFrame:
    """t, edge, rows: rows dropped since the start, by source and stream."""
    rows = [
        (t, edge, value)
        for t, record in zip(seconds(records), records, strict=True)
        for edge, value in record.measured.dropped.items()
    ]
    return pd.DataFrame(rows, columns=["t", "edge", "rows"])


def phase_bands(records: Records) -> pd.DataFrame:
    """phase, start, end (seconds): the named phases in order. A record stands for the cycle that it ends."""
    at = seconds(records)
    rows = [(part.name, at[max(part.first - 1, 0)], at[part.last]) for part in phases(records) if part.name]
    return pd.DataFrame(rows, columns=["phase", "start", "end"])


def events(records: Records) -> pd.DataFrame:
    """t, kind, label: cluster events in order, without repeats in consecutive cycles."""
    at = seconds(records)
    rows: list[tuple[float, str, str]] = []
    last_seen: dict[str, int] = {}
    for index, event in recorded_events(records, *SHOWN):
        label = event_label(event)
        if last_seen.get(label, -2) < index - 1:
            rows.append((at[index], event.kind, label))
        last_seen[label] = index
    return pd.DataFrame(rows, columns=["t", "kind", "label"])


def event_label(event: Event) -> str:
    """Return a short label for charts."""
    detail = event.detail
    named = ("instance", "task_manager", "query", "task", "id")
    what = str(next((detail[key] for key in named if detail.get(key)), ""))
    match event.kind:
        case "move":
            return f"{what} → {detail.get('to')}"
        case "scale":
            return f"{what} → {detail.get('to')} instances"
        case "fuse" | "unfuse" as kind:
            return f"{detail.get('from')}>{detail.get('to')} {'fused' if kind == 'fuse' else 'unfused'}"
        case "stop":
            return f"{what} suspended"
        case "task-manager-up":
            return f"{what} joins"
        case "task-manager-removed":
            return f"{what} leaves"
        case "task-manager-lost":
            return f"{what} lost"
        case "query-failed" | "query-restarted" as kind:
            return f"{what} {kind.removeprefix('query-')}"
        case "query-stalled":
            return f"{what} stalled"
        case "reports-missing":
            return f"{what} not counted"
        case kind:
            return f"{what} {kind}".strip()


def moves(records: Records) -> pd.DataFrame:
    """t, instance, from, to, took_s, why: one row per move."""
    at = seconds(records)
    rows = [
        (at[index], *(event.detail.get(key) for key in ("instance", "from", "to", "took_s", "why")))
        for index, event in recorded_events(records, "move")
    ]
    return pd.DataFrame(rows, columns=["t", "instance", "from", "to", "took_s", "why"])


def books(records: Records) -> pd.DataFrame:
    """edge, arrived, processed, dropped, waiting, unreported, and `MISFITS`, which are among those processed, and
    `REPEATED`: the last counts of each source and stream, in rows."""
    columns = ["arrived", "processed", "dropped", "waiting", "unreported", *MISFITS, *REPEATED]
    last: dict[str, Count] = {}
    for record in records:
        last.update(record.measured.counts)
    rows = [(edge, *(getattr(last[edge], column) for column in columns)) for edge in edges(records) if edge in last]
    return pd.DataFrame(rows, columns=["edge", *columns])


def comparison(run: Records, off: Records) -> pd.DataFrame:
    """Columns t (seconds since the overload began), controller ("on", "off"), lag (rows, all sources and streams)."""
    rows = [
        (t, controller, rows)
        for controller, records in (("off", off), ("on", run))
        for t, rows in overload_lag(records)
    ]
    return pd.DataFrame(rows, columns=["t", "controller", "lag"])
