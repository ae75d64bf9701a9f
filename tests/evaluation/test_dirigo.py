"""Dirigo's experiments beside its source."""

from __future__ import annotations

import json

import pytest

from benchmarks import findings
from benchmarks.dirigo import nexmark
from benchmarks.dirigo.setup import CALIBRATIONS
from benchmarks.dirigo.table import CALIBRATIONS as BY_CALIBRATION
from benchmarks.dirigo.table import rows

SHORT = ("6.6", "6.10", "6.12a", "6.15a", "6.15b", "6.18", "6.21b")


@pytest.mark.closed_loop
def test_short_runs_give_rows_with_verdicts() -> None:
    found = [row for name in SHORT for row in rows(name, quick=True)]
    assert {row.system for row in found} == {"Dirigo"}
    assert {row.verdict for row in found} <= set(findings.VERDICTS)
    assert {row.experiment for row in found} == {*SHORT, "6.13"}
    assert all(row.source and row.ours for row in found)
    assert [row.figure.partition(",")[0] for row in found if row.calibrated] == ["tail without a cache"]
    assert sum(row.verdict == findings.NOT_DECIDABLE for row in found if row.experiment == "6.21b") == 4


@pytest.mark.parametrize("name", sorted(BY_CALIBRATION))
def test_calibrations_say_what_is_given_and_what_is_chosen(name: str) -> None:
    found = json.loads((CALIBRATIONS / f"{name}.json").read_text(encoding="utf-8"))
    assert set(found) == {"what", "given", "chosen", "anchor"}
    assert found["given"]
    assert found["chosen"]
    assert not set(found["given"]) & set(found["chosen"])


def test_the_popularity_of_a_hot_bucket_is_solved_for() -> None:
    exponent = nexmark._exponent(8, 0.4)
    weights = [(k + 1) ** -exponent for k in range(8)]
    assert weights[0] / sum(weights) == pytest.approx(0.4)
