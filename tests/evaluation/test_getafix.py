"""The evaluation of Getafix: its calibrations, its verdicts, and all rows in a quick run."""

from __future__ import annotations

import json

import pytest

from benchmarks.getafix.cluster import CALIBRATIONS, FACTORS, calibration
from benchmarks.getafix.knee import CONFIGURATIONS, configured
from benchmarks.getafix.rows import EXPERIMENTS, rows
from benchmarks.getafix.static import EXAMPLE, EXPECTED, HAVE, HOT_TB, NOT_OPTIMAL, USD_PER_GB_HOUR, WASTEFUL
from benchmarks.getafix.static import FACTORS as OF_MONEY
from tests.policies.getafix.oracles import exact, oracle


def test_the_figures_are_those_of_the_source() -> None:
    case = oracle("G6")
    assert {name: exact(case[f"rf_{name}"]) for name in FACTORS} == {name: exact(f) for name, f in FACTORS.items()}
    assert (exact(case["rf_getafix"]), exact(case["rf_scarlett"])) == OF_MONEY
    assert (case["hot_TB"], exact(case["usd_per_GB_h"])) == (HOT_TB, USD_PER_GB_HOUR)
    assert oracle("G1")["cases"][0]["counts"] == EXAMPLE
    assert oracle("G9")["allocation"] == list(WASTEFUL)
    assert oracle("G10")["counts"] == NOT_OPTIMAL
    figure = oracle("G2")
    assert ([set(each) for each in figure["have"]], [set(each) for each in figure["expected"]]) == (
        list(HAVE),
        list(EXPECTED),
    )


@pytest.mark.parametrize("path", sorted(CALIBRATIONS.glob("*.json")), ids=lambda path: path.stem)
def test_a_calibration_says_what_is_given_and_by_what_the_rest_was_chosen(path) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    calibration(path.stem)
    assert value["given"]
    assert value["chosen"]
    for name in [*value["given"], *value["chosen"]]:
        assert name.split(".")[0] in value, name


def test_the_knee_is_looked_for_at_the_sizes_and_rates_of_the_source() -> None:
    for nodes, rate in CONFIGURATIONS:
        scenario = configured(nodes, rate, 1.0)
        assert (len(scenario.nodes), scenario.clients * scenario.queries_per_s) == (nodes, rate)


@pytest.mark.closed_loop
def test_a_quick_run_has_all_rows() -> None:
    found = [row.to_json() for row in rows(quick=True)]
    assert {row["system"] for row in found} == {"Getafix"}
    assert {row["experiment"] for row in found} == EXPERIMENTS.keys()
    calibrated = {row["figure"]: row["verdict"] for row in found if row["calibrated"]}
    assert [figure.partition(",")[0].split()[-1] for figure in calibrated] == ["Getafix", "Scarlett", "latency"]
    assert "not decidable" not in calibrated.values()
    assert len({row["figure"] for row in found}) == len(found) == 19
    verdicts = {row["figure"]: row["verdict"] for row in found}
    assert set(verdicts.values()) == {"reproduced", "refuted", "not decidable"}
    # what short runs can decide
    assert verdicts["copies of the example of section 4.2, against an even plan"] == "reproduced"
    assert verdicts["ModifiedBestFit makes the fewest copies"] == "refuted"
    assert verdicts["ModifiedBestFit ends as early as any plan"] == "reproduced"
    assert verdicts["total memory, Scarlett / Getafix, 5 to 20 clients"] == "reproduced"
    assert verdicts["effective replication factor of Getafix, 20 nodes and 20 clients"] == "reproduced"
