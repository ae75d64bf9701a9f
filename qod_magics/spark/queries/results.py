"""Rows of a memory sink, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from qod_magics.spark.plans.parsing import JSON_FORMAT
from qod_magics.spark.plans.pipeline import Workshop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def read_results(workshop: Workshop, topic: str, schema: StructType) -> DataFrame:
    """A query's result rows that the broker still retains, from all its instances, unordered.

    They are in a topic with bounded retention, not in a server's heap: they survive moves and lost task managers.
    """
    records = (
        workshop.spark.read.format("kafka")
        .options(**workshop.kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    row = F.from_json(F.col("value").cast("string"), schema, JSON_FORMAT)
    return records.select(row.alias("_row")).select("_row.*")
