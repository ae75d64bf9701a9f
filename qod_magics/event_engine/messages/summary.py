"""The summary of a run of messages, as text."""

from __future__ import annotations

from qod_magics.core.nanoseconds import MS, S
from qod_magics.core.wording import counted
from qod_magics.event_engine.messages.engine import Engine
from qod_magics.event_engine.messages.results import JobResults

#: Jobs that get a line each.
MOST_JOBS = 30


def summary(engine: Engine, cpu_s: float) -> str:
    """One line for the run, and one a job. `cpu_s`: CPU seconds that it took."""
    books, workers = engine.books, len(engine.busy)
    seconds = max(engine.now / S, 1e-9)
    lines = [
        f"{seconds:g} s of {counted(workers, 'worker')} and {counted(len(engine.operators), 'operator')} under "
        f"{engine.dispatcher.name} in {cpu_s:.1f} s ({seconds / max(cpu_s, 1e-9):,.0f} times as fast); "
        f"{books.made:,} messages, {books.left:,} of them not done; utilization "
        f"{sum(engine.busy) / workers / engine.now if engine.now else 0.0:.0%}"
    ]
    if engine.store is not None and engine.store.reads:
        reads, fetches = engine.store.reads, sum(engine.store.fetches)
        lines.append(f"state: {reads:,} reads, {fetches:,} of them from the store ({fetches / reads:.1%})")
    jobs = engine.results.jobs
    lines += [_line(job) for job in jobs[:MOST_JOBS]]
    if len(jobs) > MOST_JOBS:
        lines.append(f"... and {len(jobs) - MOST_JOBS} more jobs")
    return "\n".join(lines)


def _line(job: JobResults) -> str:
    median, p99 = job.percentile_ms(50), job.percentile_ms(99)
    if median is None or p99 is None:
        return f"{job.name}: no result"
    target = "" if job.success is None else f", {job.success:.1%} within {job.max_latency / MS:g} ms"
    results = counted(len(job.latency), "result")
    return f"{job.name}: {results}, latency {median:.1f} ms (median), {p99:.1f} ms (99 %){target}"
