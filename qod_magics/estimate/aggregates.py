"""Estimates as Spark columns; how they are made, and what they are when: `formulas`, `distinct`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qod_magics.errors import UsageProblem
from qod_magics.estimate import chained, distinct, formulas
from qod_magics.estimate.sampled import groups_read

if TYPE_CHECKING:
    from pyspark.sql import Column


def count(column: Column | str | None = None, *, level: float = 0.95) -> Column:
    """Return how many rows there were, or how many in which `column` is not null: struct<value, low, high: double>.

    `level` is the probability with which the interval covers the true number. Raises UsageProblem for one outside of
    0..1, and where the rows are groups of estimates themselves: see `sum`.
    """
    formulas.check_level(level)
    groups_read("count", None)
    from pyspark.sql import functions as F

    return formulas.count(F, None if column is None else _column(column), level, formulas.part_of(F)).alias("count")


def count_distinct(*columns: Column | str, level: float = 0.95) -> Column:
    """Return how many different values `columns` have together, of rows in which none of them is null: struct<value,
    low, high: double>.

    It is known while nothing is dropped, and where the columns by which the topic is shed (`--shed-by user`) are among
    those counted, by name. Where neither holds, all of it is null.

    Its state has an entry for each value of a group and each accuracy at which there were rows of it. Values whose
    hashes of 64 bits are equal are taken for one: below 10^8 values, hardly ever.

    `level` and errors as in `count`; UsageProblem also without a column, and where rows are shed by a key that they
    don't have.
    """
    formulas.check_level(level)
    groups_read("count_distinct", None)
    if not columns:
        raise UsageProblem("count_distinct counts the values of one column or more, such as count_distinct('user')")
    from pyspark.sql import functions as F

    whole, key = distinct.kept_whole(F, [_name(column) for column in columns])
    return distinct.distinct(F, [_column(column) for column in columns], level, whole, key).alias("count_distinct")


def sum(column: Column | str, *, level: float = 0.95) -> Column:
    """Return the sum of `column`: struct<value, low, high: double>; 0 without a row in which it is not null.

    Where the rows are groups with an estimate in this column, made by an earlier stream, it is the sum of these, with
    an interval of their level: see `qod_magics.estimate.chained`.

    `level` and errors as in `count`.
    """
    formulas.check_level(level)
    from pyspark.sql import functions as F

    if (groups := groups_read("sum", _name(column))) is not None:
        return chained.total(F, _column(column), level, groups.shared).alias("sum")
    return formulas.total(F, _column(column).cast("double"), level, formulas.part_of(F)).alias("sum")


def avg(column: Column | str, *, level: float = 0.95) -> Column:
    """Return the average of `column`: struct<value, low, high: double>. `level` and errors as in `count`."""
    formulas.check_level(level)
    groups_read("avg", None)
    from pyspark.sql import functions as F

    return formulas.average(F, _column(column).cast("double"), level, formulas.part_of(F)).alias("avg")


def ratio(column: Column | str, by: Column | str, *, level: float = 0.95) -> Column:
    """Return the sum of `column` / the sum of `by`: struct<value, low, high: double>. Rows in which one of them is null
    do not count. `level` and errors as in `count`; null where the sum of `by` is 0."""
    formulas.check_level(level)
    groups_read("ratio", None)
    from pyspark.sql import functions as F

    return formulas.ratio(
        F, _column(column).cast("double"), _column(by).cast("double"), level, formulas.part_of(F)
    ).alias("ratio")


def quantile(column: Column | str, q: float, *, level: float = 0.95) -> Column:
    """Return the `q`-quantile of `column`, as `percentile` has it: struct<value, low, high: double>, with nulls for an
    end of the interval that what was kept can't bound, and for all without a row in which `column` is not null.

    Its state holds each different value of a group twice while nothing is dropped, and once while all rows are shed.

    `level` and errors as in `count`; UsageProblem also for a `q` outside of 0..1, or at its ends.
    """
    formulas.check_level(level)
    formulas.check_fraction(q)
    groups_read("quantile", None)
    from pyspark.sql import functions as F

    return formulas.quantile(F, _column(column).cast("double"), float(q), level, formulas.part_of(F)).alias("quantile")


def _column(column: Column | str) -> Column:
    from pyspark.sql import functions as F

    return F.col(column) if isinstance(column, str) else column


def _name(column: Column | str) -> str | None:
    """The name of a column that is read as it is; None for an expression."""
    if isinstance(column, str):
        return column
    plain = re.fullmatch(r"Column<'(\w+)'>", repr(column))
    return None if plain is None else plain[1]
