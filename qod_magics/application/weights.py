"""The weights of rows in a task, and how they pass through the chain of its recipes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec
from qod_magics.estimate import formulas
from qod_magics.estimate.groups import Groups, Key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# --- The column `_weight` ---------------------------------------------------------------------------------------------
# Rows are sampled each by itself, or all rows of a key together (`--shed-by`). A key is kept while its hash is below
# the accuracy: the same keys in every topic that is shed by a key, and a subset of them at a lower accuracy. So a pair
# of rows with the same key is kept with the smaller of their probabilities, where rows that are sampled by themselves
# are kept with the product. Names of columns are compared in any case, as Spark does.

#: 1 / (probability that a row was kept so far); every input of a recipe has it
WEIGHT = formulas.WEIGHT
#: Why it is null.
LEFT_OUT = "its recipe leaves it out"
NOT_INDEPENDENT = "its recipe pairs rows that are not sampled independently"
ONE_OF_A_PAIR = "its recipe joins streams and keeps the weight of one of them"
NOT_BY_KEY = "its recipe joins streams that are shed by a key, but not by that key"
#: Where it is null in the result of an outer join.
EMPTY_SIDE = "where a side of its outer join is empty: the row there may have been dropped"
#: By stream or task: the topics, and recipes with a source of their own, from which its rows come.
Origins = Mapping[str, frozenset[str]]
#: The pairs of columns, left and right, that a join equates, in lower case.
Equated = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Weights:
    """Facts about `_weight` in the streams of some tasks, found while their recipes are built."""

    unknown: dict[str, str] = field(default_factory=dict)  #: why it is null in a stream's rows, by stream
    #: Streams whose recipes compare whole rows, as `SELECT DISTINCT *` does: their inputs are given without it.
    compared: set[str] = field(default_factory=set)
    #: Streams whose recipes join others by an outer join: it is null where a side is empty.
    partly: set[str] = field(default_factory=set)
    #: Queries whose results lack it, since their recipes do not name it.
    hidden: set[str] = field(default_factory=set)
    #: The key by which a stream's rows were kept together, by stream; those of each row by itself are left out.
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Streams whose recipes join others by the key by which all of these are shed: a pair has the larger weight.
    by_key: set[str] = field(default_factory=set)
    #: Streams whose rows are groups of sampled rows, or derive from such groups.
    groups: dict[str, Groups] = field(default_factory=dict)
    #: Streams whose recipes sum up estimates of groups, and read a group several times.
    repeated: set[str] = field(default_factory=set)


class Usage(NamedTuple):
    """What a recipe does with `_weight`, by its plan."""

    compares: bool  #: groups, or removes duplicates, by it
    joins: bool  #: joins streams; the result has the weight of one of them as it was
    outer: bool  #: has rows for which an outer join of streams found no partner
    joined: Sequence[Equated] = ()  #: of each join of streams
    overlaps: bool = False  #: whether several rows of its result may stand for one of its input
    sums: bool = False  #: aggregates; `_weight` of the result is a sum
    kept: Collection[str] | None = None  #: columns of the result that are those of the inputs; None: all of their names


#: Finds that for a recipe's result; None where Spark can't plan it.
Usages = Callable[["DataFrame"], Usage | None]


def origins(specs: Sequence[TaskSpec]) -> dict[str, frozenset[str]]:
    """Return where the rows of each task come from; tasks in an order in which inputs precede their readers."""
    found: dict[str, frozenset[str]] = {}
    for spec in specs:
        of_streams = dict(found)
        for stream in spec.streams:
            of_streams[stream.name] = origins_of(stream, of_streams)
        found[spec.id] = of_streams[spec.id]
    return found


def weighed_since(specs: Sequence[TaskSpec], weights: Weights) -> dict[str, str]:
    """Return the stream from which on `_weight` counts, by task whose rows are groups of estimates or derive from such
    groups: it is the stream of these groups. `specs`: inputs precede their readers."""
    found: dict[str, str] = {}  #: by stream
    for spec in specs:
        for stream in spec.streams:
            groups = weights.groups.get(stream.name)
            read = [found[name] for name in stream.upstream if name in found]
            if groups is not None and (groups.begins or read):
                found[stream.name] = stream.name if groups.begins else read[0]
    return {spec.id: found[spec.id] for spec in specs if spec.id in found}


def origins_of(stream: StreamDeclaration, known: Origins) -> frozenset[str]:
    """Return where a stream's rows come from."""
    if stream.topic is not None:
        return frozenset(f"topic {topic}" for topic in stream.topic.topics)
    if not stream.upstream:
        return frozenset({f"source of {stream.name}"})
    return frozenset().union(*(known[name] for name in stream.upstream))


def weight_problem(
    columns: Sequence[str], inputs: Sequence[frozenset[str]], keyed: int = 0, by_key: bool = False
) -> str | None:
    """Return why the weight of a recipe's rows is not known; None if it is.

    Args:
        columns: of its result. A join has one `_weight` from each of its inputs.
        inputs: the origins of each input. Inputs of separate origins are sampled independently.
        keyed: of how many inputs all rows of a key are kept together.
        by_key: whether all are, and are joined by that key.

    """
    weights = columns.count(WEIGHT)
    if weights == 0:
        return LEFT_OUT
    if weights > 1 and by_key:
        return None
    if weights > 1 and keyed > 1:
        return NOT_BY_KEY
    separate = sum(map(len, inputs)) == len(frozenset().union(*inputs))
    return None if weights == 1 or (weights <= len(inputs) and separate) else NOT_INDEPENDENT


def spelled(rows: DataFrame) -> DataFrame:
    """Return the rows with `_weight` in lower case: Spark names a column as a query spells it."""
    others = any(name != WEIGHT and name.lower() == WEIGHT for name in rows.columns)
    return rows.withColumnRenamed(WEIGHT, WEIGHT) if others else rows


def one_weight(rows: DataFrame, known: bool, by_key: bool = False) -> DataFrame:
    """Return the rows with at most one `_weight`: of several, the last column.

    A pair of rows that are sampled independently is kept with the product of their probabilities: its weight is the
    product of their weights. One of rows that are kept `by_key` is kept with the smaller probability: its weight is the
    larger one. It is null if it is not `known`, and where a side of an outer join is empty: the row
    there may have been dropped.
    """
    columns = rows.columns
    if columns.count(WEIGHT) < 2:
        return rows if known or WEIGHT not in columns else rows.withColumn(WEIGHT, no_weight())
    from pyspark.sql import functions as F

    # columns of one name differ only by position
    names = [f"{WEIGHT}_{i}" if name == WEIGHT else f"c{i}" for i, name in enumerate(columns)]
    placed = rows.toDF(*names)
    weights = [F.col(name) for name in names if name.startswith(WEIGHT)]
    if not known:
        weight = no_weight()
    elif by_key:  # F.greatest passes over nulls
        weight = reduce(lambda one, other: F.when(one.isNotNull() & other.isNotNull(), F.greatest(one, other)), weights)
    else:
        weight = reduce(mul, weights)
    kept = [F.col(n).alias(name) for n, name in zip(names, columns, strict=True) if name != WEIGHT]
    return placed.select(*kept, weight.alias(WEIGHT))


def weighed(rows: DataFrame) -> DataFrame:
    """Return the rows with a `_weight`, the last column, as in rows from a topic: null where their recipe leaves it
    out."""
    if WEIGHT not in rows.columns:
        return rows.withColumn(WEIGHT, no_weight())
    return rows if rows.columns[-1] == WEIGHT else rows.selectExpr(f"* EXCEPT ({WEIGHT})", WEIGHT)


def newly_weighed(rows: DataFrame) -> DataFrame:
    """Return the rows with a `_weight` of 1: groups of which no one has been dropped yet."""
    from pyspark.sql import functions as F

    return rows.withColumn(WEIGHT, F.lit(1.0))


def no_weight() -> Column:
    """Return a weight that is not known."""
    from pyspark.sql import functions as F

    return F.lit(None).cast("double")


def twice(rows: DataFrame) -> str | None:
    """Return a column name that occurs twice, ignoring case; None if none does."""
    seen: set[str] = set()
    names: list[str] = rows.columns
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None


def key_of(inputs: Sequence[Key], columns: Collection[str], by_key: bool = False) -> Key:
    """Return the key of a recipe's result; () where the keys of its inputs differ, as in a union of streams of several.

    Args:
        inputs: the keys of its inputs.
        columns: of the result, as the inputs have them.
        by_key: whether it joins them by their keys, which then are equal in value, whatever their names.

    """
    if all(key is None for key in inputs):
        return None
    apart = not by_key and len(set(inputs)) > 1
    if apart or any(not key for key in inputs):  # some rows by themselves, or by an unknown key
        return ()
    there = {name.lower() for name in columns}
    return next((key for key in inputs if key is not None and {name.lower() for name in key} <= there), ())


def joins_by_key(inputs: Collection[Key], joins: Sequence[Equated]) -> bool:
    """Return whether each of these joins, one or more, pairs only rows of the same key."""
    keys = [tuple(name.lower() for name in key) for key in inputs if key]
    if not joins or len(keys) < len(inputs):
        return False
    sides = list(permutations(keys, 2)) if len(keys) > 1 else [(key, key) for key in keys]  # one with itself
    same = [set(zip(one, other, strict=True)) for one, other in sides if len(one) == len(other)]
    return all(any(pairs <= equated for pairs in same) for equated in joins)
