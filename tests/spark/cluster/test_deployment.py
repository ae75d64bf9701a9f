"""What a deployment keeps from one application to the next, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import AUTO, TopicInput
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.errors import KafkaError, TaskManagerError
from qod_magics.kafka.names import is_of
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.preparing import ends_of, instance_jobs, prepare
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import same_columns
from qod_magics.spark.queries.progress import FeedCount
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks

ROWS = StructType([StructField("id", LongType(), True), StructField("_weight", DoubleType(), False)])
MAY_BE_NULL = StructType([ROWS["id"], StructField("_weight", DoubleType(), True)])


def running(*declared: str, kafka: FakeKafka | None = None) -> Deployment:
    """A deployment of `trips`, which a topic feeds, and the queries that read it."""
    made = Deployment(kafka or FakeKafka({"t": 1, "clicks": 1}), "s")
    specs = tasks(application(stream("trips", topic="t"), *(stream(name, "trips", priority=1) for name in declared)))
    made.specs = {spec.id: spec for spec in specs}
    made.checked = Checked(dict.fromkeys(made.specs, ROWS))
    made.results = {name: f"qod.s.{name}.out.1" for name in declared}
    made.topics_made = 1
    made.accounts = {spec.id: Account("t", {0: 7}) for spec in specs if spec.is_source}
    return made


def results_topic(made: Deployment, spec: TaskSpec, columns: StructType) -> str:
    """The topic of a query's results, if it were declared like this."""
    return prepare(made, [spec], Checked({spec.id: columns})).results[spec.id]


def test_results_go_on_as_long_as_their_query_does() -> None:
    made = running("first")
    fused = made.specs["first"]
    (_, apart, _) = tasks(application(*fused.streams, stream("second", "trips", priority=1)))
    assert apart.id == "first"
    assert apart.members != fused.members
    assert results_topic(made, apart, MAY_BE_NULL) == "qod.s.first.out.1"


@pytest.mark.parametrize("what", ["recipe", "columns", "weight"])
def test_another_querys_rows_are_no_results_of_this_one(what: str) -> None:
    made = running("first")
    (spec,) = made.specs.values()
    columns = {
        "recipe": ROWS,
        "columns": StructType([StructField("id", StringType()), ROWS["_weight"]]),
        "weight": StructType([ROWS["id"]]),
    }[what]
    if what == "recipe":
        spec = replace(spec, streams=(spec.heads[0], replace(spec.tail, recipe=PythonRecipe("trips.limit(1)"))))
    first = results_topic(made, spec, columns)
    assert first != "qod.s.first.out.1"
    assert results_topic(made, spec, columns) not in (first, "qod.s.first.out.1")


def test_a_source_taken_out_of_its_chain_goes_on_with_its_account() -> None:
    made = running("first")
    new = tasks(application(*made.specs["first"].streams, stream("second", "trips", priority=1)))
    assert new[0].members == ("trips",)
    assert made.known_account(new, new[0], "trips") is made.accounts["first"]


@pytest.mark.parametrize("mixed", [False, True])
def test_a_source_taken_out_of_several_readers_goes_on_at_the_slowest(mixed: bool) -> None:
    """From where the first one is, rows that wait for another would be skipped."""
    made = running("first")
    declared = (stream("trips", topic="t"), *(stream(name, "trips", priority=1) for name in ("first", "second")))
    made.specs = {spec.id: spec for spec in tasks(application(*declared), inlinable={"trips": 1})}
    fast = Account("t", {0: 0, 1: 0}, {0: 70, 1: 5 if mixed else 60}, processed=75 if mixed else 130)
    slow = Account("t", {0: 0, 1: 0}, {0: 40, 1: 10}, processed=50)
    made.accounts = {"first": fast, "second": slow}
    new = tasks(application(*declared))
    found = made.known_account(new, new[0], "trips")
    assert found is not None
    assert (found is slow) is not mixed
    assert found.position == {0: 40, 1: 5 if mixed else 10}
    assert (fast.position[0], slow.position) == (70, {0: 40, 1: 10})  # as they are, for a rollback
    found.take(FeedCount("t", dict(found.position), {0: 100, 1: 80}, 135 if mixed else 130, 100))
    count = found.count({0: 100, 1: 90})
    assert count.arrived == count.processed + count.dropped + count.waiting == (145 if mixed else 190)
    assert (count.waiting, count.unreported) == (10, 0)


def test_a_stream_that_reads_more_topics_goes_on_with_the_account_of_each() -> None:
    made = running("first")
    (new,) = tasks(application(stream("trips", topic="t,clicks"), stream("first", "trips", priority=1)))
    assert made.known_account([new], new, "trips:t") is made.accounts["first"]
    assert made.known_account([new], new, "trips:clicks") is None
    made.specs, made.accounts = {"first": new}, {feed: Account("t", {0: 9}) for feed in ("trips:t>first",)}
    (less,) = tasks(application(stream("trips", topic="t"), stream("first", "trips", priority=1)))
    assert made.known_account([less], less, "trips") is made.accounts["trips:t>first"]


def test_one_who_reads_the_topic_too_has_an_account_of_its_own() -> None:
    kafka = FakeKafka()
    made = running("first", kafka=kafka)
    kafka.create("t", end=11)
    kafka.create("u", end=5)
    new = tasks(
        application(*made.specs["first"].streams, stream("second", "trips", priority=1)), inlinable={"trips": 1}
    )
    assert [spec.members for spec in new] == [("trips", "first"), ("trips", "second")]
    columns = {name: ROWS for spec in new for name in (*spec.members, spec.id)}
    opened = prepare(made, new, Checked(columns)).opened
    assert made.known_account(new, new[0], "trips") is made.accounts["first"]
    assert [account.position for account in opened.values()] == [{0: 11}]
    (elsewhere,) = tasks(application(stream("trips", topic="u", priority=1)))
    assert [a.position for a in prepare(made, [elsewhere], Checked({"trips": ROWS})).opened.values()] == [{0: 5}]
    (other,) = tasks(application(stream("rides", topic="t", priority=1)))
    assert [a.position for a in prepare(made, [other], Checked({"rides": ROWS})).opened.values()] == [{0: 11}]


def test_edges_are_pairs_of_streams() -> None:
    made = Deployment(None, "s")  # type: ignore[arg-type]
    specs = tasks(
        application(stream("t", topic="t"), stream("u", "t"), stream("v", "t"), stream("w", "u", "v", priority=1))
    )
    made.specs = {spec.id: spec for spec in specs}
    made.pipes = {
        f"{source}>{spec.id}": Pipe(f"{source}>{spec.id}", source, spec.id, "", 1, None)
        for spec in specs
        for source in spec.upstream
    }
    assert made.edges == {("t", "u"), ("t", "v"), ("u", "w"), ("v", "w")}


def test_results_are_found_by_name_wherever_the_weight_came_in() -> None:
    made = running("first")
    turned = StructType([ROWS["_weight"], ROWS["id"]])
    assert not same_columns(ROWS, turned)
    assert results_topic(made, made.specs["first"], turned) == "qod.s.first.out.1"


def test_nothing_compares_to_columns_that_are_not_known() -> None:
    assert same_columns(ROWS, MAY_BE_NULL)
    assert not same_columns(ROWS, None)
    assert not same_columns(None, None)


def test_a_stream_is_in_every_task_that_runs_it() -> None:
    made = Deployment(None, "s")  # type: ignore[arg-type]
    declared = (stream("t", topic="t"), stream("u", "t", priority=1), stream("v", "t", priority=1))
    made.specs = {spec.id: spec for spec in tasks(application(*declared), inlinable={"t": 1})}
    assert [spec.id for spec in made.specs_with("t")] == ["u", "v"]
    assert made.specs_with("v") == [made.specs["v"]]
    assert made.specs_with("w") == []


# -- Kafka sinks -------------------------------------------------------------------------------------------------------


class Broker(FakeKafka):
    """Its topics have three partitions each, which all end at this offset."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 11

    @property
    def end(self) -> int:
        return self._end

    @end.setter
    def end(self, offset: int) -> None:
        self._end = offset
        for name in ("t", "out", "other"):
            self.create(name, 3, offset)

    @property
    def now(self) -> dict[int, int]:
        return self.ends("out")


def writing(recipe: str = "trips", topic: str = "out", parallelism: int = 1) -> tuple[TaskSpec, ...]:
    query = stream("counts", "trips", priority=1, sink=KafkaTopic(topic), parallelism=parallelism)
    return tasks(
        application(stream("trips", topic="t", parallelism=parallelism), replace(query, recipe=PythonRecipe(recipe)))
    )


def declared(made: Deployment, specs: tuple[TaskSpec, ...], schema: StructType = ROWS) -> dict[int, int]:
    """Where the rows of the query begin once these tasks are declared."""
    made.adopt(prepare(made, specs, Checked(dict.fromkeys(("trips", "counts"), schema), keys={"counts": ("id",)})))
    return made.sinks["counts"]


def test_rows_of_a_query_begin_where_its_topic_ends_when_it_is_declared() -> None:
    broker = Broker()
    made = Deployment(broker, "s")
    assert declared(made, writing()) == broker.now
    broker.end = 20
    assert declared(made, writing()) == dict.fromkeys(range(3), 11), "the same query goes on"
    changes: list[dict[str, Any]] = [
        {"specs": writing("trips.limit(1)")},
        {"specs": writing("trips.limit(1)", "other")},
        {"specs": writing("trips.limit(1)", "other", parallelism=3)},
        {"specs": writing("trips.limit(1)", "other", parallelism=3), "schema": StructType([ROWS["id"]])},
    ]
    for change in changes:
        broker.end += 1
        before, known = made.copy(), made.sinks["counts"]
        declared(made, **change)
        made.restore(before)
        assert made.sinks["counts"] == known
        assert declared(made, **change) == broker.now
    made.adopt(prepare(made, (), Checked()))
    assert made.sinks == {}


def of_two(users: FakeKafka) -> tuple[Deployment, FakeKafka]:
    """A session whose own topics are on a second cluster, and this."""
    own = FakeKafka()
    return Deployment(own, "s", given=Sources(Context(own, users=users, session="s"))), own


def test_with_two_clusters_sinks_are_the_users_and_all_else_is_on_the_second() -> None:
    users = Broker()
    made, own = of_two(users)
    read = TopicInput("t", "id LONG", malformed="topic:rejects")
    queries = stream("looked", "trips", priority=1), stream("counts", "trips", priority=1, sink=KafkaTopic("out"))
    specs = tasks(application(StreamDeclaration("trips", PythonRecipe("source"), read, fuse=False), *queries))
    made.adopt(prepare(made, specs, Checked(dict.fromkeys(("trips", "looked", "counts"), ROWS))))
    assert made.sinks["counts"] == users.now
    assert {name.split(".")[0] for name in own.topics} == {"qod", "rejects"}
    assert users.done == []
    of_own = [name for name in own.topics if is_of("s", name)]
    assert ends_of(made, ["t", *of_own]) == {"t": users.ends("t"), **{name: own.ends(name) for name in of_own}}


@pytest.mark.parametrize(
    ("sink", "rights", "rule"),
    [
        (KafkaTopic("none"), {}, "exists"),
        (KafkaTopic("out"), {"out": [AclOperation.READ, AclOperation.DESCRIBE]}, "writes"),
        (KafkaTopic("out"), {"out": [AclOperation.DESCRIBE, AclOperation.WRITE]}, None),
        (KafkaTopic("out", 4), {}, "partitions"),
        (KafkaTopic("new", 4), {}, None),
        (KafkaTopic("qod.clean"), {}, "exists"),
    ],
)
def test_a_topic_of_the_users_is_made_only_if_asked_for(
    sink: KafkaTopic, rights: dict[str, Any], rule: str | None
) -> None:
    users = Broker()
    users.rights = rights
    made, _ = of_two(users)
    specs = tasks(application(stream("counts", topic="t", priority=1, sink=sink)))
    if rule is None:
        made.adopt(prepare(made, specs, Checked({"counts": ROWS})))
        assert made.sinks["counts"] == users.ends(sink.topic)
    else:
        with pytest.raises(KafkaError, check=breaks(rule, name=sink.topic)):
            prepare(made, specs, Checked({"counts": ROWS}))
    assert users.done == ([("create", "new")] if (sink.topic, rule) == ("new", None) else [])


def test_rows_of_a_query_go_on_where_it_is_fused_or_unfused() -> None:
    broker = Broker()
    made = Deployment(broker, "s")
    query = stream("counts", "trips", priority=1, sink=KafkaTopic("out"), key="id")
    fused, unfused = (tasks(application(stream("trips", topic="t", fuse=fuse), query)) for fuse in (True, False))
    assert [len(fused), len(unfused)] == [1, 2]
    begun = declared(made, unfused)
    broker.end += 1
    assert declared(made, fused) == begun
    assert declared(made, unfused) == begun


@pytest.mark.parametrize(("parallelism", "apart"), [(1, False), (3, True)])
def test_instances_know_what_tells_rows_in_a_kafka_topic_apart(parallelism: int, apart: bool) -> None:
    made = Deployment(Broker(), "s")
    declared(made, writing(parallelism=parallelism))
    jobs = instance_jobs(made, made.specs["counts"], 1)
    assert [(job.groups, job.apart) for job in jobs] == [(("id",), apart)] * parallelism
    (others,) = tasks(application(stream("counts", topic="t", priority=1)))
    made.adopt(prepare(made, (others,), Checked({"counts": ROWS}, keys={"counts": ("id",)})))
    assert instance_jobs(made, others, 2)[0].groups is None, "a memory sink needs no keys"


def test_instances_that_share_out_the_groups_are_not_told_apart() -> None:
    made = Deployment(None, "s")  # type: ignore[arg-type]
    _, by_id = tasks(
        application(stream("trips", topic="t"), stream("counts", "trips", priority=1, key="id", parallelism=2))
    )
    assert not made.apart(by_id, ("id", "w"))
    assert made.apart(by_id, ("w",))
    assert not made.apart(by_id, None)


APART = application(stream("trips", topic="t"), *(stream(name, "trips", priority=1) for name in ("first", "second")))
BY_KEY = application(
    StreamDeclaration("clicks", PythonRecipe("source"), TopicInput("clicks", "user LONG", shed_by=AUTO)),
    stream("counted", "clicks", priority=1, min_accuracy=0.5),
)


class RpcError(Exception):
    """By name what gRPC raises where a server can't be reached."""

    def __str__(self) -> str:
        return '<_InactiveRpcError of RPC that terminated with:\n\tdetails = "failed to connect to all addresses"\n>'


@pytest.mark.parametrize(
    "ask",
    [
        lambda made, workshop: made.check(list(made.specs.values()), workshop),
        lambda made, workshop: made.result_keys("first", workshop),
        lambda made, workshop: made.inlinable(APART, workshop),
        lambda made, workshop: made.asks(BY_KEY, workshop),
    ],
    ids=["check", "result_keys", "inlinable", "asks"],
)
def test_where_spark_can_not_be_reached_that_is_one_line(ask: Any) -> None:
    @contextmanager
    def lost(_: Any) -> Iterator[Any]:
        raise RpcError
        yield

    made = running("first")
    with pytest.raises(TaskManagerError) as caught:
        ask(made, SimpleNamespace(result=lost))
    assert caught.value.rule == "answers"
    assert "\n" not in str(caught.value)


def test_an_error_of_another_kind_is_raised_as_it_is() -> None:
    @contextmanager
    def broken(_: Any) -> Iterator[Any]:
        raise KeyError("id")
        yield

    made = running("first")
    with pytest.raises(KeyError):
        made.check(list(made.specs.values()), SimpleNamespace(result=broken))  # type: ignore[arg-type]


# -- partitions of streams ---------------------------------------------------------------------------------------------


def read_by(made: Deployment, **options: Any) -> TaskSpec:
    """Declare `q`, which reads `src`, in a deployment; returns it as it was declared."""
    made_of = application(stream("src", topic="t", fuse=False), stream("q", "src", priority=1, fuse=False, **options))
    specs = tasks(made_of)
    made.adopt(prepare(made, specs, Checked(dict.fromkeys([spec.id for spec in specs], ROWS))))
    return specs[-1]


@pytest.mark.parametrize(
    ("options", "instances", "partitions"),
    [
        ({"max_parallelism": 8, "key": "k"}, 2, 4),
        ({"max_parallelism": 8, "key": "k"}, 1, 4),  # rows wait where they were sent to
        ({"max_parallelism": 8, "key": "k", "parallelism": 6}, 1, 6),  # each instance needs one
        ({"max_parallelism": 8, "key": "k", "parallelism": 2}, 2, 4),
        ({"max_parallelism": 2, "key": "k"}, 2, 4),
        ({"max_parallelism": 8}, 2, 8),  # no key: rows are sent to any
    ],
)
def test_a_stream_by_key_gets_more_partitions_by_rescaling_only(
    options: dict[str, Any], instances: int, partitions: int
) -> None:
    """Else the keys of some groups would go to another instance, without their state."""
    kafka = FakeKafka({"t": 1})
    made = Deployment(kafka, "s")
    before = read_by(made, **{"max_parallelism": 4, "key": options.get("key")})
    if instances > 1:
        made.reassign(before, instances)
    had = made.assignment("src>q", before)
    after = read_by(made, **options)
    assert made.partitions("src>q") == partitions
    assert len(kafka.topics[made.pipes["src>q"].topic]) == partitions
    if partitions == 4:
        assert made.assignment("src>q", replace(after, streams=before.streams)) == had
        assert made.grown_to(after) == max(options["max_parallelism"], 2)  # for a rescaling that needs more
    new = prepare(made, [*made.specs.values()], made.checked, {"src"}).pipes["src>q"]
    assert new.topic != made.pipes["src>q"].topic
    assert new.partitions == max(options["max_parallelism"], 4)  # no row is on it yet


def test_new_results_have_a_partition_for_each_instance_of_a_scaled_task() -> None:
    """It keeps its state and its instances, and its columns change."""
    kafka = FakeKafka({"t": 1})
    made = Deployment(kafka, "s")
    spec = read_by(made, max_parallelism=4, key="k")
    made.reassign(spec, 2)
    other = StructType([StructField("sum", DoubleType(), True)])
    checked = Checked({"src": ROWS, "q": other}, resumed=frozenset({"q"}))
    prepared = prepare(made, [*made.specs.values()], checked)
    assert prepared.results["q"] != made.results["q"]
    assert len(kafka.topics[prepared.results["q"]]) == 2
