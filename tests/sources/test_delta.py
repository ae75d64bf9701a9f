"""Delta tables as sources: which rows the versions of a log have, and which tables are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import LongType, StructType

from qod_magics.errors import ApplicationError
from qod_magics.sources.delta import LOG, DeltaTable
from qod_magics.sources.files import DIGITS
from qod_magics.sources.source import Context, Part
from tests.raising import breaks

SCHEMA = StructType().add("id", LongType())
MADE: dict[str, dict[str, Any]] = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    "metaData": {"schemaString": SCHEMA.json(), "partitionColumns": [], "configuration": {}},
}


class Table:
    """A Delta table as Delta writes it, by hand."""

    def __init__(self, place: Path, **made: Any) -> None:
        self.place, self.versions = place, 0
        (place / LOG).mkdir(parents=True)
        self.commit("CREATE TABLE", **{**MADE, **made})

    def commit(self, operation: str, *actions: dict[str, Any], **more: Any) -> None:
        lines = [{"commitInfo": {"operation": operation}}, *({name: each} for name, each in more.items()), *actions]
        path = self.place / LOG / f"{self.versions:020d}.json"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        self.versions += 1

    def added(self, name: str, rows: int, *, told: bool = True, **more: Any) -> dict[str, Any]:
        parquet.write_table(pa.table({"id": list(range(rows))}), self.place / name)
        stats = {"stats": json.dumps({"numRecords": rows})} if told else {}
        return {"add": {"path": name.replace(" ", "%20"), "dataChange": True, **stats, **more}}

    def append(self, name: str, rows: int, *, told: bool = True) -> None:
        self.commit("WRITE", self.added(name, rows, told=told))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def source(tmp_path: Path) -> DeltaTable:
    return DeltaTable(Context(None, tmp_path / "links"))  # type: ignore[arg-type]


def opened(of: DeltaTable, table: Table, position: int = 0) -> list[tuple[int, int]]:
    """Which rows the links have of a reader that begins at this row, all of which can be read."""
    directory = of._opened(str(table.place), Part(str(table.place), (0,), {0: position}, f"from-{position}"))
    found = []
    for link in sorted(directory.iterdir()):
        first, end = int(link.name[:DIGITS]), int(link.name[DIGITS + 1 : 2 * DIGITS + 1])
        assert parquet.read_metadata(link).num_rows == end - first
        found.append((first, end))
    return found


def test_rows_are_numbered_in_the_order_of_the_log_by_each_kernel(tmp_path: Path, table: Table) -> None:
    first, place = source(tmp_path), str(table.place)
    assert first.begin(place, "earliest") == first.begin(place, "latest") == {0: 0}
    table.append("z.parquet", 3)
    table.append("a b.parquet", 4, told=False)
    assert first.ends([place]) == ({place: {0: 7}}, {})
    assert first.begin(place, "earliest") == {0: 0}
    table.append("none.parquet", 0)
    table.append("m.parquet", 2)
    for of in (first, source(tmp_path)):
        assert of.begin(place, "latest") == {0: 9}
        assert opened(of, table) == [(0, 3), (3, 7), (7, 9)]
        assert opened(of, table, 7) == [(7, 9)]
    assert first.columns(None, place, Part(place, (0,), {})) == SCHEMA  # type: ignore[arg-type]


def test_files_that_are_put_together_have_no_new_rows(tmp_path: Path, table: Table) -> None:
    table.append("a.parquet", 3)
    table.append("b.parquet", 4)
    gone = [{"remove": {"path": name, "dataChange": False}} for name in ("a.parquet", "b.parquet")]
    table.commit("OPTIMIZE", *gone, table.added("ab.parquet", 7, dataChange=False))
    of, place = source(tmp_path), str(table.place)
    assert of.begin(place, "earliest") == {0: 0}
    assert opened(of, table) == [(0, 3), (3, 7)]
    (table.place / "a.parquet").unlink()  # VACUUM
    with pytest.raises(ApplicationError, check=breaks("there", option="--starting")):
        source(tmp_path).begin(place, "earliest")
    assert source(tmp_path).begin(place, "latest") == {0: 7}


@pytest.mark.parametrize("marked", [False, True])
def test_a_version_that_changes_rows_is_not_read_and_that_is_said(tmp_path: Path, table: Table, marked: bool) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3)
    assert of.begin(place, "earliest") == {0: 0}
    more = {"deletionVector": {"storageType": "u"}} if marked else {}
    removed = [] if marked else [{"remove": {"path": "a.parquet", "dataChange": True}}]
    table.commit("DELETE", *removed, table.added("a2.parquet", 2, **more))
    table.append("b.parquet", 5)
    ends, why = of.ends([place])
    assert ends == {place: {0: 8}}
    assert "version 2" in why[place]
    assert "DELETE" in why[place]
    assert opened(of, table) == [(0, 3), (3, 8)]
    with pytest.raises(ApplicationError, check=breaks("appended", option="--starting")):
        source(tmp_path).begin(place, "earliest")
    assert source(tmp_path).begin(place, "latest") == {0: 8}


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        ({"metaData": {**MADE["metaData"], "partitionColumns": ["zone"]}}, "partitions"),
        ({"metaData": {**MADE["metaData"], "configuration": {"delta.columnMapping.mode": "name"}}}, "columns"),
        ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["typeWidening", "deletionVectors"]}}, "features"),
    ],
)
def test_tables_whose_files_are_not_their_rows_are_refused(tmp_path: Path, made: dict[str, Any], rule: str) -> None:
    table = Table(tmp_path / "table", **made)
    with pytest.raises(ApplicationError, check=breaks(rule)):
        source(tmp_path).begin(str(table.place), "latest")


def test_what_is_no_table_or_lacks_the_beginning_of_its_log_is_refused(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3)
    assert of.begin(place, "latest") == {0: 3}
    (table.place / LOG / f"{0:020d}.json").unlink()
    assert of.begin(place, "latest") == {0: 3}, "it was read"
    with pytest.raises(ApplicationError, check=breaks("log")):
        source(tmp_path).begin(place, "latest")
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(ApplicationError, check=breaks("table")):
            source(tmp_path).begin(str(wrong), "latest")
        assert "Delta table" in of.ends([str(wrong)])[1][str(wrong)]


def test_a_version_whose_rows_can_not_be_counted_is_read_once_they_can(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3, told=False)
    (table.place / "a.parquet").rename(table.place / "away")
    assert "a.parquet" in of.ends([place])[1][place]
    (table.place / "away").rename(table.place / "a.parquet")
    assert of.ends([place]) == ({place: {0: 3}}, {})
