"""Kill -9 of a named session's kernel at random moments of its windows under load: `python -m benchmarks.kills`.

A session on one core counts rows by windows of ten seconds (`counts`, minimum accuracy 1) beside a query that hashes
each row and costs more than the core has left (`heavy`, minimum accuracy 0.1, which is shed). A sender keeps how many
rows of each window the broker took. The kernel is killed at a random second of a window; another one runs the same
cells. Of each kill are printed: its second of the window, rows sent until then, whether the next kernel's counts of all
windows that have ended equal the sender's, rows read twice, the largest batch before, and after how many decisions the
planned accuracy of `heavy` is within 0.1 of the one before the kill (1: the first decision that plans for it; there is
one every 2.5 s). In the end a twin that nobody kills reads the same rows. `results/scripts/kills.csv` keeps the kills;
none begins later than `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicPartition

from benchmarks._live import Table
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics
from qod_magics.named.manifest import read
from qod_magics.session.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS = Path(__file__).parent / "results" / "scripts" / "kills.csv"
TOPIC, SCHEMA, FORM = "killed", "n BIGINT, at TIMESTAMP", "%Y-%m-%dT%H:%M:%S"
WINDOW_S = 10
FIELDS = (
    "kill",
    "second_of_window",
    "sent",
    "windows",
    "counts_equal",
    "read_twice",
    "largest_batch",
    "planned_before",
    "planned_first",
    "cycles_until_back",
    "back_s",
)
#: Accuracies of a plan that are this near are the same; cycles of a life before it may be killed, and in which that
#: accuracy is waited for; seconds between cycles; seconds for a step.
NEAR, CYCLES, MOST_CYCLES, PERIOD_S, PATIENCE_S = 0.1, 3, 10, 2.5, 120.0


# --- The kernel that is killed ----------------------------------------------------------------------------------------


def counts(src: DataFrame) -> DataFrame:
    """Return the rows by window."""
    from pyspark.sql import functions as F

    windows = src.withWatermark("at", "1 hour").groupBy(F.window("at", f"{WINDOW_S} seconds"))
    return windows.agg(F.count("*").alias("rows"))


def heavy(src: DataFrame) -> DataFrame:
    """Return an estimate of the same, at a cost of about a millisecond for each row."""
    from pyspark.sql import functions as F

    hashed = src.where("length(sha2(repeat(lpad(CAST(n AS STRING), 8, '0'), 10000), 512)) > 0")
    return hashed.groupBy(F.window("at", f"{WINDOW_S} seconds")).agg(F.sum("_weight").alias("rows"))


def kernel(options: Mapping[str, Any]) -> None:
    """Bring the session up, run the cells, and print a line of JSON twice a second until killed."""
    session = Session.up(
        name=options["name"],
        cores=1,
        kafka=options["kafka"],
        kafka_options=options["kafka_options"],
        checkpoints=options["checkpoints"],
        period_s=PERIOD_S,
        jit="c1",
    )
    session.stream("src", topic=TOPIC, schema=SCHEMA, starting="earliest")
    session.stream("counts", counts, from_="src", priority=2, min_accuracy=1.0)
    if options["heavy"]:
        session.stream("heavy", heavy, from_="src", priority=1, min_accuracy=0.1)
    while session.alive:
        print(json.dumps(facts(session)), flush=True)
        time.sleep(0.5)


def facts(session: Session) -> dict[str, Any]:
    """Return what the kernel reports of itself."""
    accounts, cycle = session.runtime.deployment.accounts, session.last
    plan = cycle.plan if cycle is not None else None
    largest = 0
    for instance in session.runtime.instances.values():
        largest = max([largest, *(sum(feed.read or 0 for feed in each.feeds) for _, each in instance.meter.spans)])
    return {
        "running": [each.state.value for each in session.runtime.instances.values()],
        "position": {name: sum(each.position.values()) for name, each in accounts.items()},
        "counted": {name: each.processed + each.dropped + each.unreported for name, each in accounts.items()},
        "again": {name: each.again for name, each in accounts.items()},
        "largest": largest,
        "cycle": 0 if cycle is None else cycle.number,
        "planned": None if plan is None else plan.desired.get("heavy"),
    }


# --- The one that kills -----------------------------------------------------------------------------------------------


class Sender:
    """Rows at a steady rate, and how many of each window the broker has taken."""

    def __init__(self, broker: EmbeddedBroker, rate: int) -> None:
        self.rate, self._ended = rate, threading.Event()
        self._producer = Producer({**broker.client_config(), "linger.ms": 20, "enable.idempotence": True})
        self.taken: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        n, began = 0, time.monotonic()
        while not self._ended.wait(0.05):
            while n < (time.monotonic() - began) * self.rate:
                at = datetime.now(UTC)
                row = json.dumps({"n": n, "at": at.isoformat().replace("+00:00", "Z")})
                begin = at.replace(second=at.second // WINDOW_S * WINDOW_S).strftime(FORM)
                self._producer.produce(TOPIC, row.encode(), partition=n % 2, on_delivery=self._counts(begin))
                n += 1
            self._producer.poll(0)
        if self._producer.flush(PATIENCE_S):
            raise SystemExit("the broker must take all rows, got some that it did not")

    def _counts(self, window: str) -> Callable[[Any, Any], None]:
        def taken(error: Any, _: Any) -> None:
            self.taken[window] += error is None

        return taken

    @property
    def sent(self) -> int:
        """Return how many rows the broker has taken."""
        return sum(self.taken.copy().values())

    def end(self) -> int:
        """Send no more; returns how many rows there are."""
        self._ended.set()
        self._thread.join(PATIENCE_S)
        return self.sent


class Life:
    """A kernel of a session, from its start to its end."""

    def __init__(self, broker: EmbeddedBroker, checkpoints: Path, name: str, with_heavy: bool = True) -> None:
        options = {
            "kafka": broker.bootstrap,
            "kafka_options": broker.credentials,
            "checkpoints": str(checkpoints),
            "name": name,
            "heavy": with_heavy,
        }
        words = [sys.executable, "-m", "benchmarks.kills", "--kernel", json.dumps(options)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self.began = time.monotonic()
        self.last: dict[str, Any] = {}
        self.plans: dict[int, tuple[float, float]] = {}  #: by cycle: the accuracy planned for `heavy`, and when
        self.batches: set[int] = set()  #: where `heavy` was after a batch

    def until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Read reports until this holds of one. Raises SystemExit: it did not within PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)
            self.batches.add(self.last["position"].get("heavy", 0))
            if self.last["planned"] is not None:
                self.plans.setdefault(self.last["cycle"], (self.last["planned"], time.monotonic() - self.began))
            if condition(self.last):
                return
            if time.monotonic() > deadline:
                break
        self.kill()
        self._errors.seek(0)
        told = self._errors.read()[-2000:].decode(errors="replace")
        raise SystemExit(f"{what} must come within {PATIENCE_S:g} s, got {self.last}\n{told}")

    def until_on(self, sent: int) -> None:
        """Wait until both queries run, `counts` has read this many rows, and some cycles have planned for `heavy`."""
        self.until(
            lambda f: (
                f["position"].get("counts", 0) > sent
                and f["running"] == ["running", "running"]
                and len(self.plans) >= CYCLES
                and len(self.batches) > CYCLES
            ),
            f"{sent:,} rows, read by a kernel that plans, and batches of the heavy query",
        )

    def kill(self) -> None:
        """Kill it without a warning."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def results(broker: EmbeddedBroker, directory: Path) -> dict[str, int]:
    """Return the last count of each window in the results of `counts`."""
    manifest = read(directory)
    topic = None if manifest is None else manifest.tasks["counts"].results
    if topic is None:
        raise SystemExit(f"the manifest in {directory} must name the results of counts, got none")
    consumer = broker.consumer({**broker.client_config(), "group.id": "results", "enable.partition.eof": True})
    found: dict[str, int] = {}
    for partition in consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            row = json.loads(message.value() or b"")
            found[row["window"]["start"].partition(".")[0]] = row["rows"]
    consumer.close()
    return found


def cycles_until(plans: Mapping[int, tuple[float, float]], before: float) -> tuple[int | None, float | None]:
    """Return how many cycles with a plan pass until it is near the one before, and seconds since the life's begin."""
    for number, (_, (planned, after_s)) in enumerate(sorted(plans.items()), start=1):
        if abs(planned - before) <= NEAR:
            return number, after_s
    return None, None


def usual(plans: Mapping[int, tuple[float, float]]) -> float:
    """Return the median of the last plans of a life."""
    return median(planned for _, (planned, _) in sorted(plans.items())[-CYCLES:])


def rounds(broker: EmbeddedBroker, checkpoints: Path, rate: int, table: Table, kills: int, until: float) -> bool:
    """Kill, and go on, as often as asked or as there is time; returns whether all counts were equal in the end."""
    directory, life, equal = checkpoints / "kills", Life(broker, checkpoints, "kills"), True
    life.until(lambda f: f["running"] == ["running", "running"], "both queries")
    sender = Sender(broker, rate)
    life.until(lambda _, life=life: len(life.batches) > CYCLES, "batches of the heavy query")
    learned = len(life.plans)
    life.until(lambda _, life=life, learned=learned: len(life.plans) >= learned + 2 * CYCLES, "the first decisions")
    number = 0
    while number < kills and time.monotonic() < until:
        number += 1
        at = random.uniform(0.0, WINDOW_S)
        time_left = (at - time.time()) % WINDOW_S
        due = time.monotonic() + time_left
        life.until(lambda _, due=due: time.monotonic() >= due, "the moment of the kill")
        before, largest, again = usual(life.plans), life.last["largest"], life.last["again"]
        life.kill()
        second, sent = time.time() % WINDOW_S, sender.sent
        life = Life(broker, checkpoints, "kills")
        life.until_on(sent)
        ended = (time.time() - 1.0) // WINDOW_S * WINDOW_S
        whole = {
            window
            for window in sender.taken.copy()
            if datetime.fromisoformat(window).replace(tzinfo=UTC).timestamp() + WINDOW_S <= ended
        }
        there = sender.sent + sender.rate
        life.until(lambda f, there=there: f["position"]["counts"] >= there, "the rows of windows that have ended")
        found = results(broker, directory)
        same = all(found.get(window) == sender.taken[window] for window in whole)
        equal = equal and same
        life.until(
            lambda _, life=life, before=before: (
                cycles_until(life.plans, before)[0] is not None or len(life.plans) >= MOST_CYCLES
            ),
            "the accuracy of before",
        )
        back, back_s = cycles_until(life.plans, before)
        table.add(
            {
                "kill": number,
                "second_of_window": second,
                "sent": sent,
                "windows": len(whole),
                "counts_equal": "yes" if same else "no",
                "read_twice": sum(life.last["again"].values()) - sum(again.values()),
                "largest_batch": largest,
                "planned_before": before,
                "planned_first": next(iter(sorted(life.plans.items())))[1][0],
                "cycles_until_back": back,
                "back_s": back_s,
            }
        )
    total = sender.end()
    life.until(lambda f: f["position"]["counts"] >= total, "the last rows")
    balanced = life.last["position"]["counts"] == life.last["counted"]["counts"] == total
    life.until(lambda _: True, "another report")
    life.kill()
    twin = Life(broker, checkpoints, "twin", with_heavy=False)
    twin.until(lambda f: f["position"].get("counts", 0) >= total, "the rows of the twin")
    twin.until(lambda _: True, "another report")
    mine, theirs, sent_by_window = results(broker, directory), results(broker, checkpoints / "twin"), dict(sender.taken)
    twin.kill()
    print(
        f"{total:,} rows in {len(sent_by_window)} windows: counts equal the sender's: {mine == sent_by_window}, "
        f"the twin's: {mine == theirs}; accounts balance: {balanced}",
        flush=True,
    )
    return equal and balanced and mine == sent_by_window == theirs


def main() -> int:
    """Kill and print; returns 1 if counts differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=2000, help="rows/s")
    parser.add_argument("--seconds", type=float, default=400.0, help="no kill begins later than this")
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    if given.kernel:
        kernel(json.loads(given.kernel))
        return 0
    began = time.monotonic()
    random.seed(given.seed)
    broker = EmbeddedBroker(cpus={max(os.sched_getaffinity(0))})
    broker.start()
    with tempfile.TemporaryDirectory(prefix="kills") as directory:
        try:
            create_topics(broker, {TOPIC: 2})
            table = Table(RESULTS, FIELDS)
            same = rounds(broker, Path(directory), given.rate, table, given.kills, began + given.seconds)
        finally:
            broker.stop()
    print(f"{len(table.rows)} kills of {given.kills} in {time.monotonic() - began:.0f} s", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
