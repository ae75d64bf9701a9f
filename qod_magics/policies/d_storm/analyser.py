"""The system analyser: what starts a scheduling round (sections 2.6 and 2.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters


class State(Enum):
    """The state of the cluster in one window."""

    PERFORMANCE = "performance"  #: throughput or latency misses its target
    CONSOLIDATE = "consolidate"  #: most of the used nodes are under-used
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Window:
    """Means over one observation window."""

    throughput: float  #: T, rows/s
    workload: float  #: L, rows/s
    latency_s: float | None  #: l; None: unknown
    usage: Mapping[str, float]  #: by used node, u(k): the larger of its shares of CPU and memory, fractions of 1
    max_latency_s: float | None = None  #: the target for `latency_s`; None: that of the parameters


def state_of(window: Window, parameters: Parameters = DEFAULTS) -> State:
    """High usage alone is never a reason to act."""
    limit = parameters.max_latency_s if window.max_latency_s is None else window.max_latency_s
    if falls_behind(window, parameters) or (window.latency_s is not None and window.latency_s > limit):
        return State.PERFORMANCE
    under_used = [node for node, usage in window.usage.items() if usage < parameters.consolidation]
    if len(window.usage) > 1 and 2 * len(under_used) > len(window.usage):
        return State.CONSOLIDATE
    return State.NORMAL


def falls_behind(window: Window, parameters: Parameters = DEFAULTS) -> bool:
    """Whether the throughput does not match the workload."""
    return window.throughput < (1.0 - parameters.tolerance) * window.workload


def is_due(state: State, now_s: float, last_round_s: float, parameters: Parameters = DEFAULTS) -> bool:
    """Whether the solver runs. A signal within the interval after the last round is dropped, not kept."""
    return state is not State.NORMAL and now_s - last_round_s >= parameters.interval_s
