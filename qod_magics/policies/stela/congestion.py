"""Congested operators (Stela, section 2.2.3). Pure."""

from __future__ import annotations

from qod_magics.policies.stela.job import Job, Rate
from qod_magics.policies.stela.options import CONGESTION_RATE, DEFAULT, Options


def is_congested(arriving: Rate, processed: Rate, congestion_rate: Rate = CONGESTION_RATE) -> bool:
    """Whether arriving / processed > congestion_rate, strictly; where nothing is processed, whether anything arrives.

    Rates in rows/s. The input is compared with what is processed, not with what is emitted: a filter is not congested.
    """
    return arriving > congestion_rate * processed if processed else arriving > 0


def congested(job: Job, options: Options = DEFAULT) -> tuple[str, ...]:
    """C: the congested operators, in declared order. Of a source, where its offered rate exceeds what it reads (R5)."""
    by_capacity = options.projection == "capacity"
    threshold = options.threshold
    return tuple(
        op
        for op in job.graph.ops
        if is_congested(
            job.input(op), job.capacity.get(op, job.processed[op]) if by_capacity else job.processed[op], threshold
        )
    )
