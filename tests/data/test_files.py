from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qod_magics.data import generate_trips, read_trips
from qod_magics.data.rows import first_rows, load, read_jsonl
from qod_magics.data.spec import TRIP_COLUMNS, data_from_json
from qod_magics.errors import ScenarioError
from tests.raising import breaks


def tlc_file(path: Path, rows: int = 1000, drop: tuple[str, ...] = ()) -> pa.Table:
    """A file as the TLC writes them since 2023: counts as floats with nulls, large strings, `Airport_fee`."""
    table = generate_trips(rows, 11)
    columns: dict[str, Any] = {name: table[name] for name in table.column_names if name not in drop}
    passengers = table["passenger_count"].to_numpy().astype(float)
    passengers[::10] = np.nan
    columns["passenger_count"] = pa.array(passengers, pa.float64(), from_pandas=True)
    columns["RatecodeID"] = table["RatecodeID"].cast(pa.float64())
    columns["payment_type"] = table["payment_type"].cast(pa.int64())
    columns["store_and_fwd_flag"] = table["store_and_fwd_flag"].cast(pa.large_string())
    columns["Airport_fee"] = columns.pop("airport_fee")
    columns["cbd_congestion_fee"] = pa.array(np.full(rows, 0.75))
    written = pa.table(columns)
    pq.write_table(written, path, row_group_size=300)
    return table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "yellow.parquet"


def test_reads_a_file_s_rows_in_the_schema_s_types(path: Path) -> None:
    table = tlc_file(path)
    read = pa.Table.from_batches(read_trips(path, TRIP_COLUMNS))
    assert read.column_names == list(TRIP_COLUMNS)
    assert read["passenger_count"].type == pa.int32()
    assert read["passenger_count"].null_count == 100
    for name in ("PULocationID", "tpep_pickup_datetime", "total_amount", "airport_fee", "RatecodeID"):
        assert read[name].to_pylist() == table[name].to_pylist()


def test_columns_that_the_schema_does_not_know_come_as_they_are(path: Path) -> None:
    tlc_file(path)
    batch = next(read_trips(path, ["cbd_congestion_fee", "DOLocationID"]))
    assert batch.schema.names == ["cbd_congestion_fee", "DOLocationID"]


def test_takes_no_more_rows_than_asked(path: Path) -> None:
    table = tlc_file(path)
    some = first_rows(read_trips(path, ["total_amount"]), 650)
    assert some is not None
    assert some["total_amount"].to_pylist() == table["total_amount"].to_pylist()[:650]


def test_says_at_once_which_columns_are_missing(path: Path) -> None:
    tlc_file(path, drop=("PULocationID", "trip_distance"))
    with pytest.raises(ScenarioError, check=breaks("columns", name="PULocationID, trip_distance")) as caught:
        read_trips(path)
    assert "\n" not in str(caught.value)


def test_says_what_is_no_parquet_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, check=breaks("exists")):
        read_trips(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("VendorID,tpep_pickup_datetime\n")
    with pytest.raises(ScenarioError, check=breaks("Parquet")) as caught:
        read_trips(tmp_path / "text.parquet")
    assert "\n" not in str(caught.value)


def test_says_which_column_has_values_of_another_type(path: Path) -> None:
    pq.write_table(pa.table({"PULocationID": [1.0, 2.5]}), path)
    with pytest.raises(ScenarioError, check=breaks("type", name="PULocationID")):
        list(read_trips(path, ["PULocationID"]))


def test_a_ring_from_a_file_has_its_rows_with_the_times_of_now(path: Path) -> None:
    table = tlc_file(path)
    rows = load(data_from_json({"parquet": str(path), "rows": 500}, "data"), "PULocationID", 0)
    assert len(rows) == 500
    now = datetime.fromisoformat("2030-01-02T03:04:05.678+00:00")
    sent = [json.loads(text) for text in rows.values(0, 500, round(now.timestamp() * 1000))]
    assert [row["PULocationID"] for row in sent] == table["PULocationID"].to_pylist()[:500]
    assert rows.key(3) == str(sent[3]["PULocationID"]).encode()
    for row, pickup, dropoff in zip(
        sent, table["tpep_pickup_datetime"].to_pylist(), table["tpep_dropoff_datetime"].to_pylist(), strict=False
    ):
        assert datetime.fromisoformat(row["tpep_dropoff_datetime"]) == now
        assert now - datetime.fromisoformat(row["tpep_pickup_datetime"]) == dropoff - pickup


def test_reads_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}\n')
    assert read_jsonl(path, 2) == [{"a": 1}, {"a": 2}]
    assert len(read_jsonl(path, 10)) == 3


@pytest.mark.parametrize(("text", "line"), [("{\n", 1), ("{}\n[1]\n", 2)])
def test_says_which_line_is_no_json_object(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(ScenarioError, check=breaks("JSON lines", value=line)):
        read_jsonl(tmp_path / "rows.jsonl", 10)


def test_an_empty_file_gives_no_ring(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n")
    with pytest.raises(ScenarioError, check=breaks("rows")):
        load(data_from_json({"jsonl": str(tmp_path / "rows.jsonl")}, "data"), None, 0)
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    with pytest.raises(ScenarioError, check=breaks("rows")):
        load(data_from_json({"parquet": str(tmp_path / "rows.parquet"), "columns": ["a"]}, "data"), None, 0)
