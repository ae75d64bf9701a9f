"""Nephele Streaming as a policy of channels, and what it is compared with: buffers of a fixed size, and none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from qod_magics.core.channel_qos import Manager
from qod_magics.core.job_graph import JobConstraint, RuntimeGraph
from qod_magics.policies.nephele.manager import QosManager
from qod_magics.policies.nephele.parameters import DEFAULTS, Parameters
from qod_magics.policies.nephele.placement import paths, setup

Given: TypeAlias = Parameters | Mapping[str, Any] | None  #: parameters, or those of JSON; None: the defaults


@dataclass(frozen=True, slots=True)
class Nephele:
    """Adapts buffer sizes and chains tasks while constraints are violated."""

    parameters: Parameters = DEFAULTS
    name: str = "nephele"
    flushes: bool = False

    @property
    def initial_bytes(self) -> int:
        """Size of all buffers at the start."""
        return self.parameters.initial_bytes

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """One on each worker of an anchor. Raises UsageProblem for a constraint that the job cannot have."""
        placed = setup(graph, paths(graph, constraints))
        return [QosManager(graph, each, constraints, self.parameters) for each in placed.values()]


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """Nothing is changed while the job runs."""

    name: str
    flushes: bool
    initial_bytes: int = DEFAULTS.initial_bytes

    def managers(self, graph: RuntimeGraph, constraints: Sequence[JobConstraint]) -> list[Manager]:
        """None. Raises UsageProblem for a constraint that the job cannot have, as Nephele does."""
        paths(graph, constraints)
        return []


def nephele(parameters: Given = None) -> Nephele:
    """Nephele Streaming."""
    return Nephele(Parameters.of(parameters))


def fixed_buffers(parameters: Given = None) -> Unmanaged:
    """Buffers keep their initial size and are shipped when they are full."""
    return Unmanaged("nephele-fixed-buffers", False, Parameters.of(parameters).initial_bytes)


def flush(parameters: Given = None) -> Unmanaged:
    """A buffer is shipped after each item."""
    return Unmanaged("nephele-flush", True, Parameters.of(parameters).initial_bytes)
