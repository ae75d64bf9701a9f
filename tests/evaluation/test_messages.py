"""The part on Cameo, Dirigo, Nephele Streaming and Getafix: one experiment, and the section from kept figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import document, messages
from benchmarks.evaluation.__main__ import PARTS
from benchmarks.evaluation.messages import FIRST, TABLES, experiment
from benchmarks.evaluation.messages_section import CALIBRATED, messages_section
from benchmarks.findings import REFUTED, REPRODUCED, Source

COSTS = {"seconds": 3600, "messages": 1_000_000, "cpu_s": 45.0}


def run(verdict: bool = True, **more: Any) -> dict[str, Any]:
    """The figures of a run as they are kept."""
    source = Source("Cameo")
    rows = [
        source.held("5.7", "one query", "faster", "faster", verdict, calibrated=True),
        source.factor("5.10", "skew", 2.0, 1.2),
    ]
    return {
        "systems": {
            "Cameo": [row.to_json() for row in rows],
            "Getafix": [Source("Getafix").held("knee", "copies", "6", "5", True).to_json()],
        },
        "speed": [{"seconds": 360, "messages": 100_000, "cpu_s": 4.5}, COSTS],
        "growth": [{"seconds": 60, "messages": 1000, "cpu_s": 0.1}, {"seconds": 240, "messages": 4000, "cpu_s": 0.4}],
        "cpu_s": {"Cameo": 50.0, "Getafix": 60.0},
        **more,
    }


def test_it_is_a_part_and_a_section_and_says_of_each_system_what_is_calibrated() -> None:
    assert "messages" in PARTS
    assert document._SECTIONS["messages"] is messages_section
    assert CALIBRATED.keys() == TABLES.keys()
    assert all(name in TABLES[system] for system, name in FIRST)


def test_an_experiment_keeps_its_rows() -> None:
    found = experiment("Getafix", "money", quick=True)
    (row,) = found["rows"]
    assert (row["system"], row["experiment"], row["verdict"]) == ("Getafix", "money", REPRODUCED)
    assert json.loads(json.dumps(found)) == found


def test_the_time_of_the_engine_is_that_of_cameos_jobs_and_of_the_engine_alone() -> None:
    (jobs,), (short, longer) = messages._speed(quick=True), messages._growth((1, 2))
    assert jobs["messages"] > 100
    assert 1.8 < longer["messages"] / short["messages"] < 2.2
    assert all(each["cpu_s"] > 0 for each in (jobs, short, longer))


def test_the_section_counts_verdicts_and_has_a_table_for_each_system() -> None:
    text, rows = messages_section([run()])
    assert "In all 3 figures: 2 reproduced, 1 refuted, 0 not decidable; 1 calibrated, of which 1 counts" in text
    assert "2 figures: 1 reproduced, 1 refuted" in text
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Cameo",
        "### Getafix",
        "### What virtual time costs",
    ]
    assert "| 5.7 | one query | faster | faster | reproduced (calibrated) |  |" in text
    assert f"| 5.10 | skew | 2x | 1.20x | {REFUTED} | less than half as much, or more than half again |" in text
    assert "| jobs of Cameo | 3600 s | 1,000,000 | 45.0 | 45.0 |" in text
    assert "short runs" not in text
    hour, jobs, engine = rows
    assert (hour.values, hour.at_most, hour.short) == ([45.0], 60, False)
    assert [*jobs.values, *engine.values] == pytest.approx([1.0, 1.0])


def test_an_hour_that_takes_too_long_falls_short() -> None:
    slow = run(speed=[{**COSTS, "cpu_s": 61.0}])
    _, (hour, engine) = messages_section([slow])
    assert hour.short
    assert "engine" in engine.what


def test_verdicts_that_differ_between_runs_are_named() -> None:
    text, _ = messages_section([run(), run(verdict=False)])
    assert "The verdict differs between runs of: 5.7, one query." in text
    assert text.count("differs between") == 1


def test_short_runs_are_said_to_be_short(tmp_path: Path) -> None:
    short = run(speed=[{"seconds": 3.0, "messages": 300, "cpu_s": 0.01}])
    kept = {"at": "now", "machine": "one", "load_average": 0.0, "commit": "0", "took_s": 1.0}
    figures = {"part": "messages", "scale": 0.1, "runs": [{**kept, **short}]}
    (tmp_path / "messages.json").write_text(json.dumps(figures), "utf-8")
    document.write(tmp_path, tmp_path / "E.md")
    written = (tmp_path / "E.md").read_text("utf-8")
    assert "**These are short runs" in written
    assert "| CPU of an hour of Cameo's 4 LS and 20 BA jobs |  | 12 s | <= 60 s | holds |" in written
