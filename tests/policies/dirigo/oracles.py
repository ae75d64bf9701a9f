"""The exact cases of the design, as data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
NAMES = (
    "burst",
    "chunks",
    "dbs-choice",
    "fetches",
    "marker-count",
    "marker-merge",
    "neighbours",
    "queue",
    "queue-errata",
    "staggered",
    "violators",
    "zipf",
)


def oracle(name: str) -> dict[str, Any]:
    """The case of this name."""
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


class Listed:
    """Replays a list of draws in order, for exact cases."""

    def __init__(self, draws: Sequence[Sequence[int]]) -> None:
        self._left = list(draws)

    def some(self, workers: Sequence[int], number: int) -> Sequence[int]:
        """Return the next one. ValueError if it isn't among the workers, or has more than asked for."""
        drawn = self._left.pop(0)
        if not set(drawn) <= set(workers) or len(drawn) > number:
            raise ValueError(f"the draw {drawn} is not {number} of {workers}")
        return drawn


def marker_count(senders: int, workers: int, by_lessor: bool) -> int:
    """Return the markers per window on the way to the workers of a function: M*N from the senders, M+N through the
    lessor."""
    return senders + workers if by_lessor else senders * workers
