"""Counts, totals, averages, ratios and quantiles of a stream from the rows that shedding kept, with confidence
intervals."""

from qod_magics.estimate.aggregates import avg, count, count_distinct, quantile, ratio, sum

__all__ = ["avg", "count", "count_distinct", "quantile", "ratio", "sum"]
