"""Tasks as arrays, and mappings by name as arrays."""

from __future__ import annotations

import numpy as np

from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.wiring import Column, Wiring
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, scenario

TASKS = [
    SOURCE,
    {"id": "own", "topic": "rows"},
    {**LEFT, "upstream": ["src", "own"], "parallelism": 2, "shares": [0.25, 0.75]},
    {"id": "mid", "upstream": ["src"], "parallelism": 3},
    {**RIGHT, "upstream": ["mid", "own"], "mode": "micro-batch"},
]


def test_edges_channels_and_outlets_are_numbered_as_documented() -> None:
    simulation = Simulation.from_json(scenario(tasks=TASKS))
    wiring = Wiring.of(simulation.tasks)
    assert [task.id for task in wiring.tasks] == ["src", "own", "mid", "left", "right"]
    assert wiring.instances == ("src.1", "own.1", "mid.1", "mid.2", "mid.3", "left.1", "left.2", "right.1")
    assert wiring.edge_names == ("src", "own", "src>mid", "src>left", "own>left", "mid>right", "own>right")
    assert wiring.sources == 2
    channels = [
        (wiring.instances[i], wiring.edge_names[e])
        for i, e in zip(wiring.channel_instance, wiring.channel_edge, strict=True)
    ]
    assert channels[:2] == [("src.1", "src"), ("own.1", "own")]
    assert channels[5:9] == [(f"left.{n}", f"{a}>left") for n in (1, 2) for a in ("src", "own")]
    assert channels[-2:] == [("right.1", "mid>right"), ("right.1", "own>right")]
    shares = np.bincount(wiring.channel_edge, wiring.channel_share)
    assert shares.tolist() == [1.0] * len(wiring.edges)
    assert wiring.channel_share[5:9].tolist() == [0.25, 0.25, 0.75, 0.75]
    outlets = [
        (wiring.instances[i], wiring.edge_names[e])
        for i, e in zip(wiring.outlet_instance, wiring.outlet_edge, strict=True)
    ]
    assert [pair for pair in outlets if pair[1] == "mid>right"] == [(f"mid.{n}", "mid>right") for n in (1, 2, 3)]
    assert [[wiring.edge_names[e] for e in level] for level in wiring.levels] == [
        ["src>mid", "src>left", "own>left"],
        ["mid>right", "own>right"],
    ]
    assert [wiring.instances[i] for i in wiring.micro] == ["right.1"]
    assert wiring.by_instance(np.ones(len(channels))).tolist() == [1, 1, 1, 1, 1, 2, 2, 2]
    assert wiring.by_edge(np.ones(len(channels))).tolist() == [1, 1, 3, 2, 2, 1, 1]


def test_sums_by_instance_are_the_same_to_the_bit_however_they_are_made() -> None:
    """Sums of two values are quick to make in another way, which of three or more rounds in another order."""
    three = {**RIGHT, "upstream": ["mid", "own", "src"]}
    for tasks, pairs in ((TASKS, True), ([*TASKS[:-1], three], False)):
        wiring = Wiring.of(Simulation.from_json(scenario(tasks=tasks)).tasks)
        assert wiring.pairs is pairs
        values = np.random.default_rng(1).uniform(0.0, 1.0, len(wiring.channel_edge))
        assert wiring.by_instance(values).tolist() == np.add.reduceat(values, wiring.first_channel).tolist()


def test_partitions_are_dealt_as_on_a_live_cluster() -> None:
    tasks = [SOURCE, {**LEFT, "parallelism": 2, "max_parallelism": 5, "shares": [0.4, 0.3, 0.1, 0.1, 0.1]}, RIGHT]
    wiring = Wiring.of(Simulation.from_json(scenario(tasks=tasks)).tasks)
    assert wiring.instances == ("src.1", *(f"left.{n}" for n in range(1, 6)), "right.1")
    mine = wiring.channel_task == 1
    for parallelism, owners in ((2, [1, 2, 1, 2, 1]), (3, [1, 2, 3, 1, 2]), (5, [1, 2, 3, 4, 5]), (1, [1] * 5)):
        wiring = wiring.with_parallelism(1, parallelism)
        assert wiring.channel_instance[mine].tolist() == owners
        assert [wiring.channel_instance[0], wiring.channel_instance[-1]] == [0, 6]
        assert wiring.by_instance(np.ones(7)).tolist() == [1, *np.bincount(owners, minlength=6)[1:].tolist(), 1]
        assert wiring.channels_of(1).tolist() == [c for c in range(7) if wiring.channel_instance[c] == 1]
    assert wiring.channel_share[mine].tolist() == [0.4, 0.3, 0.1, 0.1, 0.1]


NAMES = ("a", "b", "c")


def test_values_come_in_the_order_of_the_names_whatever_that_of_the_mapping() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    for order in (("a", "b", "c"), ("c", "b", "a"), ("b", "d", "c", "a")):
        values = {name: float(ord(name)) for name in order}
        wanted = [97.0, 98.0, 99.0]
        assert column.of(values, last).tolist() == wanted


def test_what_the_mapping_does_not_name_stays_as_it_was() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    assert column.of({"b": 1.0}, last).tolist() == [7.0, 1.0, 9.0]
    assert column.of({"b": 1.0, "d": 2.0}, last).tolist() == [7.0, 1.0, 9.0]
    assert last.tolist() == [7.0, 8.0, 9.0]


def test_none_is_nan_and_not_the_last_value() -> None:
    column, last = Column(NAMES), np.array([7.0, 8.0, 9.0])
    values = {"a": None, "b": 1.0}
    found = column.of(values, last)
    assert np.isnan(found[0])
    assert found[1:].tolist() == [1.0, 9.0]
