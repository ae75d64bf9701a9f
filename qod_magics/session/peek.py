"""A look into a topic before a stream reads it: its rate, its newest records, and a schema line for them."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qod_magics.application.streams.stream import ddl_of
from qod_magics.errors import counted
from qod_magics.kafka.reading import Record, Tail, beginning_offsets, end_offsets, offsets_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from qod_magics.kafka.cluster import Kafka

SHOWN = 5  #: records that are shown
SAMPLED = 100  #: records of a partition from which the schema is taken
LATELY_S = 60  #: the time over which the rate is taken
_WIDTH = 160  #: characters of a value that are shown
_NEEDLESS = re.compile(r"(?<!`)`([A-Za-z_][A-Za-z0-9_]*)`(?!`)")


@dataclass(frozen=True, slots=True)
class Peek:
    """What is in a topic."""

    topic: str
    partitions: int
    records: int  #: offsets from the oldest to the newest record, transactions and compaction aside
    rate: float  #: records/s of the last `LATELY_S` seconds
    newest: tuple[Record, ...]  #: at most `SHOWN`
    schema: str  #: DDL of the JSON values, as --schema takes it; "": they are no JSON objects
    sampled: int = 0  #: values from which it was taken

    def __str__(self) -> str:
        head = f"{self.topic}: {counted(self.partitions, 'partition')}, {self.records:,} records"
        lines = [f"{head}, {self.rate:,.1f}/s in the last {LATELY_S} s"]
        lines += [f"  {_shown(record)}" for record in self.newest]
        if self.schema:
            quoted = "'" + self.schema.replace("'", "\\'") + "'" if '"' in self.schema else f'"{self.schema}"'
            lines.append(f"--schema {quoted}  (of {counted(self.sampled, 'value')}; times in text are STRING)")
        elif self.sampled:
            lines.append("no --schema: no task manager is up to infer it")
        elif self.newest:
            lines.append("no --schema: the values are no JSON objects")
        return "\n".join(lines)


def peek(kafka: Kafka, topic: str, spark: SparkSession | None) -> Peek:
    """Return what is in a topic; without a Spark session no schema. Raises KafkaError."""
    ends = end_offsets(kafka, [topic], timeout_s=10.0)[topic]
    first = beginning_offsets(kafka, [topic], timeout_s=10.0)[topic]
    lately = offsets_at(kafka, [topic], int((time.time() - LATELY_S) * 1000), timeout_s=10.0)[topic]
    with closing(Tail(kafka, topic, SAMPLED)) as tail:
        records = tail.read().by_time
    objects = json_objects([record.value for record in records])
    return Peek(
        topic,
        len(ends),
        sum(ends.values()) - sum(first.values()),
        (sum(ends.values()) - sum(lately.values())) / LATELY_S,
        tuple(records[-SHOWN:]),
        schema_of(spark, objects) if spark is not None and objects else "",
        len(objects),
    )


def json_objects(values: Sequence[bytes]) -> list[str]:
    """Return the values that are JSON objects, as text."""
    return [text for value in values if (text := value.decode("utf-8", "replace").strip()) and _is_object(text)]


def schema_of(spark: SparkSession, objects: Sequence[str]) -> str:
    """Return one DDL for all of these JSON objects, as Spark infers it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    [row] = spark.range(1).select(F.schema_of_json(F.lit(f"[{', '.join(objects)}]"))).collect()
    rows: Any = spark.range(0).select(F.from_json(F.lit("[]"), row[0]).alias("rows")).schema["rows"].dataType
    return plain(ddl_of(rows.elementType)) if isinstance(rows.elementType, StructType) else ""


def plain(ddl: str) -> str:
    """Return DDL without the backticks of names that need none."""
    return _NEEDLESS.sub(r"\1", ddl)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _shown(record: Record) -> str:
    value = " ".join(record.value.decode("utf-8", "replace").split())
    cut = value if len(value) <= _WIDTH else f"{value[: _WIDTH - 3]}..."
    key = "" if record.key is None else f"{record.key.decode('utf-8', 'replace')!r}: "
    return f"{record.partition}: {key}{cut if cut.isprintable() else repr(record.value[:40])}"
