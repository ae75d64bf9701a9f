"""Figures of a source beside ours: the one rule of the verdicts, and the command of the four packages."""

from __future__ import annotations

import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.findings import NOT_DECIDABLE, REFUTED, REPRODUCED, Row, Source, command, counted, is_factor, is_near
from tests.texts import tells

STORM = Source("Storm")


@pytest.mark.parametrize(
    ("source", "ours", "holds"),
    [
        (1.0, 1.09, True),
        (1.0, 0.89, False),
        (0.8, 0.88, True),
        (0.8, 0.96, False),
        (0.8, 1.1, False),
        (0.8, 0.5, False),
        (1.4, 1.21, True),
        (1.4, 1.61, False),
        (2.0, 1.49, False),
        (2.0, 1.5, True),
        (2.0, 2.5, True),
        (2.0, 2.51, False),
        (16.0, 8.6, True),
        (16.0, 8.4, False),
        (16.0, 24.1, False),
        (16.0, 0.1, False),
        (0.5, 0.0, False),
        (3.0, inf, False),
    ],
)
def test_a_factor_is_reproduced_within_half_of_its_excess_over_1(source: float, ours: float, holds: bool) -> None:
    assert is_factor(source, ours) is holds
    assert STORM.factor("x", "y", source, ours).verdict == (REPRODUCED if holds else REFUTED)


@given(st.floats(1.01, 100.0), st.floats(0.01, 1000.0))
def test_a_factor_below_1_is_as_the_same_turned_over(source: float, ours: float) -> None:
    if all(abs((ours - 1) / (source - 1) - edge) > 1e-6 for edge in (0.5, 1.5)):
        assert is_factor(source, ours) is is_factor(1 / source, 1 / ours)


@pytest.mark.parametrize(("ours", "holds"), [(50, True), (150, True), (49, False), (151, False)])
def test_another_number_is_reproduced_within_half_of_it(ours: float, holds: bool) -> None:
    assert is_near(100, ours) is holds
    assert is_near(-100, -ours) is holds


def test_a_factor_that_is_not_reproduced_says_how_it_differs() -> None:
    assert tells(STORM.factor("x", "y", 2.0, 4.0, "one run").why, "half", "one run")
    assert tells(STORM.factor("x", "y", 2.0, 0.9).why, "opposite")
    assert tells(STORM.factor("x", "y", 1.0, 1.2).why, "10%")
    assert STORM.factor("x", "y", 2.0, inf, "one run").why == "one run"
    assert STORM.factor("x", "y", 2.0, 2.0, "one run").why == "one run"


def rows(quick: bool) -> list[Row]:
    return [
        STORM.held("latency", "falls", "yes", "short" if quick else "long", True, calibrated=True),
        STORM.factor("latency", "by half", 2.0, 1.1),
        STORM.row("latency", "ends", "3 s", "-", NOT_DECIDABLE, "no model"),
    ]


EXPERIMENTS = {"latency": rows, "other": lambda _: rows(True)[:1]}


def test_the_command_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    command("storm", "Storm.", EXPERIMENTS, ["latency"])
    printed = capsys.readouterr().out
    assert "| latency | falls | yes | long | reproduced (calibrated) |  |" in printed
    assert counted(rows(False)) in printed
    assert tells(counted(rows(False)), 3, "1 reproduced", "1 refuted", "1 not decidable", "1 calibrated", 1)


def test_all_are_run_and_json_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    command("storm", "Storm.", EXPERIMENTS, ["all", "--quick", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found == [row.to_json() for row in [*rows(True), *rows(True)[:1]]]
    assert found[0]["calibrated"]


def test_an_unknown_experiment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("storm", "Storm.", EXPERIMENTS, ["throughput"])
    assert "'throughput'" in capsys.readouterr().err
