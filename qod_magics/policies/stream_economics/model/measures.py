"""Requirements computed once per snapshot, for decisions and their explanations. Pure.

`topology` is always that of the snapshot's tasks. Results are shared: do not change them.
"""

from __future__ import annotations

from qod_magics.core.columns import column
from qod_magics.core.dag import Topology
from qod_magics.core.load import load_of
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.model.requirements import Requirements, learned, proportional


def paper_requirements(snapshot: Snapshot, topology: Topology) -> Requirements:
    """CPU that each task needs by accuracy, in the paper's model."""
    return snapshot.derived("paper", lambda: proportional(snapshot, topology, load_of(snapshot, topology)))


def known_requirements(snapshot: Snapshot, topology: Topology) -> Requirements:
    """The same by learned costs where they are known; without any, the paper's."""
    if not any(column(snapshot.tasks, "extra")) and not any(column(snapshot.task_managers, "extra")):
        return paper_requirements(snapshot, topology)
    return snapshot.derived("known", lambda: learned(snapshot, topology, load_of(snapshot, topology)))


def minimums(snapshot: Snapshot, topology: Topology, required: Requirements) -> list[float]:
    """minReq(t) by task position, % of one core."""
    first = snapshot.derived("minimums", lambda: (required, required.all_of(topology.min_accuracy)))
    return first[1] if first[0] is required else required.all_of(topology.min_accuracy)
