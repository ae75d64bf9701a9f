"""Estimates of aggregates over a stream that is shed: `value`, and `low` and `high` of an interval.

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

Of rows that were kept together by a key, the variance is that between keys, not between rows: V = sum over the keys of
(sum of sqrt(w (w - 1)) x over a key's rows)^2. The keys are split at random into G = `SPLIT` parts, S_i is the sum of
sqrt(w (w - 1)) x over the rows of part i, and V = G / (G - 1) sum((S_i - mean)^2) (random groups).
Degrees of freedom: parts with rows - 1. For a quantile, that is as if a key's rows were all below it or all
above: its interval is too wide where they are not.

z is the normal quantile; t is Student's, since V is an estimate, too: it rests on m = V^2 / sum(u^2) rows, as many as
were kept if all have the same u, and fewer if a few of them make up most of it. Degrees of freedom: 2 m, for a total of
values of one sign and for a quantile (x = 1) 2 m / (1 - m / n) of n rows kept (their intervals allow for the number of
rows themselves), for a ratio m - 1, with the variance times m / (m - 1) (and y for x in u). How often they cover:
`benchmarks/coverage.py`.

A group of which no row was dropped has the value of plain Spark, as a double, and low = high = value. A ratio of one
row, where others may have been dropped, has no interval (null); one of values that are all but equal, such as times of
one hour in seconds since 1970, has one as wide as doubles are rounded (`ROUNDING`). Where a weight is not known, there
is neither value nor interval. Rows in which x is null do not count, as in Spark's own aggregates. Of a group of which
all rows were dropped, there is no row.

While nothing is dropped, estimates should cost little. Each sum is a field of each group's
state; those of a variance take rows of a weight above 1 only, and are null without any. Spark plans an expression again
for each batch, and the JVM does not compile methods of more than 8,000 bytes.

Numbers of different values: `aggregates.distinct`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import atan, cos, exp, lgamma, log, pi, sqrt
from statistics import NormalDist
from typing import Any, TypeAlias

from qod_magics.errors import UsageProblem
from qod_magics.estimate.groups import Key, input_key

# --- Student's t distribution -----------------------------------------------------------------------------------------

#: Steps of Simpson's rule over the density, which is smooth.
SIMPSON_STEPS = 200


def normal_quantile(level: float) -> float:
    """Return the z such that a standard normal value lies within -z..z with probability `level`, 0 < level < 1."""
    return NormalDist().inv_cdf((1.0 + level) / 2.0)


@cache
def student_quantile(level: float, degrees: int) -> float:
    """Return the t such that a value of Student's distribution lies within -t..t with probability `level`.

    Args:
        level: 0 < level < 1.
        degrees: degrees of freedom, 1 or more.

    """
    low = high = normal_quantile(level)  # tails are never lighter than the normal ones
    while _within(high, degrees) < level:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return (low + high) / 2.0


def _within(t: float, degrees: int) -> float:
    """Return the probability of -t..t: the density's integral over u, where the value is sqrt(degrees) * tan(u), which
    keeps heavy tails within a bounded range."""
    scale = exp(lgamma((degrees + 1) / 2.0) - lgamma(degrees / 2.0) - 0.5 * log(pi))
    end = atan(t / sqrt(degrees))
    heights = [cos(end * i / SIMPSON_STEPS) ** (degrees - 1) for i in range(SIMPSON_STEPS + 1)]
    total = heights[0] + heights[-1] + 4.0 * sum(heights[1:-1:2]) + 2.0 * sum(heights[2:-1:2])
    return 2.0 * scale * total * end / SIMPSON_STEPS / 3.0


#: A Spark column, or the SQL text of one: `qod_magics.estimate.text`.
Expression: TypeAlias = Any
#: pyspark.sql.functions, or those of SQL text.
Functions: TypeAlias = Any
#: Expressions by name, such as sums over the rows of a group.
Sums: TypeAlias = "dict[str, Expression]"
#: 1 / (probability that a row was kept so far), of each row.
WEIGHT = "_weight"
#: Stands for a weight that is not known: a sum of weights is below it if all are.
UNKNOWN = 1e300
#: Bits, or-ed over the rows of a total: a value is positive, one is negative, a weight is not known.
_POSITIVE, _NEGATIVE, _UNKNOWN = 1, 2, 4
#: Variances by rows are differences of sums of u x^2: at least this share of these, the rounding of many additions.
ROUNDING = 1e-12
#: Degrees of freedom from which on the normal quantile is taken for Student's.
MANY = 60
#: Of a row of weight 1 among the whole numbers that Spark's `percentile` takes for weights.
PARTS = 1024
#: Quantiles are found at the distances d / 2^(i / FINE), i = 0..STEPS, from q, where d is that of 0 or 1.
FINE, STEPS = 2, 24
#: Parts into which the keys are split whose rows were kept together. The variance rests on one part less: intervals are
#: 4 % wider than if it were known.
SPLIT = 32


def count(f: Functions, x: Expression | None, level: float, part: Expression | None = None) -> Expression:
    """Return the estimate of how many rows there were, or in how many x is not null. `part` as in `total`."""
    w = weight(f) if x is None else f.when(x.isNotNull(), weight(f))
    counted = _or_unknown(f, x)
    value = f.coalesce(f.sum(counted), f.lit(0.0))
    of_rows = {"value": value, "rows": f.count(counted), **_spread_of(f, w, None, part)}

    def estimate(s: Expression) -> Expression:
        known = s["value"] < UNKNOWN
        found = {"value": f.when(known, s["value"]), "kept": f.when(known, s["rows"].cast("double"))}
        whole = _whole(s, part) & known
        return settled(f, whole, s["value"], lambda: interval(f, found, evidence(f, s, part), level))

    return let(f, of_rows, estimate)


def average(f: Functions, x: Expression, level: float, part: Expression | None = None) -> Expression:
    """Return the estimate of avg(x). `part` as in `total`."""
    w = weight(f)
    of_rows = {"total": f.sum(w * x), "size": f.sum(_or_unknown(f, x))}
    u = _excess(f, w)
    counted = f.when(x.isNotNull(), u)
    products = {"xx": u * x * x, "xy": u * x, "yy": counted, "squares": counted * counted}
    of_rows |= _products(f, w, part, x, f.when(x.isNotNull(), 1.0), **products)
    return _quotient(f, of_rows, lambda s: s["size"] < UNKNOWN, level, part)


def ratio(f: Functions, x: Expression, y: Expression, level: float, part: Expression | None = None) -> Expression:
    """Return the estimate of sum(x) / sum(y): an average, in form, too, if y = 1. `part` as in `total`."""
    counts = x.isNotNull() & y.isNotNull()
    x, y, w = f.when(counts, x), f.when(counts, y), f.when(counts, weight(f))
    of_rows = {"total": f.sum(w * x), "size": f.sum(w * y), "unknown": unknown(f, x)}
    u = _excess(f, w)
    products = {"xx": u * x * x, "xy": u * x * y, "yy": u * y * y, "squares": u * y * y * u * y * y}
    of_rows |= _products(f, w, part, x, y, **products)
    return _quotient(f, of_rows, lambda s: s["unknown"] == 0, level, part)


def _products(
    f: Functions, w: Expression, part: Expression | None, x: Expression, y: Expression, **products: Expression
) -> Sums:
    """Return the sums over a group's rows that the variance of sum(w x) / sum(w y) comes from: of `products`, or by
    part."""
    if part is not None:
        return {"greatest": f.max(f.when(x.isNotNull(), _thinned(f, w))), "parts": _parts(f, w, part, x=x, y=y)}
    return {"rows": f.count(x), **{name: f.sum(product) for name, product in products.items()}}


def _quotient(
    f: Functions, of_rows: Sums, is_known: Callable[[Expression], Expression], level: float, part: Expression | None
) -> Expression:
    """Return the estimate of a quotient of sums from the sums over a group's rows."""

    def deviation(s: Expression, v: Expression) -> Expression:
        if part is None:
            squares = v["xx"] - 2.0 * v["value"] * v["xy"] + v["value"] * v["value"] * v["yy"]
            variance = f.greatest(squares, ROUNDING * v["xx"]) * (v["m"] / (v["m"] - 1.0))
        else:
            variance = _spread(f, s["parts"], lambda of_part: of_part["x"] - v["value"] * of_part["y"])
        t = _student(f, v["m"] - 1.0, level)
        root = f.when(s["size"] != 0.0, f.sqrt(variance) / f.abs(s["size"]))
        return f.when(v["rows"] > 1, t * root)

    def around(s: Expression, value: Expression) -> Expression:
        m = _rows(f, s["yy"], s["squares"], 2.0) if part is None else _used(f, s["parts"], "y")
        found = {name: s[name] for name in ("xx", "xy", "yy", "rows")} if part is None else {"rows": m}
        return let(
            f,
            {"value": value, "m": f.greatest(m, f.lit(2.0)), **found},
            lambda v: let(
                f,
                {"half": deviation(s, v)},
                lambda h: _struct(f, v["value"], v["value"] - h["half"], v["value"] + h["half"]),
            ),
        )

    def estimate(s: Expression) -> Expression:
        value = f.when(is_known(s) & (s["size"] != 0.0), s["total"] / s["size"])
        return settled(f, (s["yy"] if part is None else s["greatest"]).isNull(), value, lambda: around(s, value))

    return let(f, of_rows, estimate)


def total(f: Functions, x: Expression, level: float, part: Expression | None = None) -> Expression:
    """Return the estimate of sum(x).

    Args:
        f: the functions.
        x: null in rows that do not count.
        level: of the interval.
        part: of rows that were kept together by a key: which of the `SPLIT` parts, from 0, the key is in.

    """
    w = weight(f)
    signs = f.when(x > 0.0, _POSITIVE).when(x < 0.0, _NEGATIVE).when(x.isNotNull(), 0)
    marks = f.bit_or(signs + f.when(w.isNull(), _UNKNOWN).otherwise(0))
    of_rows = {
        **{"value": f.coalesce(f.sum(w * x), f.lit(0.0)), "kept": f.sum(x), "rows": f.count(x)},
        **{"marks": f.coalesce(marks, f.lit(0)), **_spread_of(f, w, x, part)},
    }

    def estimate(s: Expression) -> Expression:
        known = s["marks"] < _UNKNOWN
        size = f.when(s["marks"] <= _NEGATIVE, s["value"]).otherwise(0.0)
        found = {
            "value": f.when(known, s["value"]),
            "size": size,
            "kept": f.when(known, s["kept"]),
            "marks": s["marks"],
        }
        whole = _whole(s, part) & known
        return settled(f, whole, s["value"], lambda: interval(f, found, evidence(f, s, part), level))

    return let(f, of_rows, estimate)


def interval(f: Functions, found: Sums, variance: Sums, level: float, growth: Expression = 0.0) -> Expression:
    """Return the estimate of a total from the sums over its rows, and from its variance and degrees of freedom.

    Args:
        f: the functions.
        found: `value`; `size`, the value (as without it), or 0 where x has both signs; `kept`, the sum of what was
            kept; and, where x may be negative, `marks` of its signs. `value` and `kept` are null where a weight is not
            known.
        variance: as `evidence` has it.
        level: of the interval.
        growth: of the variance with the total, where no row tells it.

    """
    z = normal_quantile(level)
    signed = "marks" in found

    def widths(s: Expression) -> Sums:
        degrees = _degrees(f, s, variance, around=s["marks"] > _NEGATIVE if signed else None)
        size = s["size" if "size" in found else "value"]
        shift = f.when(size != 0.0, s["variance"] / size).otherwise(growth) * (z * z / 2.0)
        return {"wide": _student(f, degrees, level) * f.sqrt(s["variance"]), "shift": shift}

    def ends(s: Expression, v: Expression) -> Expression:
        half = f.sqrt(v["wide"] * v["wide"] + v["shift"] * v["shift"])
        low, high = s["value"] - (half - v["shift"]), s["value"] + v["shift"] + half
        # what was kept is there: a sum of no negative values is at least that, one of no positive values at most
        if not signed:
            return _struct(f, s["value"], f.greatest(low, s["kept"]), high)
        low = f.greatest(low, f.when(s["marks"] <= _POSITIVE, s["kept"]))
        high = f.least(high, f.when(s["marks"] == _NEGATIVE, s["kept"]))
        return _struct(f, s["value"], low, high)

    return let(f, found | variance, lambda s: let(f, widths(s), lambda v: ends(s, v)))


def quantile(f: Functions, x: Expression, q: float, level: float, part: Expression | None = None) -> Expression:
    """Return the estimate of the `q`-quantile of x. `part` as in `total`."""
    w = f.when(x.isNotNull(), weight(f))
    below, above = _distances(q), _distances(1.0 - q)
    shares = [*(q - each for each in below), *(min(q + each, 1.0) for each in above)]
    of_rows = {
        **{"size": f.sum(_or_unknown(f, x)), "rows": f.count(x), **_spread_of(f, w, None, part)},
        "found": f.percentile(x, f.array(*map(f.lit, shares)), f.round(w * float(PARTS)).cast("long")),
        "plain": f.percentile(f.when(w <= 1.0, x), f.lit(q)),  # without a state where all rows are shed
    }

    def distance(s: Expression, v: Expression, variance: Sums) -> Expression:
        t = _student(f, _degrees(f, v, variance), level)
        return t * f.sqrt(v["variance"] * (q * (1.0 - q))) / s["size"]

    def ends(s: Expression, distance: Expression) -> Expression:
        low, high = _at(f, distance, below, s["found"], 0), _at(f, distance, above, s["found"], len(below))
        return known(f, s["size"] < UNKNOWN, f.element_at(s["found"], len(below)), low, high)

    def around(s: Expression) -> Expression:
        found = evidence(f, s, part)
        return let(f, found, lambda v: let(f, {"far": distance(s, v, found)}, lambda d: ends(s, d["far"])))

    def estimate(s: Expression) -> Expression:
        plain = f.when(s["size"] < UNKNOWN, s["plain"])
        return settled(f, _whole(s, part), plain, lambda: around(s))

    return let(f, of_rows, estimate)


def _distances(farthest: float) -> list[float]:
    """Return how far from q quantiles are found on one side of it, descending to 0."""
    return [*(farthest / 2.0 ** (i / FINE) for i in range(STEPS + 1)), 0.0]


def _at(f: Functions, distance: Expression, distances: list[float], found: Expression, before: int) -> Expression:
    """Return the quantile at this distance from q, between those that were found at `distances`, the elements of
    `found` from position `before` on; null if it is as far as the range goes."""
    step = f.floor(f.log2(distances[0] / distance) * float(FINE))
    first = f.when(distance > 0.0, f.least(step, f.lit(STEPS))).otherwise(STEPS).cast("int") + 1
    table = f.array(*map(f.lit, distances))

    def between(v: Expression) -> Expression:
        i = v["i"]
        far, near = f.element_at(table, i), f.element_at(table, i + 1)
        outer, inner = f.element_at(found, i + before), f.element_at(found, i + (before + 1))
        return outer + (far - distance) / (far - near) * (inner - outer)

    return f.when(distance < distances[0], let(f, {"i": first}, between))


def evidence(f: Functions, s: Expression, part: Expression | None) -> Sums:
    """Return the variance of a total, and what its degrees of freedom come from: `_degrees`."""
    if part is not None:
        return {
            "variance": _spread(f, s["parts"], lambda of_part: of_part["x"]),
            "degrees": f.greatest(_used(f, s["parts"], "x") - 1.0, f.lit(1.0)),
        }
    return {"variance": s["variance"], "m": _rows(f, s["variance"], s["squares"], 1.0), "rows": s["rows"]}


def _degrees(f: Functions, s: Expression, variance: Sums, around: Expression | None = None) -> Expression:
    """Return the degrees of freedom of an interval that allows for the number of rows, or of one that does not.

    Args:
        f: the functions.
        s: a struct with what `evidence` found.
        variance: the same, unbound.
        around: whether it does not; None: it does.

    """
    if "degrees" in variance:
        return s["degrees"]
    others = f.greatest(1.0 - s["m"] / s["rows"], f.lit(1e-3))
    return 2.0 * s["m"] / (others if around is None else f.when(around, 1.0).otherwise(others))


def _spread_of(f: Functions, w: Expression, x: Expression | None, part: Expression | None) -> Sums:
    """Return the sums over a group's rows that the variance of sum(w x) comes from; None: x = 1."""
    if part is not None:
        counted = _thinned(f, w) if x is None else f.when(x.isNotNull(), _thinned(f, w))
        return {"greatest": f.max(counted), "parts": _parts(f, w, part, x=x)}
    u = _excess(f, w) if x is None else _excess(f, w) * x * x
    return {"variance": f.sum(u), "squares": f.sum(u * u)}


def _whole(s: Expression, part: Expression | None) -> Expression:
    """Return whether no row of the group was dropped, from the sums of `_spread_of`: none has a weight above 1."""
    return (s["variance"] if part is None else s["greatest"]).isNull()


def _thinned(f: Functions, w: Expression) -> Expression:
    """Return the weight of a row whose like may have been dropped; null for one that was kept for certain: while
    nothing is dropped, the sums take nothing, and stay null."""
    return f.when(w > 1.0, w)


def _excess(f: Functions, w: Expression) -> Expression:
    """Return w (w - 1) of a row, and null where that is 0."""
    return _thinned(f, w) * (_thinned(f, w) - 1.0)


def _or_unknown(f: Functions, x: Expression | None) -> Expression:
    """Return the weight of a row in which x is not null, and `UNKNOWN` where that is not known."""
    w = f.coalesce(weight(f), f.lit(UNKNOWN))
    return w if x is None else f.when(x.isNotNull(), w)


def _parts(f: Functions, w: Expression, part: Expression, **columns: Expression | None) -> Expression:
    """Return, for each part, the sums of sqrt(w (w - 1)) x over its rows, for each of these columns x (None: 1); 0
    without any."""
    root = f.sqrt(_excess(f, w))
    sums = (
        {
            name: f.coalesce(f.sum(f.when(part == i, root if x is None else root * x)), f.lit(0.0))
            for name, x in columns.items()
        }
        for i in range(SPLIT)
    )
    return f.array(*(f.struct(*(each.alias(name) for name, each in of_part.items())) for of_part in sums))


def _spread(f: Functions, parts: Expression, x: Callable[[Expression], Expression]) -> Expression:
    """Return SPLIT times the variance of `x` of the parts' sums: the variance of its total."""

    def summed(each: Callable[[Expression], Expression]) -> Expression:
        return f.aggregate(parts, f.lit(0.0), lambda so_far, part: so_far + each(part))

    centred = summed(lambda part: x(part) * x(part)) - summed(x) * summed(x) * (1.0 / SPLIT)
    return f.greatest(centred, f.lit(0.0)) * (SPLIT / (SPLIT - 1.0))


def _used(f: Functions, parts: Expression, x: str) -> Expression:
    """Return how many parts have a sum other than 0."""
    return f.aggregate(parts, f.lit(0.0), lambda n, part: n + one(f, part[x] != 0.0))


def _rows(f: Functions, variance: Expression, squares: Expression, none: float) -> Expression:
    """Return on how many rows a variance sum(u) rests, with squares = sum(u^2); `none` if it is 0."""
    return f.when(variance > 0.0, variance * variance / squares).otherwise(none)


def _student(f: Functions, degrees: Expression, level: float) -> Expression:
    """Return Student's quantile for these degrees of freedom, 1 or more, rounded down; the normal one where they are
    many."""
    quantiles = [*(student_quantile(level, each) for each in range(1, MANY)), normal_quantile(level)]
    # one string literal instead of an array of 60 literals: Spark analyzes and optimizes the plan again in each batch
    table = f.split(f.lit(",".join(map(repr, quantiles))), ",").cast("array<double>")
    return f.element_at(table, f.least(degrees, f.lit(float(MANY))).cast("int"))


def unknown(f: Functions, x: Expression) -> Expression:
    """Return in how many of the rows that count the weight is not known."""
    return f.count(f.when(x.isNotNull() & weight(f).isNull(), 1))


def known(f: Functions, all_are: Expression, value: Expression, low: Expression, high: Expression) -> Expression:
    """Return the struct; nulls where not all weights are known."""
    return _struct(f, *(f.when(all_are, each) for each in (value, low, high)))


def settled(f: Functions, whole: Expression, value: Expression, otherwise: Callable[[], Expression]) -> Expression:
    """Return the struct with `value` alone where the group is whole, which spares it the rest."""
    return f.when(whole, _struct(f, value, value, value)).otherwise(otherwise())


def _struct(f: Functions, value: Expression, low: Expression, high: Expression) -> Expression:
    return f.struct(value.alias("value"), low.alias("low"), high.alias("high"))


def let(f: Functions, values: Sums, body: Callable[[Expression], Expression]) -> Expression:
    """Return `body` of a struct of these values. Written out wherever it occurs, each would make the expression a
    multiple as large, and as SQL text nest deeper than Spark's parser can follow."""
    bound = f.array(f.struct(*(value.alias(name) for name, value in values.items())))
    return f.element_at(f.transform(bound, body), 1)


def one(f: Functions, condition: Expression) -> Expression:
    """Return 1 where a condition is true, and 0 elsewhere."""
    return f.when(condition, 1.0).otherwise(0.0)


def weight(f: Functions) -> Expression:
    """Return 1 / the probability with which a row was kept."""
    return f.col(WEIGHT).cast("double")


def part_of(f: Functions) -> Expression | None:
    """Return which of the parts a row's key is in; None where each row was kept by itself.

    Raises UsageProblem: rows were kept by a key that they do not have, or by several.
    """
    key = key_of_rows()
    if key is None:
        return None
    texts = (f.col(name).cast("string") for name in key)
    return f.pmod(f.shiftright(f.xxhash64(*texts), 20), f.lit(SPLIT))  # the bits below decide which keys are kept


def key_of_rows() -> Key:
    """Return the key by which the rows of the recipe were kept together; None where each was by itself. Raises
    UsageProblem as `part_of` does."""
    key = input_key()
    if key == ():
        raise UsageProblem(
            "an interval needs the key by which rows are shed (--shed-by): keep its columns, and shed all inputs "
            "by one",
            rule="keeps the key",
        )
    return key


def check_level(level: float) -> None:
    """Raise UsageProblem unless it is a probability that an interval can have."""
    if not 0.0 < level < 1.0:
        raise UsageProblem(
            f"the level of an interval is a probability between 0 and 1, such as 0.95, not {level}",
            value=level,
            rule="between 0 and 1",
        )


def check_fraction(q: float) -> None:
    """Raise UsageProblem unless there can be an estimate of the `q`-quantile."""
    if not 0.0 < q < 1.0:
        raise UsageProblem(
            f"a quantile is that of a fraction above 0 and below 1, such as 0.9, not {q}",
            value=q,
            rule="between 0 and 1",
        )
