"""The runtime's own threads do not get into each other's way."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from pyspark.sql.types import StructType

from qod_magics.application.tasks import tasks
from qod_magics.core.plan import Move, Plan
from qod_magics.core.runtime import Dials
from qod_magics.core.snapshot import replace
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.lifecycle.events import MoveAsked, State
from qod_magics.lifecycle.query import QueryLife
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context, Part
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.observation import InstanceView
from qod_magics.spark.cluster.views import instance_views
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.job import Feed, Job
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import Meter
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.connection import begin, gather
from qod_magics.spark.servers.cpu import TaskTime
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka, failure
from tests.spark.batches import batch
from tests.spark.fakes import FakeMover, FakeTaskManager, Query, Script, fake_inspection
from tests.texts import tells


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def runtime(kafka: FakeKafka) -> Iterator[SparkRuntime]:
    made = SparkRuntime(kafka, "s", "/nowhere")
    yield made
    made.close()


def test_answers_about_offsets_never_overtake_each_other(runtime: SparkRuntime, kafka: FakeKafka) -> None:
    """A lower offset after a higher one would look like a topic made anew, and its rate would be forgotten."""
    asked, busy, together = itertools.count(), threading.Lock(), []

    def slow(operation: str, topic: str) -> None:
        if operation == "offsets":
            together.append(not busy.acquire(blocking=False))
            now = next(asked)
            time.sleep(0.02 if now % 2 else 0.0)
            kafka.set_ends("t", {0: 1000 + now})
            if not together[-1]:
                busy.release()

    kafka.create("t")
    kafka.fail = slow
    runtime.deployment.accounts["S"] = Account("t", {0: 0})
    gather({str(i): runtime.metrics.sample for i in range(8)}, 10.0)
    assert len(together) >= 8
    assert not any(together)
    runtime.deployment.accounts.clear()


def test_a_broker_that_does_not_answer_holds_up_no_plan(runtime: SparkRuntime, kafka: FakeKafka) -> None:
    asked, answers = threading.Event(), threading.Event()

    def frozen(operation: str, topic: str) -> None:
        asked.set()
        assert answers.wait(30.0)

    kafka.create("t", end=7)
    kafka.fail = frozen
    home = FakeTaskManager()
    runtime.add_task_manager(home)  # type: ignore[arg-type]
    runtime.deployment.accounts["S"] = Account("t", {0: 0})
    sampling = begin(runtime.metrics.sample, "sampling")
    assert asked.wait(30.0)
    begin(lambda: runtime.apply(Plan({}, {}), Dials({}, {})), "apply").result(30.0)
    assert len(home.turned) == 1
    assert not sampling.done()
    answers.set()
    sampling.result(30.0)
    runtime.deployment.accounts.clear()


def test_a_topic_without_offsets_is_reported_once_and_the_others_are_measured(
    runtime: SparkRuntime, kafka: FakeKafka
) -> None:
    kafka.create("u", end=7)
    runtime.deployment.accounts |= {"S": Account("t", {0: 0}), "T": Account("u", {0: 0})}
    runtime.metrics.sample()
    runtime.metrics.sample()
    assert [*runtime.cluster.missing_topics] == ["t"]
    kafka.create("t")
    runtime.metrics.sample()
    assert [(event.kind, event.detail["topic"], event.detail["task"]) for event in runtime.cluster.events] == [
        ("topic-missing", "t", "S"),
        ("topic-back", "t", "S"),
    ]
    assert runtime.metrics.history.at("u", time.monotonic()) == {0: 7}
    runtime.deployment.accounts.clear()


def test_a_broker_that_is_silent_is_reported_whatever_is_read(
    runtime: SparkRuntime, kafka: FakeKafka, tmp_path: Path
) -> None:
    def refuse(operation: str, topic: str) -> None:
        raise failure(ClientError._TRANSPORT)

    answers, name = kafka.fail, f"json:{tmp_path}"
    runtime.deployment.accounts["S"] = Account(name, {0: 0})
    kafka.fail = refuse
    runtime.metrics.sample()
    runtime.metrics.sample()
    assert [*runtime.silent_kafka] == [kafka.bootstrap]
    assert runtime.metrics.history.at(name, time.monotonic()) == {0: 0}, "files are read on"
    runtime.deployment.accounts.clear()  # its readers are stopped
    kafka.fail = answers
    runtime.metrics.sample()
    assert runtime.silent_kafka == {}

    kafka.create("t")
    runtime.deployment.accounts["S"] = Account("t", {0: 0})
    kafka.fail = refuse
    for _ in range(2):
        with pytest.raises(KafkaError):
            runtime.metrics.sample()
    kafka.fail = answers
    runtime.metrics.sample()
    told = [event for event in runtime.cluster.events if event.kind.startswith("kafka-")]
    assert [event.kind for event in told] == ["kafka-silent", "kafka-back"] * 2
    assert {event.detail["kafka"] for event in told} == {kafka.bootstrap}
    runtime.deployment.accounts.clear()


def test_each_file_that_is_not_read_is_reported_once(runtime: SparkRuntime, tmp_path: Path) -> None:
    name = f"json:{tmp_path}"
    runtime.deployment.accounts["S"] = Account(name, {0: 0})
    for within in ("a", "a", "b", "b"):
        (tmp_path / within).mkdir(exist_ok=True)
        runtime.metrics.sample()
    events = [event for event in runtime.cluster.events if event.kind == "source-missing"]
    assert [event.detail["why"].partition(" ")[0] for event in events] == ["a", "b"]
    runtime.deployment.accounts.clear()


def test_nothing_is_started_any_more_while_the_session_ends(runtime: SparkRuntime) -> None:
    """Such as the query of tasks that are being fused: on a session of the user's it would run on."""
    up = []

    class Ending(FakeTaskManager):
        def close(self) -> None:
            up.append(runtime.cluster.is_up(self))  # type: ignore[arg-type]

    runtime.add_task_manager(Ending())  # type: ignore[arg-type]
    runtime.close()
    assert up == [False]


def test_a_start_that_is_under_way_while_the_session_ends_comes_too_late(runtime: SparkRuntime) -> None:
    """A move, say, that had not reached the server yet."""
    asked: list[Any] = []

    class Attached(FakeTaskManager):
        def turn(self, dials: Any) -> None:
            asked.append(dials)
            raise TaskManagerError("here it would start")

        def close(self) -> None:  # all queries have been stopped by now
            with suppress(TaskManagerError):
                runtime.lifecycle.start(late, self)  # type: ignore[arg-type]

    runtime.add_task_manager(Attached(kind="attached"))  # type: ignore[arg-type]
    late = instance_on(runtime, "late", runtime.task_managers["tm1"])
    assert late.handle(MoveAsked("tm2", "tm1"))
    runtime.close()
    assert asked == []


def test_a_run_that_no_deployment_could_stop_is_stopped_or_told_of_at_the_end(runtime: SparkRuntime) -> None:
    def gone() -> None:
        raise ConnectionError("nobody answers")

    runtime.add_task_manager(FakeTaskManager(kind="attached"))  # type: ignore[arg-type]
    home = runtime.task_managers["tm1"]
    for query in (Query(), Query()):
        one = instance_on(runtime, "T", home)
        one.query = query  # type: ignore[assignment]
        runtime.cluster.instances.clear()
        runtime.cluster.lingering.append(one)
    asked: list[str] = []
    first, second = runtime.cluster.lingering
    first.query.stop = lambda: asked.append("stop")  # type: ignore[union-attr, method-assign]
    second.query.stop = gone  # type: ignore[union-attr, method-assign]
    instance_on(runtime, "T", home)
    runtime.close()
    assert asked == ["stop"]
    (unstopped,) = runtime.unstopped
    assert tells(unstopped, "T.1", 2, "tm1", "nobody answers")


def test_an_end_that_is_interrupted_leaves_no_server_and_no_topic(runtime: SparkRuntime, kafka: FakeKafka) -> None:
    """`%qod down` can't be given again, and takes as long as queries that hang."""
    closed: list[str] = []

    class Impatient(FakeTaskManager):
        def close(self) -> None:
            closed.append(self.id)
            if self.id == "tm1":
                raise KeyboardInterrupt
            raise ConnectionError("nobody answers")

    def interrupted() -> None:
        raise KeyboardInterrupt

    kafka.create("qod.s.a.b.1")
    runtime.add_task_manager(Impatient("tm1"))  # type: ignore[arg-type]
    runtime.add_task_manager(Impatient("tm2"))  # type: ignore[arg-type]
    runtime.cluster.leftover_topics.add("qod.s.a.b.1")
    stuck = instance_on(runtime, "T", runtime.task_managers["tm1"])
    stuck.query = Query()  # type: ignore[assignment]
    stuck.query.stop = interrupted  # type: ignore[union-attr, method-assign]
    with pytest.raises(KeyboardInterrupt):
        runtime.close()
    assert closed == ["tm1", "tm2"]
    assert not kafka.topics
    assert not runtime.task_managers


def test_a_task_manager_that_comes_after_the_end_is_refused(runtime: SparkRuntime) -> None:
    runtime.close()

    class Late:
        id = "tm9"

    with pytest.raises(TaskManagerError) as caught:
        runtime.add_task_manager(Late())  # type: ignore[arg-type]
    assert (caught.value.rule, caught.value.name) == ("running", "tm9")


def test_without_task_managers_there_is_nothing_to_observe(runtime: SparkRuntime) -> None:
    with pytest.raises(TaskManagerError) as caught:
        runtime.observe()
    assert (caught.value.rule, caught.value.name) == ("a task manager is up", None)


def test_where_the_last_task_manager_was_lost_the_error_says_which_and_why(runtime: SparkRuntime) -> None:
    """Its event waits for an observation, and there is none while no task manager is up."""

    def missing() -> tuple[str | None, object]:
        with pytest.raises(TaskManagerError) as caught:
            runtime.observe()
        assert caught.value.rule == "a task manager is up"
        return caught.value.name, caught.value.value

    one, _ = two_managers(runtime)
    one.alive_now = False
    runtime.recovery.recover_lost()
    runtime.withdraw("tm2")
    assert missing() == (None, None)
    three = FakeTaskManager("tm3")
    runtime.add_task_manager(three)  # type: ignore[arg-type]
    three.alive_now = False
    runtime.recovery.recover_lost()
    assert [missing()[0] for _ in range(2)] == ["tm3"] * 2
    assert [e.kind for e in runtime.cluster.events].count("task-manager-lost") == 2


def test_a_task_manager_without_metrics_is_told_once_and_its_return_too(runtime: SparkRuntime) -> None:
    home = FakeTaskManager()
    home.mute = True
    runtime.add_task_manager(home)  # type: ignore[arg-type]
    seen = [event for _ in range(3) for event in runtime.observe().events]
    assert [event.kind for event in seen] == ["task-manager-up", "metrics-missing"]
    assert seen[1].detail["task_manager"] == "tm1"
    home.mute = False
    (back,) = [event for _ in range(3) for event in runtime.observe().events]
    assert (back.kind, back.detail["task_manager"]) == ("metrics-back", "tm1")
    assert back.detail["after_s"] >= 0


def test_what_a_deployment_starts_is_started_once(runtime: SparkRuntime) -> None:
    """The watcher, which starts what waits for a task manager, may come by before the deployment has."""
    specs, started, looks = tasks(application(stream("ticks", priority=1))), list[tuple[str, str]](), iter([True])

    def place(unplaced: Any, *_: Any) -> dict[str, str]:
        if next(looks, False):
            runtime.recovery.recover_lost()
        return {one.instance: "tm1" for one in unplaced}

    runtime.place_by(place)
    runtime.cluster.make = Script(lambda one, home: started.append((one.id, home.id))).make
    runtime.deployment.inspection = fake_inspection(
        lambda specs: Checked(dict.fromkeys([spec.id for spec in specs], StructType([])))
    )
    runtime.add_task_manager(FakeTaskManager())  # type: ignore[arg-type]
    runtime.deployer.deploy(specs)
    assert started == [("ticks.1", "tm1")]


@pytest.mark.parametrize(("reading", "told"), [(each, each is DialReading.RESTART) for each in DialReading])
def test_that_queries_restart_for_new_dials_is_told_once(
    runtime: SparkRuntime, reading: DialReading, told: bool
) -> None:
    home: Any = FakeTaskManager()
    home.reading = reading
    runtime.add_task_manager(home)
    events = [each for each in runtime.cluster.take_events() if each.kind == "dial-fallback"]
    assert [each.detail["task_manager"] for each in events] == ["tm1"] * told


def instance_on(runtime: SparkRuntime, id: str, manager: Any, make: Callable[..., Instance] = Instance) -> Instance:
    job = Job(id, f"{id}.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
    made = make(job, "/nowhere", life=QueryLife(State.RUNNING), task_manager=manager)
    runtime.cluster.instances[made.id] = made
    return made


def two_managers(runtime: SparkRuntime) -> tuple[Any, Any]:
    """tm1 and tm2, which are up."""
    made = FakeTaskManager("tm1"), FakeTaskManager("tm2")
    for manager in made:
        runtime.add_task_manager(manager)  # type: ignore[arg-type]
    return made


@pytest.fixture
def slow_moves(runtime: SparkRuntime) -> Iterator[threading.Event]:
    """Moves to tm2 end when this is set; those to others at once."""
    mover = FakeMover(runtime.cluster, "tm2")
    runtime.mover = mover
    runtime.place_by(lambda unplaced, *_: {one.instance: "tm1" for one in unplaced})
    yield mover.go
    mover.go.set()
    runtime.cluster.instances.clear()


def test_what_is_on_its_way_to_a_task_manager_that_is_removed_moves_on(
    runtime: SparkRuntime, slow_moves: threading.Event
) -> None:
    one, two = two_managers(runtime)
    late, there = instance_on(runtime, "late", one), instance_on(runtime, "there", two)
    under_way = runtime.move("late.1", "tm2", "planned before")
    removal = begin(lambda: runtime.remove_task_manager("tm2"), "removing")
    while "tm2" not in runtime.cluster.leaving:
        time.sleep(0.01)
    with pytest.raises(TaskManagerError) as caught:
        runtime.move("late.1", "tm2", "too late")
    assert (caught.value.rule, caught.value.name) == ("staying", "tm2")
    slow_moves.set()
    removal.result(10.0)
    assert under_way.exception(0) is None
    assert (late.task_manager, there.task_manager) == (one, one)
    assert list(runtime.task_managers) == ["tm1"]
    assert not runtime.cluster.leaving


def test_a_removal_waits_for_a_move_that_is_under_way_and_nobody_moves_twice_at_once(
    runtime: SparkRuntime, slow_moves: threading.Event
) -> None:
    """Of two moves at once, each could start a run on the same checkpoint."""
    one, two = two_managers(runtime)
    away = instance_on(runtime, "away", one)
    under_way = runtime.move("away.1", "tm2", "planned before")
    with pytest.raises(TaskManagerError) as caught:
        runtime.move("away.1", "tm1", "by hand")
    assert (caught.value.rule, caught.value.name) == ("one move at a time", "away.1")
    removal = begin(lambda: runtime.remove_task_manager("tm1"), "removing")
    while "tm1" not in runtime.cluster.leaving:
        time.sleep(0.01)
    time.sleep(0.1)
    assert not removal.done()
    slow_moves.set()
    removal.result(10.0)
    assert under_way.exception(0) is None
    assert away.task_manager is two


def test_a_plan_sends_nobody_to_a_task_manager_that_is_being_removed(runtime: SparkRuntime) -> None:
    one, mover = FakeTaskManager("tm1"), FakeMover(runtime.cluster)
    runtime.mover = mover
    for manager in (one, FakeTaskManager("tm2"), FakeTaskManager("tm3")):
        runtime.add_task_manager(manager)  # type: ignore[arg-type]
    instance_on(runtime, "a", one)
    runtime.cluster.leaving.add("tm2")
    for target in ("tm2", "tm3"):
        runtime.apply(Plan({}, {}, actions=(Move("a.1", target, "a reason"),)), Dials({}, {}))
    mover._moves["a.1"][1].result(10.0)
    assert mover.moved == [("a.1", "tm3", "a reason")]
    (event,) = [event for event in runtime.cluster.events if event.kind == "action-refused"]
    assert (event.detail["instance"], event.detail["to"]) == ("a.1", "tm2")
    runtime.cluster.instances.clear()


def test_a_move_to_a_task_manager_that_is_not_there_is_an_event_and_the_rest_is_done(runtime: SparkRuntime) -> None:
    home = FakeTaskManager()
    runtime.add_task_manager(home)  # type: ignore[arg-type]
    instance_on(runtime, "a", home)
    runtime.apply(Plan({}, {}, actions=(Move("a.1", "gone"),)), Dials({}, {}))
    (event,) = [event for event in runtime.cluster.events if event.kind == "action-refused"]
    assert event.detail["to"] == "gone"
    assert len(home.turned) == 1


def test_what_came_to_a_task_manager_after_its_removal_starts_elsewhere(
    runtime: SparkRuntime, slow_moves: threading.Event
) -> None:
    started: list[tuple[str, str]] = []
    script = Script(lambda one, home: started.append((one.id, home.id)))
    runtime.add_task_manager(FakeTaskManager("tm1"))  # type: ignore[arg-type]
    stray = instance_on(runtime, "stray", FakeTaskManager("tm2"), script.make)
    runtime.recovery.recover_lost()
    while not started:
        time.sleep(0.01)
    assert started[0] == ("stray.1", "tm1")
    assert stray.move is not None
    assert (stray.move.source, stray.move.why) == ("tm2", "tm2 was removed")


def test_rows_that_wait_for_an_instance_are_those_of_its_partitions(runtime: SparkRuntime) -> None:
    one = instance_on(runtime, "a", FakeTaskManager("tm1"))
    one.job = replace(one.job, feeds=(Feed("a", ("a",), "t", (1,), {1: 10}, None, False),))
    runtime.cluster.deployment.accounts["a"] = Account("t", {0: 0, 1: 10}, {1: 30})
    assert runtime.metrics.rows_waiting(one) == 0  # nothing is known of the topic yet
    runtime.metrics.history.record(time.monotonic(), {"t": {0: 100, 1: 50}})
    assert runtime.metrics.rows_waiting(one) == 20
    runtime.cluster.instances.clear()


def test_whether_a_task_can_lend_is_told_once_its_senders_have_task_managers(runtime: SparkRuntime) -> None:
    app = application(
        stream("src", topic="t", fuse=False), stream("q", "src", priority=1, lend=True, key="k", parallelism=2)
    )
    deployment, spec = runtime.cluster.deployment, tasks(app)[-1]
    deployment.specs = {each.id: each for each in tasks(app)}
    deployment.pipes = {"src>q": Pipe("src>q", "src", "q", "s.q", 2, "k")}
    home = FakeTaskManager("tm1")
    sender = instance_on(runtime, "src", None)
    assert "lends" not in runtime.metrics._scalability(spec)
    sender.task_manager = home  # type: ignore[assignment]
    assert runtime.metrics._scalability(spec)["lends"] == 1
    home.reading = DialReading.BATCH
    assert runtime.metrics._scalability(spec)["lends"] == 0
    runtime.cluster.instances.clear()
    deployment.specs, deployment.pipes = {}, {}


def test_rows_of_files_that_are_gone_are_unreported_and_wait_no_longer(runtime: SparkRuntime, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    name, file = f"json:{tmp_path / 'in'}", tmp_path / "in" / "a.json"
    sources = runtime.deployment.sources = Sources(Context(FakeKafka(), tmp_path / "links"))
    one = instance_on(runtime, "a", FakeTaskManager("tm1"))
    one.job = replace(one.job, feeds=(Feed("a", ("a",), name, (0,), {0: 0}, None, False),))
    account = runtime.deployment.accounts["a"] = Account(name, {0: 0})
    files: Any = sources.of(name)
    files._opened(str(tmp_path / "in"), Part(name, (0,), {0: 0}, one.job.reads_as))
    file.write_text("{}\n" * 3)
    ends = sources.ends([name])[0][name]
    file.unlink()
    assert account.count(ends).waiting == 3
    runtime.metrics.tend_sources()
    count = account.count(ends)
    assert (count.arrived, count.waiting, count.unreported) == (3, 0, 3)
    runtime.cluster.instances.clear()
    runtime.deployment.accounts.clear()


def test_an_instance_is_idle_once_it_has_read_what_has_come(runtime: SparkRuntime) -> None:
    one, watcher = instance_on(runtime, "a", FakeTaskManager("tm1")), runtime.watcher
    watcher._broker_answers = True
    assert not watcher._is_idle(one), "it reads a source of its own"
    one.job = replace(one.job, feeds=(Feed("a", ("a",), "t", (0,), {0: 0}, None, False),))
    account = runtime.cluster.deployment.accounts["a"] = Account("t", {0: 0}, {0: 30})
    runtime.metrics.history.record(time.monotonic(), {"t": {0: 50}})
    assert not watcher._is_idle(one)
    account.position = {0: 50}
    assert watcher._is_idle(one)
    watcher._broker_answers = False
    assert not watcher._is_idle(one), "nothing tells what has come"
    runtime.cluster.instances.clear()


def test_what_came_is_counted_over_the_time_of_the_reading(runtime: SparkRuntime) -> None:
    """Rows that came after the last report are in the input rate of now, and not in that reading's."""
    runtime.deployment.accounts["S"] = Account("t", {0: 0})
    wall, now = time.time(), time.monotonic()
    for ago, offset in ((10, 0), (3, 0), (2, 100), (1, 200), (0, 300)):
        runtime.metrics.history.record(now - ago, {"t": {0: offset}})
    reading = Meter()
    reading.add(batch(0, wall - 8.0, wall - 3.0))
    reading.add(batch(1, wall - 3.0, wall - 2.0))
    early = InstanceView("S.1", "S", "tm1", reading.reading(5.0, "run"), True, 2.0)
    assert runtime.metrics._with_input(early).came == pytest.approx(100 / 5, abs=1)
    reading = Meter()
    reading.add(batch(0, wall - 8.0, wall - 3.0))
    idle = InstanceView("S.1", "S", "tm1", reading.reading(5.0, "run"), True, 3.0)
    assert runtime.metrics._with_input(idle).came == pytest.approx(0, abs=1)
    assert runtime.metrics._with_input(InstanceView("S.1", "S", "tm1", None, False, 0.0)).came is None
    runtime.deployment.accounts.clear()


@pytest.mark.parametrize(
    ("mode", "trigger_s", "age_s", "waits"),
    [
        ("micro-batch", None, 3.0, 100),
        ("micro-batch", None, 5.0, 600),
        ("micro-batch", 30.0, 31.0, 100),
        ("micro-batch", 30.0, 61.0, 600),
        ("real-time", None, 6.0, 100),
        ("real-time", None, 11.0, 600),
        ("real-time", 30.0, 31.0, 100),
    ],
)
def test_rows_that_came_after_the_last_report_wait_once_the_next_is_overdue(
    runtime: SparkRuntime, mode: str, trigger_s: float | None, age_s: float, waits: int
) -> None:
    """Before that, they are the input of a batch or interval that has not ended; a query that is stuck ends none."""
    runtime.period_s = 2.0
    runtime.add_task_manager(FakeTaskManager())  # type: ignore[arg-type]
    (spec,) = tasks(application(stream("ticks", topic="t", priority=1, trigger_s=trigger_s)))
    runtime.deployment.specs[spec.id] = spec
    runtime.deployment.accounts["ticks"] = Account("t", {0: 900})
    instance = instance_on(runtime, "ticks", runtime.task_managers["tm1"])
    wall, now = time.time(), time.monotonic()
    for ago, offset in ((age_s + 1.0, 1000), (age_s - 1.0, 1000), (0.0, 1500)):
        runtime.metrics.history.record(now - ago, {"t": {0: offset}})
    instance.run_id, instance.mode = "run", mode
    instance.meter.add(batch(0, wall - age_s - 2.0, wall - age_s))
    assert runtime.metrics.observation().measured.lag["ticks"] == waits
    for books in (runtime.cluster.instances, runtime.deployment.specs, runtime.deployment.accounts):
        books.clear()


@pytest.mark.parametrize(("mode", "rests"), [("micro-batch", True), ("real-time", False)])
def test_micro_batches_that_have_read_all_rows_use_nothing_while_none_arrive(
    runtime: SparkRuntime, mode: str, rests: bool
) -> None:
    """They report nothing then: the last report would show its rates, CPU and accuracy for ever."""
    runtime.period_s = 2.0
    runtime.add_task_manager(FakeTaskManager())  # type: ignore[arg-type]
    (spec,) = tasks(application(stream("ticks", topic="t", priority=1)))
    runtime.deployment.specs[spec.id] = spec
    runtime.deployment.accounts["ticks"] = Account("t", {0: 0}, {0: 1000})
    instance = instance_on(runtime, "ticks", runtime.task_managers["tm1"])
    instance.job = replace(instance.job, feeds=(Feed("ticks", ("ticks",), "t", (0,), {0: 0}, None, False),))
    wall, now = time.time(), time.monotonic()
    for ago, offset in ((30.0, 1000), (29.0, 1000), (1.0, 1000), (0.0, 1000)):
        runtime.metrics.history.record(now - ago, {"t": {0: offset}})
    instance.run_id, instance.mode = "run", mode
    instance.meter.add(batch(0, wall - 32.0, wall - 30.0, read=1000, kept=400))
    seen = runtime.metrics.observation()
    (row,) = seen.snapshot.instances
    assert (seen.measured.accuracy["ticks"] is None) == rests
    assert (row.in_rate == row.cpu == 0.0 and seen.fresh["ticks.1"]) == rests
    runtime.metrics.history.record(time.monotonic(), {"t": {0: 1300}})
    later = runtime.metrics.observation()
    assert later.measured.accuracy["ticks"] == pytest.approx(0.4)
    for books in (runtime.cluster.instances, runtime.deployment.specs, runtime.deployment.accounts):
        books.clear()


@pytest.mark.parametrize("state", [State.BACKING_OFF, State.GAVE_UP, State.SUSPENDED])
def test_a_query_that_has_failed_uses_no_cpu(runtime: SparkRuntime, state: State) -> None:
    runtime.add_task_manager(FakeTaskManager())  # type: ignore[arg-type]
    instance = instance_on(runtime, "ticks", runtime.task_managers["tm1"])
    instance.run_id = "run"
    wall = time.time()
    instance.meter.add(batch(0, wall - 2.0, wall, read=1000))
    instance.meter.charge("run", 0, TaskTime(1.0, 1.0))
    (view,) = instance_views(runtime.cluster)
    assert view.reading is not None
    assert view.reading.cpu
    instance.life.state = state
    (view,) = instance_views(runtime.cluster)
    assert view.reading is not None
    assert view.reading.cpu == 0.0
    runtime.cluster.instances.clear()


def test_a_task_row_tells_how_many_partitions_an_instance_reads_and_that_it_was_declared_again(
    runtime: SparkRuntime,
) -> None:
    (spec,) = tasks(application(stream("ticks", topic="t", priority=1)))
    runtime.add_task_manager(FakeTaskManager())  # type: ignore[arg-type]
    instance = instance_on(runtime, "ticks", runtime.task_managers["tm1"])
    runtime.deployment.declared({"ticks"})
    assert runtime.metrics._work(spec) == {}
    four = Feed("ticks", ("ticks",), "t", (0, 1, 2, 3), {}, None, False)
    instance.job = replace(instance.job, feeds=(four,))
    runtime.deployment.declared({"ticks"})
    assert runtime.metrics._work(spec) == {"declared": 2, "concurrency": 4}
    runtime.cluster.instances.clear()


def test_the_accuracy_of_a_task_is_that_of_the_streams_within_it(runtime: SparkRuntime) -> None:
    """Readers of groups read it by the stream that made these, which may have been fused with another since."""
    (fused,) = tasks(application(stream("trips", topic="t"), stream("q", "trips", priority=1)))
    home = FakeTaskManager()
    runtime.add_task_manager(home)  # type: ignore[arg-type]
    runtime.deployment.specs[fused.id] = fused
    reader = instance_on(runtime, "r", home)
    feed = Feed("q>r", ("q",), "t", (0,), {}, None, True, weighed_since="trips")
    reader.job = replace(reader.job, feeds=(feed,))
    runtime.apply(Plan({"q": 0.4, "r": 0.3}, {}), Dials({}, {"r": 0.3}))
    board = runtime.board
    assert home.turned[-1] == {board.accuracy("r"): 0.3, board.accept("r"): 0.3, board.accuracy("trips"): 0.4}
    for books in (runtime.cluster.instances, runtime.deployment.specs):
        books.clear()


class Alternating:
    """Cores that are measured now above, now below the mean, as a plan that alternates makes it look."""

    cores = 1

    def __init__(self) -> None:
        self._next = itertools.cycle((20.0, 30.0))

    def sample(self) -> None:
        return None

    def mean(self, *_: float) -> float:
        return next(self._next)


def test_cpu_beside_the_tasks_does_not_alternate_with_the_plan(runtime: SparkRuntime) -> None:
    runtime.add_task_manager(FakeTaskManager(cpu_meter=Alternating()))  # type: ignore[arg-type]
    seen = [runtime.observe().snapshot.task_managers[0].cpu for _ in range(8)]
    assert seen[4:] == [pytest.approx(25.0)] * 4


def test_a_task_manager_that_is_not_pinned_may_be_seen_to_use_more_than_its_cores(runtime: SparkRuntime) -> None:
    meter = SimpleNamespace(cores=1, sample=lambda: None, mean=lambda *_: 150.0)
    runtime.add_task_manager(FakeTaskManager(cpu_meter=meter))  # type: ignore[arg-type]
    assert runtime.observe().snapshot.task_managers[0].cpu == pytest.approx(150.0)


def test_topics_that_can_not_be_deleted_are_deleted_with_the_session(runtime: SparkRuntime, kafka: FakeKafka) -> None:
    def no_answer(operation: str, topic: str) -> None:
        if operation == "delete":
            raise failure(ClientError._TIMED_OUT)

    kafka.create("qod.s.trips.fares.1")
    kafka.fail = no_answer
    runtime.deployer.delete({"qod.s.trips.fares.1"})
    assert kafka.topics
    kafka.fail = lambda *_: None
    runtime.close()
    assert not kafka.topics
