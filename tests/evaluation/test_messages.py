"""The part on Cameo, Dirigo, Nephele Streaming and Getafix: one experiment, and the goals from kept figures."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.evaluation import document, messages
from benchmarks.evaluation.__main__ import PARTS
from benchmarks.evaluation.messages import FIRST, TABLES, experiment
from benchmarks.evaluation.system_rows import SECTIONS
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
        "cpu_s": {"Cameo": 50.0, "Getafix": 60.0},
        **more,
    }


def test_it_is_a_part_and_a_section() -> None:
    assert PARTS.keys() == document.SECTIONS.keys()
    assert all(name in TABLES[system] for system, name in FIRST)


def test_an_experiment_keeps_its_rows() -> None:
    found = experiment("Getafix", "money", quick=True)
    (row,) = found["rows"]
    assert (row["system"], row["experiment"], row["verdict"]) == ("Getafix", "money", REPRODUCED)
    assert json.loads(json.dumps(found)) == found


def test_the_time_of_the_engine_is_that_of_cameos_jobs() -> None:
    (jobs,) = messages._speed(quick=True)
    assert jobs["messages"] > 100
    assert jobs["cpu_s"] > 0


def test_figures_that_are_reproduced_are_counted_by_system_and_all_are_in_the_table() -> None:
    hour, *systems = SECTIONS["messages"].rows([run()])
    assert (hour.values, hour.at_most, hour.short) == ([45.0], 60, False)
    assert {row.of: row.shown() for row in systems} == {"Cameo": "1 of 2", "Getafix": "1 of 1"}
    table = SECTIONS["messages"].table([run()])
    assert [line["verdict"] for line in table] == [REPRODUCED, REFUTED, REPRODUCED]
    slow = run(speed=[{**COSTS, "cpu_s": 61.0}])
    assert SECTIONS["messages"].rows([slow])[0].short
