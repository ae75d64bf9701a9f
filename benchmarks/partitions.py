"""What partitions and instances cost: `python -m benchmarks.partitions [--cases NAME ...] [--rate 500] [--seconds 20]`.

A chain of two tasks, each a query of its own: `src` reads a topic of one partition, `q` reads the stream between them
and writes to memory. The cases differ in the stream's partitions and in the instances of `q`, which counts by a key or
keeps no state. Printed for each, idle and at the rate: CPU of the task manager and of the broker in % of one core, the
broker's threads, and the latency from a row's creation to its result (of stateless cases; median and 95th percentile).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.application.streams.options import parse_stream_line
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session
from qod_magics.spark.servers.cpu import cpu_seconds

SCHEMA = "n LONG, k LONG, at DOUBLE"


@dataclass(frozen=True, slots=True)
class Case:
    """A way to run `q`."""

    mode: str
    stateful: bool
    instances: int
    partitions: int

    @property
    def options(self) -> str:
        key = " --key k" if self.stateful and self.instances > 1 else ""
        return f"--no-fuse -n {self.instances} --max-parallelism {self.partitions} --mode {self.mode}{key}"


CASES = {
    "realtime-1": Case("realtime", False, 1, 1),
    "realtime-8": Case("realtime", False, 1, 8),
    "batches-1": Case("microbatch", False, 1, 1),
    "batches-8": Case("microbatch", False, 1, 8),
    "state-1": Case("microbatch", True, 1, 1),
    "state-1-of-8": Case("microbatch", True, 1, 8),
    "state-4-of-4": Case("microbatch", True, 4, 4),
    "state-8-of-8": Case("microbatch", True, 8, 8),
}


def send(session: Session, topic: str, rate: float, seconds: float) -> None:
    """Rows at a steady rate, each with the time of its creation."""
    producer = Producer({**session.kafka.client_config(), "linger.ms": 5})
    begun, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        while sent < passed * rate:
            producer.produce(topic, json.dumps({"n": sent, "k": sent % 100, "at": time.time()}))
            sent += 1
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(30)


def latencies(session: Session, topic: str, since: float) -> Iterator[float]:
    """Seconds from each row's creation to its record in this topic, of rows created `since` then."""
    ends = end_offsets(session.kafka, [topic], timeout_s=10.0)[topic]
    consumer = Consumer({**session.kafka.client_config(), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    left = sum(ends.values())
    while left > 0 and (messages := consumer.consume(5000, 2.0)):
        left -= len(messages)
        for message in messages:
            made = json.loads(message.value() or b"{}").get("at")
            if made is not None and made > since:
                yield message.timestamp()[1] / 1e3 - made
    consumer.close()


def measured(session: Session, case: Case, topic: str, rate: float, seconds: float) -> str:
    server, broker = session.runtime.task_managers["tm1"].server, session.kafka
    assert server is not None
    assert isinstance(broker, EmbeddedBroker)
    assert broker.pid is not None
    session.cell(
        parse_stream_line(f'src --topic {topic} --schema "{SCHEMA}" --no-fuse --mode {case.mode}'), "source", {}
    )
    body = "src.groupBy('k').count()" if case.stateful else "src"
    session.cell(parse_stream_line(f"q --sink memory {case.options}"), body, {})
    send(session, topic, rate, seconds)  # warm-up
    time.sleep(5.0)
    told = []
    for at in (0.0, rate):
        since, before = time.time(), [cpu_seconds(pid) for pid in (server.child.pid, broker.pid)]
        send(session, topic, at, seconds) if at else time.sleep(seconds)
        used = [
            100 * (cpu_seconds(pid) - was) / (time.time() - since)
            for pid, was in zip((server.child.pid, broker.pid), before, strict=True)
        ]
        told.append(f"{used[0]:8.1f}{used[1]:8.1f}")
    threads = psutil.Process(broker.pid).num_threads()
    time.sleep(6.0)
    found = sorted(latencies(session, session.runtime.deployment.results["q"], since)) if not case.stateful else []
    late = f"{found[len(found) // 2]:9.3f}{found[int(0.95 * len(found))]:8.3f}" if found else ""
    session.stop_all()
    return "".join(told) + f"{threads:9d}{late}"


def main() -> int:
    parser = argparse.ArgumentParser(description="What partitions and instances cost.")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rate", type=float, default=500.0, help="rows/s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    words = parser.parse_args()
    with Session.up(task_managers=1, cores=1, warm=True, say=print) as session:
        session.pause(open_shedders=True)
        print(f"{words.rate:g} rows/s, {words.seconds:g} s each")
        print(f"{'':<14}{'idle':>8}{'broker':>8}{'rows':>8}{'broker':>8}{'threads':>9}{'median s':>9}{'95 %':>8}")
        for number, name in enumerate(words.cases):
            topic = f"bench{number}"
            create_topics(session.kafka, {topic: 1})
            figures = measured(session, CASES[name], topic, words.rate, words.seconds)
            print(f"{name:<14}{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
