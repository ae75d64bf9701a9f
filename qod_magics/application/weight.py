"""The column `_weight` of a recipe's result."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: 1 / (probability with which a row was kept so far); every input of a recipe has it
WEIGHT = "_weight"


def one_weight(rows: DataFrame) -> DataFrame:
    """The rows with at most one `_weight`, their last column then.

    A join brings one from each of its inputs. Inputs are sampled independently, so that a pair is kept with the product
    of the probabilities of its rows: its weight is the product of their weights. The side of an outer join that has no
    row counts as 1.
    """
    columns = rows.columns
    if columns.count(WEIGHT) < 2:
        return rows
    from pyspark.sql import functions as F

    # columns of one name can only be told apart by their place
    names = [f"{WEIGHT}_{i}" if name == WEIGHT else f"c{i}" for i, name in enumerate(columns)]
    placed = rows.toDF(*names)
    weights = [F.coalesce(F.col(n), F.lit(1.0)) for n in names if n.startswith(WEIGHT)]
    kept = [F.col(n).alias(name) for n, name in zip(names, columns, strict=True) if name != WEIGHT]
    return placed.select(*kept, reduce(mul, weights).alias(WEIGHT))


def twice(rows: DataFrame) -> str | None:
    """A name that two columns of these rows share, in any case; None if none do."""
    seen: set[str] = set()
    names: list[str] = rows.columns
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
