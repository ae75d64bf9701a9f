"""A run under a policy of Dirigo, and what is read off it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import Source
from qod_magics.core.engines import MS, Dispatcher, S
from qod_magics.policies.dirigo import (
    AcceptAndCheck,
    LaxityBasedDirect,
    Options,
    Parallel,
    PriorityBased,
    QueueBasedDirect,
    RejectSend,
)
from qod_magics.simulator.messages import Dataflow, Engine, Job, Store

DIRIGO = Source("Dirigo")
STATIC, QUEUE, LAXITY, REJECT, ACCEPT = "static", "queue", "laxity", "reject", "accept"
PARALLEL = "2RTT-parallel"
MADE = {
    STATIC: PriorityBased,
    QUEUE: QueueBasedDirect,
    LAXITY: LaxityBasedDirect,
    REJECT: RejectSend,
    ACCEPT: AcceptAndCheck,
    PARALLEL: Parallel,
}
FIVE = (STATIC, QUEUE, LAXITY, REJECT, ACCEPT)
CALIBRATIONS = Path(__file__).parent / "calibrations"


@cache
def calibration(name: str) -> Mapping[str, Any]:
    """The numbers of an experiment: those given by the source, and those chosen, by which anchor."""
    found = json.loads((CALIBRATIONS / f"{name}.json").read_text(encoding="utf-8"))
    return {**found["given"], **found["chosen"], "anchor": found["anchor"]}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    median_ms: float
    mean_ms: float
    tail_ms: float  #: 99th percentile
    success: float  #: share of the results within their targets
    fetches: int  #: state objects that were read from the store
    busy: tuple[float, ...]  #: share of the time, by worker
    engine: Engine


def measured(
    jobs: Sequence[Job],
    policy: str,
    *,
    workers: int,
    delay_ms: float,
    seconds: float,
    options: Options | None = None,
    store: Store | None = None,
    dispatcher: Dispatcher | None = None,
    drain: float = 10.0,
    seed: int = 0,
    warm: float = 0.0,
    places: Mapping[str, int] | None = None,
) -> Measured:
    """Run jobs for some seconds of virtual time, and on for up to `drain` times that until all is done.

    What arrives in the first `warm` share of them isn't counted.
    """
    chosen = dispatcher or MADE[policy](options or Options(seed=seed))
    dataflow = Dataflow(jobs, machines=workers, delay_us=1000 * delay_ms, places=places)
    engine = Engine(dataflow, chosen, seed=seed, store=store)
    until = round(seconds * S)
    begin = round(until * warm)
    before = 0
    if begin:
        engine.run(until, end=begin)
        before = sum(store.fetches) if store else 0
    engine.run(until, end=round(until * (1 + drain)))
    engine.check()
    late = sum(getattr(operator, "late", 0) for operator in engine.operators)
    assert not late, f"{late} rows were executed after their windows had been closed"
    jobs_of = engine.results.jobs
    latency = np.concatenate([np.asarray(job.latency) for job in jobs_of])
    target = np.concatenate([np.full(len(job.latency), job.max_latency) for job in jobs_of])
    arrived = np.concatenate([np.asarray(job.produced) for job in jobs_of]) - latency
    latency, target = latency[arrived >= begin], target[arrived >= begin]
    return Measured(
        float(np.percentile(latency, 50)) / MS,
        float(np.mean(latency)) / MS,
        float(np.percentile(latency, 99)) / MS,
        float(np.mean(latency <= target)),
        sum(store.fetches) - before if store else 0,
        tuple(busy / max(engine.now, 1) for busy in engine.busy),
        engine,
    )
