"""Input at a steady rate from a thread of the test's own, each row sent once and counted when it is acknowledged."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from confluent_kafka import Producer

from qod_magics.session.session import Session

SCHEMA = "n LONG, k LONG, at TIMESTAMP"
BEGIN = 1_750_000_000


class Steady:
    """Rows {"n": 0, 1, 2, ..., "k": n mod 10, "at": a second for 100 rows}, in turns on the partitions of a topic."""

    def __init__(self, session: Session, topic: str, rate: float = 200.0, partitions: int = 1) -> None:
        self._partitions = partitions
        # idempotent: a broker that comes back gets no row twice
        config = {**session.kafka.client_config(), "linger.ms": 20, "enable.idempotence": True}
        self._producer = Producer({**config, "message.timeout.ms": 120_000})
        self._topic = topic
        self._rate = rate
        self._stop = threading.Event()
        self._flowing = threading.Event()
        self._sending = threading.Lock()  #: held while rows are handed to the producer
        self._flowing.set()
        self.sent = 0
        self.acknowledged = 0
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, name="steady", daemon=True)
        self._thread.start()

    def rest(self) -> int:
        """Send no more until `go`; the number of rows so far, all of which have arrived."""
        self._flowing.clear()
        with self._sending:
            self._producer.flush(120)
            assert self.errors == []
            assert self.acknowledged == self.sent
            return self.sent

    def go(self) -> None:
        """Send again, at the same rate."""
        self._flowing.set()

    def stop(self) -> int:
        """Send no more; the number of rows, all of which have arrived."""
        self._stop.set()
        self._thread.join(120.0)
        assert not self._thread.is_alive()
        assert self.errors == []
        assert self.acknowledged == self.sent
        return self.sent

    def __enter__(self) -> Steady:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120.0)

    def _run(self) -> None:
        due, last = 0.0, time.monotonic()
        while not self._stop.wait(0.05):
            with self._sending:
                now = time.monotonic()
                if self._flowing.is_set():
                    due += (now - last) * self._rate
                    self._send(int(due))
                last = now
        self._producer.flush(120)

    def _send(self, due: int) -> None:
        while self.sent < due:
            n = self.sent
            row = {"n": n, "k": n % 10, "at": time.strftime("%FT%TZ", time.gmtime(BEGIN + n // 100))}
            try:
                partition = n % self._partitions
                self._producer.produce(self._topic, json.dumps(row), partition=partition, on_delivery=self._delivered)
            except BufferError:
                break
            self.sent += 1
        self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))
