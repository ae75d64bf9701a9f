"""Directories of files: which rows each file has, and what is linked for a reader."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from qod_magics.errors import ApplicationError
from qod_magics.sources.files import DIGITS, CsvFiles, File, Files, JsonFiles, Limits, ParquetFiles, lines_of
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context, Part, Position, Span


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty directory of data."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def source(kind: type[Files], tmp_path: Path, **more: Any) -> Files:
    return kind(Context(None, tmp_path / "links"), **more)  # type: ignore[arg-type]


def put(data: Path, name: str, rows: int, at: int) -> Path:
    """Have a file of so many lines, changed last at this second."""
    path = data / name
    path.write_text("{}\n" * rows)
    os.utime(path, (at, at))
    return path


def opened(of: Files, data: Path, run: str, position: int = 0) -> list[str]:
    """The links of a reader that begins at this row."""
    directory = of._opened(str(data), Part(str(data), (0,), {0: position}, run))
    return ranges(directory)


def ranges(directory: Path) -> list[str]:
    """The rows of the links in a directory, in their order."""
    names = sorted(each.name for each in directory.iterdir())
    return [f"{int(name[:DIGITS])}-{int(name[DIGITS + 1 : 2 * DIGITS + 1])}" for name in names]


def tended(of: Files, data: Path, run: str, position: int) -> list[str]:
    """The links of a reader once it has got to this row."""
    of.tend([Part(str(data), (0,), {0: position}, run)])
    return ranges(of._readers[run].directory)


def test_rows_are_numbered_by_the_age_of_files_and_then_as_they_are_found(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path)
    put(data, "b.json", 3, 10)
    put(data, "a.json", 2, 20)
    put(data, ".part.json", 9, 1)
    put(data, "_SUCCESS", 9, 1)
    assert of.begin(str(data), "earliest") == {0: 0}
    assert of.begin(str(data), "latest") == {0: 5}
    put(data, "c.json", 4, 5)
    assert of.ends([str(data)]) == ({str(data): {0: 9}}, {})
    assert opened(of, data, "r") == ["0-3", "3-5", "5-9"]
    assert of.ends([str(data / "*a.json")])[0] == {str(data / "*a.json"): {0: 2}}


def test_a_reader_begins_at_its_position_and_gets_what_comes(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path)
    put(data, "a.json", 3, 10)
    put(data, "b.json", 2, 20)
    assert opened(of, data, "first") == ["0-3", "3-5"]
    assert opened(of, data, "second", 3) == ["3-5"]
    put(data, "c.json", 4, 30)
    assert tended(of, data, "first", 3) == ["3-5", "5-9"]
    assert opened(of, data, "first", 3) == ["3-5", "5-9"], "a restart goes on with what there is"
    assert opened(of, data, "") == [], "plans that are inspected read nothing"


def test_no_more_is_linked_than_a_batch_should_read(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path, limits=Limits(ahead=5))
    for at, rows in enumerate([9, 2, 3, 1, 8]):
        put(data, f"{at}.json", rows, at)
    assert opened(of, data, "r") == ["0-9"], "one file at least"
    assert tended(of, data, "r", 9) == ["9-11", "11-14"]
    assert tended(of, data, "r", 11) == ["11-14", "14-15"]
    assert tended(of, data, "r", 15) == ["15-23"]


def test_files_that_are_cleaned_up_before_they_are_read_keep_their_rows(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path)
    path = put(data, "a.json", 3, 10)
    assert opened(of, data, "r") == ["0-3"]
    path.unlink()
    (link,) = of._readers["r"].directory.iterdir()
    assert lines_of(link) == 3
    assert of.ends([str(data)])[0] == {str(data): {0: 3}}


def test_a_reader_that_is_gone_leaves_nothing(tmp_path: Path, data: Path) -> None:
    now = [0.0]
    of = source(JsonFiles, tmp_path, clock=lambda: now[0])
    put(data, "a.json", 3, 10)
    opened(of, data, "r")
    directory = of._readers["r"].directory
    of.tend([])
    assert directory.exists(), "it may just be replaced"
    now[0] = 1_000.0
    of.tend([])
    assert not directory.exists()


def test_files_that_can_not_be_counted_or_have_changed_are_told(tmp_path: Path, data: Path) -> None:
    of = source(ParquetFiles, tmp_path)
    parquet.write_table(pa.table({"id": [1, 2, 3]}), data / "a.parquet")
    (data / "b.parquet").write_text("no parquet")
    found, missing = of.ends([str(data)])
    assert found == {str(data): {0: 3}}
    assert missing[str(data)].startswith("b.parquet ")
    parquet.write_table(pa.table({"id": [1, 2, 3, 4]}), data / "a.parquet")
    assert set(of._look(str(data)).refused) == {data / "a.parquet", data / "b.parquet"}
    assert of.ends([str(data / "none")])[1].keys() == {str(data / "none")}
    with pytest.raises(ApplicationError):
        of.splits(str(data / "none"))


def test_large_directories_are_counted_over_several_looks(tmp_path: Path, data: Path) -> None:
    clock = iter([0.0, 0.0, *[9.0] * 9])
    of = source(JsonFiles, tmp_path, limits=Limits(look_s=5.0), clock=lambda: next(clock))
    for at in range(3):
        put(data, f"{at}.json", 2, at)
    assert of._look(str(data)).end == 2
    assert of.begin(str(data), "latest") == {0: 6}


def test_the_span_of_a_batch_is_that_of_its_files() -> None:
    names = [File(Path(f"x{at}.tar.gz"), first, end).link for at, (first, end) in enumerate([(0, 3), (3, 1_000)])]
    assert names[1].endswith("-000000000001000.tar.gz")
    assert JsonFiles.span("", {"first": min(names), "last": max(names)}) == Span({0: 0}, {0: 1_000})
    assert JsonFiles.span("", {"first": None, "last": None}) is None


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))), st.booleans())
def test_lines_are_counted_as_spark_divides_them(tmp_path_factory: Any, lines: list[bytes], ended: bool) -> None:
    path = tmp_path_factory.mktemp("lines") / "f.csv.gz"
    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(gzip.compress(text))
    expected = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    assert lines_of(path) == expected


@pytest.mark.parametrize("place", ["", " ", "s3a://bucket/x", "hdfs://host/x"])
def test_paths_of_other_machines_are_refused(place: str) -> None:
    with pytest.raises(ApplicationError):
        CsvFiles.checked(place)


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert CsvFiles.checked("data/../in") == str(tmp_path / "in")
    assert CsvFiles.checked("file:///data/in") == "/data/in"


def test_nothing_is_left_in_a_directory_of_checkpoints_that_stays(tmp_path: Path, data: Path) -> None:
    sources = Sources(Context(None, tmp_path / "checkpoints" / "sources"))  # type: ignore[arg-type]
    name = f"json:{data}"
    put(data, "a.json", 3, 10)
    of = sources.of(name)
    assert isinstance(of, JsonFiles)
    opened(of, data, "r")
    sources.tend([])
    sources.close()
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert (data / "a.json").exists()


def test_directories_within_are_told(tmp_path: Path, data: Path) -> None:
    (data / "day=1").mkdir()
    (data / "_spark_metadata").mkdir()
    found, missing = source(JsonFiles, tmp_path).ends([str(data)])
    assert found == {str(data): {0: 0}}
    assert missing[str(data)].startswith("day=1 ")


#: A name that no file can have: what a link of this name leads to can't be looked at, also by root.
TOO_LONG = "x" * 300


def test_a_file_that_can_not_be_looked_at_is_told_and_stops_no_other(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path)
    put(data, "a.json", 2, 10)
    put(data, "c.json", 3, 20)
    (data / "b.json").symlink_to(TOO_LONG)
    found, missing = of.ends([str(data)])
    assert found == {str(data): {0: 5}}
    assert missing[str(data)].startswith("b.json ")
    assert opened(of, data, "r") == ["0-2", "2-5"]
    (data / "b.json").unlink()
    put(data, "b.json", 1, 5)
    assert of.ends([str(data)]) == ({str(data): {0: 6}}, {})
    assert tended(of, data, "r", 0) == ["0-2", "2-5", "5-6"]


def test_a_file_that_can_not_be_looked_at_any_more_is_not_gone(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path, limits=Limits(ahead=1))
    put(data, "a.json", 2, 10)
    assert opened(of, data, "r") == ["0-2"]
    put(data, "b.json", 3, 20)
    assert of.ends([str(data)])[0] == {str(data): {0: 5}}
    (data / "b.json").unlink()
    (data / "b.json").symlink_to(TOO_LONG)
    with pytest.raises(OSError, match="too long"):
        tended(of, data, "r", 2)
    (data / "b.json").unlink()
    put(data, "b.json", 3, 20)
    assert tended(of, data, "r", 2) == ["2-5"]
    assert of.ends([str(data)]) == ({str(data): {0: 5}}, {})


def test_a_reader_goes_on_behind_files_that_are_gone_once_it_has_read_those_before(tmp_path: Path, data: Path) -> None:
    of = source(JsonFiles, tmp_path, limits=Limits(ahead=1))
    paths = [put(data, f"{at}.json", rows, at) for at, rows in enumerate([2, 3, 0, 4, 5])]
    assert opened(of, data, "r") == ["0-2"]
    paths[1].unlink()
    paths[3].unlink()
    told: list[tuple[Part, Position]] = []
    parts = [Part(str(data), (0,), {0: at}, "r") for at in (0, 2, 9)]
    for part in parts:
        of.tend([part], lambda *given: told.append(given))
    assert told == [(parts[1], {0: 9})], "behind both, and the empty one between them"
    assert ranges(of._readers["r"].directory) == ["9-14"]
    assert "7 rows" in of.ends([str(data)])[1][str(data)]
