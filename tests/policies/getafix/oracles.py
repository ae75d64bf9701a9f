"""The cases of the source and around it, with exact numbers; nodes are numbered from 1."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from qod_magics.policies.getafix.packing import Allocation

DATA = Path(__file__).parent / "data"


def oracle(id: str) -> dict[str, Any]:
    """The case of this id, such as "G1"."""
    found: dict[str, Any] = json.loads((DATA / f"{id.lower()}.json").read_text(encoding="utf-8"))
    return found


def steps_of(plan: Allocation) -> list[list[Any]]:
    """The steps as the cases write them."""
    return [[step.segment, step.remaining, step.node + 1, step.put, step.left] for step in plan.steps]


def exact(value: float) -> Fraction:
    """A number as it is written."""
    return Fraction(str(value))
