"""Policies that compose stages: `auto` sheds, moves, scales and starts task managers, and takes back what did harm."""

from __future__ import annotations

from qod_magics.policies.stack.place import Place, ScaleOutAndIn
from qod_magics.policies.stack.stack import Stack
from qod_magics.policies.stack.stage import Judge
from qod_magics.policies.stream_economics.policy import reactive, staying


def auto() -> Stack:
    """Return the policy `auto`."""
    return Stack("auto", shedding=reactive(), staying=staying(), stages=(Place(), ScaleOutAndIn()), judge=Judge())


__all__ = ["Stack", "auto"]
