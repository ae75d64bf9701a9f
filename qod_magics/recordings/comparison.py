"""Comparison of two recordings of the same scenario, one live and one simulated. Pure.

Both are aligned at the start of their first named phase (their first line, where none names one), and compared from
there to the end of the last phase that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from qod_magics.controller.record import Records
from qod_magics.recordings.criteria import Criterion
from qod_magics.recordings.phases import DEFAULT_SETTLE_S, phases, queries, seconds, settled

ACCURACY_TARGET = 0.05  #: mean absolute difference of accuracy
LAG_TARGET = 2.0  #: ratio of mean lags, either way
#: A mean lag of fewer rows is rows in transit, and its ratio says nothing.
FEW_ROWS = 10.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two runs."""

    accuracy: Mapping[str, float]  #: mean absolute difference, by query
    overall: float  #: the same over all queries and instants
    cpu: Mapping[str, float]  #: mean absolute difference, % of one core, by task manager
    moves: tuple[tuple[str, ...], tuple[str, ...]]  #: "phase: instance from > to" of each run, in order
    lag: Mapping[str, tuple[float, float]]  #: mean lag of all sources and streams once settled, rows, by phase
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True)
class Aligned:
    """The part of a recording that is compared, with times from the common start."""

    records: Records
    at: tuple[float, ...]  #: seconds from the start of the first phase


def aligned(records: Records) -> Aligned:
    """Return the records from the first named phase to the end of the last; all records if none is named."""
    named = [part for part in phases(records) if part.name]
    first, last = (named[0].first, named[-1].last) if named else (0, len(records) - 1)
    at = seconds(records)
    start = at[first] - records[first].period_s
    kept = [i for i in range(first, last + 1) if not records[i].repeated]
    return Aligned([records[i] for i in kept], tuple(at[i] - start for i in kept))


def compare(live: Records, simulated: Records, settle_s: float = DEFAULT_SETTLE_S) -> Comparison:
    """Compare two recordings. Raises ValueError when one has no lines."""
    if not live or not simulated:
        raise ValueError("a recording has no lines: nothing to compare")
    one, other = aligned(live), aligned(simulated)
    names = [name for name in _queries(one) if name in _queries(other)]
    differences = {name: differing(accuracies(one, name), accuracies(other, name)) for name in names}
    every = [value for values in differences.values() for value in values]
    managers = dict.fromkeys(m.id for record in one.records for m in record.snapshot.task_managers)
    cpu = {name: values for name in managers if (values := differing(loads(one, name), loads(other, name)))}
    found = Comparison(
        accuracy={name: fmean(values) for name, values in differences.items() if values},
        overall=fmean(every) if every else float("nan"),
        cpu={name: fmean(values) for name, values in cpu.items()},
        moves=(moves(live), moves(simulated)),
        lag=_lags(live, simulated, settle_s),
        criteria=(),
    )
    return Comparison(found.accuracy, found.overall, found.cpu, found.moves, found.lag, tuple(_judged(found)))


Series = Sequence[tuple[float, float]]  #: (seconds, value)


def accuracies(run: Aligned, query: str) -> Series:
    """Return measured accuracy of a query over time."""
    values = ((t, record.measured.accuracy.get(query)) for t, record in zip(run.at, run.records, strict=True))
    return [(t, float(value)) for t, value in values if value is not None]


def loads(run: Aligned, manager: str) -> Series:
    """Return the CPU of a task manager over time, % of one core."""
    return [
        (t, float(each.cpu))
        for t, record in zip(run.at, run.records, strict=True)
        for each in record.snapshot.task_managers
        if each.id == manager
    ]


def lags(run: Aligned, edge: str) -> Series:
    """Return the lag of a source or stream over time, rows."""
    values = ((t, record.measured.lag.get(edge)) for t, record in zip(run.at, run.records, strict=True))
    return [(t, float(value)) for t, value in values if value is not None]


def differing(one: Series, other: Series) -> list[float]:
    """|difference| at each instant of `one` within the span of `other`, which is interpolated linearly."""
    found = []
    index = 0
    for t, value in one:
        while index + 1 < len(other) and other[index + 1][0] < t:
            index += 1
        if not other or t < other[0][0] - 1.0 or t > other[-1][0] + 1.0:
            continue
        (t0, v0), (t1, v1) = other[index], other[min(index + 1, len(other) - 1)]
        share = min(max((t - t0) / (t1 - t0), 0.0), 1.0) if t1 > t0 else 0.0
        found.append(abs(value - (v0 + (v1 - v0) * share)))
    return found


def moves(records: Records) -> tuple[str, ...]:
    """Return the moves that began within phases, as "phase: instance from > to". Move events mark only their end."""
    parts = {index: part.name for part in phases(records) for index in range(part.first, part.last + 1)}
    named = any(parts.values())
    where: dict[str, str] = {}
    found = []
    for index, record in enumerate(records):
        for instance in record.snapshot.instances:
            before, now = where.get(instance.id), instance.task_manager
            where[instance.id] = now
            if before not in (None, now) and (parts[index] or not named):
                found.append(f"{parts[index] or 'run'}: {instance.id} {before} > {now}")
    return tuple(found)


def format_comparison(found: Comparison) -> str:
    """Return the figures, one per line, and whether the targets are met."""
    lines = [f"accuracy of {name}: {value:.3f} mean difference" for name, value in found.accuracy.items()]
    lines += [f"CPU of {name}: {value:.1f} % of a core mean difference" for name, value in found.cpu.items()]
    lines += [f"move, live: {move}" for move in found.moves[0]]
    lines += [f"move, simulated: {move}" for move in found.moves[1]]
    for phase, (one, other) in found.lag.items():
        lines.append(f"lag in {phase or 'the run'}, settled: {one:,.0f} rows live, {other:,.0f} simulated")
    return "\n".join([*lines, *(f"{'PASS' if c.passed else 'FAIL'} {c.name}: {c.detail}" for c in found.criteria)])


def _judged(found: Comparison) -> list[Criterion]:
    live, simulated = (Counter(_phase(move) for move in side) for side in found.moves)
    ratios = {phase: max(one, FEW_ROWS) / max(other, FEW_ROWS) for phase, (one, other) in found.lag.items()}
    worst = max(ratios.values(), key=lambda ratio: max(ratio, 1 / ratio), default=float("nan"))
    shown = ", ".join(f"{phase or 'run'} {1 / ratio:.2f}" for phase, ratio in ratios.items())
    return [
        Criterion(
            f"accuracies are at most {ACCURACY_TARGET:g} apart",
            found.overall <= ACCURACY_TARGET,
            f"{found.overall:.3f}, the mean over queries and time",
        ),
        Criterion(
            "as many moves in each phase",
            live == simulated,
            f"live {_counted(live)}; simulated {_counted(simulated)}",
        ),
        Criterion(
            f"lag is within a factor of {LAG_TARGET:g} once settled",
            1 / LAG_TARGET <= worst <= LAG_TARGET,
            f"simulated by live: {shown or 'no phase settled in both'}",
        ),
    ]


def _phase(move: str) -> str:
    """Return the phase of a move."""
    return move.partition(": ")[0]


def _counted(moves_by_phase: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {phase}" for phase, count in moves_by_phase.items()) or "none"


def _lags(live: Records, simulated: Records, settle_s: float) -> dict[str, tuple[float, float]]:
    """Return the mean lag in the settled part of each phase that settled in both."""
    one, other = _mean_lags(live, settle_s), _mean_lags(simulated, settle_s)
    return {phase: (value, other[phase]) for phase, value in one.items() if phase in other}


def _mean_lags(records: Records, settle_s: float) -> dict[str, float]:
    found = {}
    parts = phases(records)
    for part in [part for part in parts if part.name] or parts:
        rows = [sum(records[i].measured.lag.values()) for i in settled(records, part, settle_s)]
        if rows:
            found[part.name] = fmean(rows)
    return found


def _queries(run: Aligned) -> list[str]:
    return list(dict.fromkeys(name for record in run.records for name in queries(record)))
