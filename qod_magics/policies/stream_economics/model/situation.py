"""The input of a Stream Economics cycle, and the result for its minimum accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.dag import Topology
from qod_magics.core.load import Hosting, Load
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.model.reach import Reach
from qod_magics.policies.stream_economics.model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a cycle. Positions are those in the snapshot."""

    snapshot: Snapshot
    topology: Topology
    reach: Reach
    load: Load
    required: Requirements
    by_costs: Requirements  #: the same by costs alone, without other evidence
    is_open: Sequence[bool]  #: by task manager: its CPU is not limited yet, so that `required` doesn't apply to it
    min_required: list[float]  #: by task: minReq(t), % of one core
    hosting: Hosting


@dataclass(frozen=True, slots=True)
class Minimums:
    """The result for the minimum accuracies."""

    available: list[float]  #: by task manager: CPU left above them, % of one core
    failed: list[int]  #: instances that leave
    starved: list[int]  #: task managers where they do not fit
    place: Mapping[str, str]  #: where the failed go
