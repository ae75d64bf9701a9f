"""Choose the mode in which an instance runs: real-time or micro-batches; update, append or complete."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING

from qod_magics.application.streams.stream import BATCH_LATENCY_S
from qod_magics.errors import TaskManagerError

if TYPE_CHECKING:
    from qod_magics.spark.plans.job import Job, PlanFacts


# --- Refusals of real-time mode ---------------------------------------------------------------------------------------

_CLASS = re.compile(r"\borg\.apache\.spark\.[\w.$]*?(\w+)(?=[\s,]|\.?$|\. )")
_SUFFIX = re.compile(r"(Exec|MicroBatchStream|Stream)$")
_KINDS = (
    (re.compile(r"Python|Pandas|InArrow"), "Python functions"),
    (re.compile(r"SymmetricHashJoin"), "joins of two streams"),
)
#: Spark's error class: the stages of a real-time batch run at the same time, with one task per partition.
TOO_FEW_SLOTS = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"
#: Spark's messages with one of these words name what can't run.
_NAMES_WHAT = re.compile(r"operator\(s\)|sink|input stream", re.IGNORECASE)
#: Spark's error classes, what sources say of options of theirs, and what Python says of a client too old for the mode.
_REFUSAL = re.compile(
    rf"{TOO_FEW_SLOTS}|STREAMING_REAL_TIME_MODE|not (?:supported in|compatible with) (?i:real[- ]time mode)|"
    "unexpected keyword argument 'realTime'"
)


def not_realtime(why: str, kind: str = "local") -> str:
    """Return why a query can't run in real-time mode, as one clause; the message unchanged if it names no operator,
    sink or source. `kind`: of the task manager, which tells how it gets more slots."""
    if TOO_FEW_SLOTS in why:
        more = "--slots" if kind == "local" else "as many as its Spark has cores, or N with the master local[N]"
        return f"its tasks run all at once, one per partition, and too few slots are free ({more})"
    names = _CLASS.findall(why) if _NAMES_WHAT.search(why) else []
    if not names:
        return why
    kinds = [next((kind for known, kind in _KINDS if known.search(name)), _SUFFIX.sub("", name)) for name in names]
    return f"Spark's real-time mode does not take {' or '.join(dict.fromkeys(kinds))}"


def refuses_realtime(error: BaseException | str) -> bool:
    """Return whether Spark or a source says that real-time mode can't run this plan (or the client does not know that
    mode), or that there are too few slots for its tasks, which run all at once. A name in an error, as of a topic, says
    nothing."""
    return _REFUSAL.search(str(error)) is not None


#: Why a query with state runs in micro-batches by default.
STATE_IN_BATCHES = "it keeps state, which a micro-batch updates once for all rows of a key, real-time mode row by row"


def slots_needed(job: Job, facts: PlanFacts | None) -> int:
    """Return the task slots of a run in real-time mode: one per partition that it reads, and one for the aggregation if
    it keeps state."""
    keeps_state = facts is not None and facts.keeps_state
    return sum(len(feed.partitions) for feed in job.feeds) + keeps_state


def wants_realtime(job: Job) -> bool:
    """Return whether its latency target is shorter than micro-batches can keep."""
    return job.max_latency_s is not None and job.max_latency_s < BATCH_LATENCY_S


def against_realtime(
    job: Job, facts: PlanFacts, wanted: str, refused: str = "", free_slots: float = inf, kind: str = "local"
) -> str:
    """Return why it runs in micro-batches; "" if real-time mode is to be tried.

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
        # Spark itself refuses only plans of several stages: tasks of a single stage wait for a slot forever
        refusal = f"{TOO_FEW_SLOTS}: it needs {slots_needed(job, facts)}, {free_slots:g} are free"
    if wanted == "realtime":
        if refusal:
            why = f"{job.instance} can't run in real-time mode: {not_realtime(refusal, kind)}."
            raise TaskManagerError(why, name=job.instance, value=refusal, rule="real-time")
        return ""
    if wanted == "microbatch":
        return "asked for by --mode microbatch"
    if refusal:
        return refusal
    if wants_realtime(job):
        return ""
    return STATE_IN_BATCHES if facts.keeps_state else ""


def output_modes(job: Job, realtime: bool) -> tuple[str, ...]:
    """Return the output modes to try, in this order. Groups that an operator with state reads are emitted once, when
    they are complete: in update mode, it would count a group each time that it changes. A result that is sorted or
    limited over groups is written as a whole."""
    if job.whole:
        return ("complete",)
    if realtime:
        return ("update",)
    return ("append",) if job.chained or (job.sink is not None and job.sink.appends) else ("update", "append")
