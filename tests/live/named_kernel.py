"""A kernel with a named session, as a process of its own: it runs the cells and prints a line of JSON a second.

Run as `python -m tests.live.named_kernel OPTIONS`, where OPTIONS is JSON: kafka, kafka_options, checkpoints, topic; and
take_over, costly; chain: two tasks with a topic between them, the first of them scaled; or keyed: the number of
instances that a task with state by window and key is declared with, which is scaled to two.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.session.session import Session
from qod_magics.spark.queries.instance import Instance

SCHEMA = "n BIGINT, at TIMESTAMP"


def by_window(src: DataFrame) -> DataFrame:
    """Rows by window of ten seconds: state that must outlive a kernel."""
    return src.withWatermark("at", "1 hour").groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("rows"))


def costly(src: DataFrame) -> DataFrame:
    """The same at a cost that no core bears at the full rate; totals by weights."""
    hashed = src.where(F.length(F.sha2(F.repeat(F.col("n").cast("string"), 8_000), 512)) > 0)
    return hashed.groupBy(F.window("at", "10 seconds")).agg(F.sum("_weight").alias("rows"))


def by_window_and_number(src: DataFrame) -> DataFrame:
    """The same with how many different rows there are."""
    windows = src.withWatermark("at", "1 hour").groupBy(F.window("at", "10 seconds"))
    return windows.agg(F.count("*").alias("rows"), F.size(F.collect_set("n")).alias("different"))


def by_window_and_key(src: DataFrame) -> DataFrame:
    """How many different rows of each key there are by window."""
    windows = src.withWatermark("at", "1 hour").groupBy(F.window("at", "10 seconds"), "k")
    return windows.agg(F.size(F.collect_set("n")).alias("different"))


def _rows(instance: Instance) -> int:
    """The rows of the largest batch."""
    return max((sum(feed.read or 0 for feed in batch.feeds) for _, batch in list(instance.meter.spans)), default=0)


def facts(session: Session) -> dict[str, Any]:
    """What the test looks at, of the query `counts`."""
    account = session.runtime.deployment.accounts.get("counts")
    cycle = session.last
    plan = cycle.plan if cycle is not None else None
    return {
        "instances": {id: each.state.value for id, each in session.runtime.instances.items()},
        "waiting": {each.feed: sum(each.waiting.values()) for each in session.runtime.rows()},
        "sent_again": {each.feed: each.count.sent_again for each in session.runtime.rows()},
        "unlooked": sum(len(each.repeats.open) for each in session.runtime.deployment.accounts.values()),
        "source": {
            name: getattr(each.count, name)
            for each in session.runtime.rows()
            if each.feed == "src"
            for name in ("processed", "dropped", "waiting", "unreported")
        },
        "reading": {feed: account.position for feed, account in session.runtime.deployment.accounts.items()},
        "epoch": session.keeper.lease.epoch if session.keeper is not None else 0,
        "processed": account.processed if account is not None else 0,
        "dropped": account.dropped if account is not None else 0,
        "unreported": account.unreported if account is not None else 0,
        "again": account.again if account is not None else 0,
        "largest": max(map(_rows, session.runtime.instances.values()), default=0),
        "position": sum(account.position.values()) if account is not None else 0,
        "notes": dict(session.runtime.resuming.notes),
        "states": [each.state.value for each in session.runtime.instances.values()],
        "desired": None if plan is None else plan.desired.get("counts"),
        "cycle": 0 if cycle is None else cycle.number,
        "costs": None
        if cycle is None or cycle.snapshot is None
        else [task.work_us for task in cycle.snapshot.tasks if task.id == "counts"],
    }


def main(options: dict[str, Any]) -> None:
    """Bring the session up, run the cells, and report until killed."""
    say = lambda line: print(json.dumps({"said": line}), flush=True)  # noqa: E731
    session = Session.up(
        name="kills",
        task_managers=1,
        cores=1,
        kafka=options["kafka"],
        kafka_options=options["kafka_options"],
        checkpoints=options["checkpoints"],
        take_over=options.get("take_over", False),
        jit="c1",
        say=say,
    )
    if options.get("keyed"):
        keyed(session, options["topic"], options["keyed"], say)
    else:
        usual(session, options, say)
    while session.alive:
        print(json.dumps(facts(session)), flush=True)
        time.sleep(0.5)
    say(repr(session))


def keyed(session: Session, topic: str, parallelism: int, say: Callable[[str], None]) -> None:
    """Count by window and key, with this parallelism declared, and two instances from then on."""
    options: dict[str, Any] = {"mode": "microbatch", "fuse": False}
    session.stream(
        "src",
        lambda source: source.selectExpr("*", "n % 7 AS k"),
        topic=topic,
        schema=SCHEMA,
        starting="earliest",
        **options,
    )
    more: dict[str, Any] = {"parallelism": parallelism, "max_parallelism": 4, "min_accuracy": 1.0, **options}
    say(session.stream("counts", by_window_and_key, from_="src", key="k", **more).said)
    if parallelism == 1:
        session.scale("counts", 2)


def usual(session: Session, options: dict[str, Any], say: Callable[[str], None]) -> None:
    """Count by window, as the options say."""
    session.stream("src", topic=options["topic"], schema=SCHEMA, starting="earliest")
    recipe, least = (costly, 0.1) if options.get("costly") else (by_window, 1.0)
    if options.get("chain"):
        recipe = by_window_and_number
    handle = session.stream("counts", recipe, from_="src", min_accuracy=least, fuse=not options.get("chain"))
    say(handle.said)
    if options.get("chain") and len(session.runtime.instances) < 3:
        session.scale("src", 2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
