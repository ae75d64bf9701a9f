"""What a deployer makes of the tasks that an earlier kernel left: no server, no broker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from msgspec.structs import replace as replaced
from pyspark.sql.types import IntegerType, StructField, StructType

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.tables import DataSource
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.core.runtime import Count
from qod_magics.errors import ApplicationError, TaskManagerError
from qod_magics.named.manifest import VERSION, KeptTask, Manifest, decoded, encoded
from qod_magics.session.keeping import kept_stream
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.new_input import NewInput
from qod_magics.spark.changes.resuming import Resuming, matched, parts, waiting_streams
from qod_magics.spark.cluster.cluster import Patience
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import FeedCount
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka, failure
from tests.raising import breaks
from tests.sources.test_delta import MADE, Table
from tests.spark.changes.kept_cells import CELLS, SPECS
from tests.spark.fakes import BOARD, Parts, Script, cluster, fake_inspection, kinds, manager


class Kernel:
    """A deployer of one kernel. `meanings`: what the state of tasks means; `columns`: names of their results' columns.

    Recipes with "broken" in them can't be started.
    """

    def __init__(self, kafka: FakeKafka, root: Path, before: Kernel | None = None) -> None:
        self.kafka, self.root = kafka, root
        self.cluster = cluster(manager())
        self.meanings: dict[str, str] = {}
        self.columns: dict[str, list[str]] = {}
        self.now = 0.0
        self.ends: dict[str, dict[int, int]] = {}  #: of topics when they were looked at last
        history: Any = SimpleNamespace(at=lambda topic, now: self._last(topic), forget=lambda topic: None)
        metrics: Any = SimpleNamespace(sample=lambda: None, history=history)
        manifest = None
        if before is not None:
            made = Manifest(
                VERSION,
                "trips",
                "trips-00ff00",
                topics_made=before.cluster.deployment.topics_made,
                tasks=before.deployer.kept(),
                keep_probabilities=dict(before.cluster.dials),
            )
            manifest = decoded(encoded(made))
        self.cluster.patience = Patience(batch_s=-1.0)
        self.cluster.deployment.kafka = kafka
        self.cluster.deployment.sources.context = replace(self.cluster.deployment.sources.context, kafka=kafka)
        self.resuming = Resuming(self.cluster, manifest, str(root))
        self.deployer = Deployer(self.cluster, Parts(self.cluster).lifecycle, metrics, str(root), self.resuming)
        self.new_input = NewInput(self.deployer, history, lambda: self.now)
        self.cluster.deployment.inspection = fake_inspection(self._checked)
        self.cluster.make = Script(self._start).make

    def _last(self, topic: str) -> dict[int, int]:
        if topic in self.kafka.topics:
            self.ends[topic] = self.kafka.ends(topic)
        return self.ends.get(topic, {})

    def look(self) -> None:
        """Look at the partitions and topics that there are, some seconds after the last look."""
        self.now += 10.0
        self.new_input.read_partitions()
        self.new_input.read_topics()

    def _checked(self, specs: Sequence[TaskSpec]) -> Checked:
        schemas = {
            spec.id: StructType([StructField(name, IntegerType()) for name in self.columns.get(spec.id, ["n"])])
            for spec in specs
        }
        return Checked(schemas, signatures={spec.id: self.meanings.get(spec.id) for spec in specs})

    def _start(self, one: Instance, home: TaskManager) -> None:
        if "broken" in str(self.cluster.deployment.specs[one.job.task].tail.recipe):
            raise TaskManagerError("it can't start", rule="starts")
        one.facts = SimpleNamespace(keeps_state=one.job.task in self.meanings)  # type: ignore[assignment]

    def deploy(self, *specs: TaskSpec) -> None:
        self.deployer.deploy(specs)

    def reads(self, feed: str, end: dict[int, int], kept: int, dropped: int = 0) -> None:
        """Enter a batch that read up to these offsets."""
        self.cluster.deployment.accounts[feed].take(FeedCount("rows", None, end, kept + dropped, kept))
        for one in self.cluster.all_instances:
            one.begun = True

    def checkpoint(self, name: str = "T.1") -> str:
        return self.cluster.instances[name].checkpoint


def edited(spec: TaskSpec, recipe: str) -> TaskSpec:
    return replace(spec, streams=(*spec.streams[:-1], replace(spec.tail, recipe=PythonRecipe(recipe))))


def task(recipe: str = "source", **settings: Any) -> TaskSpec:
    (made,) = tasks(application(stream("T", topic="rows", priority=1, min_accuracy=0.1, **settings)))
    return edited(made, recipe)


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka({"rows": 2})


@pytest.fixture
def first(kafka: FakeKafka, tmp_path: Path) -> Kernel:
    """The kernel before: T has read 70 rows of `rows`, of which 20 were dropped, and keeps state."""
    kernel = Kernel(kafka, tmp_path)
    kernel.meanings["T"] = "count by window"
    kernel.deploy(task())
    kafka.set_ends("rows", {0: 60, 1: 60})
    kernel.reads("T", {0: 40, 1: 30}, kept=50, dropped=20)
    return kernel


def then(first: Kernel, meaning: str | None = "count by window") -> Kernel:
    kernel = Kernel(first.kafka, first.root, first)
    if meaning is not None:
        kernel.meanings["T"] = meaning
    return kernel


def log(kernel: Kernel, name: str, batch: int, offsets: dict[int, int]) -> None:
    """Write a file of a checkpoint's log, as Spark does."""
    path = Path(kernel.checkpoint()) / name / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    source = json.dumps({"rows": {str(p): offset for p, offset in offsets.items()}})
    path.write_text(f"v1\n{{}}\n{source}" if name == "offsets" else "v1\n{}")


@pytest.mark.parametrize(
    ("declared", "scaled_to", "now", "goes_on"),
    [(1, 2, 2, True), (1, 2, 1, True), (1, 2, 3, False), (2, 1, 1, True), (1, 1, 2, False), (0, 2, 2, False)],
)
def test_a_scaled_task_goes_on_when_it_is_declared_as_it_was_or_as_it_is(
    first: Kernel, declared: int, scaled_to: int, now: int, goes_on: bool
) -> None:
    kernel = then(first)
    kernel.deploy(task("source.groupBy('n').count()", parallelism=max(declared, 1), max_parallelism=4))
    kept = kernel.deployer.kept()["T"]
    assert kept.parallelism == max(declared, 1)
    run = next(iter(kept.runs.values()))
    runs = {f"T.{n + 1}": run for n in range(scaled_to)}
    left = {"T": replaced(kept, runs=runs, keeps_state=True, parallelism=declared)}
    spec = task("source.groupBy('n').count()", parallelism=now, max_parallelism=4)
    found = matched(left, [spec], kernel.cluster.deployment.checked)
    assert ("T" in found.going_on, "T" in found.lost) == (goes_on, not goes_on and run.begun)
    assert not found.edited


def test_cells_that_an_earlier_release_kept_go_on() -> None:
    """A field that cells have got since then changes no hash of theirs, unless it is stated."""
    kept = decoded(Path(__file__).with_name("kept_cells.json").read_bytes())
    found = matched(kept.tasks, SPECS, Checked({}, {}))
    assert found.going_on == kept.tasks.keys() == {cell.name for cell in CELLS}
    assert not found.edited
    assert {cell.name: kept_stream(cell) for cell in CELLS} == kept.streams


def test_the_same_cell_goes_on_from_its_checkpoint_with_its_counts_and_dials(first: Kernel) -> None:
    first.cluster.want({BOARD.source("T"): 0.3})
    second = then(first)
    second.deploy(task())
    assert second.checkpoint() == first.checkpoint()
    assert second.cluster.instances["T.1"].job.run == first.cluster.instances["T.1"].job.run
    assert second.cluster.instances["T.1"].begun
    account = second.cluster.deployment.accounts["T"]
    assert (account.processed, account.dropped, account.unreported, account.again) == (50, 20, 0, 0)
    assert account.count({0: 60, 1: 60}) == first.cluster.deployment.accounts["T"].count({0: 60, 1: 60})
    assert second.cluster.dials_of(second.cluster.instances["T.1"])[BOARD.source("T")] == 0.3
    assert second.cluster.deployment.results == first.cluster.deployment.results
    assert "resumed" in kinds(second.cluster)
    assert second.resuming.left == {}


def test_other_restrictions_are_no_other_cell(first: Kernel) -> None:
    second = then(first)
    second.deploy(replace(task(), streams=(replace(task().tail, priority=9, min_accuracy=0.9),)))
    assert second.checkpoint() == first.checkpoint()


def test_rows_that_the_checkpoint_is_ahead_and_rows_read_twice_are_counted(first: Kernel) -> None:
    """The last batches of a killed kernel: one that ended but was not reported, one that had begun."""
    log(first, "offsets", 0, {0: 40, 1: 30})
    log(first, "commits", 0, {})
    log(first, "offsets", 1, {0: 45, 1: 33})
    log(first, "commits", 1, {})
    log(first, "offsets", 2, {0: 50, 1: 40})
    second = then(first)
    second.deploy(task())
    account = second.cluster.deployment.accounts["T"]
    assert account.position == {0: 45, 1: 33}
    assert (account.unreported, account.again) == (8, 12)
    count = account.count({0: 60, 1: 60})
    assert count.arrived == 120 == count.processed + count.dropped + count.waiting + count.unreported


def test_rows_of_the_first_batch_are_read_twice_where_none_had_ended(first: Kernel) -> None:
    first.cluster.deployment.accounts["T"].position = {0: 0, 1: 0}
    log(first, "offsets", 0, {0: 7, 1: 5})
    second = then(first)
    second.deploy(task())
    assert second.cluster.deployment.accounts["T"].again == 12


def test_an_edited_cell_whose_state_means_the_same_keeps_it(first: Kernel) -> None:
    second = then(first)
    second.deploy(task("source.where('n > 0')"))
    assert second.checkpoint() == first.checkpoint()
    assert second.cluster.incomplete.lost_at == {}


def test_another_meaning_of_the_state_begins_with_new_state_where_the_old_one_was(first: Kernel) -> None:
    second = then(first, "sum by window")
    second.deploy(task("source.where('n > 0')"))
    assert second.checkpoint() == f"{first.root}/T/2/1"
    account = second.cluster.deployment.accounts["T"]
    assert (account.position, account.processed) == ({0: 40, 1: 30}, 50)
    assert second.cluster.instances["T.1"].job.feeds[0].starting == {0: 40, 1: 30}
    assert second.cluster.incomplete.lost_at.keys() == {"T"}, "nobody is told that windows lack rows"


@pytest.mark.parametrize("again", [False, True])
def test_a_table_is_read_as_declared_also_if_another_one_is_in_its_place(
    kafka: FakeKafka, tmp_path: Path, again: bool
) -> None:
    """Rows of files have numbers for one kernel only: those of another table would be taken for ones that were read."""
    table = Table(tmp_path / "table")
    table.append("a.parquet", 9)
    source = TopicInput(topic=f"delta:{table.place}", starting="earliest")
    cell = StreamDeclaration("T", PythonRecipe("source"), source, priority=1, min_accuracy=0.1)
    (spec,) = tasks(application(cell))
    before = Kernel(kafka, tmp_path)
    before.meanings["T"] = "count by window"
    before.deploy(spec)
    before.reads("T", {0: 9}, kept=9)
    if again:
        shutil.rmtree(table.place)
        table = Table(table.place, metaData={**MADE["metaData"], "id": "b"})
        table.append("a.parquet", 12)
    second = then(before)
    second.deploy(spec)
    assert second.checkpoint() == f"{before.root}/T/2/1"
    account = second.cluster.deployment.accounts["T"]
    assert (account.position, account.processed) == ({0: 0}, 0)
    assert second.resuming.notes.keys() == second.cluster.incomplete.lost_at.keys() == {"T"}, "and that is said"


@pytest.mark.parametrize("change", [{"mode": "microbatch"}, {"parallelism": 2}])
def test_other_settings_begin_with_new_state(first: Kernel, change: dict[str, Any]) -> None:
    second = then(first)
    second.deploy(task(**change))
    assert second.checkpoint().startswith(f"{first.root}/T/2/")


def test_a_query_without_state_that_changed_reads_on_and_lacks_nothing(kafka: FakeKafka, tmp_path: Path) -> None:
    before = Kernel(kafka, tmp_path)
    before.deploy(task())
    kafka.set_ends("rows", {0: 60, 1: 60})
    before.reads("T", {0: 40, 1: 30}, kept=70)
    second = then(before, None)
    second.deploy(task("source.where('n > 0')"))
    assert second.cluster.deployment.accounts["T"].position == {0: 40, 1: 30}
    assert second.cluster.incomplete.lost_at == {}


def test_a_start_that_fails_loses_nothing_and_the_next_goes_on(first: Kernel) -> None:
    topics = set(first.kafka.topics)
    second = then(first)
    with pytest.raises(TaskManagerError, check=breaks("starts")):
        second.deploy(task("broken"))
    assert set(second.resuming.left) == {"T"}
    assert second.deployer.kept()["T"].feeds["T"].processed == 50
    assert topics <= set(first.kafka.topics)
    second.deploy(task())
    assert second.checkpoint() == first.checkpoint()


def test_on_another_kafka_streams_begin_as_declared(first: Kernel) -> None:
    second = then(first)
    second.resuming.same_kafka = False
    second.deploy(task())
    assert second.checkpoint() != first.checkpoint()
    assert second.cluster.deployment.accounts["T"].processed == 0
    assert second.cluster.incomplete.lost_at.keys() == {"T"}


def test_a_stream_that_is_not_declared_again_is_kept_until_it_is_dropped(first: Kernel) -> None:
    second = then(first)
    third = then(second)
    third.deploy(task())
    assert third.checkpoint() == first.checkpoint()
    dropped = then(first)
    dropped.resuming.forget("T")
    assert dropped.deployer.kept() == {}


def test_a_new_topic_never_has_the_name_of_an_earlier_one(first: Kernel) -> None:
    second = then(first, "sum by window")
    second.deploy(task("source.where('n > 0')"))
    assert second.cluster.deployment.results["T"] != first.cluster.deployment.results["T"]


# -- another list of topics, or other tasks ----------------------------------------------------------------------------


def read_by_trips(topics: str, *, fuse: bool = True) -> tuple[TaskSpec, ...]:
    """Tasks of `trips`, which reads these topics, and of the query T, which reads `trips`."""
    return tasks(
        application(stream("trips", topic=topics, fuse=fuse), stream("T", "trips", priority=1, min_accuracy=0.1))
    )


@pytest.mark.parametrize("new_kernel", [False, True])
@pytest.mark.parametrize("alone", [False, True], ids=["one stream", "two streams"])
@pytest.mark.parametrize(
    ("before", "after"), [("east", "east,west"), ("east,west", "east"), ("east,west", "west,north"), ("east", "east")]
)
def test_each_topic_is_read_on_where_it_was_whatever_topics_are_read_beside_it(
    tmp_path: Path, before: str, after: str, alone: bool, new_kernel: bool
) -> None:
    def declared(topics: str) -> tuple[TaskSpec, ...]:
        alone_now = tasks(application(stream("T", topic=topics, priority=1, min_accuracy=0.1)))
        return alone_now if alone else read_by_trips(topics)

    kafka = FakeKafka({"east": 1, "west": 1, "north": 1})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*declared(before))
    for account in kernel.cluster.deployment.accounts.values():
        kafka.set_ends(account.topic, {0: 60})
        account.take(FeedCount(account.topic, None, {0: 40}, 40, 30))
    for one in kernel.cluster.all_instances:
        one.begun = True
    kafka.set_ends("north", {0: 60})
    then_ = then(kernel, None) if new_kernel else kernel
    then_.deploy(*declared(after))
    accounts = {account.topic: account for account in then_.cluster.deployment.accounts.values()}
    known = set(before.split(","))
    assert {topic: account.position[0] for topic, account in accounts.items()} == {
        topic: 40 if topic in known else kafka.ends(topic)[0] for topic in after.split(",")
    }
    for topic in known & accounts.keys():
        count = accounts[topic].count(kafka.ends(topic))
        assert (count.arrived, count.processed, count.dropped, count.waiting) == (60, 30, 10, 20)


@pytest.mark.parametrize("new_kernel", [False, True])
@pytest.mark.parametrize("topics", ["east", "east,west"])
def test_a_topic_is_read_on_where_it_was_by_a_stream_that_has_become_a_task(
    tmp_path: Path, topics: str, new_kernel: bool
) -> None:
    kafka = FakeKafka({"east": 1, "west": 1})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*read_by_trips(topics))
    for account in kernel.cluster.deployment.accounts.values():
        kafka.set_ends(account.topic, {0: 60})
        account.take(FeedCount(account.topic, None, {0: 40}, 40, 40))
    then_ = then(kernel, None) if new_kernel else kernel
    then_.deploy(*read_by_trips(topics, fuse=False))
    assert [spec.id for spec in then_.cluster.deployment.specs.values()] == ["trips", "T"]
    accounts = then_.cluster.deployment.accounts.values()
    assert {each.topic: each.position[0] for each in accounts if not each.topic.startswith("qod.")} == dict.fromkeys(
        topics.split(","), 40
    )


@pytest.mark.parametrize("new_kernel", [False, True])
def test_two_streams_of_one_topic_each_go_on_where_they_were(tmp_path: Path, new_kernel: bool) -> None:
    def declared(first: str, second: str) -> tuple[TaskSpec, ...]:
        return tasks(application(stream("A", topic=first, priority=1), stream("B", topic=second, priority=1)))

    kafka = FakeKafka({"east": 1, "west": 1})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*declared("east", "east,west"))
    kafka.set_ends("east", {0: 60})
    for feed, end in (("A", 20), ("B:east>B", 40)):
        kernel.cluster.deployment.accounts[feed].take(FeedCount("east", None, {0: end}, end, end))
    then_ = then(kernel, None) if new_kernel else kernel
    then_.deploy(*declared("east,west", "east"))
    accounts = then_.cluster.deployment.accounts
    assert (accounts["A:east>A"].position, accounts["B"].position) == ({0: 20}, {0: 40})


# -- tasks that exchange rows ------------------------------------------------------------------------------------------


def chain(recipe: str = "source.select('n')") -> tuple[TaskSpec, ...]:
    """A source with this recipe and two queries, three tasks."""
    return tasks(
        application(
            replace(stream("src", topic="rows", fuse=False), recipe=PythonRecipe(recipe)),
            stream("a", "src", priority=1, fuse=False),
            stream("b", "src", priority=1, fuse=False),
        )
    )


def test_tasks_go_on_with_the_topics_between_them(kafka: FakeKafka, tmp_path: Path) -> None:
    before = Kernel(kafka, tmp_path)
    before.deploy(*chain())
    kafka.set_ends("rows", {0: 9, 1: 9})
    before.reads("src", {0: 9, 1: 9}, kept=18)
    topic = before.cluster.deployment.pipes["src>a"].topic
    kafka.set_ends(topic, {0: 18})
    before.cluster.deployment.accounts["src>a"].take(FeedCount(topic, None, {0: 12}, 12, 12))
    second = then(before, None)
    second.deploy(*chain())
    assert {name: pipe.topic for name, pipe in second.cluster.deployment.pipes.items()} == {
        name: pipe.topic for name, pipe in before.cluster.deployment.pipes.items()
    }
    assert second.cluster.deployment.accounts["src>a"].position == {0: 12}
    assert [one.checkpoint for one in second.cluster.all_instances] == [
        one.checkpoint for one in before.cluster.all_instances
    ]


def test_a_reader_whose_input_has_other_columns_begins_with_a_new_checkpoint(kafka: FakeKafka, tmp_path: Path) -> None:
    before = Kernel(kafka, tmp_path)
    before.deploy(*chain())
    second = then(before, None)
    second.columns["src"] = ["n", "more"]
    second.deploy(*chain())
    assert second.checkpoint("src.1") == before.checkpoint("src.1")
    assert second.checkpoint("a.1") != before.checkpoint("a.1")


def test_rows_on_the_way_to_a_reader_are_counted_where_their_columns_change(kafka: FakeKafka, tmp_path: Path) -> None:
    """In the same kernel and in a later one: the rows that wait can't be read with the new columns."""
    before = Kernel(kafka, tmp_path)
    before.deploy(*chain())
    first = before.cluster.deployment.pipes["src>a"].topic
    kafka.set_ends(first, {0: 18})
    before.cluster.deployment.accounts["src>a"].take(FeedCount(first, None, {0: 12}, 12, 12))
    after = then(before, None)
    after.columns["src"] = ["n", "more"]
    after.deploy(*chain())
    account = after.cluster.deployment.accounts["src>a"]
    assert account.topic != first
    assert account.count({0: 0}).arrived == 18
    assert (account.processed, account.unreported, account.count({0: 0}).waiting) == (12, 6, 0)
    kafka.set_ends(account.topic, {0: 5})
    after.columns["src"] = ["n"]
    after.deploy(*chain(recipe="source"))
    again = after.cluster.deployment.accounts["src>a"]
    assert again.topic not in (first, account.topic)
    assert (again.processed, again.unreported, again.count({0: 0}).arrived) == (12, 11, 23)
    told = [event for event in after.cluster.events if event.kind == "rows-left"]
    assert [(event.detail["task"], event.detail["stream"], event.detail["rows"]) for event in told] == [
        ("a", "src>a", 6),
        ("a", "src>a", 5),
    ]


def kept(*streams: str, upstream: Sequence[str] = ()) -> KeptTask:
    return KeptTask(list(streams), "", "", "", upstream=list(upstream))


def test_streams_wait_for_those_that_choose_their_shed_key_together() -> None:
    tasks = {"a": kept("src", "a"), "b": kept("src", "b"), "c": kept("c")}
    assert waiting_streams(tasks, ["src", "a"]) == {}
    for name in ("a", "b"):
        tasks[name].chosen = ["src"]
    assert waiting_streams(tasks, ["src", "a"]) == {"src": ("b",), "a": ("b",)}


def test_streams_wait_for_those_with_which_they_exchanged_rows() -> None:
    tasks = {
        "src": kept("src"),
        "a": kept("a", upstream=["src"]),
        "b": kept("b", upstream=["src"]),
        "alone": kept("c", "alone"),
    }
    assert sorted(map(sorted, parts(tasks))) == [["a", "b", "src"], ["alone"]]
    assert waiting_streams(tasks, ["src", "a", "c", "alone"]) == {"src": ("b",), "a": ("b",)}
    assert waiting_streams(tasks, ["src", "a", "b", "c"]) == {}
    assert waiting_streams({}, ["src"]) == {}


def test_a_checkpoint_of_a_task_that_was_stopped_is_not_taken_for_a_new_one(first: Kernel) -> None:
    """Nothing of it is in the manifest, and its directory stays."""
    log(first, "offsets", 0, {0: 40, 1: 30})
    first.deploy()
    second = then(first)
    second.deploy(task("source.where('n > 0')"))
    assert second.checkpoint() == f"{first.root}/T/2/1"
    assert second.cluster.instances["T.1"].job.run != "T-1-1"


def test_another_target_of_latency_is_no_other_cell(first: Kernel) -> None:
    second = then(first)
    second.deploy(task(max_latency_s=0.5))
    assert second.checkpoint() == first.checkpoint()
    assert second.cluster.incomplete.lost_at == {}


def test_a_kill_while_a_task_starts_loses_nothing_that_is_known_of_it(first: Kernel) -> None:
    first.cluster.went_behind("T", 7)
    first.cluster.incomplete.lose_state("T", 123.0)
    second = then(first)
    kept = []
    second.cluster.make = Script(lambda one, home: kept.append(second.deployer.kept()["T"])).make
    second.deploy(task())
    assert [(each.late, each.state_since, each.keeps_state) for each in kept] == [(7, 123.0, True)]


def patterned(kernel: Kernel, name: str = "T") -> tuple[TaskSpec, ...]:
    """The tasks of a query over a pattern, as a kernel declares it: of the topics that it has read, if there are."""
    pattern = "trips-.*"
    deployment = kernel.cluster.deployment
    known = deployment.topics_of_pattern(name, pattern) or kernel.resuming.topics_read(name, pattern)
    topic = TopicInput(",".join(known or ("trips-b",)), pattern=pattern)
    return tasks(application(StreamDeclaration(name, PythonRecipe("source"), topic, priority=1, parallelism=2)))


def test_topics_that_come_later_are_read_from_their_first_row_and_by_the_next_kernel(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2, "other": 1})
    first = Kernel(kafka, tmp_path)
    first.meanings["T"] = "count by window"
    first.deploy(*patterned(first))
    kafka.set_ends("trips-b", {0: 60, 1: 60})
    first.reads("T:trips-b>T", {0: 40, 1: 30}, kept=70)
    run = first.cluster.instances["T.1"].job.run
    kafka.create("trips-a", 1)
    kafka.set_ends("trips-a", {0: 5})
    first.new_input.read_topics()
    feeds = [[(feed.topic, feed.partitions) for feed in one.job.feeds] for one in first.cluster.all_instances]
    assert feeds == [[("trips-b", (0,)), ("trips-a", (0,))], [("trips-b", (1,))]], "it has fewer partitions"
    assert first.cluster.instances["T.1"].job.run == run
    account = first.cluster.deployment.accounts["T:trips-a>T"]
    assert account.count(kafka.ends("trips-a")).waiting == 5
    kafka.create("trips-c", 2)
    again = patterned(first)
    assert again[0].tail.topic is not None
    assert again[0].tail.topic.topics == ("trips-b", "trips-a")
    first.deploy(*again)
    assert first.cluster.instances["T.1"].job.run == run, "it is the same cell"
    later = then(first)
    later.deploy(*patterned(later))
    assert later.deployer.returned == ("T",)
    assert later.checkpoint() == first.checkpoint()
    assert later.cluster.deployment.accounts["T:trips-b>T"].position == {0: 40, 1: 30}
    later.new_input.read_topics()
    (spec,) = later.cluster.deployment.specs.values()
    assert [topic.topic for topic in spec.topics.values()] == ["trips-b", "trips-a", "trips-c"]


def topics_of(kernel: Kernel) -> dict[str, list[str]]:
    return {id: [each.topic for each in spec.topics.values()] for id, spec in kernel.cluster.deployment.specs.items()}


@pytest.mark.parametrize("other", ["U", "V"], ids=["by its name", "by the same pattern"])
def test_a_topic_that_another_stream_reads_is_read_by_the_pattern_too(tmp_path: Path, other: str) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    kafka.create("trips-a", 1)
    kafka.set_ends("trips-a", {0: 5})
    input = TopicInput("trips-b,trips-a", pattern="trips-.*") if other == "V" else TopicInput("trips-a")
    second = tasks(application(StreamDeclaration(other, PythonRecipe("source"), input, priority=1)))
    kernel.deploy(*patterned(kernel), *second)
    kernel.new_input.read_topics()
    assert topics_of(kernel)["T"] == ["trips-b", "trips-a"]
    assert kernel.cluster.deployment.accounts["T:trips-a>T"].count(kafka.ends("trips-a")).waiting == 5
    assert kinds(kernel.cluster).count("topic-added") == 1


def test_a_topic_that_can_not_be_read_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    for name in ("trips-a", "trips-c"):
        kafka.create(name, 1)

    def fail(operation: str, topic: str) -> None:
        if (operation, topic) == ("offsets", "trips-a"):
            raise failure(ClientError.LEADER_NOT_AVAILABLE)

    kafka.fail = fail
    with pytest.raises(TaskManagerError, check=breaks("readable")):
        kernel.new_input.read_topics()
    assert topics_of(kernel)["T"] == ["trips-b", "trips-c"]


def test_a_topic_that_was_deleted_is_read_no_more_and_its_rows_are_counted(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.meanings["T"] = "count by window"
    kernel.deploy(*patterned(kernel))
    kafka.create("trips-a", 2)
    kernel.look()
    kafka.set_ends("trips-a", {0: 40, 1: 40})
    kernel.reads("T:trips-a>T", {0: 30, 1: 40}, kept=60, dropped=10)
    kernel.look()
    kafka.topics.pop("trips-a")
    kernel.look()
    assert topics_of(kernel)["T"] == ["trips-b", "trips-a"], "a broker that has just started may lack it"
    kernel.look()
    assert topics_of(kernel)["T"] == ["trips-b"]
    assert [[feed.topic for feed in one.job.feeds] for one in kernel.cluster.all_instances] == [["trips-b"]] * 2
    (event,) = [each for each in kernel.cluster.events if each.kind == "topic-gone"]
    assert event.detail["rows"] == 10
    account = kernel.cluster.deployment.accounts["T:trips-a>T"]
    assert account.count({}) == Count(arrived=80, processed=60, dropped=10, waiting=0, unreported=10)
    account.take(FeedCount("trips-a", {0: 30}, {0: 34}, 4, 4))  # the batch that was under way
    assert account.count({}) == Count(arrived=80, processed=64, dropped=10, waiting=0, unreported=6)
    later = then(kernel)
    later.deploy(*patterned(later))
    assert topics_of(later)["T"] == ["trips-b"]
    assert later.cluster.deployment.accounts["T:trips-a>T"].count({}).unreported == 6
    kafka.create("trips-a", 1)
    kafka.set_ends("trips-a", {0: 5})
    later.look()
    assert topics_of(later)["T"] == ["trips-b", "trips-a"]
    again = later.cluster.deployment.accounts["T:trips-a>T"]
    assert again.count({0: 5}) == Count(arrived=85, processed=64, dropped=10, waiting=5, unreported=6)
    assert again.deleted_unread == 6


def test_the_last_topic_of_a_pattern_is_waited_for(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    kafka.create("trips-a", 1)
    kernel.look()
    kafka.topics.pop("trips-b")  # trips-a has no partition for the second instance
    kernel.look()
    with pytest.raises(TaskManagerError, check=breaks("matches")):
        kernel.look()
    assert topics_of(kernel)["T"] == ["trips-b", "trips-a"]
    kafka.create("trips-c", 2)
    kernel.look()
    kernel.look()
    assert topics_of(kernel)["T"] == ["trips-a", "trips-c"]


def test_a_topic_that_may_not_be_looked_at_was_not_deleted(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    kafka.create("trips-a", 1)
    kernel.look()
    kafka.topics.pop("trips-a")  # a broker leaves it out of its list

    def fail(operation: str, topic: str) -> None:
        if operation == "describe":
            raise failure(ClientError.TOPIC_AUTHORIZATION_FAILED)

    kafka.fail = fail
    for _ in range(3):
        kernel.look()
    assert topics_of(kernel)["T"] == ["trips-b", "trips-a"]


def test_topics_that_were_adopted_meanwhile_survive_new_restrictions(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    (stale,) = patterned(kernel)
    kafka.create("trips-a", 1)
    kernel.new_input.read_topics()
    kernel.deployer.restrict([replace(stale, streams=(replace(stale.tail, priority=7),))])
    assert topics_of(kernel) == {"T": ["trips-b", "trips-a"]}
    assert kernel.cluster.deployment.specs["T"].tail.priority == 7


def test_topics_read_are_of_the_same_pattern_only(tmp_path: Path) -> None:
    kafka = FakeKafka({"trips-b": 2})
    kernel = Kernel(kafka, tmp_path)
    kernel.deploy(*patterned(kernel))
    later = then(kernel, None)
    assert later.resuming.topics_read("T", "trips-.*") == ("trips-b",)
    assert later.resuming.topics_read("T", "trips.*") == ()
    kernel.deploy(*tasks(application(stream("T", topic="trips-b", priority=1))))
    assert then(kernel, None).resuming.topics_read("T", "trips-.*") == ()


def test_a_query_that_would_begin_on_a_log_of_batches_is_refused_and_what_ran_goes_on(
    kafka: FakeKafka, tmp_path: Path
) -> None:
    kernel, out = Kernel(kafka, tmp_path / "checkpoints"), tmp_path / "out"
    kernel.deploy(spec := task(sink=DataSource("org.acme.Store", str(out))))
    ran = kernel.cluster.instances["T.1"]
    assert kernel.cluster.deployment.max_parallelism(spec) == 1
    (out / "_spark_metadata").mkdir(parents=True)
    (out / "_spark_metadata" / "0").write_text("v1")
    with pytest.raises(ApplicationError, check=breaks("own directory", option="--sink")):
        kernel.deploy(edited(spec, "source.where('n > 0')"))
    assert kernel.cluster.instances["T.1"] is ran
    kernel.deploy(spec)
    later = then(kernel, None)
    later.deploy(spec)
    assert later.checkpoint() == kernel.checkpoint()
