from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from qod_magics.data import TRIP_STREAM_SCHEMA
from qod_magics.errors import KafkaError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.injector import CONFIG_VARIABLE, Injector
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.scenario import Scenario

PATIENCE_S = 60.0


def scenario(
    topic: str,
    rate: Any,
    duration_s: float = 3,
    partitions: int = 1,
    key: str | None = None,
    generator: str = "taxi-trips",
) -> Scenario:
    data = {"generator": generator, "rows": 2000}
    feed = {"topic": topic, "partitions": partitions, "data": data, "key": key, "rate": rate}
    return Scenario.from_json({"seed": 3, "duration_s": duration_s, "topics": [feed]})


def rows_in(broker: EmbeddedBroker, topic: str) -> dict[int, int]:
    return dict(end_offsets(broker, [topic], timeout_s=10)[topic])


def messages(broker: EmbeddedBroker, topic: str) -> list[Message]:
    """All that is in a topic."""
    ends = rows_in(broker, topic)
    consumer = Consumer({**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found: list[Message] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            found += consumer.consume(1000, 0.5)
        assert all(message.error() is None for message in found)
        return found
    finally:
        consumer.close()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.smoke
def test_sends_what_the_scenario_says_to_the_row(broker: EmbeddedBroker, tmp_path: Path) -> None:
    script = scenario("ramp", [[0, 1000], [2, 1000], [4, 5000], [6, 5000]], duration_s=6, partitions=3)
    rate = script.topics[0].rate
    record = tmp_path / "record.jsonl"
    with Injector(script, broker.bootstrap, broker.client_config(), record=record) as injector:
        before = injector.position()
        assert injector.alive()
        final = injector.wait(PATIENCE_S)
        assert final is not None
        assert before < injector.position() == 6
    total = rate.due(6)
    assert {name: final["ramp"][name] for name in ("scheduled", "sent", "acknowledged", "errors", "late")} == {
        "scheduled": total,
        "sent": total,
        "acknowledged": total,
        "errors": 0,
        "late": 0,
    }
    shares = rows_in(broker, "ramp")
    assert sum(shares.values()) == total
    assert max(shares.values()) - min(shares.values()) <= 1

    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["kind"] for line in (lines[0], lines[-1])] == ["start", "end"]
    assert lines[-1]["complete"]
    counts = [line for line in lines if line["kind"] == "counts" and line["position_s"] < 6]
    assert len(counts) >= 2
    for line in counts:  # the schedule is the scenario's whatever the machine does; positions are told in milliseconds
        assert rate.due(line["position_s"] - 0.001) <= line["scheduled"] <= rate.due(line["position_s"] + 0.001)
        assert line["acknowledged"] + line["errors"] <= line["sent"] == line["scheduled"] - line["late"]
    assert median(line["sent"] / line["scheduled"] for line in counts) > 0.9  # when it was due, not at the end


def test_rows_are_trips_of_now(broker: EmbeddedBroker) -> None:
    columns = set(TRIP_STREAM_SCHEMA.replace(",", "").split()[::2])
    began_ms = time.time_ns() // 1_000_000
    with Injector(scenario("trips", 500, duration_s=2), broker.bootstrap, broker.client_config()) as injector:
        assert injector.wait(PATIENCE_S) is not None
    ended_ms = time.time_ns() // 1_000_000
    found = messages(broker, "trips")
    assert len(found) == 1000
    previous = began_ms
    for message in found:
        row = json.loads(message.value())
        assert set(row) == columns
        event_ms = round(datetime.fromisoformat(row["tpep_dropoff_datetime"]).timestamp() * 1000)
        assert previous <= event_ms <= message.timestamp()[1] <= ended_ms
        assert row["tpep_pickup_datetime"] < row["tpep_dropoff_datetime"]
        previous = event_ms


def test_rows_of_one_key_go_to_one_partition(broker: EmbeddedBroker) -> None:
    script = scenario("keyed", 1000, duration_s=2, partitions=3, key="id", generator="points")
    with Injector(script, broker.bootstrap, broker.client_config(), speed=2) as injector:
        assert injector.wait(PATIENCE_S) is not None
    found = messages(broker, "keyed")
    assert len(found) == 2000
    assert all(int(message.key()) == json.loads(message.value())["id"] for message in found)
    partition_of = {message.key(): message.partition() for message in found}
    assert all(partition_of[message.key()] == message.partition() for message in found)
    assert min(Counter(message.partition() for message in found).values()) > 2000 / 3 / 2


@pytest.mark.smoke
def test_stops_when_told_with_closed_books(broker: EmbeddedBroker) -> None:
    injector = Injector(scenario("stopped", 2000, duration_s=600), broker.bootstrap, broker.client_config())
    injector.start()
    until(lambda: injector.counts().get("stopped", {}).get("acknowledged", 0) > 0)
    final = injector.stop()["stopped"]
    assert not injector.alive()
    assert 0 < injector.position() < 600
    assert final["acknowledged"] + final["errors"] == final["sent"] == final["scheduled"]
    assert sum(rows_in(broker, "stopped").values()) == final["acknowledged"]
    assert injector.stop()["stopped"] == final  # a second time does nothing


PARENT = """
import json, sys, time
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.scenario import Scenario
injector = Injector(Scenario.read(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
injector.start()
print(injector.pid, flush=True)
time.sleep(600)
"""


def test_dies_when_its_parent_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario("orphan", 1000, duration_s=600).to_json()))
    command = [sys.executable, "-c", PARENT, path, broker.bootstrap, json.dumps(broker.credentials)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        assert process.is_running()
        parent.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)

    def at_rest() -> bool:
        """Whether what it had sent has arrived, and no more comes; it sent 1000 rows/s."""
        sent = rows_in(broker, "orphan")
        time.sleep(0.5)
        return rows_in(broker, "orphan") == sent

    until(at_rest)


def test_survives_a_restart_of_the_broker_without_losing_or_doubling_a_row() -> None:
    with EmbeddedBroker() as broker:
        script = scenario("lasting", 2000, duration_s=600, partitions=2)
        injector = Injector(script, broker.bootstrap, broker.client_config())
        injector.start()
        try:
            until(lambda: injector.counts().get("lasting", {}).get("acknowledged", 0) > 0)
            broker.kill()
            until(lambda: injector.counts()["lasting"]["sent"] > injector.counts()["lasting"]["acknowledged"] + 1000)
            broker.restart()
            waiting = injector.counts()["lasting"]["sent"]
            until(lambda: injector.counts()["lasting"]["acknowledged"] > waiting)
        finally:
            final = injector.stop()["lasting"]
        assert final["errors"] == 0
        assert final["acknowledged"] == final["sent"] == final["scheduled"] > waiting
        shares = rows_in(broker, "lasting")
        assert sum(shares.values()) == final["acknowledged"]
        assert abs(shares[0] - shares[1]) <= 1
        assert any("Kafka client" in note for note in injector.notes())


def test_says_what_is_late_and_what_failed_when_the_broker_is_gone() -> None:
    with EmbeddedBroker() as broker:
        config = {**broker.client_config(), "queue.buffering.max.messages": 3000}
        injector = Injector(scenario("gone", 5000, duration_s=600), broker.bootstrap, config)
        injector.start()
        until(lambda: injector.counts().get("gone", {}).get("acknowledged", 0) > 0)
        broker.kill()
        until(lambda: any("rows are late" in note for note in injector.notes()))
        counts = injector.counts()["gone"]
        assert counts["scheduled"] - counts["sent"] == counts["late"] > 0
        final = injector.stop()["gone"]
        assert final["acknowledged"] + final["errors"] == final["sent"]
        assert final["errors"] > 0
        assert any(f"{final['errors']} rows failed" in note for note in injector.notes())


def test_a_topic_with_other_partitions_is_refused_in_one_line(broker: EmbeddedBroker) -> None:
    with Injector.into(broker, scenario("narrow", 100, duration_s=1)) as injector:
        injector.wait(PATIENCE_S)
    injector = Injector.into(broker, scenario("narrow", 100, duration_s=1, partitions=2))
    with pytest.raises(KafkaError, match=r"narrow.*partitions") as caught:  # the last words of a process
        injector.start()
    assert "\n" not in str(caught.value)
    assert not injector.alive()


def command(broker: EmbeddedBroker, *words: str | Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "qod_magics", "inject", *map(str, words), "--bootstrap", broker.bootstrap]
    where = Path(__file__).parents[2]
    env = {**os.environ, CONFIG_VARIABLE: json.dumps(broker.credentials)}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=where, env=env)


def test_the_command_sends_a_scenario(broker: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"ts":"","n":1}\n{"ts":"","n":2}\n')
    feed = {"topic": "lines", "data": {"jsonl": "rows.jsonl", "event_time": "ts"}, "rate": 50}
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"duration_s": 10, "topics": [feed]}))
    words = (path, "--speed", "20", "--record", tmp_path / "record.jsonl")
    with command(broker, *words, "--client-option", "compression.type=lz4") as process:
        said, complained = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complained) == (0, "")
    assert said == "lines: 500 due, 500 sent, 500 acknowledged, 0 failed\n"
    numbers = [json.loads(message.value())["n"] for message in messages(broker, "lines")]
    assert numbers == [1, 2] * 250
    assert '"complete": true' in (tmp_path / "record.jsonl").read_text().splitlines()[-1]


def test_a_signal_stops_the_command_with_closed_books(broker: EmbeddedBroker, tmp_path: Path) -> None:
    path, record = tmp_path / "scenario.json", tmp_path / "record.jsonl"
    path.write_text(json.dumps(scenario("signalled", 1000, duration_s=600).to_json()))
    with command(broker, path, "--record", record) as process:
        until(lambda: record.exists() and '"counts"' in record.read_text())
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    sent = sum(rows_in(broker, "signalled").values())
    assert said == f"signalled: {sent} due, {sent} sent, {sent} acknowledged, 0 failed\n"
