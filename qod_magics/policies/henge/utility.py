"""Utilities of jobs, the parameters of Henge, and how a step is judged by utility. Pure.

A job's utility says how far it attains its target; jobs that miss their targets are helped in an order of utility.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, Literal, TypeAlias

from qod_magics.core.plan import Action
from qod_magics.core.snapshot import nothing
from qod_magics.policies.parameters import Parameter, check

Curve = Callable[[float], float]  #: monotone, from the ratio to which a target is attained to 0..1; 1 from 1 on


@dataclass(frozen=True, slots=True)
class Utility:
    """A job's utility, in units of utility."""

    current: float  #: u
    most: float  #: U: of a job that meets its target

    @property
    def is_met(self) -> bool:
        """Return whether the job meets its target: its utility is the maximum."""
        return self.current >= self.most

    @property
    def share(self) -> float:
        """u/U; 1 for a job of no utility."""
        return self.current / self.most if self.most else 1.0


def knee(attained: float) -> float:
    """Return the built-in curve: in proportion up to the target, flat beyond it."""
    return min(1, attained)


def step(attained: float) -> float:
    """Return all or nothing: a job that misses its target is worth nothing."""
    return 1 if attained >= 1 else 0


def steep(attained: float) -> float:
    """Return the square of the knee: a job that misses its target loses most at first."""
    return knee(attained) ** 2


def gentle(attained: float) -> float:
    """Return the root of the knee: a job that just misses its target loses little."""
    return sqrt(knee(attained))


CurveName = Literal["knee", "step", "steep", "gentle"]
CURVES: Mapping[CurveName, Curve] = {"knee": knee, "step": step, "steep": steep, "gentle": gentle}


def throughput_utility(juice: float, threshold: float, most: float, curve: Curve = knee) -> float:
    """Return the utility of equation 1 (3.1 of the source): u = U min(1, J / threshold). All of U without a threshold
    (0)."""
    return most * curve(juice / threshold) if threshold else most


def latency_utility(latency: float, threshold: float, most: float, curve: Curve = knee) -> float:
    """Return the utility of equation 2 (3.2 of the source): u = U min(1, threshold / L); both in the same unit. All of
    U at latency 0."""
    return most * curve(threshold / latency) if latency > 0 else most


def hybrid_utility(by_latency: float, by_throughput: float) -> float:
    """Return the mean of two utilities, for a job with both targets (equation 3)."""
    return (by_latency + by_throughput) / 2


def current_latency(finished: float | None, oldest: float | None) -> float:
    """Return L of a job, seconds: latency of the tuples that finished, and if none did the age of the oldest unfinished
    one.

    An oldest tuple that is older than that counts in any case: it will have at least this latency, and the last results
    may be from long ago. 0: nothing finished, nothing waits.
    """
    return max(finished or 0.0, oldest or 0.0)


def satisfaction(jobs: Iterable[Utility]) -> float:
    """Return 100 W / W* (equation 7), %: utility of all jobs over its maximum. 100 without jobs."""
    each = tuple(jobs)
    most = sum(job.most for job in each)
    return 100 * sum(job.current for job in each) / most if most else 100.0


def farthest_first(jobs: Mapping[str, Utility]) -> list[str]:
    """Return jobs that miss their target, farthest from it first; then the larger utility, then by name (equation
    11)."""
    missing = [name for name, job in jobs.items() if not job.is_met]
    return sorted(missing, key=lambda name: (jobs[name].share, -jobs[name].most, name))


def priority_first(jobs: Mapping[str, Utility]) -> list[str]:
    """Return jobs that miss their target, by maximum utility downwards, then current utility upwards, then by name: the
    order of the authors' prototype (H-R5)."""
    missing = [name for name, job in jobs.items() if not job.is_met]
    return sorted(missing, key=lambda name: (-jobs[name].most, jobs[name].current, name))


Order = Literal["farthest", "priority"]
Average = Literal["mean", "median"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Thresholds of Henge's decisions and the times between them. Ratios are of 1, times in seconds."""

    cap_thr: Annotated[float, Parameter("busy fraction above which an operator is congested", above=0)] = 0.3
    mult: Annotated[
        float, Parameter("instances added for each `cap_thr` of busy fraction above `cap_thr`", above=0, most=1000)
    ] = 10.0
    max_extra: Annotated[int, Parameter("instances added to an operator in one step at most", least=1, most=1000)] = 100
    keep: Annotated[float, Parameter("share of its instances that a reduction leaves an operator", least=0, most=1)] = (
        0.2
    )
    #: H-R7
    drop_ratio: Annotated[
        float, Parameter("a step did harm if the utility before exceeds this multiple of that after", least=1)
    ] = 1.1
    min_gain: Annotated[
        float, Parameter("a job that a step gave less, as a ratio of its maximum utility, is skipped", least=-1, most=1)
    ] = 0.05
    #: H-R8
    skip_s: Annotated[float, Parameter("seconds for which such a job is skipped, from the step on", least=0)] = 3600.0
    stable_rounds: Annotated[int, Parameter("rounds without an action until the search has converged", least=1)] = 4
    settle_s: Annotated[float, Parameter("seconds from one round to the next", least=0)] = 60.0
    warm_up_s: Annotated[
        float, Parameter("seconds until the first round after task managers or jobs have changed", least=0)
    ] = 300.0
    observe_s: Annotated[float, Parameter("seconds from one reading to the next", above=0)] = 10.0
    readings: Annotated[int, Parameter("readings whose average is a job's juice and its latency", least=1)] = 10
    average: Annotated[Average, Parameter("average of the readings; a median ignores the drain after a restart")] = (
        "mean"
    )
    exit_drop: Annotated[
        float, Parameter("a converged search begins again if utility falls by this ratio", least=0, most=1)
    ] = 0.05
    #: H-R6
    exit_on_new_miss: Annotated[bool, Parameter("it also does if a job misses its target that met it")] = True
    #: H-R5
    order: Annotated[Order, Parameter("of jobs that miss: farthest from their target first, or by utility")] = (
        "farthest"
    )

    # for Spark, and beyond the source
    #: H-R11
    juice_target: Annotated[float, Parameter("juice of a query without a target of its latency", least=0)] = 1.0
    juice_slack: Annotated[
        float, Parameter("share of it that may be missed: counts of micro-batches vary by a batch", least=0, most=1)
    ] = 0.02
    congested_above: Annotated[float, Parameter("a task manager is congested at this ratio of its cores", above=0)] = (
        0.95
    )
    #: equation 3
    hybrid: Annotated[bool, Parameter("judge a query with a target of its latency by its juice, too")] = False
    margin: Annotated[
        float, Parameter("aim at this multiple of a target of latency; below 1: act before it is missed", above=0)
    ] = 1.0
    jobs_per_round: Annotated[int, Parameter("jobs that one round reconfigures at most", least=1)] = 1
    retry_s: Annotated[
        float | None,
        Parameter("seconds from converging to a new search if a job misses its target; none: never", least=0),
    ] = None
    bystanders: Annotated[
        bool, Parameter("blame a step for what other jobs lose even if the cluster is not congested")
    ] = True
    curve: Annotated[
        CurveName,
        Parameter(
            "utility at a share of a target: that share (knee), nothing (step), its square (steep), its root (gentle)"
        ),
    ] = "knee"

    def __post_init__(self) -> None:
        """Raise UsageProblem for a value out of range."""
        check(self)


#: A variant that does better in a fluid model of ten jobs over a day: mean satisfaction 99.5 instead of 93.9 %. Latency
#: is the median, so that the drain after a restart does not judge the step: this matters most. All jobs in need are
#: helped in one round, soon after a change, with fewer instances each and before they miss their target. The others are
#: precautions: shorter times for which a job is skipped, or for which a search that ended while jobs miss is not tried
#: again, and no blame for what other jobs lose on free machines.
TUNED = Parameters(
    average="median",
    mult=4.0,
    jobs_per_round=10,
    margin=0.8,
    warm_up_s=60.0,
    skip_s=600.0,
    retry_s=600.0,
    bystanders=False,
)


def did_harm(before: float, now: float, drop_ratio: float) -> bool:
    """Return whether utility W fell so far that the step is to be taken back: W before > `drop_ratio` W now (H-R7)."""
    return before > drop_ratio * now


def has_plateaued(before: float, now: Utility, min_gain: float) -> bool:
    """Return whether a job's utility rose by less than `min_gain` of its maximum: it is left out for a while."""
    return (now.current - before) / now.most < min_gain if now.most else True


# --- The guard of other policies --------------------------------------------------------------------------------------
# A guard for the disruptive actions of any other stage of a policy: act, settle, judge by utility, keep or take back.
#
# Henge's rules for its own steps, for actions that it did not propose: one step at a time; nothing more until it has
# settled; a step that did harm is reverted; the subject of a step that did not help is left alone for a while. Pure.
#
#     state = GuardState()
#     verdict, state = guard(state, now_s, utilities, Intervention("fuse parse>count", actions, inverse, job="count"),
#   p)
#
# Call it each cycle, with None where nothing is proposed: a verdict to revert can come at any time. Carry out the
# actions of a verdict (`Allowed` or `Reverted`); they are `()` for one that waits.


@dataclass(frozen=True, slots=True)
class Intervention:
    """A step that another stage wants to take."""

    subject: str  #: what it is about; if it does not help, proposals of the same subject are refused for `skip_s`
    actions: tuple[Action, ...]
    inverse: tuple[Action, ...]  #: what undoes them
    job: str | None = None  #: the job that it is to help; None: all of them


@dataclass(frozen=True, slots=True)
class Allowed:
    """Take the proposed step now."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """Take no step now."""

    why: str  #: one clause
    until_s: float | None = None  #: when to propose it again; None: nothing is in the way
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class Reverted:
    """Take the last step back: it did harm."""

    subject: str
    actions: tuple[Action, ...]  #: its inverse
    why: str  #: one clause


Verdict: TypeAlias = Allowed | Waits | Reverted


@dataclass(frozen=True, slots=True)
class OnTrial:
    """A step that was allowed and is yet to be judged."""

    proposal: Intervention
    at_s: float
    utilities: Mapping[str, Utility]  #: by job, before


@dataclass(frozen=True, slots=True)
class GuardState:
    """What the guard knows between cycles."""

    trial: OnTrial | None = None
    settled_s: float | None = None  #: nothing is allowed before; None: nothing was done yet
    skip: Mapping[str, float] = field(default_factory=nothing)  #: subjects that did not help: until when, seconds


def guard(
    state: GuardState,
    now_s: float,
    utilities: Mapping[str, Utility],
    proposal: Intervention | None,
    parameters: Parameters,
) -> tuple[Verdict, GuardState]:
    """Return the verdict on a proposed step, or on the last one; and the state for the next cycle.

    Args:
        state: what the last call returned, or `GuardState()`.
        now_s: seconds, as `Snapshot.at_s`.
        utilities: of each job, now: see `policy.Henge.turn`.
        proposal: a step, or None.
        parameters: those of `Parameters` that count are `settle_s`, `drop_ratio`, `min_gain`, `skip_s`.

    A step is judged on the jobs that were there before and are there now; without any it is kept.

    """
    if state.settled_s is not None and now_s < state.settled_s:
        left_s = state.settled_s - now_s
        return Waits(f"the last step settles for {left_s:.0f} s more", state.settled_s), state
    skip = {subject: until for subject, until in state.skip.items() if until > now_s}
    if state.trial is not None:
        reverted, skip = _judged(state.trial, utilities, skip, parameters)
        if reverted is not None:
            return reverted, GuardState(None, now_s + parameters.settle_s, skip)
    state = replace(state, trial=None, skip=skip)
    if proposal is None or not proposal.actions:
        return Waits("no step is proposed"), state
    until = skip.get(proposal.subject)
    if until is not None and until > now_s:
        return Waits(f"{proposal.subject} did not help: it is left alone for {until - now_s:.0f} s more", until), state
    return Allowed(proposal.actions), GuardState(OnTrial(proposal, now_s, utilities), now_s + parameters.settle_s, skip)


def _judged(
    trial: OnTrial, utilities: Mapping[str, Utility], skip: Mapping[str, float], parameters: Parameters
) -> tuple[Reverted | None, dict[str, float]]:
    """Return whether to take a step back, and the subjects to leave alone."""
    proposal, skipped = trial.proposal, dict(skip)
    common = [name for name in trial.utilities if name in utilities]
    if not common:
        return None, skipped
    before = sum(trial.utilities[name].current for name in common)
    now = Utility(sum(utilities[name].current for name in common), sum(utilities[name].most for name in common))
    helped = proposal.job if proposal.job in common else None
    gained = (before, now) if helped is None else (trial.utilities[helped].current, utilities[helped])
    harmful = did_harm(before, now.current, parameters.drop_ratio)
    if harmful or has_plateaued(*gained, parameters.min_gain):
        skipped[proposal.subject] = trial.at_s + parameters.skip_s
    if not harmful:
        return None, skipped
    why = f"{proposal.subject} did harm: utility fell from {before:.4g} to {now.current:.4g}"
    return Reverted(proposal.subject, proposal.inverse, why), skipped
