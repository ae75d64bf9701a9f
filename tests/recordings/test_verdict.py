from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.recordings.criteria import Criterion, format_verdict
from qod_magics.recordings.verdict import overload_lag, verdict
from tests.raising import breaks
from tests.recordings.taxi_drives import records, taxi_drives
from tests.texts import tells

Lines = list[dict[str, Any]]

PLANS = "every plan is what the policy gives for its snapshot"
MINIMA = "every query keeps its minimum accuracy once settled"
LAG = "lag stays within 2 periods of input once settled"
ESTIMATE = "sources run at the accuracy that was planned"
MOVES = "tasks move and are back at work within 10 s"
BOOKS = "every row is accounted for"
FULL = "full accuracy again at the end"
SHEDS = "an overload is shed by priority"
OFF = "with the controller off the lag of the same overload grows"


def failing(criteria: tuple[Criterion, ...]) -> dict[str, str]:
    return {criterion.name: criterion.detail for criterion in criteria if not criterion.passed}


def judged(lines: Lines, off: Lines | None = None, **options: Any) -> tuple[Criterion, ...]:
    return verdict(records(lines), None if off is None else records(off), **options)


def moves(lines: Lines) -> list[dict[str, Any]]:
    return [event for line in lines for event in line["events"] if event["kind"] == "move"]


def settled_line(lines: Lines, phase: str) -> dict[str, Any]:
    """A line late in the phase, where all has settled."""
    return [line for line in lines if line["phase"] == phase][-2]


def test_a_good_run_passes_every_criterion() -> None:
    criteria = judged(taxi_drives(), taxi_drives(controlled=False))
    assert [criterion.name for criterion in criteria] == [PLANS, MINIMA, LAG, ESTIMATE, MOVES, BOOKS, FULL, SHEDS, OFF]
    assert failing(criteria) == {}


def test_a_run_without_streams_shows_nothing() -> None:
    lines = taxi_drives()[:2]
    for line in lines:
        line["snapshot"] |= {"tasks": [], "streams": [], "instances": []}
        line["measured"] = {name: {} for name in line["measured"]}
        line["plan"] |= {"current_accuracy": {}, "desired": {}, "non_drop": []}
        line.pop("dials", None)
    assert BOOKS in failing(judged(lines))


def test_without_a_run_with_the_controller_off_there_is_nothing_to_compare() -> None:
    assert OFF not in {criterion.name for criterion in judged(taxi_drives())}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_good_run_passes_whatever_the_noise(seed: int) -> None:
    assert failing(judged(taxi_drives(seed=seed), taxi_drives(controlled=False, seed=seed))) == {}


def test_the_engine_alone_fails_as_a_controlled_run() -> None:
    failed = failing(judged(taxi_drives(controlled=False)))
    assert {LAG, MOVES, SHEDS} <= failed.keys()
    assert PLANS not in failed
    assert BOOKS not in failed


def other_dial(lines: Lines) -> None:
    settled_line(lines, "overload")["plan"]["non_drop"][0]["d"] += 1e-6


def other_decision(lines: Lines) -> None:
    settled_line(lines, "calm")["plan"]["fail"] = ["TDSnk1.1"]


def below_minimum(lines: Lines) -> None:
    settled_line(lines, "heavier")["measured"]["accuracy"]["TDSnk2"] = 0.57


def stream_behind(lines: Lines) -> None:
    measured = settled_line(lines, "calm")["measured"]
    measured["lag"]["TDSrc2>TDSnk1"] = int(measured["input_rate"]["TDSrc2>TDSnk1"] * 10.5)


def rate_unknown(lines: Lines) -> None:
    settled_line(lines, "calm")["measured"]["input_rate"]["TDSrc2"] = None


def slow_move(lines: Lines) -> None:
    moves(lines)[0]["took_s"] = 10.4


def untimed_move(lines: Lines) -> None:
    del moves(lines)[0]["took_s"]


def lost_row(lines: Lines) -> None:
    lines[30]["measured"]["counts"]["TDSrc1>TDSnk2"]["processed"] -= 1


def unreported_without_loss(lines: Lines) -> None:
    count = lines[30]["measured"]["counts"]["TDSrc1"]
    count["processed"] -= 7
    count["unreported"] += 7


def uncounted_stream(lines: Lines) -> None:
    for line in lines:
        del line["measured"]["counts"]["TDSrc2>TDSnk2"]


def sheds_at_the_end(lines: Lines) -> None:
    lines[-1]["measured"]["accuracy"]["TDSnk1"] = 0.99


def priority_upside_down(lines: Lines) -> None:
    for line in lines:
        if line["phase"] == "overload":
            line["measured"]["accuracy"] = {"TDSnk1": 0.6, "TDSnk2": 0.62}


def one_query_spared(lines: Lines) -> None:
    for line in lines:
        if line["phase"] == "overload":
            line["measured"]["accuracy"]["TDSnk2"] = 1.0


def nothing_dropped(lines: Lines) -> None:
    overload = [line for line in lines if line["phase"] == "overload"]
    for line in overload:
        line["measured"]["dropped"] = overload[0]["measured"]["dropped"]


@pytest.mark.parametrize(
    ("spoil", "criterion", "said"),
    [
        (
            other_dial,
            PLANS,
            "130 s in non_drop",
        ),
        (other_decision, PLANS, "50 s in fail"),
        (below_minimum, MINIMA, "TDSnk2 0.570"),
        (stream_behind, LAG, "TDSrc2>TDSnk1"),
        (rate_unknown, LAG, "TDSrc2"),
        (slow_move, MOVES, "tm1 > tm2 10.4 s"),
        (untimed_move, MOVES, "1 of 2 moves"),
        (lost_row, BOOKS, "TDSrc1>TDSnk2 at 150 s: "),
        (unreported_without_loss, BOOKS, "TDSrc1 at 150 s: 7 rows"),
        (uncounted_stream, BOOKS, "TDSrc2>TDSnk2"),
        (sheds_at_the_end, FULL, "TDSnk1 0.990, TDSnk2 1.000"),
        (priority_upside_down, SHEDS, "33%"),
        (one_query_spared, SHEDS, "TDSnk2 (priority 2) 1.000"),
        (nothing_dropped, SHEDS, "0 rows"),
    ],
)
def test_what_goes_wrong_fails_its_own_criterion_and_no_other(
    spoil: Callable[[Lines], None], criterion: str, said: str
) -> None:
    lines = taxi_drives()
    spoil(lines)
    failed = failing(judged(lines, taxi_drives(controlled=False)))
    assert list(failed) == [criterion]
    assert said in failed[criterion]


def test_sources_away_from_the_plan_fail_the_estimate() -> None:
    lines = taxi_drives()
    for line in lines:
        line["plan"]["current_accuracy"] = {
            task: max(accuracy - 0.05, 0) for task, accuracy in line["plan"]["current_accuracy"].items()
        }
    failed = failing(judged(lines))
    assert list(failed) == [ESTIMATE]
    assert "mean difference 0.05" in failed[ESTIMATE]


def test_the_estimate_is_held_against_the_last_plan_that_was_applied() -> None:
    lines = taxi_drives()
    for line in lines[20:]:
        line["applied"] = False
    planned = lines[19]["plan"]["desired"]["TDSrc1"]
    assert planned < 0.9
    failed = failing(judged(lines))
    assert ESTIMATE in failed  # calm again at 1, the last applied plan being that of the overload


def test_rows_unreported_are_accepted_once_a_task_manager_was_lost() -> None:
    lines = taxi_drives()
    lines[25]["events"].append({"kind": "task-manager-lost", "task_manager": "tm1"})
    for line in lines[25:]:
        count = line["measured"]["counts"]["TDSrc1"]
        count["processed"] -= 7
        count["unreported"] += 7
    assert BOOKS not in failing(judged(lines))


@pytest.mark.parametrize(("phase", "criteria"), [("overload", {SHEDS}), ("calm-again", {FULL}), ("heavier", set())])
def test_a_phase_that_never_settles_fails_and_says_so(phase: str, criteria: set[str]) -> None:
    lines = taxi_drives()
    for line in lines:
        if line["phase"] == phase:
            line["snapshot"]["instances"][0]["warming_up"] = True
    failed = failing(judged(lines))
    assert {MINIMA, LAG, ESTIMATE, *criteria} <= failed.keys()
    assert all(phase in failed[name] for name in (MINIMA, LAG, ESTIMATE, *criteria))


def test_how_long_settling_takes_is_a_parameter() -> None:
    assert failing(judged(taxi_drives(), settle_s=10_000)).keys() >= {MINIMA, LAG, ESTIMATE, FULL, SHEDS}


def test_a_query_without_input_is_not_judged() -> None:
    lines = taxi_drives()
    for line in lines:
        if line["phase"] == "calm":
            line["measured"]["accuracy"]["TDSnk1"] = None
    assert failing(judged(lines)) == {}


def test_a_repeated_line_at_the_end_changes_nothing() -> None:
    lines = taxi_drives()
    last = {**lines[-1], "at": "2026-11-21T03:00:00.000Z", "repeated": True, "events": [{"kind": "stopped"}]}
    assert failing(judged([*lines, last])) == {}


def test_an_overload_that_the_engine_can_follow_is_no_comparison() -> None:
    off = taxi_drives(controlled=False)
    for line in off:
        line["measured"]["lag"] = dict.fromkeys(line["measured"]["lag"], 3)
    failed = failing(judged(taxi_drives(), off))
    assert list(failed) == [OFF]
    assert tells(failed[OFF], 18)


def test_less_than_twice_the_lag_is_not_enough() -> None:
    on = taxi_drives()
    for line in on:
        if line["phase"] == "overload":
            line["measured"]["lag"]["TDSrc1"] = 250_000
    assert OFF in failing(judged(on, taxi_drives(controlled=False)))


def test_lag_that_does_not_double_during_the_overload_is_not_enough() -> None:
    off = taxi_drives(controlled=False)
    for line in off:
        line["measured"]["lag"] = {edge: lag + 1_000_000 for edge, lag in line["measured"]["lag"].items()}
    assert OFF in failing(judged(taxi_drives(), off))


def test_phases_of_different_length_are_compared_at_the_same_time() -> None:
    off = taxi_drives(controlled=False)
    short = [line for line in off if line["phase"] == "calm" or line is not off[-1]][:-6]
    detail = next(c.detail for c in judged(taxi_drives(), short) if c.name == OFF)
    assert f"largest {max(lag for _, lag in overload_lag(records(short))):,} off" in detail
    assert f"{max(lag for _, lag in overload_lag(records(off))):,} off" not in detail


@pytest.mark.parametrize("which", ["on", "off"])
def test_a_recording_without_an_overload_says_so(which: str) -> None:
    on, off = taxi_drives(), taxi_drives(controlled=False)
    for line in on if which == "on" else off:
        line["phase"] = "calm"
    failed = failing(judged(on, off))
    expected = "the recording has no phase 'overload'"
    assert "'overload'" in failed[OFF]
    assert ("off" in failed[OFF]) is (which != "on")
    assert (failed.get(SHEDS) == expected) is (which == "on")


def test_a_run_without_a_move_fails() -> None:
    lines = taxi_drives()
    for line in lines:
        line["events"] = []
    assert failing(judged(lines)).keys() == {MOVES}


def test_an_empty_recording_and_an_unknown_policy_are_refused() -> None:
    with pytest.raises(ValueError, match="lines"):
        verdict([])
    with pytest.raises(UsageProblem, check=breaks("exists", name="stream-economy")):
        judged(taxi_drives(), policy="stream-economy")


def test_one_line_a_criterion() -> None:
    text = format_verdict([Criterion("this", True, "1 of 1"), Criterion("that", False, "0 of 1")])
    assert text == "PASS this: 1 of 1\nFAIL that: 0 of 1"
    assert all(len(criterion.detail.splitlines()) == 1 for criterion in judged(taxi_drives()))
