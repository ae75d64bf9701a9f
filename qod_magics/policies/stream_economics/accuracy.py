"""Current accuracies, and how accuracy and CPU turn into each other. Fractions of 1, % of one core, rows/s."""

from __future__ import annotations

from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.stream_economics.topology import Topology

FULL_CORE = 100.0  #: an instance is one thread: it can't use more than one core, in % of one core


def current_accuracy(
    snapshot: Snapshot, topology: Topology, least_in_rate: list[float], width: list[int]
) -> list[float]:
    """curAc(t) by task position (model items 2 and 3, Eqs. 3.4 and 3.5).

    `least_in_rate[t]` is the least input rate of its instances in rows/s, `width[t]` their number.
    """
    arriving = [rate or 0.0 for rate in column(snapshot.tasks, "external_rate")]
    position = topology.position
    for target, rate in zip(column(snapshot.streams, "target"), column(snapshot.streams, "out_rate"), strict=True):
        arriving[position[target]] += rate
    upstream = topology.upstream
    current = [1.0] * len(arriving)
    for t in topology.order:
        due = arriving[t] / width[t]  # rows/s each instance would read if it kept up
        local = least_in_rate[t] / due if due > 0.0 else 1.0
        if local > 1.0:
            local = 1.0
        above = 1.0
        for source in upstream[t]:
            if current[source] < above:
                above = current[source]
        current[t] = local * above
    return current


def required_cpu(accuracy: float, cpu: float, current: float) -> float:
    """rCpu(t, a): % of one core that a task needs for `accuracy`, given its CPU now and accuracy now (Eq. 3.9)."""
    if current == 0.0:
        return 0.0 if accuracy == 0.0 else FULL_CORE
    needed = accuracy * cpu / current
    return needed if needed < FULL_CORE else FULL_CORE


def obtained_accuracy(share: float, cpu: float, current: float) -> float:
    """obtAc(t, c): the accuracy that `share` % of one core buys, given CPU and accuracy now (Eq. 3.12)."""
    if current == 0.0:
        return 0.0 if share == 0.0 else 1.0
    if cpu == 0.0:
        return current if share == 0.0 else 1.0
    accuracy = current * share / cpu
    return accuracy if accuracy < 1.0 else 1.0
