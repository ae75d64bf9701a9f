"""What the counts of a recipe's own sources are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.spark.plans import shedder
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


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the counts, in the order in which a recipe reads its sources."""
    found: list[str] = []
    monkeypatch.setattr(
        shedder, "shed_source", lambda rows, keep, counted_as, replayable, reflects: found.append(counted_as)
    )
    return found


def spark() -> Any:
    return SheddingSession(Session(), "1.0")  # type: ignore[arg-type]


def test_a_topic_gives_its_counts_their_name(counts: list[str]) -> None:
    session = spark()
    kafka = session.readStream.format("kafka").option("kafka.bootstrap.servers", "here:9092")
    kafka.option("subscribe", "zones").load()
    session.readStream.option(key="Assign", value='{"trips": [0, 1]}').format(source="kafka").load()
    session.readStream.load(format="kafka", subscribe=" fares, ")
    session.readStream.load(None, "kafka", None, subscribe="tips")
    reader = session.readStream.format("kafka")
    reader.options(subscribe="rides")
    reader.load()
    assert counts == ["shed.zones", "shed.trips", "shed.fares", "shed.tips", "shed.rides"]


def test_other_sources_have_numbers(counts: list[str]) -> None:
    session = spark()
    session.readStream.format("rate").option("subscribe", "zones").load()
    session.readStream.schema("id BIGINT").json("/there")
    kafka = session.readStream.format("kafka")
    kafka.option("subscribe", "trips,zones").load()
    session.readStream.format("kafka").option("subscribePattern", "trips.*").load()
    session.readStream.format("kafka").option("assign", "trips").load()
    session.readStream.format("kafka").option("assign", "7").load()
    session.readStream.format("kafka").option("subscribe", "7").load()
    assert counts == [f"shed.{number}" for number in range(7)]


def test_a_topic_that_is_read_again_has_counts_of_another_name(counts: list[str]) -> None:
    """Spark refuses two of one name that are not the same."""
    session = spark()
    for _ in range(3):
        session.readStream.format("kafka").option("subscribe", "trips").load()
    spark().readStream.format("kafka").option("subscribe", "trips").load()
    assert counts == ["shed.trips", "again.1.trips", "again.2.trips", "shed.trips"]
