"""Load shedders as parts of a query's plan: Poisson sampling with a probability that every row knows.

Two columns travel through these functions and never reach a recipe: `_p`, the dial as this row saw it, and `_sent`,
the chosen streams. The third, `_weight` = 1 / (probability with which the row was kept so far), is the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from qod_magics.application import weight

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WEIGHT = weight.WEIGHT
#: Uniform in [0, 1) with a resolution of 2^-20, the same for the same record after any replay.
RECORD_HASH = "((xxhash64(topic, partition, offset) & 1048575) / 1048576.0D)"
#: Uniform in [0, 1), drawn afresh for every row; `rand()` would repeat one sequence in every batch.
DRAW = "CAST(reflect('java.lang.Math', 'random') AS DOUBLE)"
#: Guards 1/d where d = 0: no row passes there, but a projection may be evaluated before the filter.
SMALLEST = 1e-9


def shed_source(records: DataFrame, keep_sql: str, replayable: bool = True) -> DataFrame:
    """Keep each record with the probability read by `keep_sql`; adds `_weight`.

    `replayable` records have topic, partition and offset: the choice is a hash of these, so that a replay keeps the
    same rows and a lower accuracy keeps a subset of a higher one's. Others are drawn at random.
    """
    chance = RECORD_HASH if replayable else DRAW
    return (
        records.withColumn("_p", F.expr(keep_sql))
        .where(f"{chance} < _p")
        .withColumn(WEIGHT, F.expr(f"1.0D / greatest(_p, {SMALLEST}D)"))
        .drop("_p")
    )


def shed_arrivals(records: DataFrame, accept_sql: str) -> DataFrame:
    """Thin rows that waited on a stream to the accuracy of now; expects and updates `_weight`.

    A row kept so far with probability p = 1 / _weight stays with min(1, accept / p): all of them in the steady state,
    fewer of those sent under an older, more generous plan.
    """
    return (
        records.withColumn("_p", F.expr(accept_sql))
        .where(f"{RECORD_HASH} < _p * {WEIGHT}")
        .withColumn(WEIGHT, F.expr(f"greatest({WEIGHT}, 1.0D / greatest(_p, {SMALLEST}D))"))
        .drop("_p")
    )


@dataclass(frozen=True, slots=True)
class Outlet:
    """The sending end of one stream."""

    name: str  #: "from>to"
    topic: str
    partitions: int
    key: str | None  #: column whose value decides the partition; None: spread evenly
    send_sql: str  #: reads d(from, to)


def sent_counts(outlets: Sequence[Outlet]) -> list[Column]:
    """Aggregates for `observe` on the result of `draw`: rows before the shedders, and rows sent on each stream."""
    counts = [F.count(F.lit(1)).alias("rows")]
    return counts + [F.count_if(F.expr(f"_u < _d{i}")).alias(f"sent_{i}") for i in range(len(outlets))]


def draw(rows: DataFrame, outlets: Sequence[Outlet]) -> DataFrame:
    """Draw once per row for all streams: the samples of several consumers are nested, none repeats between batches."""
    dials = [F.expr(outlet.send_sql).alias(f"_d{i}") for i, outlet in enumerate(outlets)]
    return rows.select("*", F.expr(DRAW).alias("_u"), *dials)


def send(drawn: DataFrame, outlets: Sequence[Outlet], value: Column) -> DataFrame:
    """Kafka records of all streams: value, topic, partition and the header that carries `_weight`."""
    choices = []
    for i, outlet in enumerate(outlets):
        if outlet.partitions == 1:
            partition = F.lit(0)
        elif outlet.key is None:
            partition = F.expr(f"CAST(floor({DRAW} * {outlet.partitions}) AS INT)")
        else:
            quoted = outlet.key.replace("`", "``")
            partition = F.expr(f"CAST(pmod(xxhash64(`{quoted}`), {outlet.partitions}) AS INT)")
        record = F.struct(
            F.lit(outlet.topic).alias("topic"),
            partition.alias("partition"),
            F.expr(f"{WEIGHT} / greatest(_d{i}, {SMALLEST}D)").alias("weight"),
        )
        choices.append(F.when(F.expr(f"_u < _d{i}"), record))
    anybody = " OR ".join(f"_u < _d{i}" for i in range(len(outlets)))
    return (
        drawn.where(anybody)
        .select(value.alias("value"), F.explode(F.filter(F.array(*choices), lambda r: r.isNotNull())).alias("_sent"))
        .select("value", "_sent.topic", "_sent.partition", weight_header(F.col("_sent.weight")).alias("headers"))
    )


def weight_header(weight: Column) -> Column:
    """The record headers that carry `_weight`."""
    return F.array(F.struct(F.lit("weight").alias("key"), weight.cast("string").cast("binary").alias("value")))


def weight_from_header() -> Column:
    """`_weight` of a record read from a stream."""
    return F.expr("COALESCE(CAST(CAST(headers[0].value AS STRING) AS DOUBLE), 1.0D)")
