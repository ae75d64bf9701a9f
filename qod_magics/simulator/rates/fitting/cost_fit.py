"""Costs of tasks by regression: CPU = fixed + cost per row read + cost per row processed. Pure.

`fit_line` is a robust non-negative least-squares fit (Huber's weights), since readings are noisy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np

from qod_magics.simulator.rates.fitting.readings import Load, RecordedReading

Array = np.ndarray[Any, np.dtype[Any]]

#: Huber's constant: standard deviations beyond which residuals count less.
HUBER = 1.345
ROUNDS = 20
#: Median absolute deviation of a normal distribution, in standard deviations.
_MAD = 0.6745
#: A column whose relative residual on the columns before it is below this is collinear with them.
APART = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """`y = sum of coefficient * column`, as fitted."""

    coefficients: tuple[float, ...]  #: by column, 0 or more
    errors: tuple[float, ...]  #: standard error, by column; inf where the column was left out
    spread: float  #: standard deviation of the residuals, robust, in the unit of y
    relative: float  #: the same for residual / fitted value
    count: int  #: rows of data


def fit_line(columns: Sequence[Array], y: Array) -> Line:
    """Fit `y` with the columns, all of the same length. Every coefficient is 0 without data.

    A column that is collinear with those before it gets 0: its cost is in theirs.
    """
    count, width = len(y), len(columns)
    if not count:
        return Line((0.0,) * width, (float("inf"),) * width, 0.0, 0.0, 0)
    used = _independent(columns)
    x = np.stack([columns[k] for k in used], axis=1)
    weights = np.ones(count)
    found = np.zeros(len(used))
    for _ in range(ROUNDS):
        before, found = found, _nonnegative(x, y, weights)
        residual = y - x @ found
        spread = _spread(residual)
        if spread <= 1e-12 or np.allclose(before, found, rtol=1e-9, atol=1e-12):
            break
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(residual), 1e-300))
    fitted = x @ found
    spread = _spread(y - fitted)
    relative = _spread((y - fitted)[fitted > 0] / fitted[fitted > 0]) if (fitted > 0).any() else 0.0
    inverse = np.linalg.pinv((x * weights[:, None]).T @ x)
    errors = spread * np.sqrt(np.maximum(np.diag(inverse), 0.0))
    values, every = [0.0] * width, [float("inf")] * width
    for position, k in enumerate(used):
        values[k], every[k] = float(found[position]), float(errors[position])
    return Line(tuple(values), tuple(every), spread, relative, count)


def _independent(columns: Sequence[Array]) -> list[int]:
    """Return the columns that are not collinear with those before them."""
    used: list[int] = []
    for k, column in enumerate(columns):
        norm = float(np.linalg.norm(column))
        if norm == 0.0:
            continue
        if used:
            basis = np.stack([columns[j] for j in used], axis=1)
            rest = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
            if float(np.linalg.norm(rest)) < APART * norm:
                continue
        used.append(k)
    return used or [0]


def _nonnegative(x: Array, y: Array, weights: Array) -> Array:
    """Return the weighted least-squares fit over the subset of columns that is best with no negative coefficient."""
    root = np.sqrt(weights)
    a, b = x * root[:, None], y * root
    best, least = np.zeros(x.shape[1]), float(b @ b)
    for size in range(1, x.shape[1] + 1):
        for subset in combinations(range(x.shape[1]), size):
            part = np.linalg.lstsq(a[:, subset], b, rcond=None)[0]
            if (part < 0).any():
                continue
            rest = b - a[:, subset] @ part
            if float(rest @ rest) < least - 1e-12:
                best, least = np.zeros(x.shape[1]), float(rest @ rest)
                best[list(subset)] = part
    return best


def _spread(residual: Array) -> float:
    """Return the robust standard deviation, from the median absolute residual."""
    return float(np.median(np.abs(residual)) / _MAD) if len(residual) else 0.0


#: Time from the start of an instance to its steady state, seconds.
STEADY_S = 20.0
#: Minimum number of reports: with fewer in steady state, or fewer with rows, the others count, too.
ENOUGH = 6
#: Relative standard error above which a coefficient is poorly determined.
_VAGUE = 0.5
#: Task managers whose costs differ by no more than this share count as alike.
ALIKE = 0.1
#: Starts under load that suffice to separate the CPU of a start from a slowdown that fades.
_MANY_STARTS = 3
#: Candidate time constants of the slowdown after a start, seconds.
_TIME_CONSTANTS_S = (3.0, 6.0, 12.0, 24.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one task."""

    fixed: float  #: cores
    read_us: float
    work_us: float
    line: Line
    note: str  #: what could not be separated; "" if all could

    def by(self, factor: float) -> Costs:
        """Return these costs on a task manager where a task costs `factor` times less."""
        return replace(self, fixed=self.fixed / factor, read_us=self.read_us / factor, work_us=self.work_us / factor)

    def cpu_s(self, reading: RecordedReading) -> float:
        """Return the CPU seconds that these costs predict for a report."""
        return self.fixed * reading.length_s + self.rows_s(reading)

    def rows_s(self, reading: RecordedReading) -> float:
        """Return the part of `cpu_s` that is for rows."""
        return (reading.read * self.read_us + reading.kept * self.work_us) * 1e-6 * reading.length_s


@dataclass(frozen=True, slots=True)
class Starts:
    """The cost of a start."""

    start_cpu_s: float
    slowdown: float
    warm_up_s: float
    count: int  #: starts with rows from the first report on
    note: str


@dataclass(frozen=True, slots=True)
class Overhead:
    """CPU of a task manager per instance, outside the instance."""

    cores: float
    error: float
    note: str


def task_costs(readings: Sequence[RecordedReading]) -> Costs:
    """Return the costs of a task, from its reports."""
    chosen = [reading for reading in readings if reading.age_s >= STEADY_S]
    if len(chosen) < ENOUGH:
        chosen = list(readings)
    with_rows = [reading for reading in chosen if reading.read > 0]
    if len(with_rows) >= ENOUGH:  # an idle instance uses less than the regression predicts
        chosen = with_rows
    kept = np.array([reading.kept for reading in chosen]) * 1e-6
    read = np.array([reading.read for reading in chosen]) * 1e-6
    line = fit_line((kept, np.ones(len(chosen)), read), np.array([reading.cpu for reading in chosen]) / 100.0)
    work_us, fixed, read_us = line.coefficients
    return Costs(fixed, read_us, work_us, line, _note(line, bool((read > 0).any())))


def _note(line: Line, rows: bool) -> str:
    work, fixed, read = line.errors
    notes = []
    if not rows:
        notes.append("it read no rows: their cost is unknown")
    elif not np.isfinite(fixed):
        notes.append("its rate hardly changed: fixed CPU can't be separated from that of rows")
    elif not np.isfinite(read):
        notes.append("read and processed rows went together: work_us is for both")
    elif read > _VAGUE * max(line.coefficients[2], 1e-9) or work > _VAGUE * max(line.coefficients[0], 1e-9):
        notes.append("read_us and work_us can hardly be separated")
    return "; ".join(notes)


def all_costs(readings: Sequence[RecordedReading]) -> tuple[dict[str, Costs], dict[str, float]]:
    """Return the costs of every task, and the cost factor of each task manager relative to the one with most reports.

    A task's costs are fitted to its reports from the task manager with most of them, and compared on the others.
    """
    by_task: dict[str, list[RecordedReading]] = {}
    for reading in readings:
        by_task.setdefault(reading.task, []).append(reading)
    homes = {task: Counter(r.manager for r in mine).most_common(1)[0][0] for task, mine in by_task.items()}
    costs = {task: task_costs([r for r in mine if r.manager == homes[task]]) for task, mine in by_task.items()}
    factors = dict.fromkeys((r.manager for r in readings), 1.0)
    home = Counter(r.manager for r in readings).most_common(1)[0][0] if readings else ""
    for manager in factors:
        ratios = [
            value
            for task, mine in by_task.items()
            if homes[task] == home
            and (value := _relative_cost([r for r in mine if r.manager == manager], costs[task])) is not None
        ]
        if manager != home and ratios and abs(median(ratios) - 1) > ALIKE:
            factors[manager] = median(ratios)
    return {task: each.by(factors[homes[task]]) for task, each in costs.items()}, factors


def _relative_cost(readings: Sequence[RecordedReading], costs: Costs) -> float | None:
    """Return the median ratio of measured to predicted CPU of these reports; None if there are too few."""
    ratios = [
        reading.cpu * reading.length_s / 100.0 / costs.cpu_s(reading)
        for reading in readings
        if reading.age_s >= STEADY_S and reading.read > 0 and costs.cpu_s(reading) > 0
    ]
    return median(ratios) if len(ratios) >= ENOUGH else None


def starts(
    readings: Sequence[RecordedReading], costs: Mapping[str, Costs], factors: Mapping[str, float], default: Starts
) -> Starts:
    """Return the cost of a start: the excess over their tasks' costs in reports soon after it; `default` if none has
    rows."""
    runs: dict[tuple[str, float], list[RecordedReading]] = {}
    for reading in readings:
        if reading.at_s - reading.started_s <= 2 * STEADY_S:
            runs.setdefault((reading.instance, reading.started_s), []).append(reading)
    early = [run for run in runs.values() if run[0].kept > 0 and run[0].since_s <= run[0].started_s]
    if not early:
        return default
    rows = [(number == 0, reading) for run in early for number, reading in enumerate(run)]
    first = np.array([float(new) for new, _ in rows])
    excess = np.array([r.cpu * r.length_s / 100.0 - factors[r.manager] * costs[r.task].cpu_s(r) for _, r in rows])
    if len(early) < _MANY_STARTS:
        line = fit_line((first,), excess)
        return Starts(line.coefficients[0], 1.0, default.warm_up_s, len(early), "too few to separate a slowdown")
    best: tuple[float, float, Line] | None = None
    for warm_up_s in _TIME_CONSTANTS_S:
        slow = np.array([factors[r.manager] * costs[r.task].rows_s(r) * _decay(r, warm_up_s) for _, r in rows])
        line = fit_line((first, slow), excess)
        left = float(np.abs(excess - np.stack((first, slow), axis=1) @ np.array(line.coefficients)).sum())
        if best is None or left < best[0] - 1e-9:
            best = (left, warm_up_s, line)
    assert best is not None
    _, warm_up_s, line = best
    return Starts(line.coefficients[0], 1.0 + line.coefficients[1], warm_up_s, len(early), "")


def _decay(reading: RecordedReading, constant_s: float) -> float:
    """Return the mean of exp(-age / constant) over the window of a report."""
    begin, end = reading.since_s - reading.started_s, reading.at_s - reading.started_s
    return float((np.exp(-begin / constant_s) - np.exp(-end / constant_s)) * constant_s / (end - begin))


def begun(readings: Sequence[RecordedReading]) -> list[tuple[float, str]]:
    """Return (second, task manager) of each start of an instance that reports show."""
    runs = {(r.instance, r.started_s): (r.started_s, r.manager) for r in readings}
    return sorted(runs.values())


def start_overhead(
    points: Mapping[str, Sequence[tuple[float, float]]], begun_at: Sequence[tuple[float, str]], last_s: float
) -> tuple[dict[str, list[tuple[float, float]]], float, int]:
    """Return the CPU seconds of a start on its task manager outside the instance: the excess over the level before and
    after.

    `points` are (second, cores of others) by task manager. Returns the points without that excess, the CPU seconds per
    start, and the number of starts measured. The beginning of a recording counts as starting if a start is within
    `last_s` of it; a task manager that joins later is busy with its own start-up at first.
    """
    quiet: dict[str, list[tuple[float, float]]] = {}
    seconds, count = 0.0, 0
    moments = [at for at, _ in begun_at]
    earliest = min((mine[0][0] for mine in points.values() if mine), default=0.0)
    if any(at - last_s <= earliest for at in moments):
        moments.append(earliest)
    for manager, mine in points.items():
        own = [at for at, where in begun_at if where == manager]
        calm = [p for p in mine if not any(at - last_s / 4 <= p[0] <= at + last_s for at in moments)]
        if not calm:
            quiet[manager] = list(mine)
            continue
        x, y = [p[0] for p in calm], [p[1] for p in calm]
        quiet[manager] = [(t, float(np.interp(t, x, y))) for t, _ in mine]
        if own:
            seconds += _excess(mine, quiet[manager], [*own, min(moments)], last_s)
            count += len(own)
    return quiet, max(seconds / count, 0.0) if count else 0.0, count


def _excess(
    mine: Sequence[tuple[float, float]], quiet: Sequence[tuple[float, float]], starts: Sequence[float], last_s: float
) -> float:
    """Return the CPU seconds above the quiet level around these starts."""
    gaps = np.diff([mine[0][0], *(t for t, _ in mine)])
    above = [value - base for (_, value), (_, base) in zip(mine, quiet, strict=True)]
    busy = [any(at - last_s / 4 <= t <= at + last_s for at in starts) for t, _ in mine]
    return float(sum(g * a for g, a, b in zip(gaps, above, busy, strict=True) if b))


def overhead(loads: Sequence[Load]) -> Overhead:
    """Return the overhead from the regression of other CPU on the number of instances, within each task manager."""
    by_manager: dict[str, list[Load]] = {}
    for load in loads:
        by_manager.setdefault(load.manager, []).append(load)
    number, others = [], []
    for mine in by_manager.values():
        level = (np.mean([load.instances for load in mine]), np.mean([load.others for load in mine]))
        number += [load.instances - level[0] for load in mine]
        others += [load.others - level[1] for load in mine]
    n, y = np.array(number), np.array(others) / 100.0
    if len(n) < ENOUGH or float(np.abs(n).max(initial=0.0)) < 0.5:
        return Overhead(0.0, float("inf"), "the number of instances hardly changed: counted as background")
    line = fit_line((n,), y)
    least = min(load.others / 100.0 / load.instances for load in loads if load.instances)
    cores, error = min(line.coefficients[0], least), line.errors[0]
    if cores < 2 * error:
        return Overhead(0.0, error, "not significant: counted as background")
    return Overhead(cores, error, "")


def shares(readings: Sequence[RecordedReading], instances: Sequence[str]) -> tuple[float, ...]:
    """Return the shares of a task's input by instance; () when they differ by no more than 5 %."""
    rate: Array = np.array([_mean([r.read for r in readings if r.instance == name]) for name in instances])
    total = float(rate.sum())
    if len(instances) < 2 or total <= 0 or (np.abs(rate / total * len(instances) - 1) <= 0.05).all():
        return ()
    rounded = [round(float(part), 6) for part in rate[:-1] / total]
    return (*rounded, 1.0 - sum(rounded))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
