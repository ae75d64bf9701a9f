"""EVALUATION.md: it says what the stored figures say, in four pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evaluation import document
from benchmarks.evaluation.row import BOUNDED, DEFAULT, PAPERS, Row
from benchmarks.evaluation.section import alike, shown
from benchmarks.evaluation.spark_rows import SECTIONS
from tests.texts import tells

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def test_the_document_and_its_tables_are_those_that_the_stored_figures_give(tmp_path: Path) -> None:
    for file in RESULTS.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    document.write(tmp_path, tmp_path / "E.md")
    assert document.text(document.stored(RESULTS), Path("benchmarks/results")) == (ROOT / "EVALUATION.md").read_text()
    tables = {path.name for path in RESULTS.glob("*.csv")}
    assert tables == {path.name for path in tmp_path.glob("*.csv")}
    assert [name for name in tables if (RESULTS / name).read_bytes() != (tmp_path / name).read_bytes()] == []


def test_it_shows_every_part_and_five_charts_in_four_pages() -> None:
    written = (ROOT / "EVALUATION.md").read_text("utf-8")
    assert len(written.split()) <= 1600
    assert written.count("![") == 5
    assert all(f"]({RESULTS.relative_to(ROOT)}/{part}.csv)" in written for part in document.SECTIONS)
    assert "Not run" not in written


def test_a_figure_that_falls_short_is_told_with_its_goal_and_its_reason() -> None:
    rows = [
        Row("share", "", [0.5], at_least=0.9, of="one", why="It is little."),
        Row("share", "", [0.7], at_least=0.9, of="two", why="It is little."),
        Row("share", "", [0.95], at_least=0.9, of="three", why="It is little."),
        Row("time", "", [1.0], " s", at_most=2.0),
    ]
    told = list(document._shortfalls({"costs": rows}))
    assert len(told) == 3
    assert tells(told[2], "Costs", "share (one, two)", "0.5 to 0.7", ">= 0.9", "It is little.")


def test_one_subject_is_shown_with_its_range_and_several_by_their_medians() -> None:
    assert shown([Row("age", "1", [1.0, 2.0, 4.0], " s")]) == "2 s (1 to 4)"
    rows = [Row("age", "1", [value], of=of) for of, value in (("light", 0.2), ("totals", 3.0))]
    assert [len(group) for group in alike([*rows, Row("lag", "", [1.0])])] == [2, 1]
    assert tells(shown([*rows, Row("age", "1", [None], of="join")]), "0.2 to 3", "never")
    assert shown([Row("age", "1", [None])] * 2) == "never"


def test_another_engine_that_carries_more_falls_short() -> None:
    def phase(waiting: int, kept: float) -> dict[str, object]:
        ages = {"TDSnk2": {"p50": 90.0, "p95": 95.0, "p99": 99.0}}
        return {"waiting_rows": waiting, "accuracy": {"TDSnk1": kept, "TDSnk2": 1.0}, "end_to_end_ms": ages}

    engines = {PAPERS: {"3x": phase(100, 0.5)}, DEFAULT: {"3x": phase(90, 0.8)}, BOUNDED: {"3x": phase(50, 1.0)}}
    rows = {row.what: row for row in SECTIONS["engines"].rows([{"engines": engines}])}
    bounded = rows[f"backlog at 3x: {BOUNDED} / ours"]
    assert (bounded.middle, bounded.short) == (0.5, True)
    assert rows[f"accuracy at 3x / {PAPERS}"].middle == pytest.approx(1.8 / 1.5)
    (first, *_) = SECTIONS["engines"].table([{"engines": engines}])
    assert (first["backlog, rows"], first["age p50, s"]) == (100.0, 0.09)
