"""The sampling weight `_weight` of a recipe's result."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: 1 / (probability that a row was kept so far); every input of a recipe has it
WEIGHT = "_weight"


def one_weight(rows: DataFrame) -> DataFrame:
    """The rows with at most one `_weight`, their last column then.

    A join yields one from each of its inputs. Inputs are sampled independently, so that a pair is kept with the product
    of the probabilities of its rows: its weight is the product of their weights. The empty side of an outer join
    counts as 1.
    """
    columns = rows.columns
    if columns.count(WEIGHT) < 2:
        return rows
    from pyspark.sql import functions as F

    # columns of one name differ only by position
    names = [f"{WEIGHT}_{i}" if name == WEIGHT else f"c{i}" for i, name in enumerate(columns)]
    placed = rows.toDF(*names)
    weights = [F.coalesce(F.col(n), F.lit(1.0)) for n in names if n.startswith(WEIGHT)]
    kept = [F.col(n).alias(name) for n, name in zip(names, columns, strict=True) if name != WEIGHT]
    return placed.select(*kept, reduce(mul, weights).alias(WEIGHT))


def twice(rows: DataFrame) -> str | None:
    """A column name that occurs twice, ignoring case; None if none does."""
    seen: set[str] = set()
    names: list[str] = rows.columns
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
