"""Stream Economics: shed load early, by priority, above minimum accuracies; move tasks only where those do not fit.

The cycle is `policy.StreamEconomics.decide`; each other module holds one of its concepts.
"""

from __future__ import annotations

from qod_magics.core.dag import restrictions
from qod_magics.policies.stream_economics.placing import (
    UNKNOWN_ESTIMATE,
    PlacementRequest,
    available_cpu,
    estimated_cpu,
    place,
)
from qod_magics.policies.stream_economics.policy import StreamEconomics
from qod_magics.policies.stream_economics.requirements import actual_accuracy

__all__ = [
    "UNKNOWN_ESTIMATE",
    "PlacementRequest",
    "StreamEconomics",
    "actual_accuracy",
    "available_cpu",
    "estimated_cpu",
    "place",
    "restrictions",
]
