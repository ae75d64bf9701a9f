"""Fusing and parting by hand: queries and task managers with gates, no broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from qod_magics.application.streams.sink import Parquet
from qod_magics.application.streams.tables import DataSource
from qod_magics.application.tasks import fused, tasks
from qod_magics.core.plan import Fuse, Unfuse
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import Follows, State, StopAsked
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.fuser import Fuser
from qod_magics.spark.changes.new_input import NewInput
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.preparing import prepare, refit
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import MeterReading, in_a_row
from qod_magics.spark.servers.connection import begin
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.fakes import BOARD, Parts, Query, Script, cluster, fake_inspection, kinds, manager, soon

ROWS = StructType([StructField("id", LongType())])
EDGES = [("src", "mid"), ("mid", "q")]


class FakeCluster(Cluster):
    """Its task managers analyse no plans: facts about tasks are found by their names."""

    facts: Callable[[Any], PlanFacts]

    def workshop(self, manager: Any = None) -> Any:
        return SimpleNamespace(plan_facts=self.facts)


@dataclass
class Made:
    """A cluster on which src, of a topic, sends to mid, and that to q."""

    cluster: FakeCluster
    parts: Parts
    fuser: Fuser
    kafka: FakeKafka
    script: Script
    started: list[tuple[str, str, dict[str, dict[int, int]]]] = field(default_factory=list)  #: with offsets by topic
    failing: set[str] = field(default_factory=set)  #: instances that can't start now
    stateful: set[str] = field(default_factory=set)  #: streams
    begun: dict[str, bool] = field(default_factory=dict)  #: whether an instance had a batch before its start

    def __getitem__(self, id: str) -> Instance:
        return self.cluster.instances[id]

    @property
    def created(self) -> list[str]:
        """Topics, in order."""
        return [topic for operation, topic in self.kafka.done if operation == "create"]

    @property
    def deleted(self) -> list[str]:
        """Topics, in order."""
        return [topic for operation, topic in self.kafka.done if operation == "delete"]

    @property
    def deployment(self) -> Deployment:
        return self.cluster.deployment

    @property
    def state(self) -> Any:
        """All that a failed change must leave as it was."""
        now = self.deployment
        pipes = {name: (pipe.topic, pipe.source, pipe.target) for name, pipe in now.pipes.items()}
        books = {n: (a.topic, a.processed, dict(a.first), dict(a.position)) for n, a in now.accounts.items()}
        dials = dict(self.cluster.dials)
        return dict(now.specs), pipes, books, dict(self.cluster.instances), set(now.retired), now.assignments, dials

    def facts(self, members: tuple[str, ...]) -> PlanFacts:
        return PlanFacts(keeps_state=not self.stateful.isdisjoint(members))

    def runs(self, one: Instance) -> None:
        query: Any = Query()
        query.status = {"message": "Waiting for data to arrive"}
        one.query, one.run_id, one.running = query, "r", one.job
        one.facts = self.facts(self.deployment.specs[one.job.task].members)
        one.begun, one.life.state = True, State.RUNNING

    def reads(self, feed: str, rows: int) -> None:
        """Rows arrive at a feed, and are read."""
        account = self.deployment.accounts[feed]
        account.position[0] += rows
        account.processed += rows
        self.kafka.set_ends(account.topic, {0: account.position[0]})


def fresh(root: str = "/nowhere") -> Made:
    one, two = manager("tm1"), manager("tm2")
    there = cluster(one, two, kind=FakeCluster)
    assert isinstance(there, FakeCluster)
    parts = Parts(there)
    metrics: Any = SimpleNamespace(
        sample=lambda: None, history=SimpleNamespace(forget=lambda _: None, at=lambda *_: {})
    )
    deployer = Deployer(there, parts.lifecycle, metrics, root)

    def start(self: Instance, home: TaskManager) -> None:
        if self.id in made.failing:
            raise TaskManagerError(f"{self.id} can't start", name=self.id, rule="starts")
        made.begun[self.id] = self.begun
        made.started.append((self.id, home.id, {f.topic: dict(f.starting) for f in self.job.feeds}))
        self.task_manager = home
        made.runs(self)

    def facts(job: Any) -> PlanFacts:
        heads = {name for feed in job.feeds for name in feed.inputs}
        members = ("src", "mid", "q")
        begin = 0 if "src" in heads and not job.feeds[0].stream else members.index(next(iter(heads))) + 1
        return made.facts(members[begin : members.index(job.task) + 1])

    kafka, script = FakeKafka({"t": 1}), Script(start, lambda _: False)
    made = Made(there, parts, Fuser(there, parts.lifecycle, deployer), kafka, script)
    there.make, there.facts = script.make, facts
    there.patience = Patience(batch_s=0.0, late_s=0.0, drain_s=0.2)
    there.deployment.inspection = fake_inspection(
        lambda specs: Checked(dict.fromkeys([spec.id for spec in specs], ROWS))
    )
    there.deployment.kafka = kafka
    specs = tasks(application(stream("src", topic="t"), stream("mid", "src"), stream("q", "mid", priority=1)), EDGES)
    deployment = there.deployment
    deployment.specs = {spec.id: spec for spec in specs}
    deployment.checked = Checked(dict.fromkeys(deployment.specs, ROWS))
    deployment.pipes = {f"{a}>{b}": Pipe(f"{a}>{b}", a, b, f"s.{a}.{b}", 1, None) for a, b in EDGES}
    deployment.results = {"q": "q.out"}
    deployment.source_partitions = {"src": 1}
    deployment.accounts = {"src": Account("t", {0: 0})}
    deployment.accounts |= {f"{a}>{b}": Account(f"s.{a}.{b}", {0: 0}) for a, b in EDGES}
    for feed in deployment.accounts:
        made.reads(feed, 70)
    for spec in specs:
        for each in deployer._instances(spec, True):
            each.task_manager = one
            made.runs(each)
    return made


@pytest.fixture
def made() -> Iterator[Made]:
    found = fresh()
    yield found
    assert not found.fuser.deployer.deploying.locked()
    assert found.fuser.admission.under_way == []


def test_two_tasks_become_one_at_the_offsets_in_the_books(made: Made) -> None:
    sender = made["src.1"]
    made.cluster.dials |= {BOARD.send("src>mid"): 0.5, BOARD.accept("mid"): 0.7, BOARD.pace("mid.1"): 0.3}
    old = made["mid.1"], made["q.1"]
    made.fuser.fuse(("mid", "q"), "a reason").result(10.0)
    assert [one.state for one in old] == [State.STOPPED, State.STOPPED]
    assert list(made.deployment.specs) == ["src", "q"]
    assert made.deployment.specs["q"].members == ("mid", "q")
    assert made.started == [("q.1", "tm1", {"s.src.mid": {0: 70}})]
    assert made["q.1"].checkpoint == "/nowhere/q/2/1"
    assert made["src.1"] is sender
    assert sender.job.outlets == ("src>q",)  # the watcher restarts it
    assert sender.job.topics == (("s.src.mid", 1, None),)
    assert made.deleted == ["s.mid.q"]
    assert made.cluster.dials == {BOARD.send("src>mid"): 0.5, BOARD.send("src>q"): 0.5, BOARD.accept("q"): 0.7}
    (event,) = made.cluster.events
    assert (event.kind, event.detail["task"], event.detail["from"], event.detail["to"]) == ("fuse", "q", "mid", "q")
    steps = [(step.event, step.why) for step in made["q.1"].life.steps]
    assert steps == [*[(StopAsked, "mid>q is fused")] * 2, (Follows, "mid>q is fused")]
    made.fuser.fuse(("mid", "q")).result(10.0)  # it is so already
    assert kinds(made.cluster) == ["fuse"]


def test_a_look_for_new_partitions_is_no_reason_to_refuse(made: Made) -> None:
    new_input = NewInput(made.fuser.deployer, made.fuser.deployer.metrics.history)
    with made.cluster.lock:
        looking = begin(new_input.read_partitions, "looking")
        time.sleep(0.05)
        fused_then = made.fuser.fuse(("mid", "q"))
    fused_then.result(10.0)
    looking.result(10.0)


def test_a_stream_that_returns_goes_on_in_the_books(made: Made) -> None:
    made.fuser.fuse(("src", "mid")).result(10.0)
    assert sorted(made.deployment.accounts) == ["mid", "mid>q"]
    made.reads("mid", 30)
    made.fuser.fuse(("mid", "q")).result(10.0)
    assert list(made.deployment.accounts) == ["q"]
    made.reads("q", 5)
    made.fuser.unfuse(("src", "mid")).result(10.0)
    assert made.deployment.edges == {("src", "mid")}
    counts = {name: each.count({0: each.position[0]}) for name, each in made.deployment.accounts.items()}
    assert (counts["src"].arrived, counts["src"].processed) == (105, 105)
    assert (counts["src>q"].arrived, counts["src>q"].processed, counts["src>q"].waiting) == (70, 70, 0)
    made.reads("src>q", 11)
    made.fuser.unfuse(("mid", "q")).result(10.0)
    counts = {name: each.count({0: each.position[0]}) for name, each in made.deployment.accounts.items()}
    assert {name: (c.arrived, c.processed) for name, c in counts.items()} == {
        "src": (105, 105),
        "src>mid": (81, 81),
        "mid>q": (70, 70),
    }
    assert made.deployment.retired == {}
    topics = {name: pipe.topic for name, pipe in made.deployment.pipes.items()}
    assert topics["mid>q"] != "s.mid.q"  # rows for the old one can't reach it
    assert made.started[-2:] == [
        ("q.1", "tm1", {topics["mid>q"]: {0: 0}}),
        ("mid.1", "tm1", {topics["src>mid"]: {0: 11}}),
    ]


def test_the_second_reads_its_topic_to_the_end_first(made: Made) -> None:
    before = made.state
    made.kafka.set_ends("s.mid.q", {0: 75})
    with pytest.raises(TaskManagerError, check=breaks("drained", name="q", value=5)):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.state == before
    assert (made["mid.1"].state, made["q.1"].state) == (State.BACKING_OFF, State.RUNNING)

    made.parts.recovery.retry()
    soon(lambda: made["mid.1"].state is State.RUNNING)
    made.script.poll = lambda self: bool(made.reads("mid>q", 5)) if self.id == "q.1" else False
    made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.deployment.retired["mid>q"].processed >= 75


@pytest.mark.parametrize("kind", ["fuse", "unfuse"])
def test_a_failed_start_puts_back_what_ran(made: Made, kind: str) -> None:
    if kind == "unfuse":
        made.fuser.fuse(("mid", "q")).result(10.0)
    made.cluster.dials |= {BOARD.accept("mid"): 0.7, BOARD.accept("q"): 0.4, BOARD.pace("q.1"): 0.3}
    before, begun = made.state, [*made.deleted]
    sends = made["src.1"].job
    made.failing = {"q.1"} if kind == "fuse" else {"mid.1"}
    with pytest.raises(TaskManagerError, check=breaks("starts")):
        (made.fuser.fuse if kind == "fuse" else made.fuser.unfuse)(("mid", "q")).result(10.0)
    made.failing = set()
    assert made.state == before
    assert made["src.1"].job is sends  # by the dials that plans turn
    gone = set(made.deleted) - set(begun)
    assert gone.isdisjoint(made.deployment.own_topics())
    made.parts.recovery.retry()
    soon(lambda: all(i.state is State.RUNNING for i in made.cluster.all_instances))
    assert {i.task_manager.id for i in made.cluster.all_instances if i.task_manager} == {"tm1"}


def test_nothing_is_read_while_a_reader_can_t_start(made: Made) -> None:
    """It would be written to a topic that is deleted, and read again."""
    made.fuser.fuse(("mid", "q")).result(10.0)
    made.started, made.failing = [], {"q.1"}
    with pytest.raises(TaskManagerError, check=breaks("starts", name="q.1")):
        made.fuser.unfuse(("mid", "q")).result(10.0)
    assert made.started == []


def test_rows_that_a_query_has_read_that_was_taken_back_are_read_again(made: Made) -> None:
    """They are in a topic that was deleted; the books have them until the query put back reports where it is."""
    made.fuser.fuse(("mid", "q")).result(10.0)
    start = made.script.start

    def refused(self: Instance, home: Any) -> None:
        start(self, home)
        if self.id == "mid.1":
            made.reads("src>mid", 10)
            raise TaskManagerError("mid.1 can't run in real-time mode", rule="real-time")

    made.script.start = refused
    with pytest.raises(TaskManagerError, check=breaks("real-time")):
        made.fuser.unfuse(("mid", "q")).result(10.0)
    made.script.start = start
    made.parts.recovery.retry()
    soon(lambda: made["q.1"].state is State.RUNNING)
    with pytest.raises(TaskManagerError, check=breaks("reported", name="q.1")):
        made.fuser.unfuse(("mid", "q"))


def test_a_task_manager_that_is_lost_meanwhile_loses_nothing(made: Made) -> None:
    before, home = made.state, made.cluster.task_managers["tm1"]

    def gone(self: Instance) -> bool:
        made.cluster.task_managers.pop("tm1", None)
        return False

    made.kafka.set_ends("s.mid.q", {0: 75})
    made.script.poll = gone
    with pytest.raises(TaskManagerError, check=breaks("a task manager is up", name="q.1")):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.state == before
    made.cluster.task_managers["tm1"] = home


@pytest.mark.parametrize(
    ("stateful", "edge", "why"),
    [
        (("mid", "q"), ("mid", "q"), "state"),
        ((), ("src", "q"), "q.*src"),
        ((), ("mid", "p"), "'p'"),
    ],
)
def test_what_can_t_be_is_refused_in_one_line(
    made: Made, stateful: tuple[str, ...], edge: tuple[str, str], why: str
) -> None:
    made.stateful = set(stateful)
    for one in made.cluster.all_instances:
        made.runs(one)
    with pytest.raises(TaskManagerError, match=why):
        made.fuser.fuse(edge)
    made.fuser.begin(Fuse(edge))
    (event,) = made.cluster.events
    assert (event.kind, event.detail["action"], event.detail["stream"]) == ("action-refused", "Fuse", ">".join(edge))


def test_who_is_elsewhere_or_busy_is_not_fused(made: Made) -> None:
    made["q.1"].task_manager = made.cluster.task_managers["tm2"]
    with pytest.raises(TaskManagerError, match=r"mid\.1.*tm1.*q\.1.*tm2"):
        made.fuser.fuse(("mid", "q"))
    made["q.1"].task_manager = made.cluster.task_managers["tm1"]
    made["q.1"].life.state = State.MOVING
    with pytest.raises(TaskManagerError, check=breaks("running", name="q.1")):
        made.fuser.fuse(("mid", "q"))
    made["q.1"].life.state = State.RUNNING
    with made.fuser.deployer.deploying, pytest.raises(TaskManagerError, check=breaks("one change at a time")):
        made.fuser.fuse(("mid", "q"))
    with pytest.raises(TaskManagerError, check=breaks("within a task")):
        made.fuser.unfuse(("src", "q"))
    made.fuser.unfuse(("src", "mid")).result(1.0)  # it is so already
    made.fuser.begin(Unfuse(("mid", "q")))
    assert made.cluster.events == []


def keep_state(made: Made, root: Path, keeps: str) -> None:
    """Have a task keep state, in a checkpoint with an ended batch."""
    made.fuser.deployer.checkpoints = str(root)
    made.stateful = {keeps}
    for one in made.cluster.all_instances:
        made.runs(one)
    topic = made[f"{keeps}.1"].job.feeds[0].topic
    old = root / "old"
    for name in ("offsets", "commits", "state"):
        (old / name).mkdir(parents=True)
    (old / "metadata").write_text("{}")
    (old / "commits/3").write_text("v1")
    (old / "offsets/3").write_text(f'v1\n{{}}\n{{"{topic}":{{"0":70}}}}')
    made[f"{keeps}.1"].checkpoint = str(old)


@pytest.mark.parametrize("keeps", ["mid", "q"])
def test_state_goes_with_the_task_that_keeps_it(made: Made, tmp_path: Path, keeps: str) -> None:
    keep_state(made, tmp_path, keeps)
    made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.begun == {"q.1": True}  # so it stays on its checkpoint whatever Spark refuses
    log = (Path(made["q.1"].checkpoint) / "offsets/3").read_text()
    assert log.splitlines()[2] == '{"s.src.mid":{"0":70}}'
    made.reads("src>q", 0)
    made.fuser.unfuse(("mid", "q")).result(10.0)
    log = (Path(made[f"{keeps}.1"].checkpoint) / "offsets/3").read_text()
    between = made.deployment.pipes["mid>q"].topic
    assert log.splitlines()[2] == ('{"s.src.mid":{"0":70}}' if keeps == "mid" else f'{{"{between}":{{"0":0}}}}')
    other = made["q.1" if keeps == "mid" else "mid.1"]
    assert not Path(other.checkpoint).exists()  # it starts afresh
    assert made.begun == {f"{keeps}.1": True, other.id: False}


def test_a_query_that_fails_on_its_state_is_put_back_whoever_finds_it_first(made: Made, tmp_path: Path) -> None:
    """The watcher would try it again on that state, and in the end give up."""
    keep_state(made, tmp_path, "mid")
    before, start = made.state, made.script.start

    def failing(self: Instance, home: Any) -> None:
        start(self, home)
        made.parts.lifecycle.fail(self, "the state is corrupt")

    made.script.start = failing
    with pytest.raises(TaskManagerError, check=breaks("state", name="q.1")):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.state == before


def test_state_that_is_not_found_here_is_not_lost(made: Made, tmp_path: Path) -> None:
    made.fuser.deployer.checkpoints = str(tmp_path)  # where only the task managers see it
    made.stateful = {"mid"}
    for one in made.cluster.all_instances:
        made.runs(one)
    before = made.state
    with pytest.raises(TaskManagerError, check=breaks("local state", name="mid.1")):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.state == before


def writes_files(made: Made) -> None:
    spec = made.deployment.specs["q"]
    made.deployment.specs["q"] = replace(spec, streams=(replace(spec.tail, sink=Parquet("/data")),))
    del made.deployment.results["q"]


def test_files_of_a_query_with_state_stay_in_their_directory(made: Made, tmp_path: Path) -> None:
    """Whose log Spark compacts by the numbers of batches: it fails where earlier ones are missing."""
    writes_files(made)
    keep_state(made, tmp_path, "q")
    run = made["q.1"].job.run
    made.fuser.fuse(("mid", "q")).result(10.0)
    assert made["q.1"].job.run == run
    assert made["q.1"].checkpoint.endswith("/q/2/1")


def test_a_query_whose_sink_is_of_one_checkpoint_is_neither_fused_nor_unfused(made: Made) -> None:
    """Nor is that offered to policies."""
    metrics, before = Metrics(made.cluster), made.deployment.specs["q"]
    store = replace(before, streams=(replace(before.tail, sink=DataSource("org.acme.Store", "/data")),))
    assert metrics._fusion(store, True)["fusable"] == 0
    made.deployment.specs["q"] = store
    with pytest.raises(TaskManagerError, match=r"q would get another checkpoint.*/data"):
        made.fuser.fuse(("mid", "q"))
    made.deployment.specs["q"] = before
    made.fuser.fuse(("mid", "q")).result(10.0)
    both = made.deployment.specs["q"]
    made.deployment.specs["q"] = both = replace(both, streams=(*both.streams[:-1], store.tail))
    assert metrics._fusion(both, False)["inseparable"] == ("mid>q",)
    with pytest.raises(TaskManagerError, match=r"q would get another checkpoint.*/data"):
        made.fuser.unfuse(("mid", "q"))


def test_groups_in_files_stay_complete(made: Made, tmp_path: Path) -> None:
    writes_files(made)
    keep_state(made, tmp_path, "mid")
    before = made.state
    with pytest.raises(TaskManagerError, check=breaks("whole groups")):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.state == before
    assert made.started == []


def test_errors_of_spark_are_told_in_one_line(made: Made) -> None:
    def facts(_: Any) -> PlanFacts:
        raise ConnectionError("the server is gone\n\nJVM stacktrace:\nmany lines")

    made.cluster.facts = facts
    with pytest.raises(TaskManagerError, check=breaks()):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert made.started == []


def test_results_that_would_begin_anew_are_kept(made: Made) -> None:
    before, other = made.state, StructType([StructField("other", LongType())])
    made.deployment.inspection = fake_inspection(
        lambda specs: Checked(dict.fromkeys([spec.id for spec in specs], other))
    )
    with pytest.raises(TaskManagerError, check=breaks("same columns")):
        made.fuser.fuse(("mid", "q")).result(10.0)
    assert (made.state, made.started, made.deployment.results) == (before, [], {"q": "q.out"})
    assert made.deleted == ["qod.s.q.out.1"]


def test_a_topic_made_for_what_is_refused_is_deleted(made: Made) -> None:
    made.fuser.fuse(("mid", "q")).result(10.0)
    made.stateful = {"mid", "q"}
    made.runs(made["q.1"])
    before = made.state
    made.kafka.done.clear()
    with pytest.raises(TaskManagerError, check=breaks("one state")):
        made.fuser.unfuse(("mid", "q")).result(10.0)
    assert made.state == before
    assert set(made.created) - made.deployment.own_topics() == set(made.deleted) == {"qod.s.mid.q.1"}


def test_a_stream_that_has_been_a_topic_since_goes_on_where_it_is(made: Made) -> None:
    """Its account of the time before, when it was within a task, is of another topic."""
    specs, checked = tuple(made.deployment.specs.values()), made.deployment.checked
    made.fuser.fuse(("src", "mid")).result(10.0)
    deployment = made.deployment
    before = deployment.retired["src>mid"]
    deployment.adopt(prepare(deployment, specs, checked))  # declared anew, say with another reader
    assert deployment.retired == {}
    deployment.accounts["src>mid"].position[0] = 12
    deployment.retired = {"src>mid": before}
    one = fused(specs[1], specs[2])
    after = refit(deployment, specs[1:], (one,), [specs[0], one], checked)
    assert after.accounts["src>q"].position == {0: 12}
    assert after.accounts["src>q"] is deployment.accounts["src>mid"]


def test_what_can_t_be_parted_is_not_offered_to_policies(made: Made) -> None:
    made.fuser.fuse(("mid", "q")).result(10.0)
    spec, metrics = made.deployment.specs["q"], Metrics(made.cluster)
    told = metrics._fusion(spec, True)
    assert (told["fused"], "inseparable" in told) == (("mid>q",), False)
    made.deployment.assignments["src>q"] = ((0,), (1,))
    told = metrics._fusion(spec, False)
    assert (told["fused"], told["inseparable"]) == (("mid>q",), ("mid>q",))
    made.cluster.instances["q.2"] = replace(made["q.1"], job=replace(made["q.1"].job, instance="q.2", index=1))
    with pytest.raises(TaskManagerError, match=r"q.*mid>q.*2"):
        made.fuser.unfuse(("mid", "q"))


def test_a_scaled_task_whose_rows_are_sent_by_key_is_not_fused_nor_offered_to_policies(made: Made) -> None:
    spec, metrics = made.deployment.specs["q"], Metrics(made.cluster)
    spec = made.deployment.specs["q"] = replace(spec, streams=(replace(spec.tail, key="k"),))
    assert metrics._fusion(spec, True)["fusable"] == 1
    made.deployment.assignments["mid>q"] = ((0,), (1,))
    assert metrics._fusion(spec, True)["fusable"] == 0
    for id in ("mid", "q"):
        one = made[f"{id}.1"]
        made.cluster.instances[f"{id}.2"] = replace(one, job=replace(one.job, instance=f"{id}.2", index=1))
    before = made.state
    with pytest.raises(TaskManagerError, match=r"--key k.*mid.*2.*q"):
        made.fuser.fuse(("mid", "q"))
    assert made.state == before


def test_restrictions_that_are_set_meanwhile_are_kept(made: Made) -> None:
    declared = [
        replace(spec, streams=tuple(replace(s, priority=7) if s.name == "q" else s for s in spec.streams))
        for spec in made.deployment.specs.values()
    ]
    made.fuser.fuse(("mid", "q")).result(10.0)
    made.fuser.deployer.restrict(declared)  # made for three tasks
    assert {id: spec.priority for id, spec in made.deployment.specs.items()} == {"src": None, "q": 7}
    assert made.deployment.specs["q"].members == ("mid", "q")
    assert made.fuser.deployer.deploy(declared, {("src", "mid"), ("mid", "q")}) is False
    assert len(made.deployment.specs) == 2


STEPS = st.lists(st.tuples(st.sampled_from(("fuse", "unfuse")), st.sampled_from(EDGES), st.booleans()), max_size=6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_fails_the_books_balance_and_the_streams_are_as_declared(steps: Any) -> None:
    made = fresh()
    rows = 70
    for kind, edge, fails in steps:
        specs = made.deployment.specs.values()
        tails = {spec.streams[-1].name: spec.id for spec in specs}
        pair = (tails.get(edge[0], edge[0]), next(spec.id for spec in specs if edge[1] in spec.members))
        before = made.state
        made.failing = {i.id for i in made.cluster.all_instances} | {f"{n}.1" for n in ("src", "mid", "q")}
        made.failing = made.failing if fails else set()
        try:
            (made.fuser.fuse if kind == "fuse" else made.fuser.unfuse)(pair if kind == "fuse" else edge).result(10.0)
        except TaskManagerError:
            assert made.state == before
        made.failing = set()
        made.parts.recovery.retry()
        soon(lambda: all(i.state is State.RUNNING for i in made.cluster.all_instances))
        for each in made.cluster.all_instances:  # it has ended a batch
            each.books_differ = False
        source = next(name for name in made.deployment.accounts if ">" not in name)
        made.reads(source, 10)
        rows += 10
        counts = {name: each.count({0: each.position[0]}) for name, each in made.deployment.accounts.items()}
        assert counts[source].processed == rows
        for count in counts.values():
            assert count.arrived == count.processed + count.dropped + count.waiting + count.unreported
        assert [name for spec in made.deployment.specs.values() for name in spec.members] == ["src", "mid", "q"]
        assert not made.fuser.deployer.deploying.locked()


def test_one_query_reads_as_both_did() -> None:
    def reading(cpu: float | None, out: int) -> MeterReading:
        return MeterReading(60.0, 60.0, float(out), cpu, 10.0, 15.0, 9.0, {"t": 40}, {"t": 40}, out, {"0": out})

    both = in_a_row(reading(10.0, 5), reading(7.0, 3))
    assert both is not None
    assert (both.cpu, both.in_rate, both.out, both.sent, both.cpu_held) == (17.0, 60.0, 3, {"0": 3}, True)
    assert in_a_row(reading(10.0, 5), None) is None
