"""How long it takes to observe many idle queries: `python benchmarks/observing.py [--queries N ...] [--times N]`.

One local task manager runs N queries of the kinds that the runtime polls, each of one topic that gets no rows, in
micro-batches that Spark triggers once in ten minutes: what is measured is the polling, not the queries. Printed are the
median and the slowest of `--times` calls of `Runtime.observe`, in ms, and the CPU that they take in this process.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session

SCHEMA = "zone INT, at TIMESTAMP"


def observed_ms(session: Session, times: int) -> tuple[list[float], float]:
    """Milliseconds of each of these calls, and the CPU of one, in ms."""
    took = []
    used = time.process_time()
    for _ in range(times):
        begun = time.perf_counter()
        session.runtime.observe()
        took.append(1000 * (time.perf_counter() - begun))
    return took, 1000 * (time.process_time() - used) / times


def main() -> int:
    parser = argparse.ArgumentParser(description="How long it takes to observe many idle queries.")
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 40, 100])
    parser.add_argument("--times", type=int, default=20)
    words = parser.parse_args()
    with Session.up(task_managers=1) as session:
        session.pause()
        print(f"{'queries':>8}{'ms':>8}{'slowest':>9}{'CPU, ms':>9}")
        for count in range(1, max(words.queries) + 1):
            create_topics(session.kafka, {f"idle{count}": 1})
            session.stream(
                f"query{count}", topic=f"idle{count}", schema=SCHEMA, sink="memory", mode="microbatch", trigger_s=600.0
            )
            if count in words.queries:
                observed_ms(session, 3)
                took, cpu = observed_ms(session, words.times)
                print(f"{count:>8}{median(took):>8.0f}{max(took):>9.0f}{cpu:>9.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
