"""CPU of a row in a chain of four streams: as one query, and as four with Kafka between them.

python benchmarks/fusing.py --rounds 8 --seconds 40

One session, one task manager of one core, rows at a steady rate. The chain is fused and unfused while rows flow, by
`%qod fuse` and `%qod unfuse`; in each round it is measured in both forms, in turns that alternate, each after the same
time for the queries to warm up. CPU is that of the task manager's processes, rows are those that arrived meanwhile, and
few may be left waiting. The ratio is the median over the rounds, fused / apart, with its 95 % bootstrap interval. The
broker's CPU is not part of it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Producer

from qod_magics.application.streams.stream import Mode
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

TOPIC = "fusing"
SCHEMA = "n LONG, k LONG, fare DOUBLE, place STRING"
#: Rows that may wait at the end of a window, in seconds of input: those of the real-time batch under way, and more.
LATE_S = 12.0
CHAIN = ("read", "priced", "tolled", "kept")


@dataclass(frozen=True, slots=True)
class Window:
    """A measured time of one form of the chain."""

    rows: int
    cpu_s: float

    @property
    def us(self) -> float:
        """CPU of a row, microseconds."""
        return 1e6 * self.cpu_s / max(self.rows, 1)


def interval(ratios: Sequence[float], repeats: int = 4000) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    rng = random.Random(1)
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(repeats))
    return medians[int(0.025 * repeats)], medians[int(0.975 * repeats)]


class Feed:
    """Rows at a steady rate, from a thread of its own."""

    def __init__(self, session: Session, rate: float) -> None:
        self._producer = Producer({**session.kafka.client_config(), "linger.ms": 20})
        self._rate, self._stop = rate, threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        sent, begun = 0, time.monotonic()
        while not self._stop.wait(0.05):
            while sent < (time.monotonic() - begun) * self._rate:
                row = {"n": sent, "k": sent % 97, "fare": sent % 5000 / 100, "place": f"zone {sent % 263}"}
                try:
                    self._producer.produce(TOPIC, json.dumps(row))
                except BufferError:
                    break
                sent += 1
            self._producer.poll(0)
        self._producer.flush(10)


def declare(session: Session, mode: Mode) -> None:
    """The chain, as one query."""
    session.stream("read", topic=TOPIC, schema=SCHEMA, mode=mode)
    session.stream("priced", lambda read: read.withColumn("fare", read.fare * 1.1), from_="read", mode=mode)
    session.stream("tolled", lambda priced: priced.withColumn("k", priced.k + 1), from_="priced", mode=mode)
    session.stream("kept", lambda tolled: tolled.where("k > 0"), from_="tolled", priority=1, mode=mode, sink="memory")


def form(session: Session, fused: bool) -> None:
    """Have the chain run as one query, or as four."""
    for first, second in pairwise(CHAIN):
        # once `read` and `priced` are one, the task is called `priced`
        (session.fuse if fused else session.unfuse)(first, second)


def measured(session: Session, fused: bool, warm_s: float, seconds: float) -> Window:
    """One window of the chain in this form."""
    form(session, fused)
    time.sleep(warm_s)
    manager = next(iter(session.runtime.task_managers.values()))
    rows, used = arrived(session), manager.used_s()
    time.sleep(seconds)
    came, after = arrived(session) - rows, manager.used_s()
    assert used is not None
    assert after is not None
    account = session.runtime.deployment.accounts["kept" if fused else "read"]
    waiting = arrived(session) - sum(account.position.values())
    if waiting > came * LATE_S / seconds:
        raise SystemExit(f"{waiting:,} rows wait after a window: the core is too slow for this --rate.")
    return Window(came, after - used)


def arrived(session: Session) -> int:
    """Rows on the topic so far."""
    return sum(end_offsets(session.kafka, [TOPIC], timeout_s=10.0)[TOPIC].values())


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU of a row in a chain of four streams, fused and apart.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each window")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds before each window")
    parser.add_argument("--rate", type=float, default=2000.0, help="rows/s")
    parser.add_argument("--mode", choices=("auto", "realtime", "microbatch"), default="auto")
    words = parser.parse_args()
    with Session.up(task_managers=1, cores=1, period_s=5.0, warm=True) as session:
        session.pause()  # all rows are kept, and nothing else is fused or unfused
        create_topics(session.kafka, {TOPIC: 1})
        feed = Feed(session, words.rate)
        declare(session, words.mode)
        rounds: list[tuple[Window, Window]] = []
        print(f"{'round':>6}{'rows':>10}{'apart, us':>12}{'rows':>10}{'fused, us':>12}{'ratio':>8}", flush=True)
        for number in range(1, words.rounds + 1):
            found = {
                fused: measured(session, fused, words.warm, words.seconds)
                for fused in ((False, True) if number % 2 else (True, False))
            }
            apart, fused = found[False], found[True]
            rounds.append((apart, fused))
            line = (
                f"{number:6}{apart.rows:10,}{apart.us:12.1f}{fused.rows:10,}{fused.us:12.1f}{fused.us / apart.us:8.3f}"
            )
            print(line, flush=True)
        feed.stop()
    ratios = [fused.us / apart.us for apart, fused in rounds]
    low, high = interval(ratios)
    one, four = median(fused.us for _, fused in rounds), median(apart.us for apart, _ in rounds)
    print(
        f"CPU of a row: {one:.1f} us fused, {four:.1f} us as four queries; "
        f"ratio {median(ratios):.3f} (95 % interval {low:.3f}-{high:.3f}), {words.rounds} rounds, {words.mode} mode"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
