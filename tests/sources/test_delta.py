"""Delta tables as sources: which rows the versions of a log have, and which tables are refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from qod_magics.errors import ApplicationError
from qod_magics.sources.delta import DeltaTable
from qod_magics.sources.delta_log import LOG
from qod_magics.sources.files import DIGITS, Limits
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context, Part
from tests.raising import breaks

SCHEMA = StructType().add("id", LongType())
MADE: dict[str, dict[str, Any]] = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    "metaData": {"id": "a", "schemaString": SCHEMA.json(), "partitionColumns": [], "configuration": {}},
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


def source(tmp_path: Path, **more: Any) -> DeltaTable:
    return DeltaTable(Context(None, tmp_path / "links"), **more)  # type: ignore[arg-type]


def opened(of: DeltaTable, table: Table, position: int = 0) -> list[tuple[int, int]]:
    """Which rows the links have of a reader that begins at this row, all of which can be read."""
    directory = of._opened(str(table.place), Part(str(table.place), (0,), {0: position}, f"from-{position}"))
    return ranges(directory)


def ranges(directory: Path) -> list[tuple[int, int]]:
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


def test_files_that_are_gone_are_told_with_their_rows_and_stop_no_reader(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path, limits=Limits(ahead=5)), str(table.place)
    assert of.begin(place, "earliest") == {0: 0}
    table.append("a.parquet", 3)
    table.append("b.parquet", 9)
    table.append("c.parquet", 4)
    (table.place / "a.parquet").unlink()
    assert opened(of, table) == [(3, 12)]
    why = of.ends([place])[1][place]
    assert "a.parquet" in why
    assert "3 rows" in why
    of.tend([Part(place, (0,), {0: 12}, "from-0")])
    assert ranges(of._readers["from-0"].directory) == [(12, 16)]


def test_a_table_that_was_made_again_is_refused(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 4)
    table.append("b.parquet", 5)
    assert of.begin(place, "latest") == {0: 9}
    shutil.rmtree(table.place)
    again = Table(table.place, metaData={**MADE["metaData"], "id": "b"})
    for rows in (2, 3):
        assert "again" in of.ends([place])[1][place], "with fewer versions, and with as many"
        with pytest.raises(ApplicationError, check=breaks("same")):
            of.begin(place, "latest")
        again.append(f"{rows}.parquet", rows)
    assert opened(source(tmp_path), again, 2) == [(2, 5)]
    other = source(tmp_path)
    assert other.begin(place, "latest") == {0: 5}
    again.commit("REPLACE TABLE", metaData={**MADE["metaData"], "id": "c"})
    with pytest.raises(ApplicationError, check=breaks("same")):
        other.begin(place, "latest")


def test_a_log_that_was_copied_is_the_same(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 4)
    assert of.begin(place, "latest") == {0: 4}
    shutil.copytree(table.place, tmp_path / "copy")
    shutil.rmtree(table.place)
    (tmp_path / "copy").rename(table.place)
    table.append("b.parquet", 1)
    assert of.ends([place]) == ({place: {0: 5}}, {})


def test_a_place_that_can_not_be_read_stops_no_other_reader(tmp_path: Path, table: Table) -> None:
    other, data = Table(tmp_path / "other"), tmp_path / "data"
    data.mkdir()
    names = [f"delta:{table.place}", f"delta:{other.place}", f"json:{data}"]
    sources = Sources(Context(None, tmp_path / "links"))  # type: ignore[arg-type]
    readers = [sources.of(name)._opened(name.split(":")[1], part(name)) for name in names]  # type: ignore[attr-defined]
    table.append("a.parquet", 2)
    table.append("b.parquet", 2)
    (table.place / LOG / f"{2:020d}.json").write_text("{")
    other.append("a.parquet", 3)
    (data / "a.json").write_text("{}\n")
    for _ in range(2):
        sources.tend([part(name) for name in names])
    assert [len(list(each.iterdir())) for each in readers] == [1, 1, 1]
    ends, why = sources.ends(names)
    assert ends == {names[1]: {0: 3}, names[2]: {0: 1}}
    assert "version 2" in why[names[0]]
    shutil.rmtree(data)
    other.append("b.parquet", 3)
    sources.tend([part(name) for name in reversed(names)])
    assert ranges(readers[1]) == [(0, 3), (3, 6)]


def part(name: str) -> Part:
    return Part(name, (0,), {0: 0}, name.partition(":")[2].rpartition("/")[2])


STRUCT = StructType().add("x", StructType().add("y", LongType())).add("z", ArrayType(LongType()))


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        (SCHEMA, StructType().add("more", LongType()).add("id", LongType()), True),
        (SCHEMA, StructType().add("other", LongType()), False),
        (SCHEMA, StructType().add("id", StringType()), False),
        (STRUCT, StructType([STRUCT["z"], STRUCT["x"]]), True),
        (STRUCT, StructType([STRUCT["z"]]).add("x", StructType().add("y", LongType()).add("more", LongType())), True),
        (STRUCT, StructType([STRUCT["z"]]).add("x", StructType().add("other", LongType())), False),
        (STRUCT, StructType([STRUCT["x"]]).add("z", ArrayType(StringType())), False),
    ],
)
def test_columns_that_a_reader_has_begun_with_must_stay(
    tmp_path: Path, before: StructType, now: StructType, kept: bool
) -> None:
    table = Table(tmp_path / "table", metaData={**MADE["metaData"], "schemaString": StructType().json()})
    table.commit("CREATE OR REPLACE TABLE", metaData={**MADE["metaData"], "schemaString": before.json()})
    of, place = source(tmp_path), str(table.place)
    reader = Part(place, (0,), {}, "r")
    of._opened(place, reader)
    assert of.columns(None, place, reader) == before  # type: ignore[arg-type]
    table.commit("WRITE", metaData={**MADE["metaData"], "schemaString": now.json()})
    if kept:
        assert of.ends([place]) == ({place: {0: 0}}, {})
        assert of.columns(None, place, reader) == before, "also after a restart"  # type: ignore[arg-type]
    else:
        assert "version 2" in of.ends([place])[1][place]
        with pytest.raises(ApplicationError, check=breaks("schema", value=2)):
            of.begin(place, "latest")
    of.tend([])  # it was stopped, and is declared again
    assert of.begin(place, "latest") == {0: 0}
    of._opened(place, replace(reader, run="s"))
    assert of.columns(None, place, replace(reader, run="s")) == now  # type: ignore[arg-type]


def test_what_only_a_stopped_reader_lacks_is_told_no_longer(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path, limits=Limits(ahead=1)), str(table.place)
    table.append("a.parquet", 3)
    assert of.begin(place, "earliest") == {0: 0}
    assert opened(of, table) == [(0, 3)]
    table.append("b.parquet", 2)
    of._look(place)
    (table.place / "b.parquet").unlink()
    reader = Part(place, (0,), {0: 3}, "from-0")
    of.tend([reader])
    assert "b.parquet" in of.ends([place])[1][place]
    table.commit("UPDATE", {"remove": {"path": "a.parquet", "dataChange": True}}, table.added("c.parquet", 3))
    assert "UPDATE" in of.ends([place])[1][place]
    assert of.begin(place, "latest") == {0: 5}
    of._opened(place, Part(place, (0,), {0: 5}, "again"))
    assert "1 more" in of.ends([place])[1][place], "the first one is there, too"
    of.tend([Part(place, (0,), {0: 5}, "again")])
    assert of.ends([place]) == ({place: {0: 5}}, {})


def test_what_was_changed_before_the_start_is_not_told_and_of_the_rest_the_newest(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3)
    removed = {"remove": {"path": "a.parquet", "dataChange": True}}
    table.commit("DELETE", removed, table.added("a2.parquet", 2))
    assert of.begin(place, "latest") == {0: 3}
    assert opened(of, table, 3) == []
    assert of.ends([place]) == ({place: {0: 3}}, {})
    table.commit("MERGE", removed, table.added("a3.parquet", 4))
    table.commit("UPDATE", removed, table.added("a4.parquet", 5))
    why = of.ends([place])[1][place]
    assert "UPDATE" in why
    assert "1 more" in why
    assert "9 rows" in why
    resumed = source(tmp_path)
    assert opened(resumed, table, 3) == []
    assert "2 more" in resumed.ends([place])[1][place], "they may have come while no session ran"


def test_a_version_that_comes_while_the_log_is_listed_is_no_gap(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3)
    assert of.begin(place, "latest") == {0: 3}
    for name in ("b", "c"):
        table.append(f"{name}.parquet", 2)
    of._tables[place]._check_next()  # as if they had come once version 2 was looked for
    assert of.ends([place]) == ({place: {0: 7}}, {})


def test_a_version_that_can_not_be_read_is_told(tmp_path: Path, table: Table) -> None:
    of, place = source(tmp_path), str(table.place)
    table.append("a.parquet", 3)
    file = table.place / LOG / f"{1:020d}.json"
    text = file.read_bytes().replace(b"WRITE", "\u2028".encode())
    for wrong in (text[:-9], b"5\n", b'"text"\n', b"\xff\n", b'{"add": {}}\n', b'{"metaData": {}}\n'):
        file.write_bytes(wrong)
        assert "version 1" in of.ends([place])[1][place]
        with pytest.raises(ApplicationError, check=breaks("version", value=1)):
            of.begin(place, "latest")
    file.unlink()
    file.mkdir()
    with pytest.raises(ApplicationError, check=breaks("version", value=1)):
        of.begin(place, "latest")
    file.rmdir()
    file.write_bytes(text)
    assert of.ends([place]) == ({place: {0: 3}}, {})


def test_files_of_other_tables_are_read_where_they_are_local(tmp_path: Path, table: Table) -> None:
    of, place, elsewhere = source(tmp_path), str(table.place), Table(tmp_path / "else where")
    for at, form in enumerate((str, Path.as_uri)):
        each = elsewhere.added(f"{at}.parquet", 3)
        each["add"]["path"] = form(elsewhere.place / f"{at}.parquet").replace(" ", "%20")
        table.commit("CLONE", each)
    assert opened(of, table) == [(0, 3), (3, 6)]
    table.commit("CLONE", {"add": {"path": "s3://bucket/a.parquet", "stats": '{"numRecords": 3}'}})
    with pytest.raises(ApplicationError, check=breaks("local")):
        of.begin(place, "latest")


def test_the_log_is_listed_once_a_minute(tmp_path: Path, table: Table) -> None:
    now = [0.0]
    of, place = source(tmp_path, clock=lambda: now[0]), str(table.place)
    table.append("a.parquet", 3)
    assert of.begin(place, "latest") == {0: 3}
    table.versions += 1
    table.append("b.parquet", 3)
    assert of.ends([place]) == ({place: {0: 3}}, {})
    now[0] = 61.0
    assert "version 2" in of.ends([place])[1][place]
