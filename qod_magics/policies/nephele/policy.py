"""Nephele Streaming as a policy of channels, and what it is compared with: buffers of a fixed size, and none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qod_magics.core.channel_qos import Manager
from qod_magics.core.job_graph import JobConstraint, RuntimeGraph
from qod_magics.policies.nephele.manager import QosManager
from qod_magics.policies.nephele.parameters import DEFAULTS, Parameters
from qod_magics.policies.nephele.placement import paths, setup


@dataclass(frozen=True, slots=True)
class Nephele:
    """Adapts buffer sizes and chains tasks while constraints are violated."""

    parameters: Parameters = DEFAULTS
    name: str = "nephele"
    flushes: bool = False

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """One on each worker of an anchor. Raises UsageProblem for a constraint that the job cannot have."""
        placed = setup(graph, paths(graph, constraints))
        return [QosManager(graph, each, constraints, self.parameters) for each in placed.values()]


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """Nothing is changed while the job runs."""

    name: str
    flushes: bool

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """None. Raises UsageProblem for a constraint that the job cannot have, as Nephele does."""
        paths(graph, constraints)
        return []


def nephele(parameters: Parameters = DEFAULTS) -> Nephele:
    """Nephele Streaming."""
    return Nephele(parameters)


def fixed_buffers() -> Unmanaged:
    """Buffers keep their initial size and are shipped when they are full."""
    return Unmanaged("nephele-fixed-buffers", flushes=False)


def flush() -> Unmanaged:
    """A buffer is shipped after each item."""
    return Unmanaged("nephele-flush", flushes=True)
