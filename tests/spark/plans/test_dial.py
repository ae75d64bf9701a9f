"""Dials: their names keep sessions, tasks and purposes apart, and their SQL says what it should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.plans.dial import (
    LATEST_DUE_S,
    MOST_PARTITIONS,
    PARTS,
    DialBoard,
    DialReading,
    due_value,
    lent_value,
    read_sql,
    record,
    reflection_allowed,
    turn,
    written,
)

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


class Spark:
    """Keeps what it is asked, and can be told to fail."""

    def __init__(self, value: float | None = None) -> None:
        self.value = value
        self.asked: list[str] = []

    def sql(self, text: str) -> Spark:
        self.asked.append(text)
        return self

    def collect(self) -> list[dict[str, Any]]:
        if self.value is None:
            raise RuntimeError("reflect is disabled")
        return [{"value": self.value}]


@given(names, names, names, names)
def test_no_two_dials_share_a_name(session: str, other: str, task: str, target: str) -> None:
    def dials(board: DialBoard) -> list[str]:
        keys = [board.source(task), board.accept(task), board.accuracy(task), board.send(f"{task}>{target}")]
        keys += [of(f"{task}.{i}") for of in (board.pace, board.due) for i in (1, 2)]
        return keys + [board.source(target), board.accept(target), board.accuracy(target)] * (task != target)

    mine = dials(DialBoard(session))
    assert len(set(mine)) == len(mine)
    if session != other:
        assert not set(mine) & set(dials(DialBoard(other)))


@given(names, st.floats(0, 1))
def test_what_is_written_in_a_plan(task: str, value: float) -> None:
    key = DialBoard("s").source(task)
    assert f"'{key}'" in read_sql(key, DialReading.ROW)
    assert "SELECT" not in read_sql(key, DialReading.ROW)  # every row reads it
    assert read_sql(key, DialReading.BATCH).startswith("(SELECT ")  # once a batch
    assert read_sql(key, DialReading.TOPIC, value).count("SELECT ") == 2  # the record, and the dial in it
    assert f"'{key}'" in read_sql(key, DialReading.TOPIC, value)
    literal = read_sql(key, DialReading.RESTART, value)
    assert key not in literal
    assert float(literal.removeprefix("CAST(").removesuffix(" AS DOUBLE)")) == value


@given(st.floats(0, 1))
def test_what_a_property_holds_is_what_is_dropped(value: float) -> None:
    dropped = int(written(value))
    assert 0 <= dropped <= PARTS
    assert abs(1.0 - dropped / PARTS - value) <= 1 / PARTS
    assert [written(1.0), written(0.0)] == ["0", str(PARTS)]


@given(st.dictionaries(names, st.floats(0, 1), max_size=4))
def test_a_record_has_each_dial_as_a_property_would(values: dict[str, float]) -> None:
    found = json.loads(record(values))
    assert {key: str(dropped) for key, dropped in found.items()} == {k: written(v) for k, v in values.items()}


def test_java_is_called_only_where_that_is_allowed() -> None:
    assert {each for each in DialReading if each.reflects} == {DialReading.ROW, DialReading.BATCH}
    for reading in DialReading:
        assert ("reflect(" in read_sql("qod.a", reading)) is reading.reflects


def test_many_dials_are_turned_in_one_call_and_none_in_no_call() -> None:
    spark = Spark(0.0)
    turn(spark, {})  # type: ignore[arg-type]
    assert spark.asked == []
    turn(spark, {"qod.a": 0.25, "qod.b": 1.0})  # type: ignore[arg-type]
    (asked,) = spark.asked
    assert f"('qod.a', '{3 * PARTS // 4}'), ('qod.b', '0')" in asked


def test_reflection_counts_only_when_the_value_comes_back() -> None:
    assert reflection_allowed(Spark(0.25), "qod.probe")  # type: ignore[arg-type]
    assert not reflection_allowed(Spark(1.0), "qod.probe")  # type: ignore[arg-type]
    assert not reflection_allowed(Spark(None), "qod.probe")  # type: ignore[arg-type]


@pytest.mark.parametrize(("to", "share"), [(0, 0.0), (0, 0.25), (3, 0.5), (1000, 0.9)])
def test_what_a_partition_lends_is_read_from_one_number(to: int, share: float) -> None:
    read = int(written(lent_value(to, share))) * MOST_PARTITIONS / PARTS
    assert (int(read), read - int(read)) == (to, pytest.approx(share))


def test_no_partition_lends_all_its_rows() -> None:
    assert int(int(written(lent_value(2, 1.0))) * MOST_PARTITIONS / PARTS) == 2


@pytest.mark.parametrize(("due_s", "held"), [(None, None), (0.0, 0.001), (0.75, 0.75), (10.9, 10.9), (1e6, 100.0)])
def test_batches_that_are_due_at_once_take_turns_all_the_same(due_s: float | None, held: float | None) -> None:
    """The reader takes a property of 0 for no turns, and others for parts of the latest time."""
    property_value = int(written(due_value(due_s)))
    assert (property_value == 0) is (held is None)
    assert property_value / PARTS * LATEST_DUE_S == pytest.approx(held or 0.0)
