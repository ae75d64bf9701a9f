"""One run of jobs under a dispatcher, and its figures."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qod_magics.core.engines import MS, Dispatcher, S
from qod_magics.policies.of_engines import dispatcher
from qod_magics.simulator.messages import Dataflow, Engine, Job, Overheads

BASELINES = ("orleans", "fifo")
COMPARED = ("cameo", *BASELINES)


@dataclass(frozen=True, slots=True)
class Group:
    """The results of the jobs of one kind, produced after the warm-up."""

    latency_ms: tuple[float, ...]
    target_ms: float
    rows: int  #: in all

    def percentile(self, percent: float) -> float:
        """Of the latencies, ms; nan without results."""
        return float(np.percentile(self.latency_ms, percent)) if self.latency_ms else float("nan")

    @property
    def median(self) -> float:
        """Ms."""
        return self.percentile(50)

    @property
    def p99(self) -> float:
        """Ms."""
        return self.percentile(99)

    @property
    def mean(self) -> float:
        """Ms."""
        return float(np.mean(self.latency_ms)) if self.latency_ms else float("nan")

    @property
    def deviation(self) -> float:
        """Standard deviation, ms."""
        return float(np.std(self.latency_ms)) if self.latency_ms else float("nan")

    @property
    def success(self) -> float:
        """Share of the results within the target."""
        if not self.latency_ms:
            return float("nan")
        return sum(each <= self.target_ms for each in self.latency_ms) / len(self.latency_ms)


@dataclass(slots=True)
class Finished:
    """A run's figures."""

    engine: Engine
    cpu_s: float  #: of this process
    warm_up_s: float
    groups: dict[str, Group] = field(default_factory=dict)

    def group(self, kind: str) -> Group:
        """Of the jobs whose name begins with `kind`."""
        if kind not in self.groups:
            found = self.engine.results.of(kind)
            after = self.warm_up_s * S
            latency = tuple(each / MS for each, at in zip(found.latency, found.produced, strict=True) if at >= after)
            self.groups[kind] = Group(latency, found.max_latency / MS, found.rows)
        return self.groups[kind]

    @property
    def load(self) -> float:
        """Busy share of the workers."""
        return sum(self.engine.busy) / len(self.engine.busy) / max(self.engine.now, 1)


def run(
    jobs: Sequence[Job],
    by: str | Callable[[], Dispatcher],
    cluster: Mapping[str, Any],
    seconds: float,
    *,
    warm_up_s: float = 0.0,
    seed: int = 1,
    overheads: Overheads | None = None,
) -> Finished:
    """Run jobs for some seconds of virtual time. Books are checked at the end."""
    made = dispatcher(by) if isinstance(by, str) else by()
    flow = Dataflow(
        jobs,
        machines=cluster.get("machines", 1),
        workers=cluster.get("workers", 4),
        delay_us=cluster.get("delay_us", 0.0),
    )
    engine = Engine(flow, made, seed=seed, overheads=overheads)
    collects = gc.isenabled()
    gc.disable()  # messages are no garbage of cycles: looking for some takes a tenth of the time
    try:
        began = time.process_time()
        engine.run(round(seconds * S))
        took = time.process_time() - began
    finally:
        if collects:
            gc.enable()
    engine.check()
    return Finished(engine, took, warm_up_s)
