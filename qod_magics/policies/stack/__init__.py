"""Policies that compose stages: `auto` sheds, moves, scales and starts task managers, each where it is the cheapest."""

from __future__ import annotations

from qod_magics.policies.stack.place import Place
from qod_magics.policies.stack.scale import ScaleOutAndIn
from qod_magics.policies.stack.stack import Stack
from qod_magics.policies.stream_economics.variants import reactive, staying


def auto() -> Stack:
    """The policy `auto`."""
    return Stack("auto", shedding=reactive(), staying=staying(), stages=(Place(), ScaleOutAndIn()))


__all__ = ["Stack", "auto"]
