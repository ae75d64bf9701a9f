from __future__ import annotations

import pytest

from qod_magics.core.dag import Topology
from qod_magics.core.snapshot import Snapshot, Stream, Task
from qod_magics.policies.stream_economics import actual_accuracy
from qod_magics.policies.stream_economics.requirements import non_drop, propagate


def figure(desired: dict[str, float]) -> tuple[Snapshot, dict[str, float]]:
    """Figure 3.3 of the thesis: S1 and S2 into M, M into A and B; and the desired accuracies after propagation."""
    relations = {"A": ("M",), "S1": (), "M": ("S1", "S2"), "S2": (), "B": ("M",)}
    tasks = tuple(
        Task(name, up, None, 1 if name in desired else None, 0.0 if name in desired else None)
        for name, up in relations.items()
    )
    given = Snapshot((), tasks, tuple(Stream(u, t, 1.0) for t, up in relations.items() for u in up), ())
    topology = Topology.of(tasks)
    values = [desired.get(task.id, 0.0) for task in tasks]
    propagate(values, topology)
    return given, dict(zip(relations, values, strict=True))


def test_figure_3_3() -> None:
    given, desired = figure({"A": 0.8, "B": 0.4})
    assert non_drop(given, desired) == {
        (None, "S1"): 0.8,
        (None, "S2"): 0.8,
        ("S1", "M"): 1.0,
        ("S2", "M"): 1.0,
        ("M", "A"): 1.0,
        ("M", "B"): 0.5,
    }


def test_probabilities_along_a_path_multiply_to_the_desired_accuracy() -> None:
    given, desired = figure({"A": 0.8, "B": 0.4})
    assert actual_accuracy(given, non_drop(given, desired)) == pytest.approx(
        {"S1": 0.8, "S2": 0.8, "M": 0.8, "A": 0.8, "B": 0.4}
    )


def test_where_nothing_is_desired_nothing_is_kept() -> None:
    given, desired = figure({"A": 0.0, "B": 0.0})
    assert set(non_drop(given, desired).values()) == {0.0}
