"""Dirigo's experiments beside its source."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.dirigo import __main__ as command
from benchmarks.dirigo import nexmark, queue, row, table
from benchmarks.dirigo.setup import CALIBRATIONS


def test_short_runs_give_rows_with_verdicts() -> None:
    rows = table.quick()
    assert {each.system for each in rows} == {"Dirigo"}
    assert {each.verdict for each in rows} <= {row.REPRODUCED, row.REFUTED, row.NOT_DECIDABLE}
    figures = {each.figure.split(":")[0] for each in rows}
    assert figures == {"6.6", "6.10", "6.12a", "6.13", "6.18", "6.21b"}
    assert all(each.source and each.ours for each in rows)
    assert json.dumps([each.to_json() for each in rows])
    assert row.table(rows).count("\n") == len(rows) + 1


@pytest.mark.parametrize(
    ("source", "ours", "held"),
    [
        (1.0, 1.09, True),
        (1.0, 0.89, False),
        (0.8, 0.88, True),
        (0.8, 0.96, False),
        (0.8, 1.1, False),
        (0.8, 0.5, False),
        (1.4, 1.21, True),
        (1.4, 1.61, False),
        (16.0, 8.6, True),
        (16.0, 8.4, False),
        (16.0, 24.1, False),
        (16.0, 0.1, False),
    ],
)
def test_a_factor_is_reproduced_within_half_of_its_effect(source: float, ours: float, held: bool) -> None:
    assert row.is_within(source, ours) is held
    assert row.factor("x", source, ours).verdict == (row.REPRODUCED if held else row.REFUTED)


@pytest.mark.parametrize("name", sorted(command.CALIBRATIONS))
def test_calibrations_say_what_is_given_and_what_is_chosen(name: str) -> None:
    found = json.loads((CALIBRATIONS / f"{name}.json").read_text(encoding="utf-8"))
    assert set(found) == {"what", "given", "chosen", "anchor"}
    assert found["given"]
    assert found["chosen"]
    assert not set(found["given"]) & set(found["chosen"])


def test_every_experiment_is_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    measured = {name for names in command.CALIBRATIONS.values() for name in names}
    assert measured == set(table.EXPERIMENTS) - {"6.21b"}
    monkeypatch.setattr(sys, "argv", ["dirigo", "6.21b", "--scale", "0.1"])
    monkeypatch.setattr(queue, "LENGTHS", (10,))
    command.main()
    printed = capsys.readouterr().out
    assert printed.count("not decidable") == 4
    assert "| blocks |" in printed


def test_the_popularity_of_a_hot_bucket_is_solved_for() -> None:
    exponent = nexmark._exponent(8, 0.4)
    weights = [(k + 1) ** -exponent for k in range(8)]
    assert weights[0] / sum(weights) == pytest.approx(0.4)
