"""A guard for the disruptive actions of any other stage of a policy: act, settle, judge by utility, keep or take back.

Henge's rules for its own steps, for actions that it did not propose: one step at a time; nothing more until it has
settled; a step that did harm is reverted; the subject of a step that did not help is left alone for a while. Pure.

    state = GuardState()
    verdict, state = guard(state, now_s, utilities, Proposal("fuse parse>count", actions, inverse, job="count"), p)

Call it each cycle, with None where nothing is proposed: a verdict to revert can come at any time. Carry out the actions
of a verdict (`Allowed` or `Reverted`); they are `()` for one that waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from qod_magics.core.plan import Action
from qod_magics.core.snapshot import nothing
from qod_magics.policies.henge.utility import Parameters, Utility, did_harm, has_plateaued


@dataclass(frozen=True, slots=True)
class Proposal:
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

    proposal: Proposal
    at_s: float
    utilities: Mapping[str, Utility]  #: by job, before


@dataclass(frozen=True, slots=True)
class GuardState:
    """What the guard knows between cycles."""

    trial: OnTrial | None = None
    settled_s: float | None = None  #: nothing is allowed before; None: nothing was done yet
    skip: Mapping[str, float] = field(default_factory=nothing)  #: subjects that did not help: until when, seconds


def guard(
    state: GuardState, now_s: float, utilities: Mapping[str, Utility], proposal: Proposal | None, parameters: Parameters
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
