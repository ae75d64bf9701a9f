"""What live benchmarks share: a sender of rows in a process of its own, and a table that is kept row by row, so that a
run that is broken off leaves what it has measured."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from qod_magics.kafka.cluster import Kafka

#: The environment variable with the settings of the sender's client, as JSON.
CLIENT = "QOD_BENCHMARK_CLIENT"
#: How long a sender that is told to end may wait for its last rows to be acknowledged, seconds; and until it has ended.
FLUSH_S, END_S = 60.0, 90.0
#: Number of keys, where a benchmark has no keys of its own.
KEYS = 20

# --- The sender -------------------------------------------------------------------------------------------------------


def key_of(number: int) -> int:
    """Return the key of a row by its number: all keys in turns."""
    return number % KEYS


@dataclass
class Sender:
    """A process that sends rows."""

    process: subprocess.Popen[str]
    sent: int = 0  #: how many rows were acknowledged, once it has ended

    def wait(self) -> None:
        """Wait until it has sent all of its rows."""
        self.process.wait()


@contextmanager
def sending(
    kafka: Kafka, topic: str, rate: float, rows: float = inf, key: str = "benchmarks._live:key_of"
) -> Iterator[Sender]:
    """Send rows of k, v and at meanwhile, from this process's last core.

    Args:
        kafka: the broker.
        topic: where to.
        rate: rows/s.
        rows: how many; inf: until the end of the context.
        key: the function that returns k of the nth row, from 0, as "module:function".

    """
    settings = {**os.environ, CLIENT: json.dumps(kafka.client_config())}
    words = [sys.executable, "-m", "benchmarks._live", kafka.bootstrap, topic, str(rate), str(rows), key]
    sender = Sender(subprocess.Popen(words, env=settings, stdout=subprocess.PIPE, text=True))
    try:
        os.sched_setaffinity(sender.process.pid, {max(os.sched_getaffinity(0))})
        yield sender
    finally:
        sender.process.terminate()
        try:
            told, _ = sender.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            sender.process.kill()
            told, _ = sender.process.communicate()
    if not told:
        raise RuntimeError(f"the sender to {topic} ended with code {sender.process.returncode} before it counted rows")
    sender.sent = int(told)


def send(bootstrap: str, topic: str, rate: float, rows: float, key: Callable[[int], object]) -> int:
    """Send rows of k, v and at until there are `rows`, SIGTERM comes or the parent ends.

    Args:
        bootstrap: the broker.
        topic: where to.
        rate: rows/s.
        rows: how many; inf: without end.
        key: k of the nth row, from 0.

    Returns:
        How many were acknowledged.

    """
    from confluent_kafka import Producer

    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    settings = json.loads(os.environ[CLIENT])
    producer = Producer({**settings, "bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    began, sent = time.time(), 0
    while os.getppid() != 1 and sent < rows and not stopped:
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        upto = min((now - began) * rate, rows, sent + 20_000)
        while sent < upto and not stopped:
            try:
                producer.produce(topic, f'{{"k": {key(sent)}, "v": {sent * 0.37 % 1.0:.4f}, "at": "{at}"}}')
                sent += 1
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        time.sleep(0.02)
    return sent - producer.flush(FLUSH_S)


# --- Figures ----------------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """Rows of figures in a CSV file, which is replaced when the first row is there."""

    path: Path
    fields: Sequence[str]  #: the columns, in order
    rows: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, figures with three decimals; write the file and print the row."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
        self.rows.append(kept)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.fields)
            writer.writeheader()
            writer.writerows(self.rows)
        print(*(f"{name} {value}" for name, value in kept.items()), sep=", ", flush=True)


if __name__ == "__main__":
    bootstrap, topic, rate, rows, key = sys.argv[1:]
    print(send(bootstrap, topic, float(rate), float(rows), resolve_name(key)), flush=True)
