"""A recording gives back the simulation that it was made with, and a live one a simulation that is like it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.__main__ import main as run
from qod_magics.controller.record import Records
from qod_magics.core.snapshot import replace
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import Comparison, compared
from qod_magics.simulator import Simulation, simulate
from qod_magics.simulator.rates.fitting.fit import Fit, fit
from tests.simulator.rates.scenarios import scenario
from tests.texts import tells

LIVE = Path(__file__).parents[3] / "recorded" / "taxi_drives.jsonl"
SEEDS = range(1, 6)


def recorded(simulation: Simulation, path: Path) -> Records:
    """The records of a run of `simulation`."""
    simulate(simulation, record=path, keep=False)
    return load(path)


def made(**costs: float) -> Simulation:
    """A source with two readers on one core, from calm into overload and back, by a policy that goes by costs alone:
    what is lost to rows that wait first tells nothing of costs."""
    source = {"id": "src", "topic": "rows", **{name: costs[name] for name in ("fixed", "read_us", "work_us")}}
    same = {"upstream": ["src"], "read_us": 0, "latency_s": 0.3}
    return Simulation.from_json(
        scenario(
            policy="stream-economics-filled",
            duration_s=240,
            phases=[{"name": "calm", "from_s": 0}, {"name": "busy", "from_s": 80}, {"name": "again", "from_s": 170}],
            topics=[{"topic": "rows", "rate": [[0, 300], [80, 300], [80, 1500], [130, 1900], [170, 1900], [172, 500]]}],
            task_managers=[{"id": "tm1", "background": costs["background"]}],
            tasks=[
                {**source, "overhead": 0},
                {"id": "top", **same, "priority": 2, "min_accuracy": 0.1, "work_us": costs["top_us"], "overhead": 0},
                {"id": "low", **same, "priority": 1, "min_accuracy": 0.1, "work_us": costs["low_us"], "overhead": 0},
            ],
        )
    )


@pytest.mark.closed_loop
@settings(max_examples=3, deadline=None)
@given(
    fixed=st.floats(0.01, 0.05),
    read_us=st.floats(10, 40),
    work_us=st.floats(60, 200),
    top_us=st.floats(200, 500),
    low_us=st.floats(200, 500),
    background=st.floats(0.05, 0.2),
)
def test_a_simulated_run_gives_back_what_it_was_made_with(
    tmp_path_factory: pytest.TempPathFactory, **costs: float
) -> None:
    truth = made(**costs)
    result = fit(recorded(truth, tmp_path_factory.mktemp("run") / "run.jsonl"))
    found = result.simulation
    for task, known in zip(found.tasks, truth.tasks, strict=True):
        assert task.fixed == pytest.approx(known.fixed, rel=0.05, abs=0.002)
        assert task.read_us + task.work_us == pytest.approx(known.read_us + known.work_us, rel=0.05)
        assert task.latency_s == pytest.approx(known.latency_s, abs=0.05)
        assert (task.upstream, task.priority, task.parallelism) == (known.upstream, known.priority, known.parallelism)
    told_apart = not next(each.note for each in result.findings if each.what == "src")
    if told_apart:  # nothing was dropped otherwise
        assert found.tasks[0].read_us == pytest.approx(costs["read_us"], rel=0.1, abs=2)
    machine = found.machines[0]
    assert (machine.cores, machine.planned, machine.cost) == (1.0, 0.9, 1.0)
    assert machine.background.rate(150.0) == pytest.approx(costs["background"], abs=0.03)
    for second in (40.0, 100.0, 150.0, 200.0):
        rate = truth.scenario.topics[0].rate.rate(second)
        assert found.scenario.topics[0].rate.rate(second) == pytest.approx(rate, rel=0.03)
    assert [phase.name for phase in found.scenario.phases] == ["calm", "busy", "again"]
    assert found.metrics.report_s == pytest.approx(5.0, abs=0.3)


def test_what_happens_to_the_cluster_is_found_again(tmp_path: Path) -> None:
    truth = Simulation.from_json(
        scenario(
            duration_s=120,
            events=[{"at_s": 42, "add_task_manager": "tm2"}, {"at_s": 61, "start_application": "more"}],
            faults=[{"at_s": 91, "kind": "query-failure", "target": "left.1"}],
            tasks=[
                {"id": "src", "topic": "rows", "parallelism": 2, "shares": [0.7, 0.3], "selectivity": 2},
                {"id": "left", "upstream": ["src"], "priority": 2, "min_accuracy": 0.2},
                {"id": "right", "upstream": ["src"], "priority": 1, "min_accuracy": 0.1, "application": "more"},
            ],
        )
    )
    found = fit(recorded(truth, tmp_path / "run.jsonl")).simulation
    assert [(event.action, event.target) for event in found.scenario.events] == [
        ("add_task_manager", "tm2"),
        ("start_application", "right"),
    ]
    assert [event.at_s for event in found.scenario.events] == pytest.approx([42, 61], abs=5)
    assert [(fault.kind, fault.target) for fault in found.faults] == [("query-failure", "left.1")]
    assert found.tasks[0].shares == pytest.approx((0.7, 0.3), abs=0.02)
    assert found.tasks[0].selectivity == pytest.approx(2, abs=0.05)


def test_the_fit_of_a_run_without_the_controller_has_none(tmp_path: Path) -> None:
    off = replace(made(fixed=0.02, read_us=20, work_us=60, top_us=200, low_us=200, background=0.1), controlled=False)
    assert not fit(recorded(off, tmp_path / "run.jsonl")).simulation.controlled


def test_nothing_is_fitted_to_nothing() -> None:
    with pytest.raises(ValueError, match="nothing"):
        fit([])


# -- the live run ------------------------------------------------------------------------------------------------------


@cache
def live() -> tuple[Records, Fit]:
    records = load(LIVE)
    return records, fit(records)


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory) -> list[Comparison]:
    """The comparison of the live run with its simulation, drawn with several seeds of the readings' noise."""
    records, found = live()
    folder, simulation = tmp_path_factory.mktemp("runs"), found.simulation
    seeded = [replace(simulation, scenario=replace(simulation.scenario, seed=seed)) for seed in SEEDS]
    return [compared(records, recorded(each, folder / f"{n}.jsonl")) for n, each in enumerate(seeded)]


@pytest.mark.closed_loop
def test_most_draws_of_the_simulation_move_what_was_moved_live_in_the_same_phase(draws: list[Comparison]) -> None:
    same = [found for found in draws if found.criteria[1].passed]
    assert len(same) > len(draws) / 2
    assert all(found.moves == (("second-task-manager: TDSnk1.2 tm1 > tm2",),) * 2 for found in same)


def test_accuracies_are_like_the_live_ones(draws: list[Comparison]) -> None:
    assert sorted(found.overall for found in draws)[len(draws) // 2] <= 0.05
    assert all(found.overall <= 0.05 for found in draws if found.criteria[1].passed)


def test_lag_is_within_a_factor_of_2_once_settled(draws: list[Comparison]) -> None:
    assert all(found.criteria[2].passed for found in draws)


def test_what_cannot_be_told_apart_is_said() -> None:
    _, found = live()
    notes = {each.what: each.note for each in found.findings if "read_us" in each.note or "work_us" in each.note}
    assert "TDSnk2" in notes


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.mark.closed_loop
def test_fit_simulate_and_compare_work_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted, simulated, page = tmp_path / "s.json", tmp_path / "s.jsonl", tmp_path / "s.html"
    assert run(["fit", str(LIVE), "--out", str(fitted)]) == 0
    assert "TDSnk2: fixed 0.0" in capsys.readouterr().out
    assert Simulation.read(fitted).tasks[0].topic == "TDSrc1"
    assert run(["simulate", str(fitted), "--record", str(simulated)]) == 0
    assert run(["compare", str(LIVE), str(simulated), "--out", str(page)]) in (0, 1)
    shown = capsys.readouterr().out
    assert "accuracy of TDSnk1: 0." in shown
    assert tells(shown, "move", "second-task-manager", "TDSnk1.2")
    assert page.read_text("utf-8").count("<svg") == 3


def test_fit_does_not_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "s.json"
    there.write_text("{}")
    assert run(["fit", str(LIVE), "--out", str(there)]) == 2
    assert str(there) in capsys.readouterr().err


@pytest.mark.parametrize("words", [["fit"], ["compare", "one"], ["fit", "x.jsonl", "--policy", "none"]])
def test_wrong_words_are_told_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_recording_is_like_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(LIVE), str(LIVE)]) == 0
    assert "accuracy of TDSnk1: 0.000 mean difference" in capsys.readouterr().out


def test_an_empty_recording_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    assert run(["fit", str(tmp_path / "none.jsonl")]) == 2


def test_a_recording_without_tasks_is_no_input(tmp_path: Path) -> None:
    line = json.loads(LIVE.read_text("utf-8").splitlines()[0])
    line["snapshot"] = {"task_managers": [], "tasks": [], "streams": [], "instances": []}
    (tmp_path / "none.jsonl").write_text(json.dumps(line))
    assert run(["fit", str(tmp_path / "none.jsonl")]) == 2
