"""How long it takes from `%qod up` to the first row, with and without archives of Java classes.

    python benchmarks/startup.py [--runs 3] [--task-managers 1 2] [--jit full c1] [--seconds 150]

Each run brings a session up, in a process of its own, sends rows to a topic, and declares a stateless stream and then a
windowed one over it, each with a memory sink. Times count from the call of `Session.up`; a stream's first row counts
once its sink has it. Runs with and without archives alternate, after one that is not counted. The archives are those
of the cache, made first if they are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import product
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import functions as F

from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.kafka.offsets import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.machine.cache import cache_dir
from qod_magics.session.first_start import make_archives
from qod_magics.session.session import Session

STEPS = ("Kafka", "task managers", "session", "stateless row", "windowed row")
SCHEMA = "zone INT, at TIMESTAMP"


def once(task_managers: int, jit: str) -> dict[str, float]:
    """Seconds from the call of `Session.up` to each step."""
    begun = time.monotonic()
    took: dict[str, float] = {}

    def said(line: str) -> None:
        took["Kafka" if line.startswith("Kafka") else "task managers"] = time.monotonic() - begun

    with Session.up(task_managers=task_managers, jit=jit, say=said) as session:
        took["session"] = time.monotonic() - begun
        create_topics(session.kafka, {"trips": 1})
        ended = threading.Event()
        feeding = threading.Thread(target=feed, args=(session, ended))
        feeding.start()
        try:
            session.stream(
                "stateless", lambda trips: trips.where("zone > 0"), topic="trips", schema=SCHEMA, sink="memory"
            )
            took["stateless row"] = first_row(session, "stateless") - begun
            session.stream("windowed", windowed, topic="trips", schema=SCHEMA, sink="memory")
            took["windowed row"] = first_row(session, "windowed") - begun
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


def apart(task_managers: int, jit: str, cache: Path, timeout_s: float) -> dict[str, float]:
    """`once`, in a process of its own, with this cache."""
    command = [sys.executable, __file__, "--once", str(task_managers), jit]
    environment = {**os.environ, "QOD_CACHE": str(cache)}
    said = subprocess.run(command, env=environment, check=True, timeout=timeout_s, stdout=subprocess.PIPE, text=True)
    took: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs with archives, and as many without")
    parser.add_argument("--task-managers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--jit", choices=JIT_OPTIONS, nargs="+", default=[DEFAULT_JIT])
    parser.add_argument("--seconds", type=float, default=150.0, help="timeout of a run")
    parser.add_argument("--once", nargs=2, metavar=("TASK_MANAGERS", "JIT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once is not None:
        count, jit = options.once
        print(json.dumps(once(int(count), jit)))
        return
    make_archives(print)
    print(f"{'task managers':<15}{'jit':<6}{'archives':<10}" + "".join(f"{step + ', s':>20}" for step in STEPS))
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder)
        (bare / "jars").symlink_to(cache_dir() / "jars")
        caches = {"yes": cache_dir(), "no": bare}
        for count, jit in product(options.task_managers, options.jit):
            apart(count, jit, caches["yes"], options.seconds)
            runs = [
                (kind, apart(count, jit, caches[kind], options.seconds)) for _ in range(options.runs) for kind in caches
            ]
            for kind in caches:
                of_kind = [took for each, took in runs if each == kind]
                figures = [[took[step] for took in of_kind] for step in STEPS]
                cells = [f"{median(each):.1f} ({min(each):.1f}-{max(each):.1f})" for each in figures]
                print(f"{count:<15}{jit:<6}{kind:<10}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
