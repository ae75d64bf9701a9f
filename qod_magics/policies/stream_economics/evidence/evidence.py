"""Evidence beyond the loads of a snapshot for when to shed and move: none, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from qod_magics.core.dag import Topology
from qod_magics.core.load import Load
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.model.requirements import Requirements
from qod_magics.policies.stream_economics.model.situation import Situation


class Evidence:
    """Each method is a hook where evidence may change a cycle's decision; these change nothing."""

    def __repr__(self) -> str:
        return type(self).__name__

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """`snapshot` with learned values in its optional fields, and the memory for the next call; None at first."""
        return snapshot, memory

    def settled(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot to decide on."""
        return snapshot

    def requirements(self, required: Requirements, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """CPU that tasks need and task managers have; `required` is that by costs alone."""
        return required

    def is_open(self, snapshot: Snapshot) -> Sequence[bool]:
        """By task manager: whether its CPU is not limited yet, so that `requirements` don't apply to it."""
        return [False] * len(snapshot.task_managers)

    #: Whether a warm-up excludes all instances of its task manager from sharing, or only the one that warms up.
    warm_ups_exclude_all = True

    def excluded_by_warm_ups(self, situation: Situation) -> Set[int]:
        """The instances (positions) that a warm-up excludes from sharing: all on its task manager (section 3)."""
        warming, homes = situation.load.warming, situation.load.manager_of
        return {i for i, home in enumerate(homes) if warming[home]} if any(warming) else set()

    def movable(self, failed: Sequence[int], situation: Situation) -> Sequence[int]:
        """The instances (positions) in `failed`, chosen to leave, that may do so."""
        return failed

    def left(self, available: list[float], situation: Situation) -> list[float]:
        """CPU to share by task manager, given the `available` above the minimum accuracies, % of one core."""
        return available

    def extras(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Further requests of the plan: keys of `core.optional.REQUESTS`."""
        return {}


NO_EVIDENCE = Evidence()
