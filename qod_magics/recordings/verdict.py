"""The verdict on a recorded run: does it show what Stream Economics promises? Pure.

The criteria follow the evaluation of Stream Economics (thesis, section 5.2): restrictions always respected, fast
reaction to load changes both ways, lag that stays near zero where plain Spark falls behind, and exact row counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from qod_magics.controller.record import Records
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.recordings.criteria import (
    ACCURACY_TOLERANCE,
    Criterion,
    Judged,
    accuracy_errors,
    fuses,
    grows,
    in_time,
    is_elastic,
    minimums_kept,
    never_settled,
    plans_replayed,
    rows_accounted_for,
    sheds_first,
    shrinks,
    steady,
)
from qod_magics.recordings.reading import DEFAULT_SETTLE_S, Query, events, phases, queries, seconds, settled

OVERLOAD = "overload"  #: name of the phase whose load exceeds the first task manager

SETTLE_PERIODS = 4.0  #: by when the cluster must have settled, where nothing else is said
PRIORITY_TOLERANCE = 0.05  #: fraction of a query's need
LAG_PERIODS = 2.0
MOVE_LIMIT_S = 10.0
#: Factor by which lag with the controller off must grow from the first to the last third of the overload, and must
#: exceed lag with it on. The latter varies within `LAG_PERIODS`, so that no larger factor tells more.
GROWTH = 2.0
END_CYCLES = 4  #: cycles averaged for the lag at the end of a phase


def verdict(
    recorded: Records,
    off: Records | None = None,
    policy: str | None = None,
    settle_s: float | None = None,
) -> tuple[Criterion, ...]:
    """Judge a controlled run, and compare it with the run of the same load with the controller off.

    `off` has a phase "overload" with the same load; without `off` that comparison is left out. `policy` names the
    policy that must have made the plans (None: the one that each record names). `settle_s`: seconds after a phase's
    start or a disturbance by which the cluster must have settled (None: four of the run's periods). Raises UsageProblem
    for an unknown policy, ValueError for a recording without records. A run with a phase "doubled" is judged by
    `criteria.elastic_criteria`.
    """
    if not recorded:
        raise ValueError("the recording has no lines: nothing to judge")
    run = Judged.of(recorded, SETTLE_PERIODS * recorded[0].period_s if settle_s is None else settle_s)
    judges = ELASTIC if is_elastic(run) else OVERLOADED
    criteria = (plans_replayed(run, policy), minimums_kept(run), *(judge(run) for judge in judges))
    return criteria if off is None else (*criteria, _comparison(run, off))


# -- the settled parts -------------------------------------------------------------------------------------------------


def _lag(run: Judged) -> Criterion:
    """Judge whether lag <= 2 * period * input rate, of every source and stream."""
    name = "lag stays within 2 periods of input once settled"
    found: list[tuple[float, str]] = []
    unknown: set[str] = set()
    for phase, index, record in run.settled_records:
        rates = record.measured.input_rate
        for edge, lag in record.measured.lag.items():
            if edge not in rates:
                unknown.add(edge)
                continue
            per_period = record.period_s * rates[edge]
            share = lag / per_period if per_period > 0 else (0.0 if lag == 0 else float("inf"))
            found.append((share, f"{edge} {lag:,} rows at {rates[edge]:,.0f} rows/s {run.where(phase, index)}"))
    gaps = never_settled(run.unsettled)
    if unknown:
        gaps += f"; no input rate of {', '.join(sorted(unknown))}"
    if not found:
        return Criterion(name, False, f"no lag in a settled cycle{gaps}")
    share, where = max(found)
    detail = f"worst {share:.2f} periods: {where}; {len(found)} values"
    return Criterion(name, share <= LAG_PERIODS and not gaps, detail + gaps)


def _estimate(run: Judged) -> Criterion:
    """Judge the mean |curAc - ac| over the sources."""
    name = "sources run at the accuracy that was planned"
    settled_indices = {index for indices in run.settled.values() for index in indices}
    errors = accuracy_errors(run.records)
    inside = [error for index, _, error in errors if index in settled_indices]
    gaps = never_settled(run.unsettled)
    if not inside:
        return Criterion(name, False, f"no planned accuracy to compare with in a settled cycle{gaps}")
    overall = fmean(error for _, _, error in errors)
    mean = fmean(inside)
    detail = f"mean difference {mean:.4f} settled (at most {ACCURACY_TOLERANCE}), {overall:.4f} over the whole run"
    return Criterion(name, mean <= ACCURACY_TOLERANCE and not gaps, detail + gaps)


# -- moves, phases ----------------------------------------------------------------------------------------------


def _moves(run: Judged) -> Criterion:
    """Fast re-scheduling: tasks moved, each back at work within 10 s."""
    name = "tasks move and are back at work within 10 s"
    moves = [event.detail for _, event in events(run.records, "move")]
    if not moves:
        return Criterion(name, False, "no move in the run")
    untimed = [event for event in moves if event.get("took_s") is None]
    if untimed:
        return Criterion(name, False, f"{len(untimed)} of {len(moves)} moves do not say how long they took")
    slowest = max(moves, key=lambda event: float(event["took_s"]))
    detail = (
        f"{len(moves)} move{'s' if len(moves) > 1 else ''}, slowest {slowest.get('instance')} "
        f"{slowest.get('from')} > {slowest.get('to')} {slowest['took_s']:.1f} s"
    )
    return Criterion(name, slowest["took_s"] <= MOVE_LIMIT_S, detail)


def _full_again(run: Judged) -> Criterion:
    """Fast reaction to falling load: nothing is shed once the load is gone."""
    name = "full accuracy again at the end"
    phase = run.phases[-1]
    indices = run.settled[phase]
    if not indices:
        return Criterion(name, False, never_settled([phase]).removeprefix("; "))
    record = run.records[indices[-1]]
    accuracies = {query: record.measured.accuracy.get(query) for query in queries(record)}
    detail = ", ".join(f"{query} {_shown(value)}" for query, value in accuracies.items())
    passed = all(value is not None and value >= FULL_ACCURACY for value in accuracies.values())
    return Criterion(name, passed and bool(accuracies), f"{detail} {run.where(phase, indices[-1])}")


def _shown(accuracy: float | None) -> str:
    return "without input" if accuracy is None else f"{accuracy:.3f}"


def _sheds(run: Judged) -> Criterion:
    """Under overload every query sheds, and on one task manager the share of the need that is met follows priority.

    The share of a query's need is (accuracy - minimum) / (1 - minimum). CPU is shared per task manager, so the order is
    judged only while there is one.
    """
    name = "an overload is shed by priority"
    phase = next((part for part in run.phases if part.name == OVERLOAD), None)
    if phase is None:
        return Criterion(name, False, f"the recording has no phase {OVERLOAD!r}")
    records = [run.records[index] for index in run.settled[phase]]
    if not records:
        return Criterion(name, False, never_settled([phase]).removeprefix("; "))
    asked = queries(records[-1])
    means: dict[str, float] = {}
    for query in asked:
        values = [v for record in records if (v := record.measured.accuracy.get(query)) is not None]
        if not values:
            return Criterion(name, False, f"no measured accuracy of {query} in the settled part")
        means[query] = fmean(values)
    first, last = (sum(run.records[index].measured.dropped.values()) for index in (phase.first, phase.last))
    dropped = last - first
    inversion = _priority_inversion(asked, means) if all(len(r.snapshot.task_managers) == 1 for r in records) else ""
    detail = ", ".join(f"{query} (priority {asked[query].priority}) {mean:.3f}" for query, mean in means.items())
    passed = all(mean < FULL_ACCURACY for mean in means.values()) and dropped > 0 and not inversion
    return Criterion(name, passed, f"mean accuracy {detail}; {dropped:,} rows dropped in the phase{inversion}")


def _priority_inversion(asked: Mapping[str, Query], means: Mapping[str, float]) -> str:
    """Return the first pair of queries in which the one of lower priority has more of its need met, as text; else
    ""."""
    share = {
        name: (means[name] - query.min_accuracy) / (1 - query.min_accuracy)
        for name, query in asked.items()
        if query.min_accuracy < 1
    }
    for one, other in combinations(share, 2):
        low, high = sorted((one, other), key=lambda name: asked[name].priority)
        if asked[low].priority < asked[high].priority and share[low] > share[high] + PRIORITY_TOLERANCE:
            return (
                f"; {low} has {share[low]:.0%} of its need met, {high} with the higher priority only {share[high]:.0%}"
            )
    return ""


# -- with and without --------------------------------------------------------------------------------------------------


def overload_lag(records: Records) -> tuple[tuple[float, int], ...]:
    """(seconds since the start of the first phase "overload", lag of all sources and streams in rows), one per cycle.

    () when the recording has no such phase.
    """
    phase = next((part for part in phases(records) if part.name == OVERLOAD), None)
    if phase is None:
        return ()
    at = seconds(records)
    return tuple(
        (at[index] - phase.start_s, sum(records[index].measured.lag.values()))
        for index in range(phase.first, phase.last + 1)
    )


def _comparison(run: Judged, off_records: Records) -> Criterion:
    """Plain Spark falls ever further behind; the controlled run does not. At the same time since the overload began."""
    name = "with the controller off the lag of the same overload grows"
    on, off = overload_lag(run.records), overload_lag(off_records)
    if not on or not off:
        which = "recording" if not on else "recording with the controller off"
        return Criterion(name, False, f"the {which} has no phase {OVERLOAD!r}")
    until = min(on[-1][0], off[-1][0]) + 0.5 * run.records[0].period_s
    on_lag = [lag for since, lag in on if since <= until]
    off_lag = [lag for since, lag in off if since <= until]
    third = len(off_lag) // 3
    if third == 0:
        return Criterion(name, False, f"only {len(off_lag)} cycles of overload to compare")
    parts = [fmean(off_lag[:third]), fmean(off_lag[third:-third]), fmean(off_lag[-third:])]
    growing = parts[0] < parts[1] < parts[2] and parts[2] >= GROWTH * parts[0]
    on_end, off_end = fmean(on_lag[-END_CYCLES:]), fmean(off_lag[-END_CYCLES:])
    detail = (
        f"at the end {off_end:,.0f} rows off, {on_end:,.0f} on ({_times(off_end, on_end)}, at least {GROWTH:g} times); "
        f"thirds off {parts[0]:,.0f} {parts[1]:,.0f} {parts[2]:,.0f} (at least {GROWTH:g} times); "
        f"largest {max(off_lag):,} off, {max(on_lag):,} on"
    )
    return Criterion(name, growing and off_end > 0 and off_end >= GROWTH * on_end, detail)


def _times(more: float, less: float) -> str:
    return f"{more / less:.1f} times" if less > 0 else "no lag on"


OVERLOADED: tuple[Callable[[Judged], Criterion], ...] = (
    *(_lag, _estimate, _moves, rows_accounted_for, _full_again, _sheds),
)
ELASTIC: tuple[Callable[[Judged], Criterion], ...] = (
    *(sheds_first, grows, in_time, shrinks, fuses, steady, rows_accounted_for),
)


# --- Comparison of a live recording with a simulated one --------------------------------------------------------------
# Both are aligned at the start of their first named phase (their first line, where none names one), and compared from
# there to the end of the last phase that both have.

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


def compared(live: Records, simulated: Records, settle_s: float = DEFAULT_SETTLE_S) -> Comparison:
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
