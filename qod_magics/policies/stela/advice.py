"""For policies that decide when to scale: where one more instance, or a new task manager, moves throughput most. Pure.

Stela itself scales only on request. A policy that finds out by itself that a job needs more asks here.
"""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.etp import etp
from qod_magics.policies.stela.gains import Gains
from qod_magics.policies.stela.options import DEFAULT, Options
from qod_magics.policies.stela.samples import NO_SAMPLES, Samples


@dataclass(frozen=True, slots=True)
class Advice:
    """A task that may have one more instance."""

    task: str
    etp: float  #: fraction of 1 of the job's throughput that it can move
    congested: bool  #: False: a source, given where no congested task may have more; nothing waits for it


def one_more(snapshot: Snapshot, options: Options = DEFAULT, samples: Samples | None = None) -> tuple[Advice, ...]:
    """The tasks that may have one more instance, the one that moves throughput most first; () if none may.

    Congested tasks in the order of their ETPs; where none of them may have more instances, the sources that may, in
    declared order. A task that sheds is congested once it keeps less than 1 / `congestion_rate` of its input: its
    rates in snapshots are those after its shedder, its streams' those before.

    Args:
        snapshot: a valid one.
        options: the readings of Stela.
        samples: mean rates of several snapshots, the last of which is this one; None: the rates of this one.

    """
    job = (samples or NO_SAMPLES.with_(snapshot)).job(snapshot)
    gains = Gains.of(job, options)
    if gains.ranked:
        return tuple(Advice(gain.op, float(gain.etp), True) for gain in gains.ranked)
    closed = frozenset(gains.congested)
    return tuple(
        Advice(source, float(etp(job, source, closed, options.mode)), False)
        for source in job.graph.sources
        if job.has_room(source)
    )
