"""A soak under faults: `python -m benchmarks.soak [--minutes N] [--between B] [--seed S] [--rate R]`.

Two queries run by the defaults on two local task managers of one core each: a windowed count, which keeps state, and a
filter behind a stream of its own. The load goes up and down; at random times, by a seed that is printed, one fault
after the other happens (`FAULTS`). Checked:

- books: each row that arrived is processed, dropped, waiting or unreported, for every source and stream in every cycle;
  at the end nothing waits, and the sources have all records of the topic in their books;
- windows: the count of each from the weights, beside the records of the topic: within five standard errors of the
  sample;
- growth: memory and open files of each process that lives for half of the run, what a full garbage collection leaves of
  a task manager's heap, and the time of a cycle: less than 1 % an hour in the second half. Runs of less than an hour
  only print it. The first task manager is never killed, so that it is judged, too; the topic grows in the first half
  alone. The JVMs touch their heaps at the start (they would grow up to the heap's size by using it, leak or none);
- leftovers: topics, processes, threads and directories at the end.

Printed: each fault when it is over, with seconds since the start, and each check. Exit code 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil

from benchmarks.soak.application import LEFT, Application, JumpingClock, eventually, faults, load
from benchmarks.soak.watching import Series, Slope, Truth, Watch, deviation, estimates, slope
from qod_magics.kafka.topics import topic_partitions
from qod_magics.session.session import Session
from qod_magics.spark.servers.connection import reason

PERIOD_S = 3.0
#: Seconds before the first fault, from one to the next at least, and after the last.
FIRST_S, BETWEEN_S, LAST_S = 45.0, 25.0, 60.0
#: How far a window may be off, in standard errors of its sample.
SIGMAS = 5.0
#: Allowed growth, fraction an hour, and how long a run must be to tell, seconds.
GROWTH, TELLING_S = 0.01, 3600.0


class Checks:
    """Prints each check, and remembers whether all passed."""

    def __init__(self) -> None:
        self.passed = True

    def __call__(self, what: str, holds: bool, found: object) -> None:
        self.passed &= holds
        print(f"{'PASS' if holds else 'FAIL'} {what}: {found}", flush=True)

    def unjudged(self, what: str, found: object) -> None:
        """Print a figure that this run is too short to judge."""
        print(f"---- {what}, too short a run to tell: {found}", flush=True)


def soak(
    session: Session,
    seconds: float,
    rate: float,
    dice: random.Random,
    check: Checks,
    between_s: float = BETWEEN_S,
    series: Path | None = None,
) -> None:
    """Run the application on this session for `seconds`, and check all but what is left afterwards.

    `between_s`: seconds from one fault to the next at least. `series`: a file for memory, open files and cycles over
    time.
    """
    application = Application(session, JumpingClock(), dice)
    session.controller.clock = application.clock
    begun, watch = time.monotonic(), Watch(session)
    injector = session.inject(load(rate, seconds, dice))
    application.declare()
    truth, found = Truth(session), dict[int, tuple[float, float]]()
    with watch:
        time.sleep(FIRST_S)
        left = []
        for done in faults(application, seconds - FIRST_S - LAST_S, between_s):
            print(f"{time.monotonic() - begun:6.0f} s: {done}", flush=True)
            left += [done] * (LEFT in done)
            truth.read()
            try:
                found |= estimates(session)  # before retention deletes them
            except Exception as error:  # the next reading has them, too
                print(f"results could not be read: {reason(error)}", flush=True)
        print(f"injector: {injector.wait(seconds)}")
        settled = eventually(application.settled)
        truth.read()
        found |= estimates(session)
    check("each killed task manager was given up", not left, left)
    check_books(session, watch, truth, settled, check)
    check_windows(found, truth, check)
    check_growth(watch, seconds, check)
    if series is not None:
        keep(watch, series)
    truth.close()
    session.stop_all()
    topics = [name for name in topic_partitions(session.kafka) if name.startswith("qod.")]
    check("no topic is left", not topics, topics)


def check_books(session: Session, watch: Watch, truth: Truth, settled: bool, check: Checks) -> None:
    """Every row is accounted for."""
    counts = session.last.measured.counts if session.last is not None and session.last.measured is not None else {}
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    print(f"events: {dict(sorted(watch.events.items()))}")
    check("books balance in every cycle", not watch.unbalanced, [len(watch.cycles), *watch.unbalanced[:3]])
    check("all instances run at the end, and nothing waits", settled, {n: c.waiting for n, c in counts.items()})
    arrived = {name: counts[name].arrived if name in counts else None for name in ("counts", "trips")}
    check("each source's books have all records", set(arrived.values()) == {truth.total}, [truth.total, arrived])


def check_windows(found: Mapping[int, tuple[float, float]], truth: Truth, check: Checks) -> None:
    """The estimates are as far off as samples are."""
    far = {start: deviation(found.get(start, (0.0, 0.0)), rows) for start, rows in truth.rows.items()}
    worst = max(far, key=lambda start: far[start])
    off = {start: (found.get(start), truth.rows[start]) for start, sigmas in far.items() if sigmas > SIGMAS}
    shed = sum(variance > 0 for _, variance in found.values())
    said = f"{len(far)} windows, {shed} of them shed; the worst by {far[worst]:.1f}"
    check(f"windows are within {SIGMAS:g} standard errors", not off, f"{said} {dict(list(off.items())[:5]) or ''}")


def check_growth(watch: Watch, seconds: float, check: Checks) -> None:
    """Nothing grows with time."""

    def judge(what: str, slopes: Sequence[Slope], found: str) -> None:
        if seconds >= TELLING_S:
            check(what, all(each.growth < GROWTH for each in slopes), found)
        else:
            check.unjudged(what, found)

    took = slope(watch.cycles)
    judge("cycles take no longer", [took], f"{took} an hour of {np.median(watch.cycles.values):.3f} s")
    last = max(series.at[-1] for series in watch.resident.values())
    for name, resident in watch.resident.items():
        if last - resident.at[-1] > 60 or resident.at[-1] - resident.at[0] < seconds / 2:
            continue  # it was killed, or came late
        memory, files = slope(resident), slope(watch.files[name])
        of = f"{resident.values[-1] / 2**20:.0f} MiB, {files} of {watch.files[name].values[-1]:.0f} files"
        judge(f"{name} does not grow", [memory, files], f"{memory} an hour of {of}")
    for id, live in watch.live.items():
        if live.at[-1] - live.at[0] > seconds / 2:
            grows = slope(live)
            judge(f"the heap of {id} does not grow", [grows], f"{grows} an hour of {live.values[-1] / 2**20:.0f} MiB")


def keep(watch: Watch, file: Path) -> None:
    """Write the series as JSON: seconds since the start and the value, for each process and for the cycles."""
    begun = watch.cycles.at[0]

    def points(series: Series) -> list[list[float]]:
        return [[round(at - begun, 1), value] for at, value in zip(series.at, series.values, strict=True)]

    kinds = {"resident": watch.resident, "files": watch.files, "live": watch.live}
    found = {kind: {name: points(series) for name, series in all.items()} for kind, all in kinds.items()}
    file.write_text(json.dumps({"cycles": points(watch.cycles), **found}), "utf-8")


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="A soak under faults.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--between", type=float, default=BETWEEN_S, help="seconds from a fault to the next, at least")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--rate", type=float, default=4_000.0, help="rows/s at most")
    parser.add_argument("--series", type=Path, help="a file for memory, open files and cycles over time, as JSON")
    words = parser.parse_args()
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+AlwaysPreTouch"
    print(f"{words.minutes:g} minutes, seed {words.seed}, up to {words.rate:g} rows/s", flush=True)
    check, threads = Checks(), set(threading.enumerate())
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        tempfile.tempdir = os.environ["TMPDIR"] = directory
        with Session.up(task_managers=2, cores=1, period_s=PERIOD_S, warm=True) as session:
            dice = random.Random(words.seed)
            soak(session, words.minutes * 60, words.rate, dice, check, words.between, words.series)
        processes = psutil.Process().children(recursive=True)
        check("no process is left", not processes, processes)
        left = [thread for thread in threading.enumerate() if thread not in threads and not thread.daemon]
        check("no thread is left", not left, left)
        directories = [path.name for path in Path(directory).glob("qod-*")]
        check("no directory is left", not directories, directories)
    return 0 if check.passed else 1


if __name__ == "__main__":
    sys.exit(main())
