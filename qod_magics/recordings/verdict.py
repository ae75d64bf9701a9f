"""The verdict on a recorded run: does it show what Stream Economics promises? Pure.

The criteria follow the evaluation of Stream Economics (thesis, section 5.2): restrictions always respected, fast
reaction to load changes both ways, lag that stays near zero where plain Spark falls behind, and exact row counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from statistics import fmean

from qod_magics.controller.record import Records
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.recordings.criteria import (
    ACCURACY_TOLERANCE,
    Criterion,
    Judged,
    accuracy_errors,
    minimums_kept,
    never_settled,
    plans_replayed,
    rows_accounted_for,
)
from qod_magics.recordings.elastic_criteria import fuses, grows, in_time, is_elastic, sheds_first, shrinks, steady
from qod_magics.recordings.phases import Query, events, phases, queries, seconds

OVERLOAD = "overload"  #: name of the phase whose load exceeds the first task manager

SETTLE_PERIODS = 4.0  #: by when the cluster must have settled, where nothing else is said
PRIORITY_TOLERANCE = 0.05  #: fraction of a query's need
LAG_PERIODS = 2.0
MOVE_LIMIT_S = 10.0
GROWTH = 5.0  #: factor by which lag with the controller off must exceed lag with it on
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
    `elastic_criteria`.
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
    grows = parts[0] < parts[1] < parts[2]
    on_end, off_end = fmean(on_lag[-END_CYCLES:]), fmean(off_lag[-END_CYCLES:])
    detail = (
        f"at the end {off_end:,.0f} rows off, {on_end:,.0f} on ({_times(off_end, on_end)}, at least {GROWTH:g} times); "
        f"largest {max(off_lag):,} off, {max(on_lag):,} on; "
        f"thirds off {parts[0]:,.0f} {parts[1]:,.0f} {parts[2]:,.0f}"
    )
    return Criterion(name, grows and off_end > 0 and off_end >= GROWTH * on_end, detail)


def _times(more: float, less: float) -> str:
    return f"{more / less:.1f} times" if less > 0 else "no lag on"


OVERLOADED: tuple[Callable[[Judged], Criterion], ...] = (
    *(_lag, _estimate, _moves, rows_accounted_for, _full_again, _sheds),
)
ELASTIC: tuple[Callable[[Judged], Criterion], ...] = (
    *(sheds_first, grows, in_time, shrinks, fuses, steady, rows_accounted_for),
)
