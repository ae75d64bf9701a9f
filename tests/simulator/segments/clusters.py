"""Small clusters of segments."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from qod_magics.simulator.segments import SegmentScenario

SMALL: dict[str, Any] = {
    "engine": "segments",
    "segments": {"kept": 4, "slice_s": 10, "handoff_s": 4, "bytes": [100, 300]},
    "nodes": [{"count": 3, "cores": 1}],
    "clients": {"count": 2, "queries_per_s": 20},
    "queries": {"kinds": [{"name": "top-n", "share": 1, "ms": 10}], "zipf": 1.2},
    "deep_storage": {"latency_ms": 100, "bytes_per_s": 400},
    "round_s": 2,
    "duration_s": 40,
    "warm_up_s": 4,
    "seed": 3,
}


def small(**changes: Any) -> SegmentScenario:
    """SMALL with other top fields; a dict changes fields of its object."""
    value = deepcopy(SMALL)
    for name, change in changes.items():
        value[name] = {**value[name], **change} if isinstance(change, dict) and name in value else change
    return SegmentScenario.from_json(value)
