"""Latencies of queries on a real cluster, against those of the very rows in their results."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

from qod_magics.core.snapshot import Instance, Task
from qod_magics.kafka.reading import end_offsets
from qod_magics.session.handle import StreamHandle
from qod_magics.session.session import Session
from qod_magics.spark.plans.dial import MOST_S
from tests.live.applications import all_read, cell, observed
from tests.live.conftest import eventually, heard
from tests.live.steady import SCHEMA, Steady
from tests.texts import tells

#: Rows before a latency is asked for: enough of them are timed.
ENOUGH = 1500


def task(session: Session, name: str) -> Task:
    """Its row in a snapshot of now."""
    return next(each for each in session.runtime.observe().snapshot.tasks if each.id == name)


def written_at(session: Session, topic: str) -> dict[int, float]:
    """When each row of a topic was written, by its number, seconds since the epoch."""
    ends = end_offsets(session.kafka, [topic], timeout_s=10.0)[topic]
    consumer = Consumer({**session.kafka.client_config(), "group.id": f"at-{topic}", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[int, float] = {}
    try:
        while len(found) < sum(ends.values()):
            for message in consumer.consume(5000, 1.0):
                assert message.error() is None
                found[json.loads(message.value())["n"]] = message.timestamp()[1] / 1e3
    finally:
        consumer.close()
    return found


def declare(session: Session, topic: str, mode: str, *more: str) -> StreamHandle:
    line = f'passed --topic {topic} --schema "{SCHEMA}" --mode {mode} -p 1 -a 0.5 {" ".join(more)}'
    return cell(session, line, "source.select('n')")


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_latencies_are_those_of_the_rows_in_the_result(brief: Session, topic: str, mode: str) -> None:
    session = brief
    declare(session, topic, mode)
    with Steady(session, topic, 300.0) as steady:
        eventually(lambda: steady.acknowledged > ENOUGH, what="rows")
        eventually(lambda: task(session, "passed").latency_p95_s is not None, what="a latency")
        begin = time.time()
        while time.time() < begin + 11.0:  # the window of the measurement
            measured = task(session, "passed")
            time.sleep(0.5)
        steady.stop()
    sent, results = written_at(session, topic), written_at(session, session.runtime.deployment.results["passed"])
    true = [at - sent[n] for n, at in results.items() if at > begin]
    for field, percent in (("latency_p50_s", 50), ("latency_p95_s", 95)):
        found, truth = getattr(measured, field), float(np.percentile(true, percent))
        assert found is not None
        assert truth / 2 - 0.1 <= found <= 2 * truth + 0.1, (field, found, truth)


def test_the_oldest_row_gets_older_while_a_query_is_held_up(recommending: Session, topic: str) -> None:
    session = recommending
    declare(session, topic, "microbatch", "--max-latency 2s")
    instance = session.runtime.instances["passed.1"]
    with Steady(session, topic, 300.0):
        eventually(lambda: task(session, "passed").oldest_s is not None and instance.begun, what="a first batch")
        manager = instance.task_manager
        assert manager is not None
        gate = session.runtime.board.pace("passed.1")
        heard(lambda: manager.turn({gate: 1.0 - 8.0 / MOST_S}))
        eventually(lambda: (task(session, "passed").oldest_s or 0.0) > 3.0, what="a row of three seconds")
        ages = []
        for _ in range(3):
            found = task(session, "passed")
            ages.append((time.time(), found.oldest_s))
            time.sleep(0.7)
        heard(lambda: manager.turn({gate: 1.0}))
        rising = [(b[1] or 0.0) - (a[1] or 0.0) for a, b in pairwise(ages)]
        assert max(rising) > 0.3, ages
        assert found.max_latency_s == 2.0
        eventually(lambda: (task(session, "passed").oldest_s or 0.0) < 2.0, what="the backlog is read")


@pytest.mark.smoke
def test_a_target_is_set_without_a_restart(brief: Session, topic: str) -> None:
    session = brief
    said = declare(session, topic, "auto", "--max-latency 5s").said
    assert "act on" in said
    cell(session, f'grouped --topic {topic} --schema "{SCHEMA}" -p 1', "source.groupBy('k').count()")
    runs = {name: each.run_id for name, each in session.runtime.instances.items()}
    assert "act on" in session.set("passed", max_latency_s=0.5)  # the paper's policy knows no targets
    assert "act on" in session.set("grouped", max_latency_s=3.0, utility=7.0)
    assert {name: each.run_id for name, each in session.runtime.instances.items()} == runs
    assert task(session, "passed").max_latency_s == 0.5
    assert task(session, "grouped").utility == 7.0
    assert "500 ms" in session.status()
    assert session.runtime.instances["grouped.1"].mode == "micro-batch"
    assert tells(session.set("grouped", max_latency_s=0.5), "grouped.1", "micro-batch", "state")
    assert {name: each.run_id for name, each in session.runtime.instances.items()} == runs
    assert task(session, "grouped").max_latency_s == 0.5
    assert session.set("grouped", max_latency_s=inf) == ""
    assert task(session, "grouped").max_latency_s is None


def overlap(session: Session, names: tuple[str, str], since: float) -> float | None:
    """The share of the time of the batches of two queries, begun since then, in which both had one under way; None
    while they are few."""
    one, other = (
        [each for each in session.runtime.instances[f"{name}.1"].batches if each.start > since] for name in names
    )
    if min(len(one), len(other)) < 5:
        return None
    both = sum(max(min(a.end, b.end) - max(a.start, b.start), 0.0) for a in one for b in other)
    return both / sum(each.end - each.start for each in (*one, *other))


def test_cameo_has_batches_take_turns_and_those_without_a_target_yield(brief: Session, topic: str) -> None:
    session, before, slow = brief, brief.controller.policy.name, ("slow0", "slow1")
    cell(session, f'urgent --topic {topic} --schema "{SCHEMA}" -p 1 --max-latency 4s', "source.groupBy('k').count()")
    home = session.runtime.instances["urgent.1"].task_manager
    assert home is not None
    for name in slow:  # a third of the time each, without CPU
        text = "SELECT n, reflect('java.lang.Thread', 'sleep', n * 0 + 3) AS slept FROM source"
        cell(session, f'{name} --topic {topic} --schema "{SCHEMA}" --mode microbatch -p 1 --sql', text)
        if session.runtime.instances[f"{name}.1"].task_manager is not home:
            session.move(f"{name}.1", home.id)

    def overlaps(least: float, most: float) -> bool:
        """Whether the batches since this call overlap so much."""
        begun = time.time()
        found = eventually(lambda: [o] if (o := overlap(session, slow, begun)) is not None else None, what="batches")
        return found is not None and least <= found[0] <= most

    with Steady(session, topic, 100.0) as load:
        session.set_policy("orleans")
        session.resume()
        try:
            eventually(lambda: overlaps(0.05, 1.0), what="batches at the same time")
            session.set_policy("fifo")
            eventually(lambda: "order of arrival" in session.why("slow0"), what="turns in the order of arrival")
            time.sleep(3.0)  # until batches wait by it
            session.set_policy("cameo")  # a batch that waits by the policy before must not let all others pass
            switched = time.time()
            urgent = session.runtime.instances["urgent.1"]
            eventually(
                lambda: any(each.start > switched + 3.0 for each in urgent.batches), 20.0, what="an urgent batch"
            )
            eventually(lambda: overlaps(0.0, 0.01), what="batches in turns")
            told = session.why("urgent")
            assert "start deadline" in told
            assert "take turns" in told
            assert "urgent" in session.why("slow0")
            assert (task(session, "urgent").latency_p95_s or inf) < 4.0
            session.set_policy("orleans")
            eventually(lambda: overlaps(0.05, 1.0), what="batches at the same time again")
        finally:
            session.pause()
            session.set_policy(before)
        sent = load.stop()
    for name in ("urgent", *slow):
        eventually(lambda name=name: all_read(session, name, sent), what=f"{sent} rows of {name} in the books")


def test_nephele_batches_as_long_as_the_target_allows_and_another_policy_ends_that(brief: Session, topic: str) -> None:
    session, before = brief, brief.controller.policy.name
    cell(session, f'grouped --topic {topic} --schema "{SCHEMA}" -p 1 --max-latency 4s', "source.groupBy('k').count()")

    def measured() -> Instance:
        return next(each for each in observed(session).snapshot.instances if each.task == "grouped")

    with Steady(session, topic, 300.0) as load:
        session.set_policy("nephele", span_s=5)
        assert session.controller.policy.name == "nephele span_s=5"
        session.resume()
        try:
            eventually(lambda: 1.5 < (measured().batch_interval_s or 0.0) < 3.0, what="batches two seconds apart")
            eventually(lambda: task(session, "grouped").latency_p95_s is not None, what="a latency")
            paced = measured()
            assert paced.busy is not None
            assert 0.0 < paced.busy < 0.9
            assert paced.waiting is not None
            assert (task(session, "grouped").latency_p95_s or inf) < 4.0
            told = eventually(lambda: found if "worst path" in (found := session.why("grouped")) else None, what="why")
            assert told is not None
            assert "at least 2 s apart" in told
            session.set_policy("nephele-flush")
            eventually(lambda: (measured().batch_interval_s or inf) < 1.2, what="batches that follow one another")
        finally:
            session.pause()
            session.set_policy(before)
        sent = load.stop()
    eventually(lambda: all_read(session, "grouped", sent), what=f"{sent} rows in the books")
    memory = [each.memory_mb for each in observed(session).snapshot.task_managers]
    assert all(each is not None and each > 0 for each in memory)
