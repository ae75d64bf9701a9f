"""Rows of a memory sink, read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from qod_magics.spark.plans.parsing import FIRST_TIME, JSON_FORMAT, TOO_LATE
from qod_magics.spark.plans.whole import attempt, batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_results(
    spark: SparkSession,
    kafka: Mapping[str, str],
    topic: str,
    schema: StructType,
    whole: bool = False,
    since_s: float = 0.0,
) -> DataFrame:
    """A query's result rows that the broker still retains, from all its instances, unordered; of one that writes its
    `whole` result in each batch those of the newest one, in their order, none of a batch before `since_s` (epoch).

    They are in a topic with bounded retention, not in a server's heap: they survive moves and lost task managers.
    """
    records = (
        spark.read.format("kafka")
        .options(**kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", str(whole).lower())
        .load()
    )
    row = F.from_json(F.col("value").cast("string"), schema, JSON_FORMAT).alias("_row")
    if not whole:
        return records.select(row).select("_row.*")
    newest = F.max_by("_attempt", "offset").over(Window.partitionBy(F.lit(0)))  # it has one partition
    rows = records.select(row, batch().alias("_batch"), attempt().alias("_attempt"), "offset").withColumn(
        "_newest", newest
    )
    return rows.where(f"_attempt = _newest AND _batch >= {1e3 * since_s:.0f}").orderBy("offset").select("_row.*")


def times_out_of_range(rows: DataFrame) -> list[str]:
    """The columns of times outside of the years 1 to 9999, which Python's times have not."""
    times = [field.name for field in rows.schema.fields if field.dataType.typeName() == "timestamp"]
    if not times:
        return []
    outside = [
        F.max(~F.unix_micros(F.col("`{}`".format(name.replace("`", "``")))).between(FIRST_TIME, TOO_LATE - 1))
        for name in times
    ]
    (found,) = rows.select(*outside).collect()
    return [name for name, is_outside in zip(times, found, strict=True) if is_outside]
