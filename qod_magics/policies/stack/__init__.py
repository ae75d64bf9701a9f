"""Policies that compose stages: `auto` sheds, moves, scales and starts task managers, takes back what did harm, lends
rows of hot keys, and keeps copies of hot slices of results, but makes none while a query is shed or late."""

from __future__ import annotations

from qod_magics.core.plan import Plan
from qod_magics.core.policy import SliceRules
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.getafix.live import Parameters as Slicing
from qod_magics.policies.getafix.policy import Getafix, Router
from qod_magics.policies.stack.place import Place, ScaleOutAndIn
from qod_magics.policies.stack.stack import Lending, Stack
from qod_magics.policies.stack.stage import Judge, pressures
from qod_magics.policies.stream_economics.policy import reactive, staying

#: Streams keep state in the same memory, so the copies of slices that another task manager keeps, too, may fill less of
#: it than under `getafix`. The last copy of a slice stays beyond that, until no query asks for it.
_SLICING = Slicing(memory_limit=0.5)


def has_to_spare(snapshot: Snapshot, plan: Plan) -> bool:
    """Return whether no query is shed or late, so that further copies of slices take nothing from one."""
    return not pressures(snapshot, plan, 0.0, {})


def auto() -> Stack:
    """Return the policy `auto`."""
    return Stack(
        "auto",
        shedding=reactive(),
        staying=staying(),
        stages=(Place(), ScaleOutAndIn()),
        judge=Judge(),
        lending=Lending(),
        slices=SliceRules(
            Getafix(_SLICING.packing), Router, _SLICING.slice_s, _SLICING.forget_s, may_load=has_to_spare
        ),
    )


__all__ = ["Stack", "auto", "has_to_spare"]
