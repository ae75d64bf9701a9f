"""A criterion of a verdict, and its outcome. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ACCURACY_TOLERANCE = 0.02  #: fraction of 1: sampling noise of one cycle


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion and its outcome."""

    name: str
    passed: bool
    detail: str  #: the numbers, in one line


def format_verdict(criteria: Iterable[Criterion]) -> str:
    """One line per criterion: "PASS name: detail" or "FAIL name: detail"."""
    return "\n".join(f"{'PASS' if c.passed else 'FAIL'} {c.name}: {c.detail}" for c in criteria)
