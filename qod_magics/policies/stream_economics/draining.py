"""What waits, as part of the plan: which backlogs are drained, and how much more there is to do until then. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from qod_magics.core.load import Load
from qod_magics.core.optional import DRAIN, SOURCE_LAG, STREAM_LAG
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.topology import Topology
from qod_magics.policies.stream_economics.evidence import Evidence
from qod_magics.policies.stream_economics.requirements import Requirements, learned

#: Seconds of input that ordinarily wait between two reads: not drained.
ALLOWANCE_S = 1.0
#: Seconds of input at which a drain begins: above the noise of a steady state. It then goes on to the allowance.
TRIGGER_S = 2.5
#: Seconds within which a backlog is planned to be gone.
DRAIN_S = 10.0


class Draining(Evidence):
    """Backlogs are part of the load: gone within `DRAIN_S` seconds.

    The controller would thin the input of a task behind which it lies, whoever has CPU to spare beside it. Here the CPU
    for a backlog is asked for like any other: those of lower priority give it first.
    """

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """`snapshot` with `lag_s` of sources and streams that are drained."""
        return with_lag(snapshot, measured, memory if memory is not None else frozenset())

    def requirements(self, required: Requirements, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What each task needs for which accuracy, what waits included."""
        return learned(snapshot, topology, load, DRAIN_S)

    def extras(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """That the plan drains, seconds."""
        return {DRAIN.name: DRAIN_S}


def with_lag(snapshot: Snapshot, measured: Measured, draining: Set[str]) -> tuple[Snapshot, frozenset[str]]:
    """`snapshot` with `lag_s`, seconds of its present input beyond the allowance, of sources and streams that are
    drained; and their names. `draining`: those of the cycle before."""
    going: set[str] = set()

    def seconds(name: str, rate: float | None) -> float | None:
        if rate is None or rate <= 0.0:
            return None  # nothing comes: what waits is done without a plan
        waiting = measured.lag.get(name, 0) / rate
        if waiting <= (ALLOWANCE_S if name in draining else TRIGGER_S):
            return None
        going.add(name)
        return waiting - ALLOWANCE_S

    tasks = list(snapshot.tasks)
    for t, task in enumerate(tasks):
        if not task.upstream:
            lag_s = seconds(task.id, measured.input_rate.get(task.id, task.external_rate))
            if lag_s is not None:
                tasks[t] = replace(task, extra={**task.extra, SOURCE_LAG.name: lag_s})
    streams = list(snapshot.streams)
    for s, stream in enumerate(streams):
        name = f"{stream.source}>{stream.target}"
        lag_s = seconds(name, measured.input_rate.get(name))
        if lag_s is not None:
            streams[s] = replace(stream, extra={**stream.extra, STREAM_LAG.name: lag_s})
    if not going:
        return snapshot, frozenset()
    return replace(snapshot, tasks=tuple(tasks), streams=tuple(streams)), frozenset(going)
