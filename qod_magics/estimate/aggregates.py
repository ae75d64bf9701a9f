"""Estimates as Spark columns; how they are made, and what they are when: `formulas`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from qod_magics.errors import UsageProblem
from qod_magics.estimate import formulas
from qod_magics.estimate.formulas import Expression, Functions, normal_quantile
from qod_magics.estimate.groups import groups_read

if TYPE_CHECKING:
    from pyspark.sql import Column


# --- Sums of estimates ------------------------------------------------------------------------------------------------
# Estimates of sums over estimates: the interval of a group's total travels with it through a further aggregation.
#
# The groups have estimates v with intervals from l to h, which rest on rows of their own. An interval of a total
# (`formulas`) is v + a +- sqrt(t^2 V + a^2), so both parts can be told from it: t^2 V = (v - l) (h - v), and
# a = (h - v - (v - l)) / 2. With w = 1 / (probability that a group was kept on its way here), and all sums over groups,
#
# - value: T = sum(w v);
# - squared width: S = sum(w (v - l) (h - v)) + z^2 sum(w (w - 1) v^2), of which the second term is the variance that
#   dropping groups adds (Horvitz and Thompson);
# - shift: A = sum(w |v| a) / sum(w |v|);
# - interval: T + A +- sqrt(S + A^2), about what the total over all rows would have.
#
# Groups that share rows, as sliding windows do, or rows that are kept together by a key, do not err independently: then
# the first term is sum(w sqrt((v - l) (h - v)))^2, which holds whatever their correlation, and is too wide where it is
# small.
#
# Groups of which no row was kept are missing, and count as 0: so the sum is as right as one over the rows. Its level is
# that of the estimates that are summed. Where each group rests on a few rows only, the interval is wider than it need
# be: their own have Student's wide tails.


def chained_total(f: Functions, x: Expression, level: float, shared: bool) -> Expression:
    """Return the estimate of the sum of estimates.

    Args:
        f: the functions.
        x: a struct of value, low and high; null in rows that do not count. Of a null end, the sum has neither.
        level: of the interval that dropped groups make wider.
        shared: whether groups may share rows, or rows of a key that are kept together.

    """
    w = f.when(x.isNotNull(), formulas.weight(f))
    value, below, above = x["value"], x["value"] - x["low"], x["high"] - x["value"]
    square = f.greatest(below * above, f.lit(0.0))  # of what was rounded
    of_rows = {
        "value": f.coalesce(f.sum(w * value), f.lit(0.0)),
        "wide": f.coalesce(f.sum(w * (f.sqrt(square) if shared else square)), f.lit(0.0)),
        "dropped": f.coalesce(f.sum(w * (w - 1.0) * value * value), f.lit(0.0)),
        "size": f.coalesce(f.sum(w * f.abs(value)), f.lit(0.0)),
        "shifts": f.coalesce(f.sum(w * f.abs(value) * (above - below)), f.lit(0.0)),
        "open": f.count(f.when(x.isNotNull() & below.isNull(), 1)) + f.count(f.when(x.isNotNull() & above.isNull(), 1)),
        "unknown": f.count(f.when(x.isNotNull() & w.isNull(), 1)) + f.count(f.when(x.isNotNull() & value.isNull(), 1)),
    }
    z = normal_quantile(level)

    def parts(s: Expression) -> dict[str, Expression]:
        squares = (s["wide"] * s["wide"] if shared else s["wide"]) + z * z * s["dropped"]
        return {"squares": squares, "shift": f.when(s["size"] > 0.0, 0.5 * s["shifts"] / s["size"]).otherwise(0.0)}

    def ends(s: Expression, p: Expression) -> Expression:
        half = f.when(s["open"] == 0, f.sqrt(p["squares"] + p["shift"] * p["shift"]))
        return formulas.known(
            f, s["unknown"] == 0, s["value"], s["value"] + p["shift"] - half, s["value"] + p["shift"] + half
        )

    return formulas.let(f, of_rows, lambda s: formulas.let(f, parts(s), lambda p: ends(s, p)))


# --- Numbers of different values --------------------------------------------------------------------------------------
# Estimates of how many different values columns have in a stream that is shed: `value`, and `low` and `high` of an
# interval.
#
# They are known where rows were kept together by a key whose columns are among those counted. Such a value is there if
# one of its rows was kept, and the one of the largest probability is whenever another one is, as a key is kept while
# its hash is below the accuracy: the value has the least weight w of its rows. The number is a total of `formulas`,
# sum(w) over the values, with V = sum over the keys of (sum of sqrt(w (w - 1)) over a key's values)^2. Values of weight
# 1 are there for certain: the interval is that of the others. Where there are no others, and yet rows of a weight above
# 1, of which values may be missing, it ends where that of no kept value does: at z^2 (the largest weight - 1) more.
#
# Elsewhere a value is missing with a probability that depends on how many rows it has, which nothing tells: where a row
# of the group has a weight above 1, all is null.
#
# Values are counted by a hash of 64 bits. Below 10^8 values in a group, two of them hardly ever have the same hash.

#: How the first part of a count of different values is called that is null where rows were dropped: a plan tells it by
#: this name from an estimate.
WHILE_EXACT = "while_exact"


def distinct(
    f: Functions, columns: Sequence[Expression], level: float, whole: bool = False, key: Expression | None = None
) -> Expression:
    """Return the estimate of how many different values these columns have, of rows in which none of them is null.

    The state holds a hash of each value, once for each weight of its rows; without `whole`, of rows of weight 1 only.

    Args:
        f: the functions.
        columns: of which the values are.
        level: of the interval.
        whole: whether all rows of a value are kept, or none, at one accuracy. Without that all is null where a row of
            the group has a weight above 1.
        key: a hash of the key by which they are kept, if several values can have the same.

    """
    counts = reduce(and_, (x.isNotNull() for x in columns))
    return _estimated(f, columns, counts, level, key) if whole else _exact(f, columns, counts)


def _exact(f: Functions, columns: Sequence[Expression], counts: Expression) -> Expression:
    """Return how many values there are where no row of the group was dropped, and null elsewhere."""
    w = formulas.weight(f)
    of_rows = {
        WHILE_EXACT: f.size(f.collect_set(f.when(counts & (w <= 1.0), f.xxhash64(*columns)))).cast("double"),
        **{"greatest": f.max(w), "unknown": f.count(f.when(w.isNull(), 1))},
    }

    def estimate(s: Expression) -> Expression:
        value = f.when(f.coalesce(s["greatest"], f.lit(1.0)) <= 1.0, s[WHILE_EXACT])
        return formulas.known(f, s["unknown"] == 0, value, value, value)

    return formulas.let(f, of_rows, estimate)


def _estimated(
    f: Functions, columns: Sequence[Expression], counts: Expression, level: float, key: Expression | None
) -> Expression:
    """Return the estimate of how many values there are of which all rows are kept, or none."""
    w = f.when(counts, formulas.weight(f))
    fields = {**({} if key is None else {"key": key}), "counted": f.xxhash64(*columns), "weight": w}
    entry = f.when(w.isNotNull(), f.struct(*(each.alias(name) for name, each in fields.items())))
    of_rows = {
        "sums": _folded(f, f.sort_array(f.collect_set(entry)), "counted" if key is None else "key"),
        **{"greatest": f.max(w), "unknown": formulas.unknown(f, f.when(counts, 1))},
    }

    def estimate(s: Expression) -> Expression:
        sums = s["sums"]
        square = sums["root"] * sums["root"]  # of the last key
        found = {name: sums[name] for name in ("value", "kept", "size")} | {
            **{"variance": sums["variance"] + square, "squares": sums["squares"] + square * square},
            **{"keys": sums["keys"] + formulas.one(f, sums["root"] > 0.0)},
            **{name: s[name] for name in ("greatest", "unknown")},
        }

        def around(t: Expression) -> Expression:
            of_keys = {"variance": t["variance"], "squares": t["squares"], "rows": f.greatest(t["keys"], f.lit(1.0))}
            totals = {name: f.when(t["unknown"] == 0, t[name]) for name in ("value", "kept", "size")}
            whole = f.coalesce(t["greatest"], f.lit(1.0)) <= 1.0
            variance, growth = formulas.evidence(f, of_keys, None), t["greatest"] - 1.0
            value = totals["value"]
            return formulas.settled(f, whole, value, lambda: formulas.interval(f, totals, variance, level, growth))

        return formulas.let(f, found, around)

    return formulas.let(f, of_rows, estimate)


def _folded(f: Functions, entries: Expression, key: str) -> Expression:
    """Sums over the values: how many were kept, their weights (`value`; of those above 1 `size`), the variance and the
    sum of its squared parts, and of how many keys it is, without the last one's, which is that of `root`.

    Args:
        f: the functions.
        entries: of each value and weight, by key, value and weight: the first one of a value has its least weight.
        key: the field of an entry that is equal for values that are kept together.

    """

    def state(**fields: Expression) -> Expression:
        return f.struct(*(each.alias(name) for name, each in fields.items()))

    nothing, none = f.lit(0).cast("bigint"), f.lit(0.0)
    sums = dict.fromkeys(("kept", "value", "size", "root", "keys", "variance", "squares"), none)

    def merge(s: Expression, entry: Expression) -> Expression:
        w, square = entry["weight"], s["root"] * s["root"]
        root = f.sqrt(f.greatest(w * (w - 1.0), f.lit(0.0)))
        of_value = {"key": entry[key], "counted": entry["counted"], "kept": s["kept"] + 1.0, "value": s["value"] + w}
        of_value |= {"size": s["size"] + f.when(w > 1.0, w).otherwise(0.0)}
        more = {"root": s["root"] + root, **{name: s[name] for name in ("keys", "variance", "squares")}}
        of_last = {"keys": s["keys"] + formulas.one(f, s["root"] > 0.0), "variance": s["variance"] + square}
        fresh = {"root": root, **of_last, "squares": s["squares"] + square * square}
        known = (s["kept"] > 0.0) & (s["key"] == entry[key])
        again = f.when(known & (s["counted"] == entry["counted"]), s)
        return again.when(known, state(**of_value, **more)).otherwise(state(**of_value, **fresh))

    return f.aggregate(entries, state(key=nothing, counted=nothing, **sums), merge)


def kept_whole(f: Functions, columns: Sequence[str | None]) -> tuple[bool, Expression | None]:
    """Return whether all rows of a value of these columns were kept, or none, as `distinct` has it; and the hash of
    their key, if several values can have the same. Raises UsageProblem as `part_of` does.

    Args:
        f: the functions.
        columns: their names, in any case; None for what is computed.

    """
    key = formulas.key_of_rows()
    counted = {name.casefold() for name in columns if name is not None}
    if key is None or not {name.casefold() for name in key} <= counted:
        return False, None
    return True, None if len(key) == len(columns) else f.xxhash64(*map(f.col, key))


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

    whole, key = kept_whole(F, [_name(column) for column in columns])
    return distinct(F, [_column(column) for column in columns], level, whole, key).alias("count_distinct")


def sum(column: Column | str, *, level: float = 0.95) -> Column:
    """Return the sum of `column`: struct<value, low, high: double>; 0 without a row in which it is not null.

    Where the rows are groups with an estimate in this column, made by an earlier stream, it is the sum of these, with
    an interval of their level: see `qod_magics.estimate.aggregates`.

    `level` and errors as in `count`.
    """
    formulas.check_level(level)
    from pyspark.sql import functions as F

    if (groups := groups_read("sum", _name(column))) is not None:
        return chained_total(F, _column(column), level, groups.shared).alias("sum")
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
    """Return the name of a column that is read as it is; None for an expression."""
    if isinstance(column, str):
        return column
    plain = re.fullmatch(r"Column<'(\w+)'>", repr(column))
    return None if plain is None else plain[1]
