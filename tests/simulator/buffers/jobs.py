"""Small jobs with output buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ELEMENTS = ["e(P,D)", "D", "e(D,M)", "M", "e(M,E)", "E", "e(E,R)"]


def video(**more: Any) -> dict[str, Any]:
    """Two pipelines of a decoder, a merger and an encoder."""
    streams = {
        "count": 8,
        "group": 2,
        "items_per_s": 20,
        "kbit_per_s": 100,
        "spread": 0.3,
        "item_spread": 0.3,
        "start_s": 0.5,
        **more.pop("streams", {}),
    }
    network = {"buffer_cost_us": 100, "transport_ms": 5, "handover_ms": 1, "item_overhead": 10}
    return {
        "engine": "output-buffers",
        "seed": 3,
        "duration_s": 24,
        "workers": 2,
        "interval_s": 2,
        "vertices": [
            {"name": "P", "kind": "source", "parallelism": 4},
            {"name": "D", "kind": "map", "parallelism": 2, "work_us": 2000, "bytes": 40000},
            {"name": "M", "kind": "merge", "parallelism": 2, "work_us": 100, "inputs": 2, "bytes": 40000},
            {"name": "E", "kind": "map", "parallelism": 2, "work_us": 3000, "bytes_ratio": 0.8},
            {"name": "R", "kind": "sink", "parallelism": 2},
        ],
        "edges": [
            ["P", "D", "all-to-all"],
            ["D", "M", "pointwise"],
            ["M", "E", "pointwise"],
            ["E", "R", "all-to-all"],
        ],
        "constraints": [{"sequence": ELEMENTS, "limit_ms": 60, "span_s": 2}],
        "streams": streams,
        "network": network,
        **more,
    }


def pair(duration_s: float, streams: Mapping[str, Any], network: Mapping[str, Any]) -> dict[str, Any]:
    """A sender and a receiver on two workers, on a link of 1 MB/s."""
    return {
        "engine": "output-buffers",
        "duration_s": duration_s,
        "interval_s": duration_s,
        "workers": 2,
        "vertices": [
            {"name": "A", "kind": "source", "parallelism": 1},
            {"name": "B", "kind": "sink", "parallelism": 1, "first_worker": 2},
        ],
        "edges": [["A", "B", "pointwise"]],
        "streams": dict(streams),
        "network": {"bits_per_s": 8e6, "buffer_cost_us": 100, "transport_ms": 10, **network},
    }
