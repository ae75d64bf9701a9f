"""Henge's adaptation state machine: one step at a time, judged after it has settled, kept or taken back. Pure.

Reconfiguration gives instances to a job that misses its target, reduction takes them from jobs that meet theirs and are
idle, reversion returns to the best configuration since the search began (Henge, chapter 3). The memory of the machine
has a JSON form, since snapshots keep it and recordings hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil, floor
from typing import Any, TypeAlias

from qod_magics.core.snapshot import nothing
from qod_magics.errors import SnapshotError, show
from qod_magics.policies.henge.utility import (
    Parameters,
    Utility,
    did_harm,
    farthest_first,
    has_plateaued,
    priority_first,
)

Change = tuple[int, int]  #: (instances before, instances after)
Changes = Mapping[str, Change]  #: by operator
Configuration = Mapping[str, Mapping[str, int]]  #: instances, by job and operator


class State(Enum):
    """Whether the machine searches."""

    NOT_CONVERGED = "NOT_CONVERGED"
    CONVERGED = "CONVERGED"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a job, as measured."""

    instances: int
    most: int  #: instances that it can have
    busy: float = 0.0  #: busy fraction of its busiest instance
    is_source: bool = False  #: never changed


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as measured."""

    utility: Utility
    operators: Mapping[str, Operator]


# -- the step of a round -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """Give instances to jobs that miss their target: to one, unless `Parameters.jobs_per_round` allows more."""

    changes: Mapping[str, Changes]  #: by job


@dataclass(frozen=True, slots=True)
class Reduction:
    """Take instances from jobs that meet their target."""

    changes: Mapping[str, Changes]  #: by job


@dataclass(frozen=True, slots=True)
class Reversion:
    """Return to a configuration."""

    utility: float  #: W that it had
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Stable:
    """Nothing to do, or nothing possible."""

    rounds: int  #: how many in a row so far; an action takes one away


@dataclass(frozen=True, slots=True)
class Converged:
    """The search is over."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The search was over and stays so."""


Step: TypeAlias = Reconfiguration | Reduction | Reversion | Stable | Converged | Hold


# -- the memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saved:
    """A configuration before a step."""

    utility: float  #: W
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Intervention:
    """A reconfiguration of one job that is yet to be judged."""

    job: str
    utility: float  #: the job's, before
    at_s: float
    total: float  #: W before
    changes: Changes


@dataclass(frozen=True, slots=True)
class Memory:
    """What the machine knows between rounds."""

    state: State = State.NOT_CONVERGED
    best: Saved | None = None  #: of the history: the highest utility, of several the earliest
    trials: tuple[Intervention, ...] = ()  #: of the last round
    is_reduced: bool = False  #: there was a reduction since the search began
    stable: int = 0
    skip: Mapping[str, float] = field(default_factory=nothing)  #: jobs that gained too little: until when, seconds
    reference: float | None = None  #: W of the first round after converging
    met: frozenset[str] = frozenset()  #: jobs that met their target then
    converged_s: float | None = None  #: when the search was over; None: it is not


def advance(
    memory: Memory, now_s: float, jobs: Mapping[str, Job], parameters: Parameters, *, congested: bool
) -> tuple[Step, Memory]:
    """Advance by one round: the step to take, and the memory for the next round, which must come after the step has
    settled.

    `congested`: at least half of the task managers are (`is_congested`). `jobs` are those of the rounds before: start
    with a new Memory where they are not.
    """
    utilities = {name: job.utility for name, job in jobs.items()}
    total = sum(each.current for each in utilities.values())
    met = frozenset(name for name, each in utilities.items() if each.is_met)
    if memory.state is State.CONVERGED:
        if memory.reference is None:
            return Hold(), replace(memory, reference=total, met=met)
        is_worse = total < memory.reference * (1 - parameters.exit_drop)
        is_missed = parameters.exit_on_new_miss and not memory.met <= met
        if not is_worse and not is_missed and (len(met) == len(jobs) or not _retries(memory, now_s, parameters)):
            return Hold(), memory
        memory = Memory()
    if memory.trials:
        judged = _judged(memory, now_s, total, jobs, parameters, congested=congested)
        if isinstance(judged, tuple):
            return judged
        memory = judged
    memory = replace(memory, skip={job: until for job, until in memory.skip.items() if until > now_s})
    changes = _reconfigured(memory, jobs, utilities, parameters)
    if changes:
        before = Saved(total, configuration_of(jobs))
        trials = (Intervention(job, utilities[job].current, now_s, total, each) for job, each in changes.items())
        memory = replace(
            memory,
            best=before if memory.best is None or total > memory.best.utility else memory.best,
            trials=tuple(trials),
            stable=max(0, memory.stable - 1),
        )
        return Reconfiguration(changes), memory
    stable = memory.stable + 1
    if stable >= parameters.stable_rounds:
        return Converged(), Memory(State.CONVERGED, converged_s=now_s)
    return Stable(stable), replace(memory, stable=stable)


def without_undone(memory: Memory, jobs: Mapping[str, Job]) -> Memory:
    """Return the memory without trials of which nothing was carried out: they tell nothing about the job."""

    def is_done(trial: Intervention) -> bool:
        operators = jobs[trial.job].operators
        return any(operators[name].instances != before for name, (before, _) in trial.changes.items())

    return replace(memory, trials=tuple(trial for trial in memory.trials if is_done(trial)))


def configuration_of(jobs: Mapping[str, Job]) -> Configuration:
    """Return the instances of all operators."""
    return {name: {o: each.instances for o, each in job.operators.items()} for name, job in jobs.items()}


def targets(step: Step) -> Configuration:
    """Return the instances that operators are to have after a step, by job; those it does not change may be left
    out."""
    if isinstance(step, Reconfiguration | Reduction):
        return {job: {o: after for o, (_, after) in each.items()} for job, each in step.changes.items()}
    return step.configuration if isinstance(step, Reversion) else {}


def is_congested(loads: Mapping[str, tuple[float, float]], congested_above: float = 1.0) -> bool:
    """Return whether the cluster is congested: half of its machines or more have a load of at least this ratio of their
    cores (equation 10). `loads`: (cores in use, cores) by machine. False without machines."""
    congested = sum(used >= congested_above * cores for used, cores in loads.values())
    return bool(loads) and congested >= (len(loads) + 1) // 2


def _retries(memory: Memory, now_s: float, parameters: Parameters) -> bool:
    """Return whether a search that ended is due again."""
    if parameters.retry_s is None or memory.converged_s is None:
        return False
    return now_s - memory.converged_s >= parameters.retry_s


def _judged(
    memory: Memory, now_s: float, total: float, jobs: Mapping[str, Job], parameters: Parameters, *, congested: bool
) -> Memory | tuple[Step, Memory]:
    """Judge the trials: which jobs to skip from now on; or, if they did harm, a reduction or a reversion."""
    skip = dict(memory.skip)
    for trial in memory.trials:
        after = jobs[trial.job].utility
        if has_plateaued(trial.utility, after, parameters.min_gain):
            skip[trial.job] = trial.at_s + parameters.skip_s
    before, now = memory.trials[0].total, total
    if not congested and not parameters.bystanders:  # jobs get in each other's way on full machines only
        before = sum(trial.utility for trial in memory.trials)
        now = sum(jobs[trial.job].utility.current for trial in memory.trials)
    harmful = did_harm(before, now, parameters.drop_ratio)
    memory = replace(memory, skip=skip, trials=())
    if not harmful:
        return memory
    if congested and not memory.is_reduced:
        changes = _reductions(jobs, parameters)
        if changes:
            stable = max(0, memory.stable - 1)
            return Reduction(changes), replace(memory, best=None, skip={}, is_reduced=True, stable=stable)
    if memory.best is None:
        raise ValueError("a trial without a saved configuration: Memory is for `advance` to make")
    return Reversion(memory.best.utility, memory.best.configuration), Memory(State.CONVERGED, converged_s=now_s)


def _reductions(jobs: Mapping[str, Job], parameters: Parameters) -> Mapping[str, Changes]:
    """Return instances taken from the idle operators of jobs that meet their target."""
    found = {}
    for name, job in jobs.items():
        if job.utility.is_met:
            changes = {
                o: (each.instances, left)
                for o, each in job.operators.items()
                if not each.is_source
                and each.busy <= parameters.cap_thr
                and (left := reduced(each.instances, parameters)) != each.instances
            }
            if changes:
                found[name] = changes
    return found


def _reconfigured(
    memory: Memory, jobs: Mapping[str, Job], utilities: Mapping[str, Utility], parameters: Parameters
) -> Mapping[str, Changes]:
    """Return instances given to congested operators of the first job in order that can use more."""
    order = farthest_first if parameters.order == "farthest" else priority_first
    found: dict[str, Changes] = {}
    for name in order(utilities):
        if name in memory.skip:
            continue
        changes = {
            o: (each.instances, more)
            for o, each in jobs[name].operators.items()
            if not each.is_source and (more := grown(each.instances, each.busy, each.most, parameters)) > each.instances
        }
        if changes:
            found[name] = changes
            if len(found) == parameters.jobs_per_round:
                break
    return found


_DECIMALS = 9


def added(busy: float, parameters: Parameters) -> int:
    """Return instances to add to an operator with this busy fraction (equation 9); 0 unless it is congested (equation
    8)."""
    if not busy > parameters.cap_thr:
        return 0
    excess = round((busy - parameters.cap_thr) / parameters.cap_thr * parameters.mult, _DECIMALS)
    return max(1, min(parameters.max_extra, ceil(excess)))


def grown(instances: int, busy: float, most: int, parameters: Parameters) -> int:
    """Return the new number of instances, at most `most`; never fewer than there are."""
    return max(instances, min(most, instances + added(busy, parameters)))


def reduced(instances: int, parameters: Parameters) -> int:
    """Return instances that a reduction leaves, 1 or more."""
    return max(1, floor(round(parameters.keep * instances, _DECIMALS)))


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Return the JSON form: plain dicts, lists and numbers."""
    best = memory.best
    return {
        "state": memory.state.value,
        "best": None if best is None else {"utility": best.utility, "instances": _plain(best.configuration)},
        "trials": [
            {
                "job": trial.job,
                "utility": trial.utility,
                "at_s": trial.at_s,
                "total": trial.total,
                "changes": {name: list(change) for name, change in trial.changes.items()},
            }
            for trial in memory.trials
        ],
        "reduced": memory.is_reduced,
        "stable": memory.stable,
        "skip": dict(memory.skip),
        "reference": memory.reference,
        "met": sorted(memory.met),
        "converged_s": memory.converged_s,
    }


def memory_from_json(row: Any) -> Memory:
    """Return the memory from its JSON form. Raises a one-line SnapshotError if it is none."""
    try:
        best = row["best"]
        return Memory(
            state=State(row["state"]),
            best=None if best is None else Saved(best["utility"], _plain(best["instances"])),
            trials=tuple(
                Intervention(
                    trial["job"],
                    trial["utility"],
                    trial["at_s"],
                    trial["total"],
                    {name: (before, after) for name, (before, after) in trial["changes"].items()},
                )
                for trial in row["trials"]
            ),
            is_reduced=row["reduced"],
            stable=row["stable"],
            skip=dict(row["skip"]),
            reference=row["reference"],
            met=frozenset(row["met"]),
            converged_s=row["converged_s"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SnapshotError(
            f"henge.machine: {show(row)} is no memory of Henge; remove the key `henge` to start with none",
            rule="own memory",
        ) from None


def _plain(configuration: Any) -> dict[str, dict[str, int]]:
    return {job: dict(instances) for job, instances in configuration.items()}
