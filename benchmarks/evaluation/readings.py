"""What the evaluation reads from a recording. Pure.

Criteria of the thesis of Stream Economics (section 5.2): restrictions are always respected, the reaction to a change of
load is fast both ways, placement comes to use what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, pstdev, quantiles
from typing import Any

from qod_magics.recordings.accuracy_errors import accuracy_errors
from qod_magics.recordings.lines import queries
from qod_magics.recordings.phases import Line, Lines, Phase, is_repeated, period_s, phases, seconds

NEAR = 0.05  #: measured and planned accuracy that are so near are said to be the same, fraction of 1
LAG_PERIODS = 1.0


def series(lines: Lines) -> list[dict[str, Any]]:
    """For charts: of each cycle its second, phase, and by query measured, planned and minimum accuracy."""
    at = seconds(lines)
    return [
        {
            "t": round(at[index], 2),
            "phase": line.get("phase"),
            "accuracy": {q: _measured(line, "accuracy").get(q) for q in queries(line)},
            "planned": {q: (line.get("plan") or {}).get("desired", {}).get(q) for q in queries(line)},
            "minimum": {q: task["min_accuracy"] for q, task in queries(line).items()},
            "lag": _measured(line, "lag"),
            "input_rate": _measured(line, "input_rate"),
            "cpu": {m["id"]: m["cpu"] for m in line["snapshot"]["task_managers"]},
        }
        for index, line in enumerate(lines)
        if not is_repeated(line)
    ]


def measured_part(lines: Lines) -> Lines:
    """Without what came before the first phase after `calm`: there costs are measured, and nothing is shed."""
    return lines[next((i for i, line in enumerate(lines) if line.get("phase") not in (None, "calm")), 0) :]


def worst_margin(lines: Lines) -> dict[str, float]:
    """By query, measured accuracy less the minimum at its worst, over all cycles in which nothing warms up."""
    found: dict[str, float] = {}
    for line in lines:
        if is_repeated(line) or any(i.get("warming_up") for i in line["snapshot"]["instances"]):
            continue
        for query, task in queries(line).items():
            accuracy = _measured(line, "accuracy").get(query)
            if accuracy is not None:
                found[query] = min(found.get(query, 1.0), accuracy - task["min_accuracy"])
    return found


def reaction_s(lines: Lines, name: str) -> float | None:
    """Seconds from the start of a phase to the end of its first cycle from which on each query runs at its planned
    accuracy (within `NEAR`) and the lag of every source stays below one period of input, three cycles at least.

    None where that never came.
    """
    at = seconds(lines)
    phase = _named(lines, name)
    if phase is None:
        return None
    calm = [
        index
        for index in range(phase.first, phase.last + 1)
        if not is_repeated(lines[index]) and _is_calm(lines[index])
    ]
    for first in calm:
        if all(later in calm or is_repeated(lines[later]) for later in range(first, min(first + 3, phase.last + 1))):
            return at[first] - phase.start_s
    return None


def moves(lines: Lines) -> list[dict[str, Any]]:
    """The moves: second, phase, instance, from, to, and how long each took."""
    at = seconds(lines)
    return [
        {"t": round(at[index], 1), "phase": line.get("phase"), **event}
        for index, line in enumerate(lines)
        for event in line.get("events") or ()
        if event.get("kind") == "move"
    ]


def homes(line: Line) -> dict[str, str]:
    """The task manager of each instance."""
    return {i["id"]: i["task_manager"] for i in line["snapshot"]["instances"]}


def source_errors(lines: Lines) -> dict[str, float]:
    """Mean |curAc - ac| of each source over the run, as the verdict has it."""
    found: dict[str, list[float]] = {}
    for _, source, error in accuracy_errors(lines):
        found.setdefault(source, []).append(error)
    return {source: fmean(values) for source, values in found.items()}


def source_error_spread(lines: Lines, worst: int = 5) -> tuple[float, float]:
    """Of the source with the largest mean |curAc - ac|, the median, and what share of the sum its worst cycles are."""
    found: dict[str, list[float]] = {}
    for _, source, error in accuracy_errors(lines):
        found.setdefault(source, []).append(error)
    errors = sorted(max(found.values(), key=fmean, default=[0.0]), reverse=True)
    return median(errors), sum(errors[:worst]) / max(sum(errors), 1e-9)


def mean_accuracy(lines: Lines, name: str, last_cycles: int = 4) -> dict[str, float]:
    """Mean measured accuracy of each query over the last cycles of a phase."""
    phase = _named(lines, name)
    if phase is None:
        return {}
    part = [line for line in lines[phase.first : phase.last + 1] if not is_repeated(line)][-last_cycles:]
    found: dict[str, list[float]] = {}
    for line in part:
        for query in queries(line):
            accuracy = _measured(line, "accuracy").get(query)
            if accuracy is not None:
                found.setdefault(query, []).append(accuracy)
    return {query: fmean(values) for query, values in found.items()}


def most_lag_periods(lines: Lines, name: str | None = None) -> float:
    """The longest lag of a source in periods of its input, over a phase or the whole run."""
    return max(
        (
            lag / (period_s(line) * rate)
            for line in lines
            if not is_repeated(line) and (name is None or line.get("phase") == name)
            for edge, lag in _measured(line, "lag").items()
            if ">" not in edge and (rate := _measured(line, "input_rate").get(edge) or 0.0) > 0
        ),
        default=0.0,
    )


def drained_s(lines: Lines, name: str) -> float | None:
    """Seconds from the start of a phase to its first cycle from which on the lag of every source stays below one period
    of input; None where that never came."""
    at = seconds(lines)
    phase = _named(lines, name)
    if phase is None:
        return None
    part = [index for index in range(phase.first, phase.last + 1) if not is_repeated(lines[index])]
    behind = [place for place, index in enumerate(part) if any(share > LAG_PERIODS for share in _lags(lines[index]))]
    if not behind:
        return 0.0
    return at[part[behind[-1] + 1]] - phase.start_s if behind[-1] + 1 < len(part) else None


def errors_of(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of (estimate, truth) pairs: mean of the relative error, its spread (standard deviation) and the 90th percentile
    of its size, in %."""
    relative = [100.0 * (estimate - truth) / truth for estimate, truth in pairs if truth > 0]
    sizes = [abs(each) for each in relative]
    return {
        "mean": fmean(relative),
        "spread": pstdev(relative),
        "p90": quantiles(sizes, n=10)[8] if len(sizes) > 1 else sizes[0],
        "count": float(len(relative)),
    }


def _named(lines: Lines, name: str) -> Phase | None:
    return next((phase for phase in phases(lines) if phase.name == name), None)


def _is_calm(line: Line) -> bool:
    plan = (line.get("plan") or {}).get("desired", {})
    near = all(
        (accuracy := _measured(line, "accuracy").get(query)) is not None and abs(accuracy - plan.get(query, 0)) <= NEAR
        for query in queries(line)
    )
    return near and all(share <= LAG_PERIODS for share in _lags(line))


def _lags(line: Line) -> Iterator[float]:
    for edge, lag in _measured(line, "lag").items():
        rate = _measured(line, "input_rate").get(edge)
        if ">" not in edge and rate:
            yield lag / (period_s(line) * rate)


def _measured(line: Line, what: str) -> Mapping[str, Any]:
    return (line.get("measured") or {}).get(what) or {}
