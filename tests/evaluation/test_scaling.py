"""The model of clusters that are scaled, and the order of the policies in it."""

from __future__ import annotations

import pytest

from benchmarks.scaling.cluster import RESTART_S, Cost
from benchmarks.scaling.compare import CAPACITY, NAMES, blocking, calibrated, scaled, started
from benchmarks.scaling.layouts import Layout, layouts
from qod_magics.core.actions import Move, Scale

LAYOUTS = {layout.name: layout for layout in layouts()}
STAR = LAYOUTS["star"]
WINDOWS = 24


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_without_cpu_it_agrees_with_the_proportional_model(layout: Layout) -> None:
    cluster = started(layout, blocking(layout))
    cluster.run(60.0)
    k, most = dict.fromkeys(layout.graph.ops, layout.k), dict.fromkeys(layout.graph.ops, layout.most)
    expected = layout.proportional.job(k, most)
    assert cluster.run(10.0) == pytest.approx(float(expected.throughput), rel=1e-6)
    snapshot = cluster.snapshot()
    for task in layout.graph.ops:
        read = sum(i.in_rate for i in snapshot.instances if i.task == task)
        assert read == pytest.approx(float(expected.processed[task]), rel=1e-6)
    for stream in snapshot.streams:
        assert stream.out_rate == pytest.approx(float(expected.emitted[stream.source, stream.target]), rel=1e-6)


def test_instances_share_the_cores_of_their_machine() -> None:
    costs = {op: Cost(0.0, 1e-4) for op in STAR.graph.ops} | {"kA": Cost(1 / 650, 0.0)}
    cluster = started(STAR, costs)
    cluster.run(20.0)
    assert cluster.run(10.0) == pytest.approx(1300 + 350)  # two cores for kA, and what kB gets
    cluster.home = ["m1"] * len(cluster.home)
    cluster.run(20.0)
    assert cluster.run(10.0) == pytest.approx(650 + 350)


def test_no_rows_are_lost_when_instances_move_and_their_input_is_split_anew() -> None:
    cluster = started(STAR, blocking(STAR))
    cluster.run(50.0)
    before = cluster.queue.sum()
    cluster.add("new")
    cluster.apply([Move("kA.1", "new"), Scale("kA", 4, ("new", "new"))])
    assert cluster.queue.sum() == pytest.approx(before)
    assert cluster.names[-2:] == ["kA.3", "kA.4"]
    cluster.run(RESTART_S)
    new = cluster.done[-2:]
    assert list(new) == [0.0, 0.0]
    cluster.run(10.0)
    assert all(cluster.done[-2:] > 0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_stela_gains_most_and_is_not_down_for_longer_than_storm(layout: Layout) -> None:
    runs = {name: scaled(layout, calibrated()[layout.name], name, windows=WINDOWS) for name in (*NAMES, CAPACITY)}
    assert runs["stela"].ratio > max(runs["storm-re-deal"].ratio, runs["least-link-load"].ratio)
    assert runs["stela"].down_s <= runs["storm-re-deal"].down_s
    assert runs["storm-re-deal"].down_s > 0


def test_linear_gains_least_of_the_three_small_shapes() -> None:
    found = {}
    for name in ("star", "linear", "diamond"):
        costs = calibrated()[name]
        stela, storm = (scaled(LAYOUTS[name], costs, each, windows=WINDOWS).ratio for each in NAMES[:2])
        found[name] = stela / storm
    assert min(found, key=found.__getitem__) == "linear"
