"""What a dropped row costs: `python -m benchmarks.dropping [--rows 2000000] [--keep 0.01] [--rounds 3]`.

One query in micro-batches on one pinned core reads a topic that is full already, and keeps a share of its rows. In
turns, its reader drops the others, or its plan does behind Spark's own Kafka source. Printed: CPU of its tasks for each
row read, microseconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

TOPIC, QUERY = "dropping", "kept"
SCHEMA = "zone INT, distance DOUBLE, at TIMESTAMP"
ROW = b'{"zone": %d, "distance": %d.25, "at": "2026-11-27T06:00:00.000Z", "driver": "d%06d", "fare": 12.5}'
PATIENCE_S = 180.0


def main() -> None:
    """Print the costs of each round, and their medians without the first round, which is cold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dropping", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keep", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[bool, list[float]] = {True: [], False: []}
    with Session.up(task_managers=1, cores=1) as session:
        create_topics(session.kafka, {TOPIC: 1})
        fill(session.kafka, TOPIC, given.rows)
        for at in range(given.rounds):
            for on_read in (True, False):
                found[on_read].append(_cost_us(session, given.rows, given.keep, on_read))
                print(f"round {at + 1}: {_name(on_read)} {found[on_read][-1]:.2f} us a row", flush=True)
    for on_read, costs in found.items():
        print(f"{_name(on_read)}: {median(costs[1:] or costs):.2f} us a row, {1 - given.keep:.0%} of them dropped")


def _name(on_read: bool) -> str:
    return "dropped by the reader" if on_read else "dropped by the plan"


def fill(kafka: Kafka, topic: str, rows: int) -> None:
    """Send `rows` records to a topic."""
    producer = Producer({**kafka.client_config(), "linger.ms": 20, "queue.buffering.max.messages": rows})
    for i in range(rows):
        producer.produce(topic, ROW % (i % 263, i % 17, i % 1000))
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def _cost_us(session: Session, rows: int, keep: float, on_read: bool) -> float:
    (manager,) = session.runtime.task_managers.values()
    session.pause()
    manager.sheds_on_read = on_read
    share = {(None, QUERY): keep}
    session.runtime.apply(Plan({}, share), Dials(share, {}))
    options = {"priority": 1, "min_accuracy": 0.0, "starting": "earliest", "mode": "microbatch"}
    session.stream(QUERY, lambda trips: trips.where("distance > 0"), topic=TOPIC, schema=SCHEMA, **options)
    instance = session.runtime.instances[f"{QUERY}.1"]
    end = time.monotonic() + PATIENCE_S
    while sum(feed.read or 0 for b in instance.batches for feed in b.feeds) < rows or not _charged(instance):
        if time.monotonic() > end:
            raise TimeoutError(session.status())
        time.sleep(0.2)
        session.runtime.observe()
    cpu_s = sum(instance.meter.times[b.run_id, b.batch_id].cpu_s for b in instance.batches)
    session.stop_all()
    return 1e6 * cpu_s / rows


def _charged(instance: object) -> bool:
    """Whether the CPU of all its batches is known."""
    return all((b.run_id, b.batch_id) in instance.meter.times for b in instance.batches)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
