"""What live benchmarks share: a sender of rows in a process of its own, what a task manager and queries did meanwhile,
and a table that is kept row by row, so that a run that is broken off leaves what it has measured."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The environment variable with the settings of the sender's client, as JSON.
CLIENT = "QOD_BENCHMARK_CLIENT"


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
        while sent < upto:
            try:
                producer.produce(topic, f'{{"k": {key(sent)}, "v": {sent * 0.37 % 1.0:.4f}, "at": "{at}"}}')
                sent += 1
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        time.sleep(0.02)
    return sent - producer.flush(60)


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
