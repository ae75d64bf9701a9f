"""Stream Economics with costs that are learned, in place of "CPU is proportional to accuracy" (Eq. 3.9)."""

from __future__ import annotations

from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.learning import Lessons, learn
from qod_magics.policies.stream_economics.load import Load
from qod_magics.policies.stream_economics.policy import StreamEconomics
from qod_magics.policies.stream_economics.requirements import Requirements, learned
from qod_magics.policies.stream_economics.topology import Topology


class FittedStreamEconomics(StreamEconomics):
    """The same cycle, and CPU = fixed + read * input rate + work * input rate * accuracy for each task.

    What was learned is in the snapshot (`learn`); where it is not, a task is taken as the paper takes it.
    """

    name = "stream-economics-fitted"

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Lessons | None) -> tuple[Snapshot, Lessons]:
        """See `core.policy.LearningPolicy`; `memory` is what the last call returned."""
        return learn(snapshot, measured, memory)

    def requirements(self, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What each task needs for which accuracy, as far as it was learned."""
        return learned(snapshot, topology, load)
