"""What the counts of a recipe's own sources are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qod_magics.spark.plans.shedder import SheddingSession


class Reader:
    """As Spark's: its methods change it, and return it."""

    def format(self, source: str) -> Reader:
        return self

    def schema(self, schema: str) -> Reader:
        return self

    def option(self, key: str, value: Any) -> Reader:
        return self

    def options(self, **options: Any) -> Reader:
        return self

    def load(self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:
        return SimpleNamespace(columns=["key", "value", "topic", "partition", "offset"])

    def json(self, path: str) -> Any:
        return SimpleNamespace(columns=["id"])


class Session:
    @property
    def readStream(self) -> Reader:
        return Reader()


class Made(SheddingSession):
    """Keeps the names of the counts, in the order in which a recipe reads its sources."""

    def __init__(self) -> None:
        self.counts: list[str] = []
        super().__init__(Session(), "1.0", shed=self._counting)  # type: ignore[arg-type]

    def _counting(self, rows: Any, keep_sql: str, counted_as: str, replayable: bool, reflects: bool) -> Any:
        self.counts.append(counted_as)
        return rows


def spark() -> Any:
    return Made()


def test_a_topic_gives_its_counts_their_name() -> None:
    session = spark()
    kafka = session.readStream.format("kafka").option("kafka.bootstrap.servers", "here:9092")
    kafka.option("subscribe", "zones").load()
    session.readStream.option(key="Assign", value='{"trips": [0, 1]}').format(source="kafka").load()
    session.readStream.load(format="kafka", subscribe=" fares, ")
    session.readStream.load(None, "kafka", None, subscribe="tips")
    reader = session.readStream.format("kafka")
    reader.options(subscribe="rides")
    reader.load()
    assert session.counts == ["shed.zones", "shed.trips", "shed.fares", "shed.tips", "shed.rides"]


def test_other_sources_have_numbers() -> None:
    session = spark()
    session.readStream.format("rate").option("subscribe", "zones").load()
    session.readStream.schema("id BIGINT").json("/there")
    kafka = session.readStream.format("kafka")
    kafka.option("subscribe", "trips,zones").load()
    session.readStream.format("kafka").option("subscribePattern", "trips.*").load()
    session.readStream.format("kafka").option("assign", "trips").load()
    session.readStream.format("kafka").option("assign", "7").load()
    session.readStream.format("kafka").option("subscribe", "7").load()
    assert session.counts == [f"shed.{number}" for number in range(7)]


def test_a_topic_that_is_read_again_has_counts_of_another_name() -> None:
    """Spark refuses two of one name that are not the same."""
    session = spark()
    for _ in range(3):
        session.readStream.format("kafka").option("subscribe", "trips").load()
    other = spark()
    other.readStream.format("kafka").option("subscribe", "trips").load()
    assert session.counts == ["shed.trips", "again.1.trips", "again.2.trips"]
    assert other.counts == ["shed.trips"]
