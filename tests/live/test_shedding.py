"""The load shedders on real queries: what share they keep, which rows, what the weights are worth, what is counted.

Tests by chance have limits at which a right shedder fails less than once in ten thousand runs. What sources drop is
decided by a hash of the row's place, so for a topic of a given name it is the same in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.core.runtime import Count, Measured
from qod_magics.kafka.topics import create_topics
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from qod_magics.spark.plans import dial
from qod_magics.spark.plans.dial import DialReading
from tests.live.applications import observed, turn
from tests.live.conftest import PATIENCE_S, eventually, produce
from tests.live.watching import Events, home, running

SCHEMA = "id LONG"
Bits = NDArray[np.bool_]


def topic(session: Session, name: str, partitions: int = 1) -> str:
    """A topic whose name, and so the hashes of whose rows, are the same in every run."""
    create_topics(session.kafka, {name: partitions})
    return name


def ids(first: int, count: int) -> Iterator[dict[str, Any]]:
    return ({"id": i} for i in range(first, first + count))


def shown(rows: DataFrame) -> DataFrame:
    """For a sink: the id and the weight."""
    return rows.select("id", F.col("_weight").alias("w"))


def source(session: Session, name: str, of: str, **options: Any) -> None:
    """A query that shows what it reads."""
    options = {"priority": 1, "min_accuracy": 0.0, "starting": "earliest", **options}
    session.stream(name, shown, topic=of, schema=SCHEMA, **options)


def pair(session: Session, of: str, sender: str, receiver: str, **options: Any) -> str:
    """A source and behind it a query that shows what arrives; the name of the stream between them."""
    session.stream(sender, topic=of, schema=SCHEMA, starting="earliest", fuse=False, **options)
    session.stream(receiver, shown, from_=sender, priority=1, min_accuracy=0.0, fuse=False)
    return f"{sender}>{receiver}"


def settled(session: Session, name: str, rows: int) -> Measured:
    """What is measured once `rows` rows have come to this source and none waits anywhere; the books balance."""
    found: list[Measured] = []

    def done() -> bool:
        found[:] = [observed(session).measured]
        counts = found[0].counts
        for count in counts.values():
            assert count.arrived == count.processed + count.dropped + count.waiting + count.unreported
        return counts[name].arrived == rows and all(count.waiting == 0 for count in counts.values())

    eventually(done, every_s=0.5, what=lambda: f"{rows} rows through {name}: {found}\n{session.status()}")
    return found[0]


def carried(session: Session, name: str, stream: str, rows: int, meanwhile: Callable[[], None]) -> None:
    """Return once this source has read `rows` rows, and the stream's reader all that was in the stream by then."""

    def books(feed: str) -> Count:
        return observed(session).measured.counts[feed]

    def read(feed: str, arrived: int) -> bool:
        meanwhile()
        found = books(feed)
        return found.arrived - found.waiting >= arrived

    eventually(lambda: read(name, rows), every_s=1 / 8, what=lambda: f"{rows} rows read: {session.status()}")
    there = books(stream).arrived
    eventually(lambda: read(stream, there), every_s=1 / 8, what=lambda: f"{there} rows in {stream}: {session.status()}")


def kept(session: Session, query: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids and weights of the rows that reached a query's sink, by id."""
    rows = session.results(query).toPandas().sort_values("id")
    return rows["id"].to_numpy(np.int64), rows["w"].to_numpy(np.float64)


def marks(these: NDArray[np.int64], first: int, count: int) -> Bits:
    """For each of `count` ids from `first` on, whether it is among these."""
    return np.isin(np.arange(first, first + count), these)


def binomial(found: int, of: int, d: float) -> None:
    """Within four standard errors of what is expected."""
    assert abs(found - of * d) <= 4 * np.sqrt(of * d * (1 - d)), (found, of, d)


def strongest(a: Bits, b: Bits, own: bool = False) -> float:
    """The largest correlation of two sequences at any shift (but 0 for `own`), in standard errors of none.

    A generator that begins anew with every batch shows as a large one at the shift of the batches' beginnings.
    """
    x, y = a - a.mean(), b - b.mean()
    overlap = np.correlate(np.ones(len(x)), np.ones(len(y)), "full")
    found = np.correlate(x, y, "full") / (np.sqrt(overlap) * x.std() * y.std())
    found[overlap < 200] = 0
    if own:
        found[len(y) - 1] = 0
    return float(np.abs(found).max())


#: of some ten thousand shifts none goes so far by chance, but once in twenty thousand
NO_PATTERN = 6.0


def test_sources_keep_their_share_without_a_pattern_and_the_same_rows_after_a_replay(brief: Session) -> None:
    session, half, d = brief, 12_000, 0.3
    assert all(manager.sheds_on_read for manager in session.runtime.task_managers.values())
    place, dials = topic(session, "shedding-share", 2), {"share": d, "again": d, "less": d / 2}
    turn(session, {(None, name): share for name, share in dials.items()})
    source(session, "share", place)
    produce(session, place, ids(0, half), 2)
    settled(session, "share", half)  # a batch's end lies between the halves
    produce(session, place, ids(half, half), 2)
    for name in ("again", "less"):  # in other batches
        source(session, name, place)
    found: dict[str, NDArray[np.int64]] = {}
    for name, share in dials.items():
        measured = settled(session, name, 2 * half)
        found[name], weights = kept(session, name)
        count = len(found[name])
        assert measured.counts[name] == Count(2 * half, count, 2 * half - count, 0)
        assert measured.dropped[name] == 2 * half - count
        assert len(set(found[name])) == count
        assert weights == pytest.approx(1 / share)
        binomial(count, 2 * half, share)
    assert list(found["again"]) == list(found["share"])
    assert set(found["less"]) < set(found["share"])

    parts = [marks(found["share"], first, half)[partition::2] for first in (0, half) for partition in (0, 1)]
    for i, part in enumerate(parts):  # batch 1, partition 0; batch 1, partition 1; ...
        binomial(int(part.sum()), len(part), d)
        assert strongest(part, part, own=True) < NO_PATTERN
        for other in parts[:i]:
            assert strongest(part, other) < NO_PATTERN


def test_the_sending_end_draws_anew_in_every_batch(brief: Session) -> None:
    session, half, d = brief, 6_000, 0.3
    place, modes = topic(session, "shedding-draw"), {"realtime": "real-time", "microbatch": "micro-batch"}
    turn(session, {(f"sender_{mode}", f"receiver_{mode}"): d for mode in modes})
    streams = {mode: pair(session, place, f"sender_{mode}", f"receiver_{mode}", mode=mode) for mode in modes}
    assert {mode: session.runtime.instances[f"sender_{mode}.1"].mode for mode in modes} == modes
    for first in (0, half):
        produce(session, place, ids(first, half))
        for mode in modes:
            measured = settled(session, f"sender_{mode}", first + half)

    parts: list[Bits] = []
    for mode, stream in streams.items():
        found, weights = kept(session, f"receiver_{mode}")
        assert weights == pytest.approx(1 / d)
        assert measured.counts[stream] == Count(len(found), len(found), 0, 0)
        assert measured.dropped[stream] == 2 * half - len(found)
        parts += [marks(found, 0, half), marks(found, half, half)]
    for i, part in enumerate(parts):
        binomial(int(part.sum()), half, d)
        assert strongest(part, part, own=True) < NO_PATTERN
        for other in parts[:i]:
            assert strongest(part, other) < NO_PATTERN


def test_weights_estimate_the_truth_and_books_are_exact_through_a_burst_and_moves(brief: Session) -> None:
    """By the design-based variance of a Poisson sample: sum of w (w - 1) over the rows that were kept."""
    session, edge = brief, ("burst_in", "burst_out")
    place = topic(session, "shedding-burst")
    turn(session, {(None, "burst_in"): 1.0, edge: 1.0}, burst_out=1.0)
    stream = pair(session, place, *edge)
    sent = 0

    def send(rows: int) -> None:
        nonlocal sent
        sent += produce(session, place, ids(sent, rows))

    # rows/s, source, sending end, accuracy accepted at the reading end: less than what was sent, sometimes
    settings = (
        (1_000, 1.0, 1.0, 1.0),
        (10_000, 1.0, 0.7, 0.7),
        (10_000, 0.5, 0.6, 0.12),
        (10_000, 0.3, 0.4, 0.1),
        (10_000, 0.6, 0.9, 0.3),
        (1_000, 0.9, 0.9, 0.9),
    )
    for rate, at_source, sending, accepted in settings:
        turn(session, {(None, "burst_in"): at_source, edge: sending}, burst_out=accepted)
        before = sent
        for _ in range(8):
            begun = time.monotonic()
            send(rate // 8)
            time.sleep(max(begun + 1 / 8 - time.monotonic(), 0))
        # half of these go all the way under this setting; some are under way whenever a dial turns
        carried(session, "burst_in", stream, before + rate // 2, meanwhile=lambda: send(20))
    measured = settled(session, "burst_in", sent)

    found, weights = kept(session, "burst_out")
    counts = measured.counts
    for name in counts:
        assert counts[name].dropped > 0
        assert counts[name].unreported == 0
    assert counts["burst_in"].processed == counts[stream].arrived + measured.dropped[stream] - counts[stream].dropped
    assert counts[stream].processed == len(found) == len(set(found))
    for _, at_source, sending, accepted in settings:  # each was at work, to the end of the way
        assert np.isclose(weights, 1 / min(at_source * sending, accepted)).any(), (at_source, sending, accepted)

    def in_errors(rows: Bits | slice, truth: int) -> float:
        w = weights[rows]
        return float(abs(w.sum() - truth) / np.sqrt((w * (w - 1)).sum()))

    # by chance one total in 370 is beyond 3 standard errors: the whole is held to 4, and of 20 disjoint parts 18 to 3
    assert in_errors(slice(None), sent) <= 4
    parts = [in_errors(found % 20 == k, len(range(k, sent, 20))) for k in range(20)]
    assert sum(part <= 3 for part in parts) >= 18, parts

    # the books go on through moves
    turn(session, {(None, "burst_in"): 0.5, edge: 0.5}, burst_out=0.2)
    ends = {f"{task}.1": "tm2" if home(session, f"{task}.1") == "tm1" else "tm1" for task in edge}
    for moved in [session.runtime.move(instance, end, "moved by hand") for instance, end in ends.items()]:
        moved.result(PATIENCE_S)
    assert {instance: home(session, instance) for instance in ends} == ends
    sent += produce(session, place, ids(sent, 6_000))
    measured = settled(session, "burst_in", sent)
    counts = measured.counts
    assert all(count.unreported == 0 for count in counts.values())
    assert counts["burst_in"].processed == counts[stream].arrived + measured.dropped[stream] - counts[stream].dropped
    found, weights = kept(session, "burst_out")
    assert counts[stream].processed == len(found) == len(set(found))
    assert in_errors(slice(None), sent) <= 4


@pytest.mark.smoke
@pytest.mark.versions
def test_a_dial_at_0_drops_everything_and_at_1_nothing(brief: Session) -> None:
    session, count, edge = brief, 500, ("open_in", "open_out")
    place = topic(session, "shedding-ends")
    shut: dict[str, Any] = {"keep": {(None, "open_in"): 0.0, edge: 1.0}, "open_out": 1.0}
    turn(session, **shut)
    stream = pair(session, place, *edge)
    produce(session, place, ids(0, count))
    measured = settled(session, "open_in", count)
    assert measured.counts == {"open_in": Count(count, 0, count, 0), stream: Count(0, 0, 0, 0)}

    turn(session, {(None, "open_in"): 1.0, edge: 0.0}, open_out=1.0)
    produce(session, place, ids(count, count))
    measured = settled(session, "open_in", 2 * count)
    assert measured.counts == {"open_in": Count(2 * count, count, count, 0), stream: Count(0, 0, 0, 0)}
    assert measured.dropped == {"open_in": count, stream: count}

    turn(session, {(None, "open_in"): 1.0, edge: 1.0}, open_out=0.0)
    produce(session, place, ids(2 * count, count))
    measured = settled(session, "open_in", 3 * count)
    assert measured.counts[stream] == Count(count, 0, count, 0)
    assert measured.dropped == {"open_in": count, stream: 2 * count}

    turn(session, {(None, "open_in"): 1.0, edge: 1.0}, open_out=1.0)
    produce(session, place, ids(3 * count, count))
    measured = settled(session, "open_in", 4 * count)
    assert measured.counts[stream] == Count(2 * count, count, count, 0)
    found, weights = kept(session, "open_out")
    assert list(found) == list(range(3 * count, 4 * count))
    assert set(weights) == {1.0}
    assert running(session)
    assert all(instance.failures == 0 for instance in session.runtime.instances.values())


def test_all_dials_of_a_task_manager_turn_in_one_call(brief: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session, edge = brief, ("calls_in", "calls_out")
    pair(session, topic(session, "shedding-calls"), *edge)
    calls: list[dict[str, float]] = []
    really = dial.turn
    monkeypatch.setattr(dial, "turn", lambda spark, values: (calls.append(dict(values)), really(spark, values))[1])
    keep = {(None, "calls_in"): 0.5, edge: 0.25}
    turn(session, keep, calls_out=0.125)
    homes = {home(session, f"{task}.1") for task in edge}
    assert len(calls) == len(homes)
    assert sorted(value for call in calls for value in call.values()) == [0.125, 0.25, 0.5]
    board = session.runtime.board
    for name in homes:
        manager = session.runtime.task_managers[name]
        there = {key: value for call in calls for key, value in call.items() if manager.dials.get(key) == value}
        read = ", ".join(dial.read_sql(key, manager.reading) for key in there)
        assert list(manager.spark.sql(f"SELECT {read}").collect()[0]) == list(there.values())
    assert {board.source("calls_in"), board.send("calls_in>calls_out"), board.accept("calls_out")} == {
        key for call in calls for key in call
    }
    turn(session, keep, calls_out=0.125)
    assert len(calls) == len(homes)  # nothing to turn


@pytest.fixture
def reading(request: pytest.FixtureRequest, brief: Session) -> Iterator[DialReading]:
    """Plans that are built meanwhile read their dials this way."""
    managers = list(brief.runtime.task_managers.values())
    before = [manager.reading for manager in managers]
    for manager in managers:
        manager.reading = request.param
    yield request.param
    brief.stop_all()
    for manager, was in zip(managers, before, strict=True):
        manager.reading = was


@pytest.mark.parametrize("reading", [DialReading.BATCH, DialReading.RESTART], indirect=True)
def test_dials_of_clusters_whose_executors_are_elsewhere(brief: Session, reading: DialReading) -> None:
    session, count, edge = brief, 4_000, (f"in_{reading.value}", f"out_{reading.value}")
    place = topic(session, f"shedding-by-{reading.value}")
    sent = 0
    turn(session, {(None, edge[0]): 0.6, edge: 0.5}, **{edge[1]: 0.2})
    stream = pair(session, place, *edge)
    runs = {task: session.runtime.instances[f"{task}.1"].run_id for task in edge}
    with Events(session) as events:
        for at_source, sending, accepted in ((0.6, 0.5, 0.2), (0.9, 0.8, 0.5)):
            if sent:
                turn(session, {(None, edge[0]): at_source, edge: sending}, **{edge[1]: accepted})
                if reading is DialReading.RESTART:
                    for task in edge:
                        events.first("dial-fallback", instance=f"{task}.1")
                        eventually(lambda task=task: restarted(session, f"{task}.1", runs[task]), what=f"{task} again")
                else:
                    under_way = {task: batch(session, f"{task}.1") + 1 for task in edge}  # of before; the next is not
                    for task, old in under_way.items():
                        eventually(lambda task=task, old=old: batch(session, f"{task}.1") >= old, what=f"{task}'s next")
            before = settled(session, edge[0], sent).counts
            sent += produce(session, place, ids(sent, count))
            measured = settled(session, edge[0], sent)
            at = measured.counts[edge[0]].processed - before[edge[0]].processed
            binomial(at, count, at_source)
            gone = measured.counts[stream].arrived - before[stream].arrived
            binomial(gone, at, sending)
            binomial(
                measured.counts[stream].processed - before[stream].processed, gone, accepted / (at_source * sending)
            )
    assert running(session)
    _, weights = kept(session, edge[1])
    assert set(np.round(weights, 9)) == {5.0, 2.0}


def restarted(session: Session, instance: str, run: str | None) -> bool:
    found = session.runtime.instances[instance]
    return found.state is State.RUNNING and found.run_id not in (None, run)


def batch(session: Session, instance: str) -> int:
    """The number of the last batch that was reported."""
    query = session.runtime.instances[instance].query
    progress = None if query is None else query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
