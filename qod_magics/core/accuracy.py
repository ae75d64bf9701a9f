"""The measured current accuracy of tasks, a fraction of 1 each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core.dag import Dag
from qod_magics.core.keyed import Keyed
from qod_magics.core.load import load_of
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.core.topology import Topology

FULL_ACCURACY = 0.999  #: measured accuracy that counts as 1


def current_accuracy(snapshot: Snapshot) -> Mapping[str, float]:
    """curAc(t) by task of a valid snapshot: the share of its input that it reads, times the lowest curAc upstream."""
    dag = Dag.of(snapshot)
    return Keyed(dag.tasks, current_accuracies(snapshot, dag.topology))


def current_accuracies(snapshot: Snapshot, topology: Topology) -> Sequence[float]:
    """The same by task position, computed once per snapshot; do not change it. `topology` is that of its tasks.

    Stream Economics, model items 2 and 3, Eqs. 3.4 and 3.5: the instance with the lowest input rate counts for a task.
    """
    return snapshot.derived("current accuracy", lambda: _measured(snapshot, topology))


def _measured(snapshot: Snapshot, topology: Topology) -> list[float]:
    load = load_of(snapshot, topology)
    least_in_rate, width = load.least_in_rate, load.width
    arriving = [rate or 0.0 for rate in column(snapshot.tasks, "external_rate")]
    targets = map(topology.position.__getitem__, column(snapshot.streams, "target"))
    for target, rate in zip(targets, column(snapshot.streams, "out_rate"), strict=True):
        arriving[target] += rate
    upstream = topology.upstream
    due = [rate / n for rate, n in zip(arriving, width, strict=True)]  # rows/s each instance would read if it kept up
    current = [least / rate if least < rate else 1.0 for least, rate in zip(least_in_rate, due, strict=True)]
    for t in topology.order:
        if upstream[t]:
            above = 1.0
            for source in upstream[t]:
                if current[source] < above:
                    above = current[source]
            current[t] *= above
    return current
