"""The cases of the source and around it, with exact numbers; nodes are numbered from 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def replica_bounds(segments: int, nodes: int) -> tuple[int, int]:
    """Return the lower bound on the copies of any plan, m, and upper bound on those of ModifiedBestFit, m + n - 1 (4).

    ModifiedBestFit splits a segment only when it fills a node, which it does at most n - 1 times before the end.
    Segments without pairs do not count.
    """
    return segments, segments + nodes - 1 if segments else 0


def most_effective_replication_factor(segments: int, nodes: int) -> float:
    """Return (m + n - 1) / m, which R / m does not exceed."""
    return (segments + nodes - 1) / segments


def effective_replication_factor(plan: Allocation) -> float:
    """R / m, the copies per segment, of the segments that have pairs; 0 without any."""
    segments = {segment for each in plan.bins for segment in each}
    return plan.replicas / len(segments) if segments else 0.0


def probabilities(shares: Mapping[str, int]) -> dict[str, Fraction]:
    """The chance of each node to get a pair: y_jh / sum over h."""
    total = sum(shares.values())
    return {node: Fraction(share, total) for node, share in shares.items()}
