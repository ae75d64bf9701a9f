"""The evaluation in short, on real Kafka and Spark: the controller beside Spark alone, and the document.

Only ratios with wide margins are asserted; `make bench-smoke` prints the figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import document, kept
from benchmarks.evaluation.applications import TOPICS
from benchmarks.evaluation.drawing import draw
from benchmarks.evaluation.engines import engines
from benchmarks.evaluation.row import ALONE, PAPERS
from benchmarks.evaluation.scenarios import rate_estimates
from qod_magics.recordings.reading import load

#: Name, times what the task manager carries, seconds.
SHORT = (("0.6x", 0.6, 10.0), ("3x", 3.0, 30.0))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the figures are kept; recordings lie beside it."""
    return tmp_path_factory.mktemp("evaluation") / "results"


@pytest.fixture(scope="module")
def compared(results: Path) -> dict[str, Any]:
    """The controller and Spark alone under a load that steps up."""
    figures = engines(results.parent, 1.0, which=(PAPERS, ALONE), course=SHORT)
    keep(results, "engines", figures)
    draw(document.stored(results), results)
    return figures


def keep(results: Path, part: str, figures: dict[str, Any]) -> None:
    results.mkdir(exist_ok=True)
    kept.keep(results / f"{part}.json", part, 1.0, [{**kept.provenance("now", 1.0), **figures}])


def test_spark_alone_has_several_times_as_many_rows_waiting(compared: dict[str, Any]) -> None:
    ours, alone = (compared["engines"][engine]["3x"] for engine in (PAPERS, ALONE))
    print(
        f"\nrows waiting at the end of 3x: {ours['waiting_rows']:,} by the controller, {alone['waiting_rows']:,} alone"
    )
    assert alone["waiting_rows"] > 3 * ours["waiting_rows"]


def test_the_more_important_query_is_served_better_and_each_its_minimum(compared: dict[str, Any]) -> None:
    accuracy = compared["engines"][PAPERS]["3x"]["accuracy"]
    print(f"\naccuracy at 3x: {', '.join(f'{query} {share:.2f}' for query, share in accuracy.items())}")
    assert 0.5 * 0.1 < accuracy["TDSnk1"] < accuracy["TDSnk2"] < 1.0
    assert accuracy["TDSnk2"] > 0.5 * 0.2


def test_the_input_rate_is_estimated(compared: dict[str, Any], results: Path) -> None:
    records = load(results.parent / f"engines-{PAPERS}.jsonl")
    course = [record for record in records if record.phase and not record.repeated]
    loads = sorted(results.parent.glob("engines.load*.jsonl"))
    ours = rate_estimates(course, loads, "TDSnk1", *TOPICS)["ours"]
    print(
        f"\ninput rate: mean error {ours['mean']:.2f} %, spread {ours['spread']:.2f} %, of {ours['count']:.0f} cycles"
    )
    assert abs(ours["mean"]) < 10
    assert ours["count"] >= 5


def test_the_document_is_written_from_the_figures(compared: dict[str, Any], results: Path, tmp_path: Path) -> None:
    path = tmp_path / "EVALUATION.md"
    document.write(results, path)
    written = path.read_text("utf-8")
    assert "Scenario 4: other engines" in written
    assert "Not run: scenario1." in written
    assert "engines-compared.svg" in written
    assert (results / "engines-compared.svg").is_file()
    lines = (results / "engines.csv").read_text("utf-8").splitlines()
    assert {line.partition(",")[0] for line in lines[1:]} == {PAPERS, ALONE}
