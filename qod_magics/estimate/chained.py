"""Estimates of sums over estimates: the interval of a group's total travels with it through a further aggregation.

The groups have estimates v with intervals from l to h, which rest on rows of their own. An interval of a total
(`formulas`) is v + a +- sqrt(t^2 V + a^2), so both parts can be told from it: t^2 V = (v - l) (h - v), and
a = (h - v - (v - l)) / 2. With w = 1 / (probability that a group was kept on its way here), and all sums over groups,

- value: T = sum(w v);
- squared width: S = sum(w (v - l) (h - v)) + z^2 sum(w (w - 1) v^2), of which the second term is the variance that
  dropping groups adds (Horvitz and Thompson);
- shift: A = sum(w |v| a) / sum(w |v|);
- interval: T + A +- sqrt(S + A^2), about what the total over all rows would have.

Groups that share rows, as sliding windows do, or rows that are kept together by a key, do not err independently: then
the first term is sum(w sqrt((v - l) (h - v)))^2, which holds whatever their correlation, and is too wide where it is
small.

Groups of which no row was kept are missing, and count as 0: so the sum is as right as one over the rows. Its level is
that of the estimates that are summed. Where each group rests on a few rows only, the interval is wider than it need be:
their own have Student's wide tails.
"""

from __future__ import annotations

from qod_magics.estimate import formulas
from qod_magics.estimate.formulas import Expression, Functions, normal_quantile


def total(f: Functions, x: Expression, level: float, shared: bool) -> Expression:
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
