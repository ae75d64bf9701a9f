"""Rescaling of a task while rows flow: none is lost, the books stay exact, nobody reads another's partition."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.core.plan import Lend, Plan, Scale
from qod_magics.core.runtime import Dials
from qod_magics.errors import QodError
from qod_magics.kafka.reading import end_offsets
from qod_magics.lifecycle.events import State
from qod_magics.session.results import QueryResults
from qod_magics.session.session import Session
from qod_magics.spark.queries.checkpoints import shuffle_partitions
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.live.applications import count, observed, rows, written
from tests.live.conftest import eventually, kafka_of, new_topic, pause
from tests.live.steady import BEGIN, SCHEMA, Steady
from tests.live.watching import Events, by_window, home, running, settled
from tests.raising import breaks
from tests.texts import tells


def declare(session: Session, topic: str, mode: str = "auto", **options: int) -> None:
    """src, which reads the topic, and q, which passes its rows on; one Spark query each."""
    session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", mode=mode, fuse=False)  # type: ignore[arg-type]
    session.stream("q", lambda src: src, from_="src", priority=1, mode=mode, fuse=False, **options)  # type: ignore[arg-type]


def ask(session: Session, parallelism: int, *to: str) -> None:
    """Have a plan ask for this."""
    action = Scale("q", parallelism, to, f"a reason for {parallelism}")
    session.runtime.apply(Plan({}, {}, (action,)), Dials({}, {}))


def parts(session: Session) -> dict[str, tuple[int, ...]]:
    """By instance of q, the partitions that it reads."""
    found = {id: each for id, each in session.runtime.instances.items() if each.job.task == "q"}
    return {id: found[id].job.feeds[0].partitions for id in sorted(found)}


def in_last_cycle(session: Session) -> set[str]:
    """The instances that the controller saw last."""
    cycle = session.last
    return set() if cycle is None or cycle.snapshot is None else {each.id for each in cycle.snapshot.instances}


def results(session: Session) -> dict[int, int]:
    """How many rows each instance has written."""
    topic = session.runtime.deployment.results["q"]
    return end_offsets(session.kafka, [topic], timeout_s=10.0)[topic]


@pytest.mark.parametrize("mode", [pytest.param("microbatch", marks=pytest.mark.smoke), "realtime"])
def test_a_task_is_scaled_while_rows_flow(brief: Session, topic: str, mode: str) -> None:
    session, cut_off = brief, 0
    with Steady(session, topic) as steady, Events(session) as events:
        declare(session, topic, mode)
        eventually(lambda: written(session, "q") > 0, what="first results")
        assert parts(session) == {"q.1": (0,)}
        # without those of the test before, which the controller would take for the same ones
        eventually(lambda: in_last_cycle(session) == {"src.1", "q.1"}, what=lambda: str(in_last_cycle(session)))
        here = home(session, "q.1")
        there = "tm2" if here == "tm1" else "tm1"

        reported = session.runtime.deployment.accounts["src"].processed
        ask(session, 3, there, here)
        done = events.first("scale", task="q", to=3)
        assert (done["from"], done["why"]) == (1, "a reason for 3")
        assert done["took_s"] > 0
        assert parts(session) == {"q.1": (0, 3, 6), "q.2": (1, 4, 7), "q.3": (2, 5)}
        assert [home(session, f"q.{n}") for n in (1, 2, 3)] == [here, there, here]
        for instance in ("q.2", "q.3"):
            assert home(session, instance) in events.first("warm-up", instance=instance)["why"]
        eventually(lambda: min(results(session).values()) > 0, what=lambda: f"rows from all: {results(session)}")
        eventually(lambda: running(session), what=session.status)
        cut_off += steady.sent - reported

        reported = session.runtime.deployment.accounts["src"].processed
        runs = {id: session.runtime.instances[id].run_id for id in ("src.1", "q.1", "q.2")}
        session.scale("q", 2)
        assert parts(session) == {"q.1": (0, 2, 3, 6), "q.2": (1, 4, 5, 7)}
        assert session.runtime.instances["src.1"].run_id == runs["src.1"]  # there are partitions enough
        assert events.first("scale", task="q", to=2)["from"] == 3
        cut_off += steady.sent - reported

        sent = steady.stop()
        counts = settled(session, "src", sent, "src>q")
        assert events.of("query-failed") == events.of("query-restarted") == events.of("action-refused") == []
    source, stream = counts["src"], counts["src>q"]
    assert (source.processed, source.dropped, source.unreported) == (sent, 0, 0)
    assert (stream.processed, stream.dropped, stream.unreported) == (stream.arrived, 0, 0)
    found = Counter(row["n"] for row in rows(session, "q"))
    assert set(found) == set(range(sent))
    again = sum(found.values()) - sent
    if mode == "microbatch":
        assert again == 0
        assert stream.arrived == sent
    assert again <= cut_off  # what batches under way had read when they were stopped


def arrivals(session: Session) -> dict[int, list[tuple[int, int]]]:
    """By k: n of each of q's results, and when it was written, ms since the epoch."""
    workshop, topic = session.runtime.workshop(), session.runtime.deployment.results["q"]
    reader = workshop.spark.read.format("kafka").options(**workshop.kafka).option("subscribe", topic)
    value = F.col("value").cast("string")
    columns = [F.get_json_object(value, "$.k"), F.get_json_object(value, "$.n"), F.unix_millis("timestamp")]
    found: dict[int, list[tuple[int, int]]] = {}
    for k, n, at_ms in reader.load().select(*columns).collect():
        found.setdefault(int(k), []).append((int(n), at_ms))
    return found


def test_rows_of_a_key_stay_in_order_where_their_stream_gets_more_partitions(brief: Session, topic: str) -> None:
    """Rows wait, since q takes longer for one than the next takes to arrive. Newer ones would be read from a new
    partition before them."""
    session = brief
    with Steady(session, topic) as steady, Events(session) as events:
        sleep = "java_method('java.lang.Thread', 'sleep', 6L)"
        session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", mode="microbatch", fuse=False)
        session.stream(
            "q",
            lambda src: src.withColumn("slow", F.expr(sleep)),
            from_="src",
            key="k",
            priority=1,
            mode="microbatch",
            fuse=False,
        )
        eventually(lambda: count(session, "src>q").waiting > 200, what="a backlog")
        session.scale("q", 3)
        assert parts(session) == {"q.1": (0, 3, 6), "q.2": (1, 4, 7), "q.3": (2, 5)}
        eventually(lambda: min(results(session).values()) > 0, what=lambda: f"rows from all: {results(session)}")
        sent = steady.stop()
        settled(session, "src", sent, "src>q")
        assert events.of("query-failed") == events.of("action-refused") == []
    found = arrivals(session)
    assert sorted(n for each in found.values() for n, _ in each) == list(range(sent))
    assert len(found) == 10
    for each in found.values():
        times = [at_ms for _, at_ms in sorted(each)]
        assert times == sorted(times)


#: By k, a key of two bytes, an empty one, and none at all among others.
NAMES = ("é", "", None, "a", "日本", "d", "e", "f", "g", "h")


def by_name(src: DataFrame) -> DataFrame:
    """Rows by window and name. A window is complete 10 seconds of the rows after its end, and its state removed."""
    windows = src.withWatermark("at", "10 seconds").groupBy(F.window("at", "2 seconds"), "name")
    return windows.agg(F.count("*").alias("n"))


def state_rows(session: Session, id: str) -> int | None:
    """How many groups an instance keeps, by its last report."""
    query = session.runtime.instances[id].query
    last = None if query is None else query.lastProgress
    return None if last is None else sum(each.numRowsTotal for each in last.stateOperators)


def test_a_count_by_window_and_key_is_scaled_with_its_state_while_rows_flow(
    brief: Session, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is in three shuffle partitions, as on a task manager of three cores."""
    session = brief
    monkeypatch.setattr(TaskManager, "shuffle", 3)
    with Steady(session, topic, 100.0) as steady, Events(session) as events:
        names = F.array(*map(F.lit, NAMES))
        session.stream(
            "src",
            lambda source: source.withColumn("name", F.get(names, F.col("k").cast("int"))),
            topic=topic,
            schema=SCHEMA,
            starting="earliest",
            mode="microbatch",
            fuse=False,
        )
        options: dict[str, Any] = {"from_": "src", "key": "name", "priority": 1, "parallelism": 1, "fuse": False}
        session.stream("q", by_name, max_parallelism=4, **options)
        eventually(lambda: written(session, "q") > 0, what="first results")
        eventually(lambda: steady.sent > 1_400, what="windows that are complete")
        assert [shuffle_partitions(session.runtime.instances[id].checkpoint) for id in ("src.1", "q.1")] == [3, 3]
        for parallelism in (2, 5, 1):
            session.scale("q", parallelism)
            assert len(parts(session)) == parallelism
            before = written(session, "q")
            eventually(lambda: written(session, "q") > before + 20, what=session.status)  # noqa: B023
            tasks = {task.id: task for task in observed(session).snapshot.tasks}
            assert (tasks["q"].stateful, tasks["q"].divisible) == (1, 1)
            if (
                parallelism == 2
            ):  # another filter, the same state: it goes on in both, and their keys stay where they are
                had = parts(session)
                session.stream("q", lambda src: by_name(src.where("k >= 0")), max_parallelism=8, **options)
                assert parts(session) == had
        sent = steady.stop()
        stream = settled(session, "src", sent, "src>q")["src>q"]
        assert (stream.arrived, stream.processed, stream.unreported) == (sent, sent, 0)
        assert events.of("state-begins-anew") == events.of("late-rows") == []
        assert events.of("query-failed") == events.of("query-restarted") == []
        windows = -(-sent // 200)
        assert windows > 10  # else all of them may be kept
        # of the newest row's window, and of those that ended at most 10 seconds before it
        eventually(lambda: 0 < (state_rows(session, "q.1") or 0) <= 6 * len(NAMES), what=session.status)
    emitted = Counter((str(row["window"]["start"]), row["name"], row["n"]) for row in rows(session, "q"))
    assert set(emitted.values()) == {1}  # a group is emitted when it has more rows, and once
    counts: dict[tuple[str, str | None], int] = {}
    for start, name, n in emitted:
        counts[start, name] = max(n, counts.get((start, name), 0))
    assert sum(counts.values()) == sent
    assert {name for _, name in counts} == set(NAMES)
    assert len(counts) <= windows * len(NAMES)
    assert max(counts.values()) == 20


def by_user(src: DataFrame) -> DataFrame:
    """Rows by window and user, with aggregates of every kind whose parts are merged."""
    windows = src.withWatermark("at", "10 seconds").groupBy(F.window("at", "2 seconds"), "user")
    n = F.col("n")
    return windows.agg(
        *(F.count("*").alias("rows"), F.sum(n).alias("total"), F.min(n).alias("least"), F.max(n).alias("most")),
        *(F.avg(n).alias("mean"), F.count(n).alias("known")),
    )


def users(sent: int) -> dict[tuple[int, str], tuple[float, ...]]:
    """What `by_user` makes of the first rows, by the second in which a window begins: all rows of it by one."""
    groups: dict[tuple[int, str], list[int]] = {}
    for n in range(sent):
        groups.setdefault((BEGIN + n // 200 * 2, "hot" if n % 10 < 6 else str(n % 10)), []).append(n)
    return {group: (len(ns), sum(ns), min(ns), max(ns), sum(ns) / len(ns), len(ns)) for group, ns in groups.items()}


def holders(session: Session, user: str, since: int = 0) -> set[int]:
    """The instances that have written parts of groups of a user whose rows are all from that one on."""
    workshop, topic = session.runtime.workshop(), session.runtime.deployment.results["q"]
    value = F.col("value").cast("string")
    records = workshop.spark.read.format("kafka").options(**workshop.kafka).option("subscribe", topic).load()
    fields = {name: F.get_json_object(value, f"$.{name}") for name in ("user", "least")}
    mine = records.where((fields["user"] == user) & (fields["least"].cast("long") >= since))
    return {row[0] + 1 for row in mine.select("partition").distinct().collect()}


def row_bytes(session: Session) -> float | None:
    """The mean size of a row of the only stream between tasks; None while none is sent or its size is not known."""
    (stream,) = observed(session).snapshot.streams
    return stream.bytes_per_s / stream.out_rate if stream.bytes_per_s and stream.out_rate else None


def test_rows_of_a_hot_key_are_lent_and_its_groups_are_exact(brief: Session, topic: str) -> None:
    session = brief
    with Steady(session, topic) as steady, Events(session) as events:
        hot = F.when(F.col("n") % 10 < 6, F.lit("hot")).otherwise(F.col("k").cast("string"))
        source: dict[str, Any] = {"topic": topic, "schema": SCHEMA, "starting": "earliest", "mode": "microbatch"}
        session.stream("src", lambda source: source.withColumn("user", hot), fuse=False, **source)
        options: dict[str, Any] = {"from_": "src", "key": "user", "parallelism": 2, "priority": 1, "lend": True}
        with pytest.raises(QodError, check=breaks("merges", name="q")):
            session.stream("q", lambda src: src.groupBy("user").agg(F.percentile_approx("n", 0.5)), **options)
        session.stream("q", by_user, **options)
        eventually(lambda: holders(session, "hot"), what="first results")
        (lessor,) = holders(session, "hot")
        assert {task.id: task.lends for task in observed(session).snapshot.tasks} == {"src": None, "q": 1}
        lend = Lend("q", f"q.{lessor}", f"q.{3 - lessor}", 0.5, "a reason")
        session.runtime.apply(Plan({}, {}, (lend, Lend("q", "q.1", "q.9", 0.5))), Dials({}, {}))
        eventually(lambda: holders(session, "hot") == {1, 2}, what="rows that are lent")
        size = eventually(lambda: row_bytes(session), what="the size of a row between tasks")
        assert size is not None
        assert 30 < size < 300, "a JSON object of a few short columns"
        with pytest.raises(QodError, check=breaks("assignable state", name="q")):
            session.scale("q", 3)
        session.move(lend.to, "tm2" if home(session, lend.to) == "tm1" else "tm1")
        session.runtime.apply(Plan({}, {}), Dials({}, {}))
        taken_back = steady.sent
        eventually(lambda: steady.sent > taken_back + 1_000, what="windows after that")
        sent = steady.stop()
        stream = settled(session, "src", sent, "src>q")["src>q"]
        assert (stream.arrived, stream.processed, stream.unreported) == (sent, sent, 0)
        assert events.of("query-failed") == events.of("late-rows") == []
        assert [event["to"] for event in events.of("action-refused")] == ["q.9"]
        names = ("rows", "total", "least", "most", "mean", "known")
        found = rows(session, "q")
        assert len({(row["window"]["start"], row["user"]) for row in found}) == len(found)
        merged = {
            (int(row["window"]["start"].replace(tzinfo=UTC).timestamp()), row["user"]): tuple(map(row.get, names))
            for row in found
        }
        shown = QueryResults(session, "q").read().rows.values()
        expected = {group: pytest.approx(known, rel=1e-12) for group, known in users(sent).items()}
        assert merged == expected, "a mean is of parts, each of them rounded"
        assert sorted(tuple(map(row.get, names)) for row in shown) == [
            expected[group] for group in sorted(merged, key=merged.__getitem__)
        ]
        assert holders(session, "hot", taken_back) == {lessor}
        span = [datetime.fromtimestamp(BEGIN + second, UTC) for second in (0, 2 * (sent // 200))]
        with pytest.raises(QodError, check=breaks("one row", name="q", option="--merge")):
            session.exact("q", *span, merge=True)
        beside = session.exact("q", *span, margin_s=1e8).frame  # its rows are of another year
        assert len(beside) == 5 * (sent // 200)
        assert (beside["rows"] == beside["rows_estimate"]).all()


def slowly_by_key(src: DataFrame) -> DataFrame:
    """Rows by window and key, some 30 ms of CPU for each: one core takes fewer than 40 rows/s."""
    worked = src.withColumn("worked", F.expr("aggregate(sequence(n, n + 500000L), n, (sum, x) -> sum + x % 7)"))
    groups = worked.withWatermark("at", "1 hour").groupBy(F.window("at", "2 seconds"), "k")
    return groups.agg(F.count("*").alias("n"), F.max("worked").alias("worked"))


def test_stela_scales_a_congested_task_with_its_state_out_to_a_free_task_manager(brief: Session, topic: str) -> None:
    session, before = brief, brief.controller.policy.name
    with Steady(session, topic, 60.0) as steady, Events(session) as events:
        options: dict[str, Any] = {"mode": "microbatch", "fuse": False}
        session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", **options)
        session.stream("q", slowly_by_key, from_="src", key="k", priority=1, max_parallelism=4, **options)
        here = home(session, "q.1")
        there = "tm2" if here == "tm1" else "tm1"
        if home(session, "src.1") == there:
            session.move("src.1", here)
        eventually(lambda: written(session, "q") > 0, what="first results")
        eventually(lambda: count(session, "src>q").waiting > 100, what="a backlog")
        try:
            session.set_policy("stela")
            session.resume()
            scaled = events.first("scale", task="q")
        finally:
            session.set_policy(before)
            pause(session)
        steady.stop()
        assert scaled["from"] == 1
        assert scaled["to"] in (2, 3)  # as many as the load of a task manager is worth
        homes = [home(session, id) for id in parts(session)]
        assert homes == [here, *[there] * (scaled["to"] - 1)]
        eventually(lambda: running(session), what=session.status)
        assert all(session.runtime.instances[id].begun for id in parts(session))  # they go on with its state
        stream = count(session, "src>q")
        assert (stream.dropped, stream.unreported) == (0, 0)
        assert events.of("state-begins-anew") == events.of("query-failed") == []


def test_who_keeps_its_partitions_keeps_running_and_a_new_stream_changes_nothing(brief: Session, topic: str) -> None:
    session = brief
    declare(session, topic, parallelism=1, max_parallelism=4)
    assert parts(session) == {"q.1": (0, 1, 2, 3)}
    session.scale("q", 3)
    assert parts(session) == {"q.1": (0, 1), "q.2": (2,), "q.3": (3,)}
    runs = {id: session.runtime.instances[id].run_id for id in ("src.1", "q.2", "q.3")}
    session.scale("q", 4)
    assert parts(session) == {"q.1": (0,), "q.2": (2,), "q.3": (3,), "q.4": (1,)}
    assert runs == {id: session.runtime.instances[id].run_id for id in runs}
    session.stream("other", lambda src: src, from_="src", priority=1, fuse=False)
    assert len(parts(session)) == 4
    tasks = observed(session).snapshot.tasks
    assert {task.id: task.max_parallelism for task in tasks} == {"src": 1, "q": 4, "other": 8}
    assert {task.stateful for task in tasks} == {0}
    session.stream("q", lambda src: src.where("k >= 0"), from_="src", priority=1, fuse=False)
    assert len(parts(session)) == 1  # another recipe runs as it was declared


def test_what_can_t_be_scaled_is_refused_in_one_line(brief: Session, topic: str) -> None:
    session = brief

    def refusal(call: Callable[[], object]) -> str:
        with pytest.raises(QodError) as caught:
            call()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    declare(session, topic)
    session.stream("counts", by_window, from_="src", priority=1, fuse=False)
    session.stream("own", lambda spark: spark.readStream.format("rate").load(), priority=1)
    assert "'counts'" in refusal(lambda: session.scale("count", 2))
    assert "needs 1 or more" in refusal(lambda: session.scale("q", 0))
    assert "8" in refusal(lambda: session.scale("q", 9))
    assert f"its topic {topic} has 1 partition; take 1 or less" in refusal(lambda: session.scale("src", 2))
    assert "source" in refusal(lambda: session.scale("own", 2))
    with pytest.raises(QodError, check=breaks("assignable state", name="counts")):  # its rows are sent without a key
        session.scale("counts", 2)

    one = session.runtime.instances["q.1"]
    with one.lock:  # neither can end
        scaled = session.runtime.scaler.scale("q", 2)
        assert tells(refusal(lambda: session.scale("counts", 2)), "q", 2)
        eventually(lambda: one.state is State.STOPPED, what="its partitions")
        assert "scaled" in refusal(lambda: session.move("q.1", "tm1"))
        ask(session, 2)  # under way
        ask(session, 3)
    scaled.result(60.0)
    assert len(parts(session)) == 2
    refused = [event.detail for event in observed(session).events if event.kind == "action-refused"]
    assert [(event["action"], event["task"]) for event in refused] in ([], [("Scale", "q")])  # a cycle may have it
    one, other = session.runtime.instances["q.1"], "tm2" if home(session, "q.1") == "tm1" else "tm1"
    with one.lock:
        moved = session.runtime.move("q.1", other, "by hand")
        assert "q.1" in refusal(lambda: session.scale("q", 3))
    moved.result(60.0)


@pytest.mark.slow
def test_who_is_lost_with_its_task_manager_comes_back_with_its_own_partitions(
    losing: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost before its run has ended, as it was; after that, as it is now."""
    session, topic = losing, new_topic(losing)

    def homes() -> tuple[str, str]:
        """That of q.1, and another one, which src is on."""
        lost = home(session, "q.1")
        kept = next(id for id in session.runtime.task_managers if id != lost)
        if home(session, "src.1") == lost:
            session.move("src.1", kept)
        return lost, kept

    with Steady(session, topic) as steady:
        declare(session, topic)
        eventually(lambda: written(session, "q") > 0, what="first results")
        lost, kept = homes()
        with session.runtime.instances["q.1"].lock:  # it can't be stopped
            scaled = session.runtime.scaler.scale("q", 3, (kept, lost))
            session.remove_task_manager(lost, kill=True)
            with pytest.raises(QodError, match=f"{lost} "):
                scaled.result(60.0)
        eventually(lambda: running(session), what=session.status)
        assert (parts(session), home(session, "q.1")) == ({"q.1": (0,)}, kept)

        session.add_task_manager(cores=1)
        eventually(lambda: not session.runtime.instances["q.1"].books_differ, what="the books are where it is")
        lost, kept = homes()
        _kill_at_start(session, lost, monkeypatch)
        session.runtime.scaler.scale("q", 3, (kept, lost)).result(120.0)
        eventually(lambda: running(session), what=session.status)
        assert parts(session) == {"q.1": (0, 3, 6), "q.2": (1, 4, 7), "q.3": (2, 5)}
        assert {home(session, id) for id in parts(session)} == {kept}

        sent = steady.stop()
        stream = settled(session, "src", sent, "src>q")["src>q"]
        assert stream.arrived == stream.processed + stream.unreported
        assert {row["n"] for row in rows(session, "q")} == set(range(sent))


@pytest.mark.slow
def test_groups_are_exact_though_a_lessee_is_lost_with_its_task_manager(losing: Session) -> None:
    session, topic = losing, new_topic(losing)
    with Steady(session, topic) as steady, Events(session) as events:
        hot = F.when(F.col("n") % 10 < 6, F.lit("hot")).otherwise(F.col("k").cast("string"))
        source: dict[str, Any] = {"topic": topic, "schema": SCHEMA, "starting": "earliest", "mode": "microbatch"}
        session.stream("src", lambda source: source.withColumn("user", hot), fuse=False, **source)
        session.stream("q", by_user, from_="src", key="user", parallelism=2, priority=1, lend=True)
        eventually(lambda: holders(session, "hot"), what="first results")
        (lessor,) = holders(session, "hot")
        lessee = f"q.{3 - lessor}"
        kept = home(session, f"q.{lessor}")
        lost = "tm2" if kept == "tm1" else "tm1"
        for id, place in (("src.1", kept), (lessee, lost)):
            if home(session, id) != place:
                session.move(id, place)
        lend = Lend("q", f"q.{lessor}", lessee, 0.5)
        session.runtime.apply(Plan({}, {}, (lend,)), Dials({}, {}))
        eventually(lambda: holders(session, "hot") == {1, 2}, what="rows that are lent")
        session.remove_task_manager(lost, kill=True)
        eventually(lambda: running(session) and home(session, lessee) == kept, what=session.status)
        lost_at = steady.sent
        eventually(lambda: steady.sent > lost_at + 500, what="rows after that")
        sent = steady.stop()
        settled(session, "src", sent, "src>q")
        assert events.of("late-rows") == []
        names = ("rows", "total", "least", "most", "mean", "known")
        assert sorted(tuple(map(row.get, names)) for row in rows(session, "q")) == sorted(users(sent).values())


def _kill_at_start(session: Session, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill this task manager when the new q.1 is about to start on it."""
    start, killed = Instance.start, threading.Event()

    def killing(self: Instance, manager: object, *others: object) -> None:
        if self.id == "q.1" and not killed.is_set():
            killed.set()
            session.remove_task_manager(lost, kill=True)
        start(self, manager, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Instance, "start", killing)


@pytest.fixture
def losing(cluster: Session) -> Iterator[Session]:
    """A session of its own, whose two task managers may be lost."""
    with Session.up(task_managers=2, cores=1, period_s=2.0, jit="c1", **kafka_of(cluster)) as session:
        pause(session)
        yield session
