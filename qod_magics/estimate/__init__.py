"""Totals, averages and ratios of a stream from the rows that shedding kept, each with a confidence interval."""

from qod_magics.estimate.aggregates import avg, count, ratio, sum

__all__ = ["avg", "count", "ratio", "sum"]
