"""Estimates of aggregates over a stream that is shed, as Spark columns: `value`, and `low` and `high` of an interval.

Each row was kept by itself with a known probability p, and has the weight w = 1 / p in `_weight` (Poisson sampling). Of
a column x, with all sums over the rows kept, and u = w (w - 1) x^2:

- total: T = sum(w x), with variance V = sum(u) (Horvitz and Thompson). Its interval is that of the totals whose own
  standard deviation reaches T, since the variance of a total of positive values grows with it (Wilson's score interval
  of a proportion, for totals): T + a +- sqrt(t^2 V + a^2), with a = z^2 / 2 * V / sum(w |x|). Where x has both signs,
  T +- t sqrt(V);
- ratio of sums: R = sum(w x) / sum(w y), with variance sum(w (w - 1) (x - R y)^2) / sum(w y)^2 (linearization), and
  R +- t times its root. An average is that with y = 1;
- quantile: the q-quantile of x in which each row counts w times. Its interval (Woodruff, 1952) is from the quantile of
  q - e to that of q + e: at the true quantile, the weighted share of rows up to it is q, give or take e = t sqrt(V),
  V = q (1 - q) sum(w (w - 1)) / sum(w)^2. That is sum(w (w - 1) (1[x <= true] - q)^2) / sum(w)^2 if all weights are
  equal, and in the mean if they have nothing to do with x. An end is null where q - e or q + e is none of 0..1: what
  was kept can't bound it then.

z is the normal quantile; t is Student's, since V is an estimate, too: it rests on m = V^2 / sum(u^2) rows, as many as
were kept if all have the same u, and fewer if a few of them make up most of it. Degrees of freedom: 2 m, for a total of
values of one sign and for a quantile (x = 1) 2 m / (1 - m / n) of n rows kept (their intervals allow for the number of
rows themselves), for a ratio m - 1, with the variance times m / (m - 1) (and y for x in u). How often they cover:
`benchmarks/coverage.py`.

A group of which no row was dropped has the value of plain Spark, as a double, and low = high = value. A ratio of one
row, where others may have been dropped, has no interval (null). Where a weight is not known, there is neither value nor
interval. Rows in which x is null do not count, as in Spark's own aggregates. Of a group of which all rows were dropped,
there is no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qod_magics.application.weight import WEIGHT
from qod_magics.errors import UsageProblem
from qod_magics.estimate.student import normal_quantile, student_quantile

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Degrees of freedom from which on the normal quantile is taken for Student's.
MANY = 60
#: Of a row of weight 1 among the whole numbers that Spark's `percentile` takes for weights.
PARTS = 1024
#: Quantiles are found at the distances d / 2^(i / FINE), i = 0..STEPS, from q, where d is that of 0 or 1.
FINE, STEPS = 2, 24


def count(column: Column | str | None = None, *, level: float = 0.95) -> Column:
    """How many rows there were, or how many in which `column` is not null: struct<value, low, high: double>.

    `level` is the probability with which the interval covers the true number. Raises UsageProblem for one outside of
    0..1.
    """
    _check(level)
    from pyspark.sql import functions as F

    return _total(F.lit(1.0) if column is None else F.when(_column(column).isNotNull(), 1.0), level).alias("count")


def sum(column: Column | str, *, level: float = 0.95) -> Column:
    """The sum of `column`: struct<value, low, high: double>; 0 without a row in which it is not null. `level` and
    errors as in `count`."""
    _check(level)
    return _total(_column(column).cast("double"), level).alias("sum")


def avg(column: Column | str, *, level: float = 0.95) -> Column:
    """The average of `column`: struct<value, low, high: double>. `level` and errors as in `count`."""
    _check(level)
    from pyspark.sql import functions as F

    return _ratio(_column(column).cast("double"), F.lit(1.0), level).alias("avg")


def ratio(column: Column | str, by: Column | str, *, level: float = 0.95) -> Column:
    """The sum of `column` / the sum of `by`: struct<value, low, high: double>. Rows in which one of them is null do not
    count. `level` and errors as in `count`; null where the sum of `by` is 0."""
    _check(level)
    return _ratio(_column(column).cast("double"), _column(by).cast("double"), level).alias("ratio")


def quantile(column: Column | str, q: float, *, level: float = 0.95) -> Column:
    """The `q`-quantile of `column`, as `percentile` has it: struct<value, low, high: double>, with nulls for an end of
    the interval that what was kept can't bound, and for all without a row in which `column` is not null.

    Its state holds each different value of a group twice while nothing is dropped, and once while all rows are shed.

    `level` and errors as in `count`; UsageProblem also for a `q` outside of 0..1, or at its ends.
    """
    _check(level)
    if not 0.0 < q < 1.0:
        raise UsageProblem(f"a quantile is that of a fraction above 0 and below 1, such as 0.9, not {q}")
    return _quantile(_column(column).cast("double"), float(q), level).alias("quantile")


def _ratio(x: Column, y: Column, level: float) -> Column:
    """The estimate of a ratio of sums, in the form of an average if y = 1."""
    from pyspark.sql import functions as F

    counts = x.isNotNull() & y.isNotNull()
    x, y, w = F.when(counts, x), F.when(counts, y), F.when(counts, _weight())
    u, size = w * (w - 1.0), F.sum(w * y)
    value = F.when(size != 0.0, F.sum(w * x) / size)
    squares = F.sum(u * x * x) - 2.0 * value * F.sum(u * x * y) + value * value * F.sum(u * y * y)
    rows = F.greatest(F.coalesce(_rows(u * y * y), F.lit(2.0)), F.lit(2.0))
    root = F.when(size != 0.0, F.sqrt(F.greatest(squares, F.lit(0.0)) * rows / (rows - 1.0)) / F.abs(size))
    half = F.when(F.max(w) <= 1.0, 0.0).when(F.count(x) > 1, _student(rows - 1.0, level) * root)
    return _known(x, value, value - half, value + half)


def _total(x: Column, level: float) -> Column:
    """The estimate of a sum. `x` is null in rows that do not count."""
    from pyspark.sql import functions as F

    z, w = normal_quantile(level), _weight()
    u = w * (w - 1.0) * x * x
    value, variance, size = F.coalesce(F.sum(w * x), F.lit(0.0)), F.sum(u), F.sum(w * F.abs(x))
    rows = F.coalesce(_rows(u), F.lit(1.0))
    alike = F.least(rows / F.greatest(F.count(x), F.lit(1)), F.lit(1.0))
    t = _student(2.0 * rows / F.greatest(1.0 - alike, F.lit(1e-3)), level)
    shift = F.when(size > 0.0, variance / size).otherwise(0.0) * (z * z / 2.0)
    half = F.sqrt(t * t * variance + shift * shift)
    around = _student(2.0 * rows, level) * F.sqrt(variance)
    # what was kept is there: a sum of no negative values is at least that, one of no positive values at most
    low = F.when(F.min(x) >= 0.0, F.greatest(value + shift - half, F.sum(x)))
    low = low.when(F.max(x) <= 0.0, value - shift - half).otherwise(value - around)
    high = F.when(F.min(x) >= 0.0, value + shift + half)
    high = high.when(F.max(x) <= 0.0, F.least(value - shift + half, F.sum(x))).otherwise(value + around)
    exact = F.coalesce(F.max(F.when(x.isNotNull(), w)), F.lit(1.0)) <= 1.0
    return _known(x, value, F.when(exact, value).otherwise(low), F.when(exact, value).otherwise(high))


def _quantile(x: Column, q: float, level: float) -> Column:
    """The estimate of a quantile."""
    from pyspark.sql import functions as F

    w = F.when(x.isNotNull(), _weight())
    u = w * (w - 1.0)
    rows = F.coalesce(_rows(u), F.lit(1.0))
    alike = F.least(rows / F.greatest(F.count(w), F.lit(1)), F.lit(1.0))
    t = _student(2.0 * rows / F.greatest(1.0 - alike, F.lit(1e-3)), level)
    half = t * F.sqrt(q * (1.0 - q) * F.sum(u)) / F.sum(w)
    below, above = _distances(q), _distances(1.0 - q)
    shares = [*(q - each for each in below), *(min(q + each, 1.0) for each in above)]
    found = F.percentile(x, F.array(*map(F.lit, shares)), F.round(w * float(PARTS)).cast("long"))
    low, high = _at(half, below, found, 0), _at(half, above, found, len(below))
    plain = F.percentile(F.when(w <= 1.0, x), F.lit(q))  # without a value where all rows are shed: no second state
    exact = F.max(w) <= 1.0
    value = F.when(exact, plain).otherwise(F.element_at(found, len(below)))
    return _known(x, value, F.when(exact, plain).otherwise(low), F.when(exact, plain).otherwise(high))


def _distances(farthest: float) -> list[float]:
    """How far from q quantiles are found on one side of it, descending to 0."""
    return [*(farthest / 2.0 ** (i / FINE) for i in range(STEPS + 1)), 0.0]


def _at(distance: Column, distances: list[float], found: Column, before: int) -> Column:
    """The quantile at this distance from q, between those that were found at `distances`, which are the elements of
    `found` after the first so many; null if it is as far as the range goes."""
    from pyspark.sql import functions as F

    step = F.floor(F.log2(distances[0] / distance) * float(FINE))
    i = F.when(distance > 0.0, F.least(step, F.lit(STEPS))).otherwise(STEPS).cast("int") + 1
    table = F.array(*map(F.lit, distances))
    far, near = F.element_at(table, i), F.element_at(table, i + 1)
    outer, inner = F.element_at(found, i + before), F.element_at(found, i + (before + 1))
    return F.when(distance < distances[0], outer + (far - distance) / (far - near) * (inner - outer))


def _rows(u: Column) -> Column:
    """On how many rows the estimate of a variance sum(u) rests; null if it is 0."""
    from pyspark.sql import functions as F

    return F.when(F.sum(u) > 0.0, F.sum(u) * F.sum(u) / F.sum(u * u))


def _student(degrees: Column, level: float) -> Column:
    """Student's quantile for these degrees of freedom, rounded down, 1 or more; the normal one where they are many."""
    from pyspark.sql import functions as F

    table = F.array(*(F.lit(student_quantile(level, each)) for each in range(1, MANY)))
    position = F.least(F.greatest(F.floor(degrees), F.lit(1)), F.lit(MANY - 1)).cast("int")
    return F.when(degrees >= MANY, normal_quantile(level)).otherwise(F.element_at(table, position))


def _known(x: Column, value: Column, low: Column, high: Column) -> Column:
    """The struct; nulls where the weight of a row that counts is not known."""
    from pyspark.sql import functions as F

    unknown = F.count(F.when(x.isNotNull() & _weight().isNull(), 1)) > 0
    parts = {"value": value, "low": low, "high": high}
    return F.struct(*(F.when(~unknown, part).alias(name) for name, part in parts.items()))


def _weight() -> Column:
    from pyspark.sql import functions as F

    return F.col(WEIGHT).cast("double")


def _column(column: Column | str) -> Column:
    from pyspark.sql import functions as F

    return F.col(column) if isinstance(column, str) else column


def _check(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise UsageProblem(f"the level of an interval is a probability between 0 and 1, such as 0.95, not {level}")
