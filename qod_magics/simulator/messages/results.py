"""Results of a run of single messages: latencies by job, and the books of messages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from qod_magics.core.engines import MS


class JobResults:
    """The results of one job, in the order of production."""

    def __init__(self, name: str, max_latency: int) -> None:
        self.name = name
        self.max_latency = max_latency  #: ns; 0: none is stated
        self.produced = array("q")  #: ns
        self.latency = array("q")  #: ns from the arrival of the last row that influenced it
        self.progress = array("q")  #: ns of event time
        self.rows = 0  #: in all

    def add(self, now: int, observed: int, progress: int, rows: int) -> None:
        """Add a result that was produced."""
        self.produced.append(now)
        self.latency.append(now - observed)
        self.progress.append(progress)
        self.rows += rows

    def percentile_ms(self, percent: float) -> float | None:
        """Return a percentile of the latencies; None without a result."""
        return float(np.percentile(np.asarray(self.latency), percent)) / MS if self.latency else None

    @property
    def success(self) -> float | None:
        """Return the share of the results within the target; None without a target or result."""
        if not self.latency or not self.max_latency:
            return None
        return float(np.mean(np.asarray(self.latency) <= self.max_latency))


class Results:
    """The results of all jobs, by job number."""

    def __init__(self, jobs: Sequence[tuple[str, int]]) -> None:
        self.jobs = tuple(JobResults(name, max_latency) for name, max_latency in jobs)

    def of(self, prefix: str) -> JobResults:
        """Return the results of all jobs whose name begins with this, as those of one job, in the order of
        production."""
        chosen = [job for job in self.jobs if job.name.startswith(prefix)]
        if not chosen:
            raise ValueError(f"no job's name begins with {prefix!r}: {', '.join(job.name for job in self.jobs)}")
        together = JobResults(prefix, max(job.max_latency for job in chosen))
        rows = sorted(
            (produced, latency, progress)
            for job in chosen
            for produced, latency, progress in zip(job.produced, job.latency, job.progress, strict=True)
        )
        for produced, latency, progress in rows:
            together.produced.append(produced)
            together.latency.append(latency)
            together.progress.append(progress)
        together.rows = sum(job.rows for job in chosen)
        return together


@dataclass(slots=True)
class Books:
    """Where each message is: `made = held + in_flight + waiting + running + done`, at each moment.

    So no message is lost or runs twice.

    Messages between dispatchers are done when they arrive, all others when they have run.
    """

    made: int = 0
    held: int = 0  #: made, and not yet sent: a dispatcher waits for replies
    in_flight: int = 0
    waiting: int = 0  #: arrived, and not running
    running: int = 0
    done: int = 0

    @property
    def left(self) -> int:
        """Messages that are not done."""
        return self.held + self.in_flight + self.waiting + self.running

    def check(self) -> None:
        """Raise AssertionError if the counts don't add up."""
        counts = asdict(self)
        assert min(counts.values()) >= 0, f"negative counts: {counts}"
        assert self.made == self.left + self.done, f"messages were lost or run twice: {counts}"
