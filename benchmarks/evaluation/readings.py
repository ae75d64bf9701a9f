"""What the evaluation reads from a recording. Pure.

Criteria of the thesis of Stream Economics (section 5.2): restrictions are always respected, the reaction to a change of
load is fast both ways, placement ends up using all resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev, quantiles
from typing import Any

from qod_magics.controller.record import Record, Records
from qod_magics.recordings.criteria import accuracy_errors
from qod_magics.recordings.reading import Phase, events, is_warming_up, phases, queries, seconds

NEAR = 0.05  #: difference up to which measured and planned accuracy count as equal, fraction of 1
LAG_PERIODS = 1.0


def series(records: Records) -> list[dict[str, Any]]:
    """For charts, by cycle: second, phase, lag, rates, CPU, and by query measured, planned and minimum accuracy."""
    at = seconds(records)
    return [
        {
            "t": round(at[index], 2),
            "phase": record.phase or None,
            "accuracy": {name: record.measured.accuracy.get(name) for name in queries(record)},
            "planned": {name: record.plan.desired.get(name) for name in queries(record)},
            "minimum": {name: query.min_accuracy for name, query in queries(record).items()},
            "lag": dict(record.measured.lag),
            "input_rate": dict(record.measured.input_rate),
            "cpu": {manager.id: manager.cpu for manager in record.snapshot.task_managers},
        }
        for index, record in enumerate(records)
        if not record.repeated
    ]


def measured_part(records: Records) -> Records:
    """From the first phase after `calm` on: until then costs are calibrated, and nothing is shed."""
    return records[next((i for i, record in enumerate(records) if record.phase not in ("", "calm")), 0) :]


def worst_margin(records: Records) -> dict[str, float]:
    """By query, measured accuracy minus the minimum at its worst, over all cycles without warm-up."""
    found: dict[str, float] = {}
    for record in records:
        if record.repeated or is_warming_up(record):
            continue
        for name, query in queries(record).items():
            accuracy = record.measured.accuracy.get(name)
            if accuracy is not None:
                found[name] = min(found.get(name, 1.0), accuracy - query.min_accuracy)
    return found


def reaction_s(records: Records, name: str) -> float | None:
    """Seconds from the start of a phase to the end of its first cycle from which on each query runs at its planned
    accuracy (within `NEAR`) and the lag of every source stays below one period of input, three cycles at least.

    None if never.
    """
    at = seconds(records)
    phase = _named(records, name)
    if phase is None:
        return None
    calm = [
        index
        for index in range(phase.first, phase.last + 1)
        if not records[index].repeated and _is_calm(records[index])
    ]
    for first in calm:
        if all(later in calm or records[later].repeated for later in range(first, min(first + 3, phase.last + 1))):
            return at[first] - phase.start_s
    return None


def moves(records: Records) -> list[dict[str, Any]]:
    """The moves: second, phase, instance, from, to, and how long each took."""
    at = seconds(records)
    return [
        {"t": round(at[index], 1), "phase": records[index].phase or None, **event.to_json()}
        for index, event in events(records, "move")
    ]


def homes(record: Record) -> dict[str, str]:
    """The task manager of each instance."""
    return {instance.id: instance.task_manager for instance in record.snapshot.instances}


def source_errors(records: Records) -> dict[str, float]:
    """Mean |curAc - ac| of each source over the run."""
    found: dict[str, list[float]] = {}
    for _, source, error in accuracy_errors(records, by_rates=True):
        found.setdefault(source, []).append(error)
    return {source: fmean(values) for source, values in found.items()}


def mean_accuracy(records: Records, name: str, last_cycles: int = 4) -> dict[str, float]:
    """Mean measured accuracy of each query over the last cycles of a phase."""
    phase = _named(records, name)
    if phase is None:
        return {}
    part = [record for record in records[phase.first : phase.last + 1] if not record.repeated][-last_cycles:]
    found: dict[str, list[float]] = {}
    for record in part:
        for query in queries(record):
            accuracy = record.measured.accuracy.get(query)
            if accuracy is not None:
                found.setdefault(query, []).append(accuracy)
    return {query: fmean(values) for query, values in found.items()}


def most_lag_periods(records: Records, name: str | None = None) -> float:
    """The longest lag of a source in periods of its input, over a phase or the whole run."""
    return max(
        (
            lag / (record.period_s * rate)
            for record in records
            if not record.repeated and (name is None or record.phase == name)
            for edge, lag in record.measured.lag.items()
            if ">" not in edge and (rate := record.measured.input_rate.get(edge) or 0.0) > 0
        ),
        default=0.0,
    )


def errors_of(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Relative errors of (estimate, truth) pairs, in %: mean, spread (standard deviation) and the 90th percentile of
    their size."""
    relative = [100.0 * (estimate - truth) / truth for estimate, truth in pairs if truth > 0]
    sizes = [abs(each) for each in relative]
    return {
        "mean": fmean(relative),
        "spread": pstdev(relative),
        "p90": quantiles(sizes, n=10)[8] if len(sizes) > 1 else sizes[0],
        "count": float(len(relative)),
    }


def _named(records: Records, name: str) -> Phase | None:
    return next((phase for phase in phases(records) if phase.name == name), None)


def _is_calm(record: Record) -> bool:
    measured, planned = record.measured.accuracy, record.plan.desired
    near = all(
        (accuracy := measured.get(query)) is not None and abs(accuracy - planned.get(query, 0)) <= NEAR
        for query in queries(record)
    )
    return near and all(share <= LAG_PERIODS for share in _lags(record))


def _lags(record: Record) -> Iterator[float]:
    for edge, lag in record.measured.lag.items():
        rate = record.measured.input_rate.get(edge)
        if ">" not in edge and rate:
            yield lag / (record.period_s * rate)
