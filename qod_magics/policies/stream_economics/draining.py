"""What waits, as part of the plan: which backlogs are drained, and how much more there is to do until then. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from qod_magics.core.optional import SOURCE_LAG, STREAM_LAG
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot

#: So many seconds of input between two reads are the ordinary rest: they are left where they are.
ALLOWANCE_S = 1.0
#: A drain begins when so many wait, lest a steady state be thinned for its noise; begun, it goes on to the allowance.
TRIGGER_S = 2.5
#: What waits is planned to be gone after so many seconds.
DRAIN_S = 10.0


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
