"""What beside the loads of a snapshot decides when Stream Economics sheds and moves: nothing, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qod_magics.core.load import Load
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.topology import Topology
from qod_magics.policies.stream_economics.requirements import Requirements
from qod_magics.policies.stream_economics.situation import Situation


class Evidence:
    """Each method is one place of a cycle where evidence may change what is decided; these change nothing."""

    def __repr__(self) -> str:
        return type(self).__name__

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """`snapshot` with what is known now in its optional fields, and the memory for the next call; None at first."""
        return snapshot, memory

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot to decide on."""
        return snapshot

    def requirements(self, required: Requirements, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What tasks need and task managers have, given what that is by costs alone."""
        return required

    def is_open(self, snapshot: Snapshot) -> Sequence[bool]:
        """By task manager: whether nothing is scarce there yet, so that `requirements` say nothing of it."""
        return [False] * len(snapshot.task_managers)

    def waiting_for_warm_ups(self, situation: Situation) -> Sequence[bool]:
        """By task manager: whether its instances take no part in sharing, since one of them warms up."""
        return situation.load.warming

    def movable(self, failed: Sequence[int], situation: Situation) -> Sequence[int]:
        """Of the instances (positions) that leave for the minimum accuracies, those that may."""
        return failed

    def left(self, available: list[float], situation: Situation) -> list[float]:
        """CPU that may be shared by task manager, given what is left above the minimum accuracies, % of one core."""
        return available

    def extras(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """What the plan says beside accuracies and moves: keys of `core.optional.REQUESTS`."""
        return {}


NO_EVIDENCE = Evidence()
