"""Systems that run in turns with their baselines, and the one table of the literature: figures and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks._live import Table
from benchmarks.evaluation import literature, turns_live
from benchmarks.evaluation.literature import CLAIMS, HOLDS, IMPOSSIBLE, IN_PART, NOT, verdict
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.turn_rows import SECTIONS, beside

POLICIES = ("orleans", "dirigo")


def lending(*pairs: tuple[float, float]) -> dict[str, Any]:
    """A run with a round for each pair of tails of static assignment and of lending; the backlog of the first grows."""
    return {
        "turns": [
            {"round": n, "policy": policy, "p95_s": p95_s, "growth": growth, "periods": 1.0, "exact": True}
            for n, pair in enumerate(pairs, 1)
            for policy, p95_s, growth in zip(POLICIES, pair, (900.0, -5.0), strict=True)
        ]
    }


def goals(part: str, *runs: dict[str, Any]) -> dict[str, Row]:
    return {row.what: row for row in SECTIONS[part].rows(runs)}


def test_a_policy_is_set_beside_its_baseline_of_the_same_run_and_round() -> None:
    runs = [lending((10.0, 2.0), (8.0, 4.0)), lending((9.0, 3.0))]
    assert beside(runs, "p95_s", "dirigo", "orleans") == pytest.approx([0.2, 0.5, 1 / 3])
    runs[0]["turns"].pop()  # the last turn was broken off
    assert beside(runs, "p95_s", "dirigo", "orleans") == pytest.approx([0.2, 1 / 3])
    assert [line["run"] for line in SECTIONS["dirigo-live"].table(runs)] == [1, 1, 1, 2, 2]


def test_lending_is_judged_by_its_tail_its_backlog_and_what_static_assignment_cannot_carry() -> None:
    found = goals("dirigo-live", lending((10.0, 2.0), (10.0, 3.0)))
    assert found["tail against static"].middle == pytest.approx(-75.0)
    assert not [row.what for row in found.values() if row.short]
    light = lending((10.0, 2.0))
    light["turns"][0]["growth"] = -100.0  # static assignment carries this load: it says nothing
    light["turns"][1]["exact"] = False
    assert {row.what for row in goals("dirigo-live", light).values() if row.short} == {
        "growth of static's backlog",
        "turns with exact counts",
    }


def test_a_figure_that_was_not_measured_is_left_out() -> None:
    turn = {"round": 1, "policy": "getafix", "mb": 8.0, "most_mb": 4.0, "median_s": None}
    other = {**turn, "policy": "getafix-everywhere", "mb": 16.0, "most_mb": 8.0, "median_s": 1.0}
    found = goals("getafix-live", {"turns": [turn, other]})
    assert (found["memory everywhere / ours"].middle, found["on one / ours"].middle) == (2.0, 2.0)
    assert found["time of a query / everywhere"].values == [None]


def test_a_verdict_says_how_many_goals_are_reached_and_what_spark_does_not_allow() -> None:
    good, bad = Row("a", "", [2.0], at_least=1.0), Row("b", "", [0.0], at_least=1.0)
    seen = Row("c", "", [0.0])  # without a goal
    assert verdict([good, seen], "") == verdict([good], "bars") == HOLDS
    assert verdict([good, bad, seen], "") == IN_PART
    assert verdict([bad, seen], "") == NOT
    assert verdict([good, bad], "bars") == IMPOSSIBLE


def test_the_table_has_a_line_for_each_of_the_eight_systems_that_was_run() -> None:
    assert len({claim.system for claim in CLAIMS}) == 8
    assert {claim.part for claim in CLAIMS} <= literature.SECTIONS.keys()
    found = {"dirigo-live": {"runs": [lending((10.0, 8.0))]}}
    (line,) = literature.table(found)
    assert (line["system"], line["verdict"], line["turns"]) == ("Dirigo", IN_PART, 1)
    assert line["why"]
    *_, last = literature.lines(found, Path("results"))
    assert "](results/dirigo-live.csv)" in last


def turning(*rows: dict[str, Any], fails: bool = False) -> Callable[[Table], None]:
    def measure(table: Table, **_: Any) -> None:
        for row in rows:
            table.add(row)
        if fails:
            raise TimeoutError("no row")

    return measure


def test_a_run_that_breaks_off_keeps_the_turns_that_it_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = dict.fromkeys(turns_live.lending.FIELDS, 1.0)
    monkeypatch.setattr(turns_live.lending, "measure", turning(row, fails=True))
    found = turns_live.dirigo_live(tmp_path, 1.0)
    assert found == {"turns": [row], "left_out": {"later turns": "TimeoutError: no row"}}
    assert (tmp_path / "dirigo-live.csv").read_text().count("\n") == 2
    monkeypatch.setattr(turns_live.lending, "measure", turning(fails=True))
    with pytest.raises(TimeoutError):
        turns_live.dirigo_live(tmp_path, 1.0)
