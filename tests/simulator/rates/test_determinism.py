"""The same scenario runs the same, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qod_magics.simulator import Simulation, simulate
from qod_magics.simulator.rates.engine import unbalanced
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, scenario

BUSY: dict[str, Any] = scenario(
    duration_s=120,
    topics=[{"topic": "rows", "rate": [[0, 400], [30, 400], [31, 3000], [80, 3000], [81, 300]]}],
    task_managers=[{"id": "tm1", "cores": 0.5}, {"id": "tm2", "cores": 0.5}, {"id": "tm3"}],
    tasks=[{**SOURCE, "parallelism": 2}, {**LEFT, "parallelism": 2}, {**RIGHT, "mode": "micro-batch"}],
    events=[{"at_s": 60, "add_task_manager": "tm3"}],
    faults=[
        {"at_s": 45, "kind": "query-failure", "target": "left.1"},
        {"at_s": 90, "kind": "task-manager-lost", "target": "tm1"},
    ],
    metrics={"cpu_noise": 0.03},
)


def recording(path: Path, value: dict[str, Any]) -> bytes:
    """What a run of it records."""
    simulate(Simulation.from_json(value), record=path, inspect=lambda cluster, _: check(unbalanced(cluster.engine)))
    return path.read_bytes()


def check(wrong: list[str]) -> None:
    assert wrong == []


def test_the_same_scenario_gives_the_same_recording_and_another_seed_another(tmp_path: Path) -> None:
    first = recording(tmp_path / "a.jsonl", BUSY)
    assert len(first.splitlines()) > 24  # one a period, and one that did not wait for the end of its period
    assert recording(tmp_path / "b.jsonl", BUSY) == first
    assert recording(tmp_path / "c.jsonl", Simulation.from_json(BUSY).to_json()) == first
    assert recording(tmp_path / "d.jsonl", {**BUSY, "seed": 7}) != first


@pytest.mark.parametrize("metrics", [{"cpu_noise": 0.05}, {"rate_noise": 0.05}])
def test_noise_is_in_what_is_seen_and_not_in_what_happens(metrics: dict[str, float]) -> None:
    value = scenario(duration_s=40, controlled=False)
    plain = simulate(Simulation.from_json(value))
    noisy = simulate(Simulation.from_json({**value, "metrics": metrics}))
    assert (plain.cluster.engine.cpu == noisy.cluster.engine.cpu).all()
    assert (plain.cluster.engine.read == noisy.cluster.engine.read).all()
    assert plain.cycles[-1].snapshot != noisy.cycles[-1].snapshot
    assert plain.cycles[-1].measured == noisy.cycles[-1].measured


def test_what_is_not_controlled_sheds_nothing() -> None:
    run = simulate(Simulation.from_json({**BUSY, "controlled": False}))
    assert all(not cycle.applied for cycle in run.cycles)
    measured = run.cycles[-1].measured
    assert measured is not None
    assert set(measured.dropped.values()) == {0}
