"""The story of a query: what happened to it, and why, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qod_magics.lifecycle import events
from qod_magics.lifecycle.events import Event, Step

#: What each event means to a reader.
WORDS: Mapping[type[Event], str] = {
    events.Follows: "it takes the place of another",
    events.StartAsked: "it is started",
    events.Started: "its run began",
    events.Failed: "it failed",
    events.Stalled: "it stalled",
    events.StallEnded: "its stalled run was stopped",
    events.WentOn: "a batch ended after all",
    events.RetryDue: "its back-off is over",
    events.CauseGone: "its cause is gone, or another try was asked for",
    events.RestartAsked: "its job has changed",
    events.MoveAsked: "a move was asked for",
    events.MoveCalledOff: "the move was called off",
    events.NotStarted: "it could not be started there",
    events.PlaceAsked: "a task manager takes it",
    events.NotPlaced: "no task manager takes it",
    events.ServerLost: "it was detached from its task manager",
    events.StopAsked: "a change stops it",
    events.StopUndone: "the change was undone",
}


def told(steps: Iterable[Step]) -> list[tuple[float, str]]:
    """Return when each step took place, and what it was, such as "running -> backing off for 10 s: it failed: ..."."""
    return [(step.at, _words(step)) for step in steps]


def _words(step: Step) -> str:
    after = step.after.value + (f" for {step.wait_s:.3g} s" if step.wait_s else "")
    why = f": {step.why}" if step.why else ""
    return f"{step.before.value} -> {after}: {WORDS[step.event]}{why}"
