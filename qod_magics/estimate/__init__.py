"""Totals and averages of a stream from the rows that shedding kept, each with a confidence interval."""

from qod_magics.estimate.aggregates import avg, count, sum

__all__ = ["avg", "count", "sum"]
