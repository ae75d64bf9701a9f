"""How long `%qod up` and the first rows take, with each of several Javas, in turns.

    python benchmarks/starts.py [--runs 3] [--task-managers 1 2] [--java HOME ...] [--think 0]

Each run brings a session up, in a process of its own, sends rows to a topic, and declares a stateless stream and then a
windowed one over it, each with a memory sink. Times count from the call of `Session.up`; a stream's first row counts
once its sink has it. `--think` seconds pass before the first declaration, as while a cell is written. The archives of
classes are those of the cache, made first if they are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import functions as F

from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.machine.java import find_java
from qod_magics.session.resources import make_archives
from qod_magics.session.session import Session

STEPS = ("Kafka", "up", "stateless row", "windowed row")
SCHEMA = "zone INT, at TIMESTAMP"
#: Timeout of a run, seconds.
RUN_S = 240.0


def once(task_managers: int, think_s: float) -> dict[str, float]:
    """Seconds from the call of `Session.up` to each step; those of rows without the seconds of thinking."""
    begun = time.monotonic()
    took: dict[str, float] = {}

    def said(line: str) -> None:
        if line.startswith("Kafka"):
            took["Kafka"] = time.monotonic() - begun

    with Session.up(task_managers=task_managers, say=said) as session:
        took["up"] = time.monotonic() - begun
        create_topics(session.kafka, {"trips": 1})
        ended = threading.Event()
        feeding = threading.Thread(target=feed, args=(session, ended))
        feeding.start()
        try:
            time.sleep(think_s)
            session.stream(
                "stateless", lambda trips: trips.where("zone > 0"), topic="trips", schema=SCHEMA, sink="memory"
            )
            took["stateless row"] = first_row(session, "stateless") - begun - think_s
            session.stream("windowed", windowed, topic="trips", schema=SCHEMA, sink="memory")
            took["windowed row"] = first_row(session, "windowed") - begun - think_s
        finally:
            ended.set()
            feeding.join()
    return took


def windowed(trips):  # type: ignore[no-untyped-def]
    return trips.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "zone").count()


def feed(session: Session, ended: threading.Event) -> None:
    """200 rows/s."""
    from confluent_kafka import Producer

    producer = Producer(session.kafka.client_config())
    while not ended.wait(0.1):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for zone in range(20):
            producer.produce("trips", json.dumps({"zone": zone, "at": at}))
        producer.flush(5)


def first_row(session: Session, name: str, timeout_s: float = 120.0) -> float:
    """When the sink of this stream has a row, in seconds of the monotonic clock."""
    topic = session.runtime.deployment.results[name]
    deadline = time.monotonic() + timeout_s
    while not any(end_offsets(session.kafka, [topic])[topic].values()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no row of {name} in {timeout_s:g} s")
        time.sleep(0.02)
    return time.monotonic()


def apart(task_managers: int, think_s: float, home: Path) -> dict[str, float]:
    """`once`, in a process of its own, with this Java."""
    command = [sys.executable, __file__, "--once", str(task_managers), str(think_s)]
    environment = {**os.environ, "JAVA_HOME": str(home)}
    said = subprocess.run(command, env=environment, check=True, timeout=RUN_S, stdout=subprocess.PIPE, text=True)
    took: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each kind")
    parser.add_argument("--task-managers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--java", type=Path, nargs="+", metavar="HOME", help="default: the one that a session takes")
    parser.add_argument("--think", type=float, default=0.0, metavar="SECONDS", help="before the first declaration")
    parser.add_argument("--once", nargs=2, metavar=("TASK_MANAGERS", "THINK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once is not None:
        count, think = options.once
        print(json.dumps(once(int(count), float(think))))
        return
    homes = options.java or [find_java().home]
    for home in homes:
        os.environ["JAVA_HOME"] = str(home)
        make_archives(print)
    for count in options.task_managers:
        runs = [(home, apart(count, options.think, home)) for _ in range(options.runs) for home in homes]
        for home in homes:
            of_kind = [took for each, took in runs if each == home]
            print(f"{count} task manager{'s' * (count > 1)}, {home}", flush=True)
            for step in STEPS:
                figures = [took[step] for took in of_kind]
                print(f"  {step:<15}{median(figures):6.1f} s ({min(figures):.1f} to {max(figures):.1f})", flush=True)


if __name__ == "__main__":
    main()
