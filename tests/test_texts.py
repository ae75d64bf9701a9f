"""What is shown as text of all that needs no Spark: never only a class and an address. (With Spark: tests/live/.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qod_magics
from qod_magics.application.application import Application
from qod_magics.controller import Controller, ControllerThread, Recording
from qod_magics.controller.clock import ManualClock
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.scenario import Scenario
from qod_magics.policies import DEFAULT_POLICY, policy
from qod_magics.recordings.verdict import verdict
from qod_magics.simulator import Simulation
from qod_magics.simulator.rates.cluster import SimulatedCluster
from qod_widgets.controls import Commands, Panel
from tests.texts import bare, reached

POINTS = {"topic": "points", "partitions": 2, "rate": 300, "data": {"generator": "points"}}
SCENARIO = {"seed": 1, "duration_s": 60, "topics": [POINTS]}
TASKS = {
    "task_managers": [{"id": "tm1"}],
    "tasks": [{"id": "KNN", "topic": "points", "priority": 1, "min_accuracy": 0.25, "work_us": 1000, "parallelism": 2}],
}


def simulated():
    cluster = SimulatedCluster(Simulation.from_json({**SCENARIO, **TASKS}), ManualClock())
    controller = Controller(cluster, policy(DEFAULT_POLICY), clock=cluster.clock, recording=Recording("run.jsonl"))
    return ControllerThread(controller)


def recorded():
    replay = qod_magics.replay(Path(__file__).parents[1] / "notebooks" / "data" / "taxi_drives.jsonl")
    replay.dashboard()
    return [replay, replay.dashboard(), replay.what_if("TDSnk1", min_accuracy=0.5), verdict(replay.records, None)]


@pytest.mark.parametrize(
    "make",
    [
        simulated,
        recorded,
        lambda: Injector(Scenario.from_json(SCENARIO), "localhost:9092"),
        EmbeddedBroker,
        lambda: ExternalKafka("localhost:9092", {"sasl.password": "secret"}),
        Application,
        lambda: Panel(None, Commands()),
    ],
)
def test_everything_says_something(make):
    texts = {path: repr(value) for path, value in reached("it", make())}
    assert texts
    assert bare(texts) == []
    assert not any("secret" in text for text in texts.values())
    json.dumps(list(texts.values()))
