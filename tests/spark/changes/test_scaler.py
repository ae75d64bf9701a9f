"""Rescaling by hand: queries and task managers with gates, no broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from qod_magics.application.streams.sinks import as_sink
from qod_magics.application.tasks import tasks
from qod_magics.core.plan import Scale
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import MoveAsked, MoveCalledOff, State
from qod_magics.spark.changes import change
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.scaler import LOOK_S, Scaler
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.preparing import instance_jobs
from qod_magics.spark.cluster.state import shuffle_for, state_facts
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.job import PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import MeterReading, shared
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.batches import batch
from tests.spark.fakes import (
    BOARD,
    FakeTaskManager,
    Parts,
    Query,
    Script,
    cluster,
    fake_inspection,
    kinds,
    manager,
    soon,
)
from tests.texts import tells

ROWS = StructType([StructField("id", LongType())])


@dataclass
class Made:
    """A cluster of two task managers on which src, of a topic of two partitions, sends to q."""

    cluster: Cluster
    parts: Parts
    scaler: Scaler
    kafka: FakeKafka
    script: Script
    started: list[tuple[str, str, tuple[int, ...], dict[int, int]]]  #: instance, task manager, partitions, offsets

    def __getitem__(self, id: str) -> Instance:
        return self.cluster.instances[id]

    @property
    def grown(self) -> list[dict[str, int]]:
        return self.kafka.grown

    def while_growing(self, call: Callable[[], object]) -> None:
        """Call this whenever partitions are added to the topic of q's results."""
        self.kafka.fail = lambda operation, topic: call() and None if (operation, topic) == ("grow", "q.out") else None

    @property
    def partitions(self) -> dict[str, tuple[int, ...]]:
        return {i.id: i.job.feeds[0].partitions for i in self.cluster.all_instances if i.job.task == "q"}


@pytest.fixture
def made() -> Iterator[Made]:
    one, two = manager("tm1"), manager("tm2")
    there = cluster(one, two)
    parts = Parts(there)
    metrics: Any = SimpleNamespace(sample=lambda: None)
    deployer = Deployer(there, parts.lifecycle, metrics, "/nowhere")
    kafka = FakeKafka({"t": 2, "s.q": 1, "q.out": 1})

    def start(self: Instance, home: TaskManager) -> None:
        feed = self.job.feeds[0]
        found.started.append((self.id, home.id, feed.partitions, dict(feed.starting)))
        self.task_manager = home
        runs(self)

    found = Made(there, parts, Scaler(there, parts.lifecycle, deployer), kafka, Script(start), [])
    there.make = found.script.make
    there.patience = Patience(batch_s=0.0, late_s=0.0)  # no report is waited for
    there.deployment.kafka = kafka
    specs = tasks(application(stream("src", topic="t"), stream("q", "src", priority=1, fuse=False)))
    deployment = there.deployment
    deployment.specs = {spec.id: spec for spec in specs}
    deployment.checked = Checked(dict.fromkeys(deployment.specs, ROWS))
    deployment.pipes = {"src>q": Pipe("src>q", "src", "q", "s.q", 1, None)}
    deployment.results = {"q": "q.out"}
    deployment.source_partitions = {"src": 2}
    deployment.accounts = {"src": Account("t", {0: 0, 1: 0}), "src>q": Account("s.q", {0: 0}, {0: 70})}
    for spec in specs:
        for each in deployer._instances(spec, True):
            each.task_manager = one
            runs(each)
    yield found
    assert not deployer.deploying.locked()
    assert found.scaler.admission.under_way == []


def runs(one: Instance) -> None:
    one.query, one.run_id, one.running, one.facts = Query(), "r", one.job, PlanFacts(keeps_state=False)  # type: ignore[assignment]
    one.life.state = State.RUNNING


def test_partitions_are_added_and_dealt_and_all_start_at_the_offsets_in_the_books(made: Made) -> None:
    old, sender = made["q.1"], made["src.1"].job
    made.scaler.scale("q", 3, ("tm2", "tm1"), "a reason").result(10.0)
    assert made.grown == [{"s.q": 8, "q.out": 3}]
    assert old.state is State.STOPPED
    assert made.partitions == {"q.1": (0, 3, 6), "q.2": (1, 4, 7), "q.3": (2, 5)}
    starting = {0: 70, **dict.fromkeys(range(1, 8), 0)}
    assert sorted(made.started) == [
        ("q.1", "tm1", (0, 3, 6), made["q.1"].job.feeds[0].starting),
        ("q.2", "tm2", (1, 4, 7), made["q.1"].job.feeds[0].starting),
        ("q.3", "tm1", (2, 5), made["q.1"].job.feeds[0].starting),
    ]
    assert {p: made["q.1"].job.feeds[0].starting.get(p, 0) for p in range(8)} == starting
    assert [made[id].checkpoint for id in made.partitions] == [f"/nowhere/q/2/{n}" for n in (1, 2, 3)]
    assert made["src.1"].job.topics == (("s.q", 8, None),)  # the watcher restarts it
    assert replace(made["src.1"].job, topics=sender.topics, build=sender.build) == sender
    (event,) = made.cluster.events
    assert (event.kind, event.detail["task"], event.detail["why"]) == ("scale", "q", "a reason")
    assert (event.detail["from"], event.detail["to"]) == (1, 3)
    assert event.detail["took_s"] >= 0
    assert all(tells(made[id].life.steps[-1].why, "q", 3) for id in made.partitions)


def test_the_last_ones_stop_and_those_that_keep_their_partitions_run_on(made: Made) -> None:
    made.scaler.scale("q", 3).result(10.0)
    third = made["q.3"]
    made.scaler.scale("q", 4).result(10.0)
    assert made.partitions == {"q.1": (0, 3), "q.2": (1, 4), "q.3": (2, 5), "q.4": (6, 7)}
    assert (made["q.3"], third.state) == (third, State.RUNNING)
    made.cluster.dials[BOARD.pace("q.4")] = 0.5
    fourth = made["q.4"]
    made.scaler.scale("q", 2).result(10.0)
    assert made.partitions == {"q.1": (0, 2, 3, 6), "q.2": (1, 4, 5, 7)}
    assert (third.state, fourth.state) == (State.STOPPED, State.STOPPED)
    assert BOARD.pace("q.4") not in made.cluster.dials
    assert made.grown[1:] == [{"q.out": 4}, {"q.out": 2}]  # there are partitions enough
    assert kinds(made.cluster) == ["scale", "scale", "scale"]


def test_several_that_a_plan_asks_for_take_turns(made: Made) -> None:
    one = made["q.1"]
    with one.lock:  # it can't be stopped: its rescaling is under way
        made.scaler.begin(Scale("q", 3, why="first"))
        made.scaler.begin(Scale("src", 1))
        made.scaler.begin(Scale("src", 2, why="then"))  # in place of the one before
        assert made.cluster.events == []
        made["src.1"].life.state = State.STARTING  # as when its streams have more partitions
    soon(lambda: kinds(made.cluster) == ["scale"])
    assert made.partitions.keys() == {"q.1", "q.2", "q.3"}
    runs(made["src.1"])
    soon(lambda: kinds(made.cluster) == ["scale", "scale"])
    assert [event.detail["why"] for event in made.cluster.events] == ["first", "then"]
    assert "src.2" in made.cluster.instances
    soon(lambda: not made.scaler.deployer.deploying.locked())


def test_what_a_later_plan_asks_for_replaces_what_waits_until_its_task_runs(made: Made) -> None:
    with made["q.1"].lock:
        made.scaler.begin(Scale("q", 2))
        made.scaler.begin(Scale("src", 2))
        made["src.1"].life.state = State.STARTING
    soon(lambda: kinds(made.cluster) == ["scale"])
    made.scaler.begin(Scale("src", 1))  # it stays as it is
    runs(made["src.1"])
    time.sleep(5 * LOOK_S)
    soon(lambda: not made.scaler.admission.waiting)
    assert "src.2" not in made.cluster.instances
    assert kinds(made.cluster) == ["scale"]


def test_one_that_is_refused_holds_up_none_of_those_that_wait(made: Made) -> None:
    """They would begin after the next rescaling, whatever plans ask for by then."""
    with made["q.1"].lock:
        made.scaler.begin(Scale("q", 2))
        made.scaler.begin(Scale("p", 2))  # there is none
        made.scaler.begin(Scale("q.1", 1))  # nor this one
        made.scaler.begin(Scale("src", 2))
    soon(lambda: kinds(made.cluster) == ["scale", "action-refused", "action-refused", "scale"])
    assert "src.2" in made.cluster.instances
    soon(lambda: not made.scaler.deployer.deploying.locked())


def test_as_many_as_there_are_is_no_change(made: Made) -> None:
    made.scaler.scale("q", 1).result(10.0)
    assert made.started == made.cluster.events == []


@pytest.fixture
def keyed(made: Made) -> Made:
    """The same, but the rows that src sends to q are partitioned by k: of 90, q has read 70."""
    made.cluster.deployment.pipes["src>q"].key = "k"
    made.kafka.set_ends("s.q", {0: 90})
    return made


def test_no_row_of_a_key_overtakes_one_that_waits_in_another_partition(keyed: Made) -> None:
    sender, one = keyed["src.1"], keyed["q.1"]
    scaled = keyed.scaler.scale("q", 2)
    soon(lambda: sender.state is not State.RUNNING)
    time.sleep(3 * change.LOOK_S)
    assert (keyed.grown, keyed.started, one.state) == ([], [], State.RUNNING)  # it reads what waits
    keyed.cluster.deployment.accounts["src>q"].position[0] = 90
    scaled.result(10.0)
    assert keyed.grown == [{"s.q": 8, "q.out": 2}]
    assert (keyed["src.1"], sender.state) == (sender, State.RUNNING)
    assert sender.running is not None
    assert sender.running.topics == (("s.q", 8, "k"),)
    assert {starting[0] for id, *_, starting in keyed.started if id != "src.1"} == {90}
    assert kinds(keyed.cluster) == ["scale"]
    keyed.started.clear()
    keyed.scaler.scale("q", 4).result(10.0)  # there are partitions enough: src goes on
    assert "src.1" not in {id for id, *_ in keyed.started}


def test_who_does_not_read_its_stream_to_the_end_is_not_scaled(keyed: Made) -> None:
    keyed.cluster.patience = replace(keyed.cluster.patience, drain_s=0.2)
    sender = keyed["src.1"]
    job = sender.job
    with pytest.raises(TaskManagerError, check=breaks("drained", name="q", value=20)):
        keyed.scaler.scale("q", 2).result(10.0)
    assert (sender.state, sender.job, keyed["q.1"].state) == (State.RUNNING, job, State.RUNNING)
    assert [id for id, *_ in keyed.started] == ["src.1"]
    assert keyed.grown == []


def test_no_sender_starts_again_while_the_session_ends(keyed: Made) -> None:
    """On a session of the user's it would run on."""
    keyed.cluster.deployment.accounts["src>q"].position[0] = 90
    keyed.while_growing(lambda: keyed.cluster.leaving.update(("tm1", "tm2")))
    keyed.scaler.scale("q", 2).result(10.0)
    assert keyed.started == []
    assert keyed["src.1"].state is State.BACKING_OFF


def test_a_sender_that_can_t_be_stopped_goes_on_and_nothing_is_scaled(keyed: Made) -> None:
    sender: Any = keyed["src.1"]
    sender.life.state = State.BACKING_OFF
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="src.1")):
        keyed.scaler.scale("q", 2).result(10.0)
    assert (keyed.grown, keyed.started, keyed["q.1"].state) == ([], [], State.RUNNING)
    assert sender.state is State.BACKING_OFF


def test_a_task_of_a_topic_is_dealt_its_partitions(made: Made) -> None:
    made.cluster.deployment.accounts["src"].position |= {0: 5, 1: 6}
    made.scaler.scale("src", 2).result(10.0)
    made.started.sort()
    assert made.started[0][2:] == ((0,), {0: 5, 1: 6})
    assert made.started[1][2:] == ((1,), {0: 5, 1: 6})
    assert made["src.2"].job.topics == made["src.1"].job.topics == (("s.q", 1, None),)


@pytest.mark.parametrize(
    ("task", "parallelism", "says"),
    [
        ("p", 2, "'p'"),
        ("q", 0, "0 instances"),
        ("q", 9, "--max-parallelism"),
        ("src", 3, "2 partitions"),
    ],
)
def test_what_can_t_be_is_refused(made: Made, task: str, parallelism: int, says: str) -> None:
    with pytest.raises(TaskManagerError) as caught:
        made.scaler.scale(task, parallelism)
    assert says in str(caught.value)
    made.scaler.begin(Scale(task, parallelism))
    (event,) = made.cluster.events
    assert (event.kind, event.detail["action"], event.detail["task"]) == ("action-refused", "Scale", task)
    assert says in event.detail["why"]
    assert made.started == []


def test_what_keeps_state_moves_or_is_going_to_be_replaced_is_refused(made: Made) -> None:
    one = made["q.1"]
    one.facts = PlanFacts(keeps_state=True)
    with pytest.raises(TaskManagerError, check=breaks("assignable state", name="q")):
        made.scaler.scale("q", 2)
    one.facts = PlanFacts(keeps_state=False)
    one.life.state = State.MOVING
    with pytest.raises(TaskManagerError, check=breaks("running", name="q.1")):
        made.scaler.scale("q", 2)
    one.life.state = State.RUNNING
    with pytest.raises(TaskManagerError, check=breaks("exists", name="tm3")):
        made.scaler.scale("q", 2, ("tm3",))
    made.cluster.leaving.add("tm2")
    with pytest.raises(TaskManagerError, check=breaks("stays", name="tm2")):
        made.scaler.scale("q", 2, ("tm2",))
    with (
        made.scaler.deployer.deploying,
        pytest.raises(TaskManagerError, check=breaks("one change at a time", name="q")),
    ):
        made.scaler.scale("q", 2)


COUNTS = PlanFacts(keeps_state=True, state_columns=frozenset({"k"}))


@dataclass
class Counting:
    """q counts by k, which src sends by, and has ended batch 5 on a checkpoint on this machine."""

    made: Made
    assigned: list[tuple[str, list[str], tuple[int, ...]]]  #: target, sources, partitions
    refuses: Exception | None = None

    def assign(self, target: str, sources: list[str], column: str, partitions: int, own: tuple[int, ...]) -> None:
        assert (column, partitions) == ("k", 4)
        if self.refuses is not None:
            raise self.refuses
        self.assigned.append((target, sources, own))

    def count(self) -> list[Instance]:
        """Have all instances of q count, and end batch 5; returns them."""
        mine = self.made.cluster.instances_of("q")
        account = self.made.cluster.deployment.accounts["src>q"]
        for each in mine:
            each.facts, each.begun = COUNTS, True
            at = {str(p): account.next_offset(p) for p in each.job.feeds[0].partitions}
            for name, line in (("offsets", {"batchWatermarkMs": 1}), ("commits", {"nextBatchWatermarkMs": 2})):
                log = Path(each.checkpoint, name)
                log.mkdir(parents=True, exist_ok=True)
                told = [json.dumps({"s.q": at})] if name == "offsets" else []
                (log / "5").write_text("\n".join(("v1", json.dumps(line), *told)))
                for later in ("6", "7"):
                    (log / later).unlink(missing_ok=True)
            Path(each.checkpoint, "state").mkdir(exist_ok=True)
            Path(each.checkpoint, "metadata").write_text("{}")
        return mine


@pytest.fixture
def counting(made: Made, tmp_path: Path) -> Counting:
    deployment, deployer, found = made.cluster.deployment, made.scaler.deployer, Counting(made, [])
    spec = deployment.specs["q"]
    deployment.specs["q"] = spec = replace(spec, streams=(replace(spec.streams[0], key="k"),))
    deployment.pipes["src>q"] = Pipe("src>q", "src", "q", "s.q", 4, "k")
    deployment.accounts["src>q"] = Account("s.q", dict.fromkeys(range(4), 0), {p: 70 + p for p in range(4)})
    deployer.checkpoints = str(tmp_path)
    for home in made.cluster.task_managers.values():
        home.no_state_jar = ""
        home.assign_state = found.assign  # type: ignore[assignment,method-assign]
    for each in deployer._instances(spec, True):
        each.task_manager = made.cluster.task_managers["tm1"]
        runs(each)
    found.count()
    return found


def test_state_goes_to_who_reads_its_keys(counting: Counting) -> None:
    made = counting.made
    old = made["q.1"].checkpoint
    made.scaler.scale("q", 2, ("tm2",)).result(10.0)
    one, two = made["q.1"], made["q.2"]
    assert made.partitions == {"q.1": (0, 1), "q.2": (2, 3)}
    assert sorted(counting.assigned) == [(one.checkpoint, [f"5 {old}"], (0, 1)), (two.checkpoint, [f"5 {old}"], (2, 3))]
    assert [each.begun for each in (one, two)] == [True, True]
    assert json.loads(Path(two.checkpoint, "offsets/6").read_text().splitlines()[2]) == {"s.q": {"2": 72, "3": 73}}

    counting.assigned.clear()
    before = [each.checkpoint for each in counting.count()]
    made.scaler.scale("q", 1).result(10.0)
    assert counting.assigned == [(made["q.1"].checkpoint, [f"5 {place}" for place in before], (0, 1, 2, 3))]
    assert made.partitions == {"q.1": (0, 1, 2, 3)}
    assert kinds(made.cluster) == ["scale", "scale"]


def test_whose_state_can_t_be_assigned_goes_on_as_before(counting: Counting) -> None:
    made, counting.refuses = counting.made, ValueError("no such column\nat line 1")
    one = made["q.1"]
    with pytest.raises(TaskManagerError, check=breaks()):
        made.scaler.scale("q", 2).result(10.0)
    assert made["q.1"] is one
    assert made.partitions == {"q.1": (0, 1, 2, 3)}
    assert one.state is State.BACKING_OFF  # the watcher starts it again at once
    places = Path(one.checkpoint).parent.parent
    assert [each.name for each in places.iterdir() if any(each.iterdir())] == [Path(one.checkpoint).parent.name]


@pytest.mark.parametrize("what", ["no key", "another column", "real time", "files", "remote", "no jar"])
def test_state_that_can_t_be_assigned_is_refused_before_anything_stops(counting: Counting, what: str) -> None:
    made = counting.made
    one, deployment = made["q.1"], made.cluster.deployment
    spec = deployment.specs["q"]
    if what == "no key":
        deployment.specs["q"] = replace(spec, streams=(replace(spec.streams[0], key=None),))
    elif what == "another column":
        one.facts = replace(COUNTS, state_columns=frozenset({"zone"}))
    elif what == "real time":
        one.mode = "real-time"
    elif what == "files":
        deployment.specs["q"] = replace(spec, streams=(replace(spec.streams[0], sink=as_sink("parquet:/out")),))
    elif what == "remote":
        one.checkpoint = "s3a://bucket/q"
    else:
        for home in made.cluster.task_managers.values():
            home.no_state_jar = "its Spark is another one"
    with pytest.raises(TaskManagerError, check=breaks("assignable state", name="q")):
        made.scaler.scale("q", 2)
    assert (one.state, counting.assigned) == (State.RUNNING, [])


def shuffled(checkpoint: str, partitions: int) -> None:
    """Have a checkpoint's query shuffle into so many partitions."""
    log = Path(checkpoint, "offsets/5")
    version, told, *reads = log.read_text().splitlines()
    told = json.dumps({**json.loads(told), "conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    log.write_text("\n".join((version, told, *reads)))


def sized(made: Made, **cores: int) -> None:
    """Have the task managers shuffle into a partition for each of so many cores."""
    for id, capacity in cores.items():
        home = made.cluster.task_managers[id]
        home.capacity, home.ui, home.application = float(capacity), "http://127.0.0.1:9", "app"


def test_instances_that_share_out_a_state_shuffle_alike_wherever_they_begin(counting: Counting) -> None:
    made = counting.made
    there, deployment = made.cluster, made.cluster.deployment
    sized(made, tm1=2, tm2=4)
    small, large = (there.task_managers[id] for id in ("tm1", "tm2"))
    one = made["q.1"]
    assert [shuffle_for(there, one, home) for home in (large, small)] == [4, 4], "that of its first start"
    deployment.declared({"q"})
    spec = deployment.specs["q"]
    deployment.assignments["src>q"] = ((0, 1), (2, 3))
    assert [shuffle_for(there, one, home) for home in (large, small)] == [2, 2]
    sized(made, tm1=1)
    assert shuffle_for(there, one, small) == 2, "a task manager that is as small comes too late"
    shuffled(one.checkpoint, 8)
    assert shuffle_for(there, one, small) == 8, "that of the state that there is"
    deployment.specs["q"] = replace(spec, streams=(replace(spec.streams[0], key=None),))
    assert shuffle_for(there, one, small) == 1


def test_an_instance_starts_with_the_shuffle_of_its_task(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = counting.made, list[object]()
    monkeypatch.setattr("tests.spark.fakes.FakeInstance.start", lambda self, *given: asked.append(given[-2]))
    sized(made, tm1=2, tm2=4)
    for id in ("tm2", "tm1"):
        made.parts.lifecycle.start(made["q.1"], made.cluster.task_managers[id])
    assert asked == [4, 4]


def test_no_log_is_read_where_the_key_decides(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    made, read = counting.made, list[object]()
    monkeypatch.setattr("qod_magics.spark.cluster.state.why_not_divided", lambda places: read.append(places) or "")
    spec = made.cluster.deployment.specs["q"]
    state_facts(made.cluster, "q")
    assert len(read) == 1
    made.cluster.deployment.specs["q"] = replace(spec, streams=(replace(spec.streams[0], key=None),))
    state_facts(made.cluster, "q")
    assert len(read) == 1


def test_the_newest_rows_of_groups_stay_the_newest(made: Made) -> None:
    keys: list[tuple[str, ...] | None] = [("k",)]
    made.cluster.deployment.inspection = fake_inspection(keys=lambda: keys[0])
    made["src.1"].facts = PlanFacts(keeps_state=True)
    with pytest.raises(TaskManagerError, check=breaks("key", name="q")):
        made.scaler.scale("q", 2).result(10.0)
    assert (made["q.1"].state, made.grown) == (State.RUNNING, [])
    keys[0] = None  # rows that stand for themselves
    made.scaler.scale("q", 2).result(10.0)
    assert len(made.partitions) == 2


def test_errors_of_spark_are_told_in_one_line(made: Made) -> None:
    def keys() -> None:
        raise ConnectionError("the server is gone\n\nJVM stacktrace:\nmany lines")

    made["src.1"].facts = PlanFacts(keeps_state=True)
    made.cluster.deployment.inspection = fake_inspection(keys=keys)
    with pytest.raises(TaskManagerError, check=breaks()):
        made.scaler.scale("q", 2).result(10.0)
    assert made["q.1"].state is State.RUNNING


def slow(one: Instance) -> Query:
    """Its query, which does not end until its gate opens."""
    query: Any = one.query
    query.gate.clear()
    return query  # type: ignore[no-any-return]


def test_one_task_is_scaled_at_a_time_and_a_plan_may_ask_again(made: Made) -> None:
    query = slow(made["q.1"])
    made.scaler.begin(Scale("q", 2))
    (change,) = made.scaler.admission.under_way
    assert tells(change.doing, "q", 2)
    made.scaler.begin(Scale("q", 2))
    assert made.cluster.events == []
    with pytest.raises(TaskManagerError, check=breaks("one change at a time", name="q")):
        made.scaler.scale("src", 2)
    query.gate.set()
    soon(lambda: kinds(made.cluster) == ["scale"])
    soon(lambda: not made.scaler.deployer.deploying.locked())


def test_who_can_t_be_stopped_goes_on_as_before(made: Made) -> None:
    one = made["q.1"]
    job = one.job
    query: Any = one.query

    def stop() -> None:
        raise ConnectionError("nobody answers")

    query.stop = stop
    made.scaler.begin(Scale("q", 2))
    soon(lambda: kinds(made.cluster) == ["action-refused"])
    assert tells(made.cluster.events[0].detail["why"], "q.1", "nobody answers")
    assert (made["q.1"], one.job, one.state) == (one, job, State.BACKING_OFF)  # the watcher starts it
    assert made.partitions == {"q.1": (0,)}
    assert made.cluster.deployment.pipes["src>q"].partitions == 1  # nobody would read more
    del query.stop
    made.parts.recovery.retry()
    soon(lambda: one.state is State.RUNNING)
    assert made.started[0][:3] == ("q.1", "tm1", (0,))


def test_who_is_lost_before_its_run_has_ended_starts_elsewhere_as_before(made: Made) -> None:
    """Its last reports are not in the books: only its checkpoint tells how far it was."""
    one, home = made["q.1"], made.cluster.task_managers["tm1"]
    job, checkpoint, query = one.job, one.checkpoint, slow(one)
    scaled = made.scaler.scale("q", 2)
    home.kind = "connect"
    del made.cluster.task_managers["tm1"]
    made["src.1"].task_manager = made.cluster.task_managers["tm2"]
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="q.1")):
        scaled.result(10.0)
    assert (made["q.1"], one.job, one.checkpoint) == (one, job, checkpoint)
    assert one.state is State.WAITING
    made.parts.recovery.recover_lost()
    soon(lambda: one.state is State.RUNNING)
    assert made.started == [("q.1", "tm2", (0,), dict(job.feeds[0].starting))]
    query.gate.set()


def test_who_is_lost_while_it_starts_starts_elsewhere_with_its_new_partitions(made: Made) -> None:
    start, home = made.script.start, made.cluster.task_managers["tm1"]

    def lost(self: Instance, manager: TaskManager) -> None:
        if manager is home:
            self.task_manager = manager
            made.cluster.task_managers.pop("tm1", None)
            raise TaskManagerError("tm1 is gone")
        start(self, manager)

    made.script.start = lost
    made["src.1"].task_manager = made.cluster.task_managers["tm2"]
    made.scaler.scale("q", 2, ("tm2",)).result(10.0)
    assert (made["q.1"].state, made["q.2"].state) == (State.WAITING, State.RUNNING)
    made.parts.recovery.recover_lost()
    soon(lambda: made["q.1"].state is State.RUNNING)
    assert made.started[-1][:3] == ("q.1", "tm2", (0, 2, 4, 6))
    assert made.partitions == {"q.1": (0, 2, 4, 6), "q.2": (1, 3, 5, 7)}


def test_nothing_starts_on_a_task_manager_that_is_removed_meanwhile(made: Made) -> None:
    """Nor while the session ends: on a session of the user's it would run on."""
    made.while_growing(lambda: made.cluster.leaving.update(("tm1", "tm2")))
    made.scaler.scale("q", 2, ("tm2",)).result(10.0)
    assert made.started == []
    assert (made["q.1"].state, made["q.2"].state) == (State.WAITING, State.WAITING)


def test_a_policy_that_fails_to_place_what_is_added_is_asked_again(made: Made) -> None:
    place = made.cluster.place

    def failing(*_: Any) -> Any:
        raise KeyError("tm1")

    made.cluster.place = failing
    made.scaler.scale("q", 2).result(10.0)
    assert (made["q.1"].state, made["q.2"].state) == (State.RUNNING, State.WAITING)
    made.cluster.place = place
    made.parts.recovery.place_waiting()
    soon(lambda: made["q.2"].state is State.RUNNING)
    assert made.partitions == {"q.1": (0, 2, 4, 6), "q.2": (1, 3, 5, 7)}


def test_a_query_that_does_not_start_is_tried_again_with_its_new_partitions(made: Made) -> None:
    start = made.script.start

    def failing(self: Instance, manager: TaskManager) -> None:
        if self.id == "q.2" and self.failures == 0:
            self.task_manager = manager
            raise TaskManagerError("q.2 can't start on tm2: no reason")
        start(self, manager)

    made.script.start = failing
    made.scaler.scale("q", 2, ("tm2",)).result(10.0)
    two = made["q.2"]
    assert two.state is State.BACKING_OFF
    two.life.retry_at = 0.0
    made.parts.recovery.retry()
    soon(lambda: two.state is State.RUNNING)
    assert made.started[-1][:3] == ("q.2", "tm2", (1, 3, 5, 7))
    assert kinds(made.cluster) == ["query-failed", "scale", "query-restarted"]


def test_nobody_is_restarted_where_another_can_t_be_stopped(made: Made) -> None:
    """What the batch under way has written would be written again."""
    made.scaler.scale("q", 2).result(10.0)
    one, query = made["q.1"], made["q.1"].query
    made.while_growing(lambda: made["q.2"].handle(MoveAsked("tm2", "tm1")))
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="q.2")):
        made.scaler.scale("q", 3).result(10.0)
    assert (made["q.1"], one.state, one.query) == (one, State.RUNNING, query)
    made["q.2"].handle(MoveCalledOff())
    made.while_growing(lambda: one.detach() or made["q.2"].handle(MoveAsked("tm2", "tm1")))
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="q.1")):
        made.scaler.scale("q", 3).result(10.0)
    assert one.state is State.WAITING


def test_nothing_is_dealt_by_books_that_are_behind_a_checkpoint(made: Made) -> None:
    """Batches whose reports were lost with a task manager would be read again, and counted twice downstream."""
    one = made["q.1"]
    one.detach()
    made.parts.recovery.place_waiting()
    soon(lambda: one.state is State.RUNNING)
    with pytest.raises(TaskManagerError, check=breaks("reported", name="q.1")):
        made.scaler.scale("q", 2)
    report = {
        "runId": "r",
        "batchId": 4,
        "timestamp": "2026-03-01T10:00:00.000Z",
        "sources": [{"startOffset": {"s.q": {"0": 100}}, "endOffset": {"s.q": {"0": 120}}}],
        "observedMetrics": {"shed.s.q": {"rows": 20, "kept": 20}},
    }
    query: Any = one.query
    query.lastProgress, query.recentProgress = report, [report]
    one.poll()

    made.while_growing(lambda: setattr(one, "books_differ", True))
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="q.1")):
        made.scaler.scale("q", 2).result(10.0)
    assert (one.state, one.query) == (State.RUNNING, query)
    one.books_differ = False
    made.while_growing(lambda: None)
    made.scaler.scale("q", 2).result(10.0)
    assert {starting[0] for *_, starting in made.started[-2:]} == {120}
    assert made.cluster.deployment.accounts["src>q"].unreported == 30


def test_a_query_is_stopped_between_two_micro_batches(made: Made) -> None:
    one, home = made["q.1"], FakeTaskManager()
    one.task_manager = home  # type: ignore[assignment]
    one.mode = "micro-batch"
    query: Any = one.query
    query.status = {"isTriggerActive": False}
    key, turned, polls = BOARD.pace("q.1"), home.turned, []
    made.cluster.dials[key] = 0.75
    with change.between_batches(made.cluster, one) as (wait_s, ended):  # no batch is under way
        assert (wait_s, ended) == (0.0, True)
        assert turned == [{key: 0.6}]
        assert made.cluster.dials_of(one)[key] == 0.6  # whatever a plan wants meanwhile
    assert made.cluster.dials_of(one)[key] == 0.75
    assert turned == [{key: 0.6}, {key: 0.75}]

    def poll(self: Instance) -> bool:
        polls.append(time.time())
        ended = batch(len(polls), begun, begun if len(polls) < 3 else polls[-1], run="r")
        return self.meter.add(ended)

    begun = time.time()
    query.status = {"isTriggerActive": True}
    made.script.poll = poll
    with change.between_batches(made.cluster, one) as (_, ended):
        assert len(polls) == 3  # the first batch that ended after the next was held
        assert ended


def test_who_stops_a_query_is_told_whether_its_batch_was_seen_to_end(made: Made) -> None:
    one, home = made["q.1"], FakeTaskManager()
    one.task_manager, one.mode = home, "micro-batch"  # type: ignore[assignment]
    query: Any = one.query
    query.status = {"isTriggerActive": True}
    made.script.poll = lambda _: False
    with change.between_batches(made.cluster, one, longest_s=0.2) as told:  # its batch is longer than that
        assert told == (0.0, False)

    query.status = {"isTriggerActive": False}
    home.mute_dials = True
    with change.between_batches(made.cluster, one) as told:  # its next batch is not held
        assert told == (0.0, False)


def test_where_no_dial_can_be_turned_the_end_of_a_batch_is_waited_for(made: Made) -> None:
    """For two periods at least in micro-batches, which last as long as their rows make them."""
    one, home = made["q.1"], made.cluster.task_managers["tm1"]
    home.reading = DialReading.RESTART
    patience = made.cluster.patience = Patience()
    for mode, at_least_s in (("micro-batch", 2 * made.cluster.period_s), ("real-time", patience.batch_s)):
        one.mode = mode
        with change.between_batches(made.cluster, one) as told:
            assert told == (at_least_s + patience.late_s, False)
            assert not made.cluster.holding


def test_the_others_take_over_what_was_measured() -> None:
    def reading(rate: float, cpu: float | None, kept: int) -> MeterReading:
        return MeterReading(rate, rate, 2 * rate, cpu, 10.0, 15.0, 9.0, {"t": kept}, {"t": 2 * kept}, kept, {"0": kept})

    both = shared([reading(60.0, 10.0, 40), None, reading(30.0, None, 20)], 3)
    assert both is not None
    assert (both.in_rate, both.out_rate, both.cpu) == (30.0, 60.0, pytest.approx(10.0 / 3))
    assert (both.kept, both.read, both.out, both.sent) == ({"t": 20}, {"t": 40}, 20, {"0": 20})
    assert both.cpu_held
    assert shared([None], 2) is None


def test_a_deal_lasts_until_its_task_is_replaced(made: Made) -> None:
    made.scaler.scale("q", 3).result(10.0)
    deployment = made.cluster.deployment
    spec = deployment.specs["q"]
    assert (deployment.instances(spec), len(instance_jobs(deployment, spec, 7))) == (3, 3)
    before = deployment.copy()
    deployment.declared({"q"}, {"q"})  # its state goes on, in the instances that it has
    assert deployment.instances(spec) == 3
    deployment.declared({"q"})
    assert [job.feeds[0].partitions for job in instance_jobs(deployment, spec, 7)] == [tuple(range(8))]
    deployment.restore(before)
    assert deployment.instances(spec) == 3
