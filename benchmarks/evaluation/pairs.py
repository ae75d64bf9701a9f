"""Pairs of rows of two topics that are joined by user, at an accuracy of 0.3: how many there are, by estimates where
the topics are shed by user, and where they are shed row by row."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import functions as F

from benchmarks.evaluation.cluster import Run
from qod_magics.errors import KafkaError
from qod_magics.kafka.topics import create_topics

ACCURACY = 0.3
ROUNDS, USERS, MOST = 40, 150, 5  #: rounds, users of each, and rows of a user in either topic at most
ALL = -1  #: stands for all rounds together
TOPICS, SCHEMA = ("clicks", "orders"), "user LONG, round INT"
SHED: Mapping[str, Sequence[str]] = {"by_key": ("user",), "by_row": ()}
SENT_S = 10.0  #: in which the rows are sent
QUIET_CYCLES = 5
SEED = 5
PATIENCE_S = 120.0


def pairs(run: Run, out: Path, scale: float) -> dict[str, Any]:
    """The true number of pairs, and what each way of shedding makes of it: the estimate for all rounds, with its
    interval, and the share of rounds whose interval covers."""
    rounds = max(int(ROUNDS * scale), 4)
    sides = {topic: rows_of(rounds, SEED + i) for i, topic in enumerate(TOPICS)}
    true = counted(*sides.values())
    create_topics(run.session.kafka, dict.fromkeys(TOPICS, 1))
    for way, shed_by in SHED.items():
        _declare(run, way, shed_by)
    for source in (name for name in run.session.shedders if ">" not in name):
        run.session.override(source, ACCURACY)
    run.cycles(2)
    _send(run, sides, out)
    _settle(run, sum(map(len, sides.values())))
    found = {way: judged(_last(run, f"counted_{way}"), true) for way in SHED}
    run.session.stop_all()
    return {"accuracy": ACCURACY, "rounds": rounds, "users": rounds * USERS, "true": int(true[ALL]), **found}


def rows_of(rounds: int, seed: int) -> pd.DataFrame:
    """The rows of one topic, in order of rounds: `user`, and `round`, whose users are in no other one."""
    dice = np.random.default_rng(seed)
    users = np.repeat(np.arange(rounds * USERS), dice.integers(1, MOST + 1, rounds * USERS))
    return pd.DataFrame({"user": users, "round": users // USERS})


def counted(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series[Any]:
    """How many pairs of rows of the same user there are, by round, and in `ALL`."""
    of_round = one.merge(other[["user"]], on="user").groupby("round").size()
    return pd.concat([of_round, pd.Series({ALL: of_round.sum()})])


def judged(estimates: pd.DataFrame, true: pd.Series[Any]) -> dict[str, Any]:
    """The estimate of all pairs, and the share of the rounds whose interval covers.

    Args:
        estimates: by round, `value`, `low` and `high`; of a round of which nothing was kept there is none.
        true: the numbers of pairs, by round.

    """
    whole, each = estimates.loc[ALL], estimates.drop(index=ALL)
    of_round = true.loc[each.index]
    covered = (each["low"] <= of_round) & (of_round <= each["high"])
    return {
        "value": float(whole["value"]),
        "low": float(whole["low"]),
        "high": float(whole["high"]),
        "covers": bool(whole["low"] <= true[ALL] <= whole["high"]),
        "rounds": len(each),
        "covered": float(covered.mean()),
        "width": float(((each["high"] - each["low"]) / of_round).median()),
    }


def _declare(run: Run, way: str, shed_by: Sequence[str]) -> None:
    session = run.session
    for topic in TOPICS:
        name = f"{topic}_{way}"
        session.stream(name, topic=topic, schema=SCHEMA, starting="earliest", shed_by=shed_by)
    one, other = (f"{topic}_{way}" for topic in TOPICS)
    joined = f"SELECT o.user, o.round, o._weight, p._weight FROM {one} o JOIN {other} p ON o.user = p.user"
    session.stream(f"pairs_{way}", joined)
    in_both = f"SELECT user, explode(array(round, {ALL})) AS round, _weight FROM pairs_{way}"
    estimated = f"SELECT round, est_count(*) AS pairs, count(*) AS kept FROM ({in_both}) GROUP BY round"
    # at accuracy 1, so that the controller sheds nothing beside what is dropped by hand
    session.stream(f"counted_{way}", estimated, priority=1, min_accuracy=1.0, fuse=False)


def _send(run: Run, sides: Mapping[str, pd.DataFrame], out: Path) -> None:
    feeds = []
    for topic, rows in sides.items():
        path = out / f"{topic}.jsonl"
        rows.to_json(path, orient="records", lines=True)
        data = {"jsonl": str(path.absolute()), "rows": len(rows)}
        feeds.append({"topic": topic, "data": data, "rate": len(rows) / SENT_S})
    counts = run.inject({"duration_s": SENT_S, "topics": feeds}).wait(PATIENCE_S)
    for topic, rows in sides.items():
        if counts is None or counts[topic]["acknowledged"] != len(rows):
            raise KafkaError(f"Of {len(rows)} rows of {topic} the broker has not acknowledged all: {counts}")


def _settle(run: Run, rows: int) -> None:
    """Wait until all rows and pairs are in the books, and no more pairs come."""
    before: dict[str, int] = {}
    same, deadline = 0, time.monotonic() + PATIENCE_S
    while same < QUIET_CYCLES:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all pairs were counted within {PATIENCE_S:g} s: {before} of {rows} rows arrived")
        run.cycles(1)
        last = run.session.last
        counts = {} if last is None or last.measured is None else last.measured.counts
        arrived = {name: count.arrived for name, count in counts.items()}
        all_read = sum(n for name, n in arrived.items() if ">" not in name) == rows * len(SHED)
        waits = any(count.waiting for count in counts.values())
        same = same + 1 if all_read and not waits and arrived == before else 0
        before = arrived


def _last(run: Run, name: str) -> pd.DataFrame:
    """The last estimates of a query, by round."""
    last = run.session.results(name).groupBy("round").agg(F.max_by("pairs", "kept").alias("pairs"))
    return last.select("round", "pairs.*").toPandas().set_index("round")
