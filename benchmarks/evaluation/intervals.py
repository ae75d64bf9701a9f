"""Intervals of estimates beside the truth: how often they cover it, and how wide they would be with the true variance.
Pure.

A group is a place in a window. Rows have the columns `window`, `place`, `total_amount`, `tip_amount`, `trip_distance`
and, where it is said, `p`: the probability with which each was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan, sqrt
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from qod_magics.estimate.formulas import normal_quantile

GROUP = ["window", "place"]
KINDS = ("count", "sum", "avg", "ratio", "median", "p90")
QUANTILES: Mapping[str, float] = {"median": 0.5, "p90": 0.9}
LEVEL = 0.95
BANDS: Mapping[str, tuple[float, float]] = {
    "1 to 4": (1, 5),
    "5 to 9": (5, 10),
    "10 to 29": (10, 30),
    "30 to 99": (30, 100),
    "100 and more": (100, inf),
}
#: By the highest / the lowest probability of a group's rows.
TURNS: Mapping[str, tuple[float, float]] = {
    "not turned": (0.0, 1.001),
    "turned by a factor of up to 3": (1.001, 3.0),
    "turned further": (3.0, inf),
}

Floats = NDArray[np.float64]


def probabilities(ids: Sequence[int], weights: Sequence[float], rows: int) -> Floats:
    """With which probability each of the rows 0, 1, ... was kept: that of the kept row nearest to it.

    Args:
        ids: of the rows that were kept, at least one.
        weights: 1 / probability of each.
        rows: how many there were.

    """
    order = np.argsort(ids)
    known, p = np.asarray(ids)[order], 1.0 / np.asarray(weights, float)[order]
    between = (known[1:] + known[:-1]) / 2
    return np.asarray(p[np.searchsorted(between, np.arange(rows), side="left")], float)


def truths(rows: pd.DataFrame) -> pd.DataFrame:
    """The true figures of each group, by `KINDS`."""
    groups = rows.groupby(GROUP)
    amount, tip, distance = groups["total_amount"], groups["tip_amount"], groups["trip_distance"]
    found = {"count": amount.size(), "sum": amount.sum(), "avg": amount.mean(), "ratio": tip.sum() / amount.sum()}
    return pd.DataFrame(found | {name: distance.quantile(q) for name, q in QUANTILES.items()})


def least_widths(rows: pd.DataFrame) -> pd.DataFrame:
    """How wide an interval of each figure would be if its variance were known: from the rows that were sent, and `p`.

    2 z sqrt(V) with V = sum((1 / p - 1) e^2) over all rows of a group, of Horvitz and Thompson: e is 1 for a count, x
    for a sum, (x - R y) / sum(y) for a ratio. For a quantile: from the true quantile of q - z sqrt(V) to that of
    q + z sqrt(V), where e is (1[x <= true] - q) / rows; NaN where one of these is none of 0..1.
    """
    return pd.DataFrame({key: _widths(part) for key, part in rows.groupby(GROUP)}).T.rename_axis(GROUP)


def _widths(rows: pd.DataFrame) -> dict[str, float]:
    z, lost = normal_quantile(LEVEL), 1.0 / rows["p"].to_numpy() - 1.0
    amount, tip, distance = (rows[name].to_numpy() for name in ("total_amount", "tip_amount", "trip_distance"))

    def deviation(e: Any) -> float:
        return z * sqrt(float(np.sum(lost * e * e)))

    total = amount.sum()
    errors = {
        "count": np.ones(len(rows)),
        "sum": amount,
        "avg": (amount - amount.mean()) / len(rows),
        "ratio": (tip - tip.sum() / total * amount) / total,
    }
    found = {name: 2.0 * deviation(e) for name, e in errors.items()}
    for name, q in QUANTILES.items():
        far = deviation(((distance <= np.quantile(distance, q)) - q) / len(rows))
        inside = q - far >= 0.0 and q + far <= 1.0
        found[name] = float(np.diff(np.quantile(distance, [q - far, q + far]))[0]) if inside else nan
    return found


def compared(rows: pd.DataFrame, estimates: pd.DataFrame) -> pd.DataFrame:
    """One line for each estimate.

    Args:
        rows: all that were sent, with `p`.
        estimates: of the groups of which a row was kept: `kept`, the number of these, and for each of `KINDS` the
            columns "KIND_low" and "KIND_high", NaN for an end that is not bounded.

    Returns:
        a frame with `kind`, `true`, `low`, `high`, `least` (`least_widths`), `kept`, `turned` (the highest / the lowest
        probability of the group's rows) and `sheds` (whether one of these was below 1).

    """
    true, least = truths(rows), least_widths(rows)
    of_group = rows.groupby(GROUP)["p"].agg(["min", "max"])
    shared = pd.DataFrame({"turned": of_group["max"] / of_group["min"], "sheds": of_group["min"] < 1.0})
    lines = [
        pd.DataFrame(
            {
                "kind": kind,
                "true": true[kind],
                "low": estimates[f"{kind}_low"],
                "high": estimates[f"{kind}_high"],
                "least": least[kind],
                "kept": estimates["kept"],
            }
        )
        for kind in KINDS
    ]
    return pd.concat([line.loc[estimates.index].join(shared) for line in lines])


def told(lines: pd.DataFrame) -> dict[str, Any]:
    """The figures of these lines of one kind: how many, the share of the intervals that cover the truth, the median of
    width / least width, and the share of intervals with an end that is not bounded, which covers."""
    low, high = lines["low"].fillna(-inf), lines["high"].fillna(inf)
    rounding = 1e-9 * lines["true"].abs()
    covered = (low <= lines["true"] + rounding) & (lines["true"] - rounding <= high)
    ratio = ((high - low) / lines["least"])[(lines["least"] > 0.0) & np.isfinite(high - low)]
    if lines.empty:
        return {"figures": 0, "covered": None, "width": None, "open": None}
    return {
        "figures": len(lines),
        "covered": float(covered.mean()),
        "width": float(ratio.median()) if len(ratio) else None,
        "open": float(np.isinf(high - low).mean()),
    }


def summarized(lines: pd.DataFrame) -> dict[str, Any]:
    """By kind, the figures of all groups that were shed, by how far the dial was turned meanwhile, and by the number of
    rows kept; and of the groups of which no row could be dropped, as of their own kind `exact`."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        of_kind = lines[lines["kind"] == kind]
        shed = of_kind[of_kind["sheds"]]
        found[kind] = {
            "all": told(shed),
            "turns": {name: told(shed[_within(shed["turned"], ends)]) for name, ends in TURNS.items()},
            "kept": {name: told(shed[_within(shed["kept"], ends)]) for name, ends in BANDS.items()},
            "exact": told(of_kind[~of_kind["sheds"]]),
        }
    return found


def _within(values: pd.Series[Any], ends: tuple[float, float]) -> pd.Series[Any]:
    return (values >= ends[0]) & (values < ends[1])
