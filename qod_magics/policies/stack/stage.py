"""What a stage of a stack sees and answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from qod_magics.core.actions import Action
from qod_magics.core.neighbours import Pair
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stack.demand import Demand
from qod_magics.policies.stack.levers import Lever
from qod_magics.policies.stack.pressure import Pressure


@dataclass(frozen=True, slots=True)
class View:
    """The input of a stage."""

    snapshot: Snapshot
    now_s: float  #: on the clock of the snapshots
    plan: Plan  #: of the shedding stage, for this snapshot
    demand: Demand
    pressures: Mapping[str, Pressure]  #: queries that are shed or late, by name
    eased_since_s: float | None  #: since when no query is under pressure; None while one is
    roomy_since_s: float | None = None  #: since when one task manager fewer would have the CPU; None while it would not
    together: Mapping[Pair, float] = field(default_factory=dict)  #: since when neighbours could be one query
    proposed: tuple[Action, ...] = ()  #: by the stages before it, for this snapshot
    refused: Collection[str] = ()  #: subjects of actions that failed or did not help, and are left alone for a while

    def pressed_s(self) -> float:
        """How long the query that has been under pressure longest is so, seconds; 0 without one."""
        return max((self.now_s - each.since_s for each in self.pressures.values()), default=0.0)

    def eased_s(self) -> float:
        """How long no query has been under pressure, seconds."""
        return 0.0 if self.eased_since_s is None else self.now_s - self.eased_since_s

    def roomy_s(self) -> float:
        """How long that has been so while one task manager fewer would have had the CPU, too, seconds."""
        return 0.0 if self.roomy_since_s is None else min(self.now_s - self.roomy_since_s, self.eased_s())


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer of a stage: actions that are carried out together, and one clause that says why, or why none."""

    actions: tuple[Action, ...] = ()
    note: str = ""


class Stage(Protocol):
    """A part of a policy that pulls some of the levers."""

    name: str
    owns: frozenset[Lever]

    def propose(self, view: View) -> Proposal:
        """Pure: the same view always gives the same proposal."""
        ...
