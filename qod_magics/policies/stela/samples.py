"""Rates of tasks as means over the last snapshots, and the job that they make (section 2.2.2). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from sys import float_info
from typing import TypeVar

from qod_magics.core.optional import BUSY, MAX_PARALLELISM, STATEFUL
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.graph import Graph
from qod_magics.policies.stela.job import Job

_Key = TypeVar("_Key")

WINDOW = 20  #: samples that a mean is taken over (R6)


@dataclass(frozen=True, slots=True)
class Sample:
    """The rates of one snapshot, rows/s, and the shares of the time at work."""

    processed: Sequence[float]  #: by task
    emitted: Sequence[float]  #: by stream
    offered: Sequence[float | None]  #: by task; None: no source, or unknown
    busy: Sequence[float | None]  #: by task: mean of its instances, fraction of 1; None: unknown

    @classmethod
    def of(cls, snapshot: Snapshot) -> Sample:
        """P_o: what its instances read; e: what the streams carry; I_o of sources: their external rate (R5)."""
        position = {task.id: i for i, task in enumerate(snapshot.tasks)}
        processed = [0.0] * len(position)
        at_work: list[list[float | None]] = [[] for _ in position]
        for instance in snapshot.instances:
            t = position[instance.task]
            processed[t] += instance.in_rate
            at_work[t].append(BUSY.of(instance))
        return cls(
            tuple(min(rate, float_info.max) for rate in processed),
            tuple(stream.out_rate for stream in snapshot.streams),
            tuple(task.external_rate for task in snapshot.tasks),
            tuple(map(_mean_share, at_work)),
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """The last `WINDOW` samples of one configuration, one for each cycle of the controller (the source: each 10 s).

    When tasks or streams are declared anew, or a task's number of instances changes, the window begins anew: rates from
    before describe another configuration.
    """

    configuration: tuple[object, ...] = ()
    rows: tuple[Sample, ...] = ()

    def with_(self, snapshot: Snapshot) -> Samples:
        """The window with this snapshot's rates as the last sample."""
        configuration = _configuration(snapshot)
        rows = self.rows if configuration == self.configuration else ()
        return Samples(configuration, (*rows[1 - WINDOW :], Sample.of(snapshot)))

    def job(self, snapshot: Snapshot) -> Job:
        """The job of a snapshot, which is the last sample, with mean rates.

        They are exact, so that equal ones compare as equal. K_o is `max_parallelism`; without it there is no limit,
        and the runtime refuses what it can't start. A task with state keeps its instances: Stela's are stateless.
        """
        tasks = [task.id for task in snapshot.tasks]
        edges = tuple((stream.source, stream.target) for stream in snapshot.streams)
        instances = Counter(instance.task for instance in snapshot.instances)
        most = {}
        for task in snapshot.tasks:
            limit = MAX_PARALLELISM.of(task)
            if STATEFUL.of(task):
                most[task.id] = instances[task.id]
            elif limit is not None:
                most[task.id] = int(limit)
        processed = _means(tasks, (row.processed for row in self.rows))
        busy = _means(tasks, (row.busy for row in self.rows))
        return Job(
            Graph(tuple(tasks), edges),
            processed,
            _means(edges, (row.emitted for row in self.rows)),
            _means(tasks, (row.offered for row in self.rows)),
            instances,
            most,
            {task: processed[task] / share for task, share in busy.items() if share},
        )


NO_SAMPLES = Samples()


def job_of(snapshot: Snapshot) -> Job:
    """The job of one snapshot alone."""
    return NO_SAMPLES.with_(snapshot).job(snapshot)


def _configuration(snapshot: Snapshot) -> tuple[object, ...]:
    instances = Counter(instance.task for instance in snapshot.instances)
    return (
        tuple((task.id, instances[task.id]) for task in snapshot.tasks),
        tuple((stream.source, stream.target) for stream in snapshot.streams),
    )


def _mean_share(shares: Sequence[float | None]) -> float | None:
    known = [min(share, 1.0) for share in shares if share is not None]
    return fmean(known) if known and len(known) == len(shares) else None


def _means(keys: Sequence[_Key], rows: Iterable[Sequence[float | None]]) -> Mapping[_Key, Fraction]:
    """The mean of each key's known values; without any it is left out."""
    known: dict[_Key, list[Fraction]] = {}
    for row in rows:
        for key, value in zip(keys, row, strict=True):
            if value is not None:
                known.setdefault(key, []).append(Fraction(value))
    return {key: sum(values, Fraction(0)) / len(values) for key, values in known.items()}
