"""The status of each task and task manager in a cycle, as a text table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from qod_magics.controller.log import Cycle
from qod_magics.core.snapshot import Task, TaskManager

HEADINGS = (
    *("task", "runs on", "mode", "in /s", "CPU %", "accuracy", "planned", "minimum", "priority", "lag", "dropped"),
    *("late", "p50", "p95", "target", "oldest"),
)
#: This many columns from the left are left-aligned.
WORDS = 3
#: This many columns from the right are shown only if one of their cells is not empty.
IF_KNOWN = 5


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task's row, as the texts shown; "" stands for unknown."""

    name: str
    where: str = ""  #: the task managers of its instances
    modes: str = ""  #: real-time or micro-batch
    in_rate: str = ""  #: rows/s of all instances
    cpu: str = ""  #: of all instances, % of one core
    accuracy: str = ""  #: as measured, fraction of 1
    planned: str = ""  #: desired accuracy, fraction of 1
    minimum: str = ""  #: fraction of 1, of a query
    priority: str = ""  #: of a query
    lag: str = ""  #: rows not yet read
    dropped: str = ""  #: rows, since the start
    late: str = ""  #: rows that came behind a watermark, since the start, such as "7+": 7 or more; "" without any
    p50: str = ""  #: median latency of a query
    p95: str = ""  #: its 95th percentile
    target: str = ""  #: maximum of that
    oldest: str = ""  #: age of the oldest row that is not in a query's result


def _times(task: Task) -> tuple[float | None, ...]:
    return task.latency_p50_s, task.latency_p95_s, task.max_latency_s, task.oldest_s


def task_status(cycle: Cycle | None, task: str, upstream: Sequence[str]) -> TaskStatus:
    """Return a cycle's row for a task that reads from `upstream`; its name alone if there was no decision."""
    if cycle is None or cycle.decision is None:
        return TaskStatus(task)
    decision = cycle.decision
    measured = decision.measured
    found = next((each for each in decision.snapshot.tasks if each.id == task), None)
    here = [instance for instance in decision.snapshot.instances if instance.task == task]
    feeds = [f"{source}>{task}" for source in upstream] or [task]
    return TaskStatus(
        task,
        " ".join(instance.task_manager for instance in here),
        " ".join(sorted({i.mode or i.state or "" for i in here})).strip(),
        f"{sum(instance.in_rate for instance in here):,.0f}" if here else "",
        f"{sum(instance.cpu for instance in here):.1f}" if here else "",
        share(measured.accuracy.get(task)),
        share(decision.plan.desired.get(task)),
        share(found.min_accuracy if found is not None else None),
        "" if found is None or found.priority is None else str(found.priority),
        f"{sum(measured.lag.get(feed, 0) for feed in feeds):,}",
        f"{sum(measured.dropped.get(feed, 0) for feed in feeds):,}",
        f"{late:,}+" if (late := measured.late.get(task)) else "",
        *(() if found is None else map(duration, _times(found))),
    )


def table(rows: Sequence[TaskStatus]) -> list[str]:
    """Return the rows under their headings, in columns; [] without rows."""
    if not rows:
        return []
    cells = [HEADINGS, *(astuple(row) for row in rows)]
    shown = [i for i in range(len(HEADINGS)) if i < len(HEADINGS) - IF_KNOWN or any(row[i] for row in cells[1:])]
    cells = [tuple(row[i] for i in shown) for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if i >= WORDS else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def cycle_text(cycle: Cycle) -> str:
    """Return a cycle's task managers, tasks and decision as text: the status as far as a recording has it."""
    if cycle.decision is None:
        return f"cycle {cycle.number} was skipped: {cycle.skipped}"
    snapshot = cycle.decision.snapshot
    lines = [f"{manager.id}: {cores(manager)}{busy(manager)}" for manager in snapshot.task_managers]
    lines += table([task_status(cycle, task.id, task.upstream) for task in snapshot.tasks])
    if cycle.paused or not cycle.applied:
        lines.append("the plan was recommended, not applied")
    if cycle.entries:
        lines.append(f"last decision: {cycle.entries[-1]}")
    return "\n".join(lines)


def cores(manager: TaskManager) -> str:
    """Return how many cores it has: "2 cores"."""
    return f"{manager.cores:g} core{'' if manager.cores == 1 else 's'}"


def busy(manager: TaskManager | None) -> str:
    """Return how busy its cores are, as the end of a sentence."""
    return "" if manager is None else f", {manager.cpu:.0f} % busy"


def share(value: float | None) -> str:
    """Return a fraction of 1 with three digits."""
    return "" if value is None else f"{value:.3f}"


def duration(seconds: float | None) -> str:
    """Return seconds with three digits: "35 ms", "1.25 s", "312 s"."""
    if seconds is None:
        return ""
    return f"{1e3 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.{2 if seconds < 9.995 else 0}f} s"
