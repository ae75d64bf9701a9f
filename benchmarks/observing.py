"""How long it takes to observe many idle queries: `python benchmarks/observing.py [--queries N ...] [--times N]`.

One local task manager runs N queries of the kinds that the runtime polls, each of one topic that gets no rows, in
micro-batches that Spark triggers once in ten minutes: what is measured is the polling, not the queries. Printed are
the median and the slowest of `--times` calls of `Runtime.observe`, in ms, and the CPU of one in this process and in the
task manager, in ms: with calls of one message, as the runtime makes them, and with reattachable ones, Spark's default.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

SCHEMA = "zone INT, at TIMESTAMP"


def observed_ms(session: Session, times: int) -> tuple[list[float], float, float]:
    """Milliseconds of each of these calls, and the CPU of one here and in the task manager, in ms."""
    (manager,) = session.runtime.task_managers.values()
    assert manager.server is not None
    server = psutil.Process(manager.server.child.pid)
    took = []
    used, used_there = time.process_time(), sum(server.cpu_times()[:2])
    for _ in range(times):
        begun = time.perf_counter()
        session.runtime.observe()
        took.append(1000 * (time.perf_counter() - begun))
    here_s, there_s = time.process_time() - used, sum(server.cpu_times()[:2]) - used_there
    return took, 1000 * here_s / times, 1000 * there_s / times


def main() -> int:
    parser = argparse.ArgumentParser(description="How long it takes to observe many idle queries.")
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 40, 100])
    parser.add_argument("--times", type=int, default=20)
    words = parser.parse_args()
    with Session.up(task_managers=1) as session:
        session.pause()
        (manager,) = session.runtime.task_managers.values()
        calls = {
            "one message": manager.spark.client.disable_reattachable_execute,
            "reattachable": manager.spark.client.enable_reattachable_execute,
        }
        print(f"{'queries':>8}  {'calls':<13}{'ms':>9}{'slowest':>9}{'CPU here':>9}{'there':>9}")
        for count in range(1, max(words.queries) + 1):
            create_topics(session.kafka, {f"idle{count}": 1})
            session.stream(
                f"query{count}", topic=f"idle{count}", schema=SCHEMA, sink="memory", mode="microbatch", trigger_s=600.0
            )
            for name, choose in calls.items() if count in words.queries else ():
                choose()
                observed_ms(session, 3)
                took, here, there = observed_ms(session, words.times)
                figures = (median(took), max(took), here, there)
                print(f"{count:>8}  {name:<13}" + "".join(f"{each:>9.0f}" for each in figures), flush=True)
            calls["one message"]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
