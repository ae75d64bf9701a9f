"""The exact cases of the design, as data."""

from __future__ import annotations

import json
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
