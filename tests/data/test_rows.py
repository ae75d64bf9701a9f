from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.data.rows import Clockface, encode_objects, encode_table, load, mean_bytes
from qod_magics.data.spec import GENERATORS, data_from_json
from qod_magics.errors import ScenarioError

NOW = 1_900_000_000_123  #: ms
INSTANTS = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), TEXTS)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), TEXTS),
            st.booleans(),
        ),
        min_size=1,
    )
)
def test_a_row_is_the_json_of_its_values(values: list[tuple[Any, ...]]) -> None:
    names = ["i", "f", 's"\n', "b"]
    types = [pa.int32(), pa.float64(), pa.string(), pa.bool_()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*values, strict=True), types, strict=True)]
    rows = encode_table(pa.table(columns, names=names), None)
    for text, value in zip(rows.values(0, len(values), NOW), values, strict=True):
        finite = (None if isinstance(item, float) and not math.isfinite(item) else item for item in value)
        assert json.loads(text) == dict(zip(names, finite, strict=True))


@given(st.lists(st.tuples(INSTANTS, INSTANTS), min_size=1), st.integers(10**11, 10**13))
def test_times_keep_their_distance_to_the_event_time(times: list[tuple[datetime, datetime]], now_ms: int) -> None:
    began, ended = zip(*times, strict=True)
    table = pa.table({"began": pa.array(began, pa.timestamp("us")), "ended": pa.array(ended, pa.timestamp("us"))})
    now = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms)
    for text, (start, end) in zip(encode_table(table, "ended").values(0, len(times), now_ms), times, strict=True):
        row = json.loads(text)
        assert datetime.fromisoformat(row["ended"]) == now
        distance = end.replace(microsecond=0) - start.replace(microsecond=0)
        assert now - datetime.fromisoformat(row["began"]) == distance


def test_without_an_event_time_times_are_sent_as_they_are() -> None:
    table = pa.table({"t": pa.array([datetime(2024, 5, 6, 7, 8, 9, 123456), None], pa.timestamp("us"))})
    assert encode_table(table, None).values(0, 2, NOW) == [b'{"t":"2024-05-06T07:08:09.123Z"}', b'{"t":null}']


def test_three_times_are_filled_in_too() -> None:
    times = {name: pa.array([datetime(2024, 1, 1, 0, 0, second)]) for name, second in (("a", 1), ("b", 5), ("c", 2))}
    [text] = encode_table(pa.table(times), "b").values(0, 1, NOW)
    row = {name: datetime.fromisoformat(value) for name, value in json.loads(text).items()}
    assert (row["b"] - row["a"], row["b"] - row["c"]) == (timedelta(seconds=4), timedelta(seconds=3))


@given(st.lists(st.dictionaries(TEXTS, JSON_VALUES), min_size=1), TEXTS)
def test_objects_are_sent_whole_with_the_event_time_set(objects: list[dict[str, Any]], event_time: str) -> None:
    objects = [{**row, event_time: "then"} for row in objects]
    sent = [json.loads(text) for text in encode_objects(objects, event_time).values(0, len(objects), NOW)]
    assert sent == [{**row, event_time: "2030-03-17T17:46:40.123Z"} for row in objects]
    as_they_are = [json.loads(text) for text in encode_objects(objects, None).values(0, len(objects), NOW)]
    assert as_they_are == objects


@given(st.integers(1, 7), st.integers(0, 50), st.integers(0, 30))
def test_the_ring_goes_round(length: int, first: int, count: int) -> None:
    rows = encode_objects([{"n": number} for number in range(length)], None, key="n")
    sent = [json.loads(text)["n"] for text in rows.values(first, count, NOW)]
    assert sent == [number % length for number in range(first, first + count)]
    assert rows.key(first) == str(first % length).encode()


@given(st.integers(0, 4_000_000_000))
def test_seconds_are_written_in_utc(epoch_s: int) -> None:
    clock = Clockface()
    for _ in range(2):  # new, and remembered
        written = clock.second(epoch_s).decode()
        assert datetime.fromisoformat(written) == datetime.fromtimestamp(epoch_s, UTC).replace(tzinfo=None)
        assert len(written) == 19


@pytest.mark.parametrize(
    ("table", "event_time", "key", "says"),
    [
        ({"t": [1]}, "t", None, "timestamp"),
        ({"t": pa.array([None], pa.timestamp("us"))}, "t", None, "column t"),
        ({"k": pa.array([None, 1])}, None, "k", "key k"),
        ({"l": [[1]]}, None, None, "column l"),
    ],
)
def test_says_what_can_t_be_encoded(table: dict[str, Any], event_time: str | None, key: str | None, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        encode_table(pa.table(table), event_time, key)


def test_says_which_object_lacks_a_field() -> None:
    with pytest.raises(ScenarioError, match=r"'ts'.*'tss'"):
        encode_objects([{"ts": 1}, {"tss": 1}], "ts")


@pytest.mark.parametrize("generator", sorted(GENERATORS))
def test_generated_rows_are_valid_json_with_all_columns(generator: str) -> None:
    data = data_from_json({"generator": generator, "rows": 200, "columns": list(GENERATORS[generator])}, "data")
    rows = load(data, None, 1)
    for text in rows.values(0, 200, NOW):
        assert tuple(json.loads(text)) == GENERATORS[generator]


def test_a_seed_of_its_own_wins_over_the_scenario_s() -> None:
    own = data_from_json({"generator": "points", "rows": 5, "seed": 9}, "data")
    none = data_from_json({"generator": "points", "rows": 5}, "data")
    assert load(own, None, 1) == load(own, None, 2) == load(none, None, 9)
    assert load(none, None, 1) != load(none, None, 2)


def test_trips_as_sent_have_the_size_that_the_bench_speaks_of() -> None:
    rows = load(data_from_json({"generator": "taxi-trips", "rows": 500}, "data"), None, 1)
    assert 130 <= mean_bytes(rows) <= 200
