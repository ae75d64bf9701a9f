"""In which of Spark's modes an instance runs, and why: real-time or micro-batches, update, append or complete."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from qod_magics.application.streams.sink import Parquet
from qod_magics.application.streams.stream import BATCH_LATENCY_S
from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.realtime import TOO_FEW_SLOTS, not_realtime

if TYPE_CHECKING:
    from qod_magics.spark.plans.pipeline import Job, PlanFacts

#: Why a query with state runs in micro-batches by default.
STATE_IN_BATCHES = "it keeps state, which a micro-batch updates once for all rows of a key, real-time mode row by row"


def slots_needed(job: Job, facts: PlanFacts | None) -> int:
    """Task slots of a run in real-time mode: one per partition that it reads, and one for the aggregation if it keeps
    state."""
    keeps_state = facts is not None and facts.keeps_state
    return sum(len(feed.partitions) for feed in job.feeds) + keeps_state


def against_realtime(
    job: Job, facts: PlanFacts, wanted: str, refused: str = "", free_slots: float = inf, kind: str = "local"
) -> str:
    """Why it runs in micro-batches; "" if real-time mode is to be tried.

    Args:
        job: the instance.
        facts: from its plan.
        wanted: "auto", "realtime" or "microbatch".
        refused: why Spark refused real-time mode before, if it did.
        free_slots: those of its task manager.
        kind: the task manager's.

    Raises:
        TaskManagerError: real-time mode was asked for, but is impossible.

    """
    refusal = job.only_microbatch or refused
    if not refusal and slots_needed(job, facts) > free_slots:
        # Spark itself refuses only plans of several stages: tasks of one that have no slot wait for ever
        refusal = f"{TOO_FEW_SLOTS}: it needs {slots_needed(job, facts)}, {free_slots:g} are free"
    if wanted == "realtime":
        if refusal:
            raise TaskManagerError(f"{job.instance} can't run in real-time mode: {not_realtime(refusal, kind)}.")
        return ""
    if wanted == "microbatch":
        return "asked for by --mode microbatch"
    if refusal:
        return refusal
    if job.max_latency_s is not None and job.max_latency_s < BATCH_LATENCY_S:
        return ""
    return STATE_IN_BATCHES if facts.keeps_state else ""


def output_modes(job: Job, realtime: bool) -> tuple[str, ...]:
    """Those to try, in this order. Groups that an operator with state reads are emitted once, when they are complete:
    in update mode, it would count a group each time that it has changed. What is sorted or cut over groups is written
    as a whole."""
    if job.whole:
        return ("complete",)
    if realtime:
        return ("update",)
    return ("append",) if job.chained or isinstance(job.sink, Parquet) else ("update", "append")
