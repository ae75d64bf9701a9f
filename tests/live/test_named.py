"""A session with a name goes on after its kernel was killed: nothing is lost, nothing is counted twice in windows."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics
from qod_magics.named.manifest import read
from tests.live.conftest import PATIENCE_S
from tests.live.kernel import surroundings

RATE = 1500  #: rows/s
TOPIC = "killed"
LIGHT = 300  #: the same for what keeps each row in its state
FORM = "%Y-%m-%dT%H:%M:%S"


class Log:
    """Rows at a steady rate, and how many of each window of ten seconds the broker has taken."""

    def __init__(self, broker: EmbeddedBroker, topic: str = TOPIC, rate: int = RATE) -> None:
        self._topic, self._rate = topic, rate
        self._producer = Producer({**broker.client_config(), "linger.ms": 20, "enable.idempotence": True})
        self.sent: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._ended.wait(0.1):
            for _ in range(self._rate // 10):
                at = datetime.now(UTC)
                window = at.replace(second=at.second // 10 * 10).strftime(FORM)
                row = json.dumps({"n": n, "at": at.isoformat().replace("+00:00", "Z")})
                self._producer.produce(self._topic, row.encode(), partition=n % 2, on_delivery=self._counts(window))
                n += 1
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _counts(self, window: str) -> Callable[[Any, Any], None]:
        def taken(error: Any, _: Any) -> None:
            self.sent[window] += error is None

        return taken

    def end(self) -> int:
        """Send no more; how many rows the broker has."""
        self._ended.set()
        self._thread.join(PATIENCE_S)
        return sum(self.sent.values())


class Kernel:
    """A process with the session `kills`. Its lines come as they are read."""

    def __init__(self, broker: EmbeddedBroker, checkpoints: Path, **more: Any) -> None:
        options = {
            "kafka": broker.bootstrap,
            "kafka_options": broker.credentials,
            "checkpoints": str(checkpoints),
            "topic": TOPIC,
            **more,
        }
        self.said: list[str] = []
        self.last: dict[str, Any] = {}
        self.largest = 0  #: rows of its largest batch
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.named_kernel", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings(),
            cwd=Path(__file__).parents[2],
        )

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first report of which this holds."""
        deadline = time.monotonic() + PATIENCE_S
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            if "said" in found:
                self.said.append(found["said"])
                continue
            self.last = found
            self.largest = max(self.largest, found["largest"])
            if condition(found):
                return self.last
            if time.monotonic() > deadline:
                break
        self.process.kill()
        pytest.fail(f"{self.said} {self.last} {self.process.communicate()[1][-2000:]}")

    def kill(self) -> None:
        """kill -9, and the end of what it started."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def kernels() -> Iterator[list[Kernel]]:
    begun: list[Kernel] = []
    yield begun
    for kernel in begun:
        kernel.kill()


def all_rows(broker: EmbeddedBroker, topic: str) -> list[dict[str, Any]]:
    """The rows in the topic of a memory sink, partition by partition."""
    consumer = broker.consumer({**broker.client_config(), "group.id": "results", "enable.partition.eof": True})
    found: list[dict[str, Any]] = []
    for partition in consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(json.loads(message.value()))
    consumer.close()
    return found


def last_rows(broker: EmbeddedBroker, topic: str) -> dict[str, dict[str, Any]]:
    """The last row of each window in the topic of a memory sink."""
    return {row["window"]["start"].partition(".")[0]: row for row in all_rows(broker, topic)}


def results(broker: EmbeddedBroker, topic: str) -> dict[str, int]:
    """The last count of each window in the topic of a memory sink."""
    return {window: row["rows"] for window, row in last_rows(broker, topic).items()}


def further_than(position: int) -> Callable[[dict[str, Any]], bool]:
    return lambda facts: facts["position"] > position and facts["cycle"] > 0


def test_windows_are_whole_after_kills_and_a_take_over(
    broker: EmbeddedBroker, tmp_path: Path, kernels: list[Kernel]
) -> None:
    """Each row is in its window once; each that arrived is in the books, and what was read twice is told."""
    create_topics(broker, {TOPIC: 2})
    log, position = Log(broker), 0
    for number in range(2):
        kernels.append(Kernel(broker, tmp_path))
        begun = kernels[-1].until(further_than(position + 3 * RATE))
        assert begun["epoch"] == number + 1
        time.sleep(random.uniform(0.0, 3.0))
        position = kernels[-1].last["position"]
        kernels[-1].kill()
    kernels.append(Kernel(broker, tmp_path))
    third = kernels[-1]
    assert "goes on" in third.until(further_than(position + RATE))["notes"]["counts"]
    kernels.append(Kernel(broker, tmp_path, take_over=True))
    fourth = kernels[-1]
    assert third.process.wait(PATIENCE_S) == 0, "the holder goes on though it was taken over"
    fourth.until(lambda facts: facts["states"] == ["running"])
    sent = log.end()
    facts = fourth.until(lambda facts: facts["position"] >= sent)
    kernels.append(Kernel(broker, tmp_path))
    fifth = kernels[-1]
    assert fifth.process.wait(PATIENCE_S) != 0, "two kernels hold one session"
    assert facts["position"] == sent == facts["processed"] + facts["dropped"] + facts["unreported"]
    assert facts["dropped"] == 0
    # a batch that a kernel's end has cut off is the first of the next kernel
    most = sum(kernel.largest for kernel in kernels[1:4])
    assert facts["again"] <= most, "more than a batch of each kernel was read twice"
    manifest = read(tmp_path / "kills")
    assert manifest is not None
    assert manifest.epoch == 4
    topic = manifest.tasks["counts"].results
    assert topic is not None
    assert results(broker, topic) == dict(log.sent)


@pytest.mark.slow
def test_a_chain_with_a_scaled_task_loses_no_row_in_three_kills(
    broker: EmbeddedBroker, tmp_path: Path, kernels: list[Kernel]
) -> None:
    """Two instances of a task without state write to a topic of the session, from which another task counts by window.
    Each row is in its window; rows of a batch that a kill interrupted are there twice, and counted."""
    topic = "killed-chain"
    create_topics(broker, {topic: 2})
    log, reached = Log(broker, topic, LIGHT), 0

    def further(facts: dict[str, Any]) -> bool:
        scaled = facts["instances"].keys() == {"src.1", "src.2", "counts.1"}
        position = sum(facts["reading"].get("src>counts", {}).values())
        return bool(scaled and position > reached + 3 * LIGHT and facts["cycle"] > 0)

    for _ in range(3):
        kernels.append(Kernel(broker, tmp_path, chain=True, topic=topic))
        kernels[-1].until(further)
        time.sleep(random.uniform(0.0, 6.0))
        kernels[-1].kill()
        reached = sum(kernels[-1].last["reading"]["src>counts"].values())
    kernels.append(Kernel(broker, tmp_path, chain=True, topic=topic))
    kernels[-1].until(further)
    sent = log.end()

    def over(facts: dict[str, Any]) -> bool:
        whole = sum(facts["reading"]["src"].values()) == sent and not facts["unlooked"]
        return whole and set(facts["waiting"].values()) == {0} and set(facts["instances"].values()) == {"running"}

    kernels[-1].until(over)
    kernels[-1].until(over)  # a report later
    manifest = read(tmp_path / "kills")
    assert manifest is not None
    topic = manifest.tasks["counts"].results or ""
    rows = last_rows(broker, topic)
    assert {window: row["different"] for window, row in rows.items()} == dict(log.sent)
    assert sum(kernels[-1].last["source"].values()) == sent, "the books of the source lack rows"
    twice = sum(row["rows"] for row in rows.values()) - sent
    counted = manifest.tasks["counts"].feeds["src>counts"].sent_again
    assert kernels[-1].last["sent_again"]["src>counts"] == counted == twice < sent
    assert twice > 0, "the kills interrupted no batch"


@pytest.mark.slow
def test_a_scaled_task_keeps_its_state_when_its_cell_states_the_instances_that_it_has(
    broker: EmbeddedBroker, tmp_path: Path, kernels: list[Kernel]
) -> None:
    """A count by window and key is scaled to two instances, its kernel is killed, and the next one declares two."""
    topic = "killed-keyed"
    create_topics(broker, {topic: 2})
    log, reached = Log(broker, topic, LIGHT), 0

    def further(facts: dict[str, Any]) -> bool:
        scaled = facts["instances"].keys() == {"src.1", "counts.1", "counts.2"}
        return scaled and sum(facts["reading"].get("src>counts", {}).values()) > reached + 3 * LIGHT

    kernels.append(Kernel(broker, tmp_path, keyed=1, topic=topic))
    kernels[-1].until(further)
    kernels[-1].kill()
    reached = sum(kernels[-1].last["reading"]["src>counts"].values())
    kernels.append(Kernel(broker, tmp_path, keyed=2, topic=topic))
    assert "goes on" in kernels[-1].until(further)["notes"]["counts"]
    sent = log.end()

    def over(facts: dict[str, Any]) -> bool:
        return sum(facts["reading"]["src"].values()) == sent and set(facts["waiting"].values()) == {0}

    kernels[-1].until(over)
    kernels[-1].until(over)  # a report later
    manifest = read(tmp_path / "kills")
    assert manifest is not None
    assert manifest.tasks["counts"].parallelism == 2
    found: dict[tuple[str, int], int] = {}
    for row in all_rows(broker, manifest.tasks["counts"].results or ""):
        group = row["window"]["start"].partition(".")[0], row["k"]
        found[group] = max(row["different"], found.get(group, 0))
    windows = Counter[str]()
    for (window, _), rows in found.items():
        windows[window] += rows
    assert windows == log.sent
