"""One recipe on plain Spark, without this project."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import functions as F

from benchmarks.evaluation.applications import COLUMNS
from benchmarks.evaluation.recipes import PLAINS, Recipe
from qod_magics.data import trip_schema
from qod_magics.kafka.reading import end_offsets
from qod_magics.session.session import Session
from qod_magics.spark.queries.progress import Batch, batch_of


class PlainQuery:
    """A query from the newest rows on, in back-to-back micro-batches, on the task manager's own Spark session.

    Args:
        session: runs no stream of its own meanwhile.
        recipe: the query.
        bound: rows of all topics together that a batch reads at most (`maxOffsetsPerTrigger`); None: no bound.

    """

    def __init__(self, session: Session, recipe: Recipe, bound: int | None) -> None:
        self.begun = end_offsets(session.kafka, recipe.topics, timeout_s=10.0)
        workshop = session.runtime.workshop()
        options = dict(workshop.kafka)
        if bound is not None:
            options["maxOffsetsPerTrigger"] = str(max(bound // len(recipe.topics), 1))
        row = F.from_json(F.col("value").cast("string"), trip_schema(COLUMNS)).alias("row")
        inputs = [
            workshop.spark.readStream.format("kafka")
            .options(**options)
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: self.begun[topic]}))
            .load()
            .select(row)
            .select("row.*")
            for topic in recipe.topics
        ]
        writer = recipe.query(*inputs).select(F.to_json(F.struct("*")).alias("value")).writeStream.format("kafka")
        checkpoint = f"{session.runtime.checkpoints}/plain-{secrets.token_hex(3)}"
        self._query = (
            writer.options(**workshop.kafka)
            .option("topic", PLAINS)
            .option("checkpointLocation", checkpoint)
            .outputMode(recipe.output_mode)
            .start()
        )

    def batches(self) -> list[Batch]:
        """The last batches that ended. Raises RuntimeError: the query failed."""
        if (error := self._query.exception()) is not None:
            raise RuntimeError(f"plain Spark ended: {error}")
        reports: list[Any] = [json.loads(each.json) for each in self._query.recentProgress]
        return [batch for batch in map(batch_of, reports) if batch is not None]

    def stop(self) -> None:
        """End the query."""
        with suppress(Exception):
            self._query.stop()


@contextmanager
def plain_query(session: Session, recipe: Recipe, bound: int | None) -> Iterator[PlainQuery]:
    """A `PlainQuery` that ends with the context."""
    query = PlainQuery(session, recipe, bound)
    try:
        yield query
    finally:
        query.stop()
