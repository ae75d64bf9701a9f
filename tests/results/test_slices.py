"""Files of a sink as slices of time: those of ended batches, by the time at which they were written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.results.slices import LOG, MOST_SLICES, File, Limit, committed, logged, may_hold, sliced

S = 1_000_000_000


def written(run: Path, *names: str) -> None:
    for name in names:
        (run / name).write_bytes(b"rows")


def entry(log: Path, name: str, added: Iterable[str], deleted: Iterable[str] = ()) -> None:
    log.mkdir(parents=True, exist_ok=True)
    lines = [{"path": f"file:///somewhere/run=a%20b/{each}", "size": 4, "action": "add"} for each in added]
    lines += [{"path": f"file:///somewhere/run=a%20b/{each}", "size": 4, "action": "delete"} for each in deleted]
    (log / name).write_text("\n".join(["v1", *map(json.dumps, lines)]))


def test_only_files_of_ended_batches_that_are_still_there_count(tmp_path: Path) -> None:
    run, other = tmp_path / "run=a b", tmp_path / "run=c"
    entry(run / LOG, "0", ["one", "gone"])
    entry(run / LOG, "1", ["two%3D2"])
    entry(other / LOG, "0", ["three"])
    written(run, "one", "two=2", "of-a-batch-that-did-not-end")
    written(other, "three")
    (tmp_path / "run=d").mkdir()  # its first batch is under way
    assert [Path(each.path).name for each in committed(str(tmp_path))] == ["one", "two=2", "three"]
    assert all(each.size == 4 and each.written_ns > 0 for each in committed(str(tmp_path)))
    assert committed(str(tmp_path / "nowhere")) == []


def test_an_entry_that_holds_all_before_it_replaces_these(tmp_path: Path) -> None:
    entry(tmp_path, "8", ["old"])
    entry(tmp_path, "9", ["only in 9"])
    entry(tmp_path, "9.compact", ["a", "b", "c"])
    entry(tmp_path, "10", ["d"], ["b"])
    (tmp_path / ".10.crc").write_bytes(b"")
    (tmp_path / ".11.1234.tmp").write_bytes(b"")
    assert logged(tmp_path) == {"a", "c", "d"}


def file(name: str, at_s: float, size: int = 10) -> File:
    return File(name, size, int(at_s * S))


def test_a_slice_holds_the_files_of_a_minute_and_is_closed_when_it_is_over() -> None:
    files = [file("a", 0), file("b", 59.9), file("c", 60), file("d", 185)]
    slices = sliced("totals", "", files, 60.0, 186.0)
    assert [[each.path for each in slice.files] for slice in slices] == [["a", "b"], ["c"], ["d"]]
    assert [slice.closed for slice in slices] == [True, True, False]
    assert [slice.size for slice in slices] == [20, 10, 10]


def test_other_files_and_other_columns_make_another_slice() -> None:
    def id_of(*files: File, query: str = "totals", columns: str = "id BIGINT") -> str:
        (found,) = sliced(query, columns, files, 60.0, 1000.0)
        return found.id

    ids = [
        id_of(file("a", 1)),
        id_of(file("a", 1), file("b", 2)),
        id_of(file("a", 1, size=11)),
        id_of(file("a", 2)),
        id_of(file("a", 1), query="other"),
        id_of(file("a", 1), columns="id STRING"),
    ]
    assert len(set(ids)) == len(ids)
    assert id_of(file("a", 1)) == ids[0]


@given(st.lists(st.integers(0, 10**6), max_size=300), st.integers(1, 100))
def test_slices_share_out_all_files_and_are_not_too_many(times: list[int], slice_s: int) -> None:
    files = [file(str(i), at) for i, at in enumerate(times)]
    slices = sliced("totals", "", files, slice_s, 2e6)
    assert sorted(each.path for slice in slices for each in slice.files) == sorted(each.path for each in files)
    assert len(slices) <= MOST_SLICES
    spans = [(min(each.written_ns for each in s.files), max(each.written_ns for each in s.files)) for s in slices]
    assert all(first[1] < second[0] for first, second in pairwise(spans))


LIMITS = st.tuples(st.sampled_from(["at", "w.start"]), st.sampled_from(["<", "<=", ">", ">=", "="]), st.integers(0, 9))
MEETS = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
    "=": int.__eq__,
}


@given(st.lists(st.tuples(st.none() | st.integers(0, 9), st.integers(0, 9)), max_size=6), st.lists(LIMITS, max_size=3))
def test_no_slice_is_left_out_that_holds_a_row_of_the_result(rows: list[tuple[int | None, int]], limits: list) -> None:
    limits = [Limit(*each) for each in limits]
    ranges = {}
    for i, name in enumerate(("at", "w.start")):
        values = [row[i] for row in rows if row[i] is not None]
        ranges[name] = (min(values), max(values)) if values else None
    found = any(
        all(
            (value := row[("at", "w.start").index(each.column)]) is not None and MEETS[each.operator](value, each.value)
            for each in limits
        )
        for row in rows
    )
    assert may_hold(ranges, limits) or not found
    assert may_hold({}, limits)


def test_a_comparison_with_null_holds_of_no_row() -> None:
    assert not may_hold({"at": (0, 9)}, [Limit("at", "<", None)])


def test_files_that_are_rewritten_in_place_are_other_files(tmp_path: Path) -> None:
    run = tmp_path / "run=a"
    entry(run / LOG, "0", ["one"])
    written(run, "one")
    before = sliced("totals", "", committed(str(tmp_path)), 60.0, 0.0)
    os.utime(run / "one", (1, 1))
    assert sliced("totals", "", committed(str(tmp_path)), 60.0, 0.0) != before
