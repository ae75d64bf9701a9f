"""Maps tasks to topics for their streams and to one job per instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TYPE_CHECKING, Any

from qod_magics.application.application import Application
from qod_magics.application.chain import opened_chain
from qod_magics.application.recipe import raise_unless_connection
from qod_magics.application.sink import KafkaTopic, Memory
from qod_magics.application.stream import RECORD_KEY, StreamDeclaration
from qod_magics.application.tasks import TaskSpec, sources_of, tasks
from qod_magics.application.weight import WEIGHT, Origins, Usage, Usages, Weights, origins
from qod_magics.errors import ApplicationError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.offsets import beginning_offsets, end_offsets
from qod_magics.kafka.topics import create_topics, grow_topics, partitions, topic_partitions
from qod_magics.spark.books import Account
from qod_magics.spark.inlining import (
    analyzed_plan_of,
    groups_by,
    is_inlinable,
    joined_by,
    joins_outer,
    keeps_one,
    plan_of,
    streaming_plan_of,
)
from qod_magics.spark.labels import Labels, labels
from qod_magics.spark.pipeline import Feed, Job, Workshop, same_columns, schema_of_stream
from qod_magics.spark.shedder import taken_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The fields that a change of the application replaces.
_BOOKS = ("specs", "pipes", "schemas", "accounts", "results", "source_partitions")


@dataclass(frozen=True, slots=True)
class Checked:
    """What building the recipes of some tasks showed."""

    schemas: dict[str, StructType]  #: output of each task
    weights: Weights = field(default_factory=Weights)  #: in their streams
    labels: dict[str, Labels] = field(default_factory=dict)  #: by task, where a query may be shed


@dataclass(slots=True)
class Pipe:
    """A stream between two tasks: one Kafka topic, with as many partitions as the consumer has instances."""

    name: str  #: "from>to"
    source: str
    target: str
    topic: str
    partitions: int
    key: str | None


def _usage(rows: DataFrame) -> Usage | None:
    try:
        plan = streaming_plan_of(rows)
    except Exception as error:
        raise_unless_connection(error)
        return None
    one = rows.columns.count(WEIGHT) == 1
    return Usage(groups_by(plan, WEIGHT), one and keeps_one(plan, WEIGHT), joins_outer(plan), joined_by(plan))


def _as_it_is(_: DataFrame) -> None:
    return None


def feed_of(spec: TaskSpec, head: str) -> str:
    """The name of the feed from a head's topic: the task's id, or "head>task" if the task has several heads."""
    return spec.id if len(spec.heads) == 1 else f"{head}>{spec.id}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tasks to run, with what the broker created and answered for them."""

    specs: tuple[TaskSpec, ...]
    checked: Checked
    pipes: dict[str, Pipe]  #: by name
    results: dict[str, str]  #: topics of memory sinks, by task
    opened: dict[str, Account]  #: new accounts of sources, by feed


@dataclass(slots=True)
class Deployment:
    """The topics, schemas and books of the tasks that run."""

    kafka: Kafka
    session: str
    specs: dict[str, TaskSpec] = field(default_factory=dict)  #: inputs first
    pipes: dict[str, Pipe] = field(default_factory=dict)
    schemas: dict[str, StructType] = field(default_factory=dict)  #: output of each task, with `_weight` if it has one
    weights: Weights = field(default_factory=Weights)  #: in the streams of the tasks
    labels: dict[str, Labels] = field(default_factory=dict)  #: what shedding does to the tasks' columns, where known
    accounts: dict[str, Account] = field(default_factory=dict)  #: by name of the feed
    results: dict[str, str] = field(default_factory=dict)  #: topic of each memory sink, by task
    source_partitions: dict[str, int] = field(default_factory=dict)  #: by name of the feed
    topics_made: int = 0  #: numbers them: rows for a deleted topic must not reach a new one
    dealt: list[tuple[tuple[StreamDeclaration, ...], int]] = field(default_factory=list)  #: what `inlinable` found

    def specs_with(self, name: str) -> list[TaskSpec]:
        """The tasks that run a stream, inputs first; several where it is inlined into each of its readers."""
        return [spec for spec in self.specs.values() if name in spec.members]

    def check(self, specs: Sequence[TaskSpec], workshop: Workshop) -> Checked:
        """The output schema of every task, where weights are not known, and what shedding does to its columns, from
        building each recipe once, without starting anything.

        Raises:
            ApplicationError: a recipe fails, a key column is missing, or a topic has too few partitions.
            KafkaError: a topic doesn't exist.

        """
        schemas: dict[str, StructType] = {}
        weights, found = Weights(), origins(specs)
        told: dict[str, Labels] = {}
        may_shed = any(spec.is_query and (spec.min_accuracy or 0.0) < 1.0 for spec in specs)
        for spec in specs:
            for topic in spec.topics.values():
                count = partitions(self.kafka, topic.topic)
                if spec.parallelism > count:
                    raise ApplicationError(
                        f"{spec.id!r} asks for {spec.parallelism} instances, but the topic {topic.topic!r} has "
                        f"{count} partition{'s' if count > 1 else ''}: take --parallelism {count} or less"
                    )
                if topic.schema is not None:
                    workshop.check_schema(topic.schema, topic.shed_by)
            job = self._job(spec, 0, schemas, found, weights, _usage)
            with workshop.result(job) as rows:
                schemas[spec.id] = rows.schema
                if may_shed and (labelled := self._labels(spec, rows, weights, told)) is not None:
                    told[spec.id] = labelled
            taken = taken_name(schemas[spec.id].names)
            if taken is not None:
                raise ApplicationError(
                    f"{spec.id!r} makes a column {taken!r}, which load shedding reserves: give it another name"
                )
            if spec.key is not None:
                for upstream in spec.upstream:
                    columns = schema_of_stream(schemas[upstream]).names
                    if spec.key not in columns:
                        raise ApplicationError(
                            f"--key {spec.key} of {spec.id!r}: its input {upstream!r} has no such column; "
                            f"it has {', '.join(columns)}"
                        )
        return Checked(schemas, weights, told)

    def _labels(self, spec: TaskSpec, rows: DataFrame, weights: Weights, told: Mapping[str, Labels]) -> Labels | None:
        """What shedding does to a task's columns; as known before, if it is the same task."""
        if spec.id in self.labels and self.specs.get(spec.id) == spec and spec.is_source:
            return self.labels[spec.id]
        keys = [topic.shed_by or None for topic in spec.topics.values()]
        keys += [weights.keys.get(upstream) for upstream in spec.upstream]
        inputs = {c.name: c.label for upstream in spec.upstream if upstream in told for c in told[upstream].columns}
        try:
            known = [key for key in keys if key] if all(keys) else []
            return labels(analyzed_plan_of(rows), known, inputs if spec.upstream else None)
        except Exception as error:
            raise_unless_connection(error)
            return None

    def inlinable(self, application: Application, workshop: Workshop) -> dict[str, int]:
        """The streams between tasks that each reader may compute itself from their topics, with the number of instances
        over which the topics' partitions can be spread evenly. Results are cached: they must not change while a stream
        runs."""
        found: dict[str, int] = {}
        for name in {upstream for spec in tasks(application, self.edges) for upstream in spec.upstream}:
            streams = sources_of(application, name)
            if not streams:
                continue
            known = next((known for known in self.dealt if known[0] == streams), None)
            if known is None:
                known = (streams, self._even_split(TaskSpec(streams, is_query=False), workshop))
                self.dealt.append(known)
            found[name] = known[1]
        return found

    def _even_split(self, spec: TaskSpec, workshop: Workshop) -> int:
        """Over how many instances its topics' partitions can be spread evenly; 0 if it can't be inlined."""
        counts = [partitions(self.kafka, topic.topic) for topic in spec.topics.values()]
        try:
            with workshop.result(self._job(spec, 0, {}, {}, Weights(), _as_it_is)) as rows:
                return gcd(*counts) if is_inlinable(plan_of(rows)) else 0
        except Exception as error:  # reported when the stream is checked
            raise_unless_connection(error)
            return 0

    def copy(self) -> Deployment:
        """A copy for a rollback; the accounts are shared and stay live."""
        shallow: dict[str, Any] = {name: dict(getattr(self, name)) for name in _BOOKS}  # `weights` are never changed
        return replace(self, **shallow)

    def restore(self, before: Deployment) -> set[str]:
        """Return to `before`, whose topics must still exist; returns the topics created since, to be deleted."""
        gone = self.own_topics() - before.own_topics()
        for name in _BOOKS:
            setattr(self, name, dict(getattr(before, name)))
        self.weights, self.labels = before.weights, before.labels
        return gone

    def own_topics(self) -> set[str]:
        """The topics of its streams and memory sinks."""
        return {pipe.topic for pipe in self.pipes.values()} | set(self.results.values())

    def prepare(self, specs: Sequence[TaskSpec], checked: Checked) -> Prepared:
        """Create the topics that these tasks need, and fetch the first offsets of new accounts. All calls to the broker
        are here, so that `adopt` can be called under a lock. Raises KafkaError."""
        wanted: dict[str, Pipe] = {}
        for spec in specs:
            for upstream in spec.upstream:
                name = f"{upstream}>{spec.id}"
                known = self.pipes.get(name)
                topic = known.topic if known else self._new_topic(f"{upstream}.{spec.id}")
                parts = max(spec.parallelism, known.partitions if known else 1)
                wanted[name] = Pipe(name, upstream, spec.id, topic, parts, spec.key)
        results = {
            spec.id: self._results_topic(spec, checked.schemas) for spec in specs if isinstance(spec.sink, Memory)
        }
        topics = {pipe.topic: pipe.partitions for pipe in wanted.values()}
        topics.update({results[spec.id]: spec.parallelism for spec in specs if spec.id in results})
        there = topic_partitions(self.kafka)
        topics.update({topic: max(count, there.get(topic, 0)) for topic, count in topics.items()})
        grow_topics(self.kafka, {topic: n for topic, n in topics.items() if there.get(topic, n) < n})
        written = {spec.sink.topic: 1 for spec in specs if isinstance(spec.sink, KafkaTopic)}
        create_topics(self.kafka, topics, retention=self.kafka.own_retention)
        create_topics(self.kafka, {topic: n for topic, n in written.items() if topic not in there})
        opened = {}
        for spec in specs:
            for head, source in spec.topics.items():
                if self._known_account(specs, spec, head) is None:
                    ask = end_offsets if source.starting == "latest" else beginning_offsets
                    offsets = ask(self.kafka, [source.topic], timeout_s=10.0)[source.topic]
                    opened[feed_of(spec, head)] = Account(source.topic, dict(offsets))
        return Prepared(tuple(specs), checked, wanted, results, opened)

    def adopt(self, prepared: Prepared) -> set[str]:
        """Make these tasks the current ones, with their accounts; returns unneeded topics, to be deleted once the tasks
        run.

        If another task now reads a topic for the same stream, it continues at the present offsets.
        """
        specs, wanted = prepared.specs, prepared.pipes
        before = self.own_topics()
        accounts: dict[str, Account] = {}
        for name, pipe in wanted.items():
            known_account = self.accounts.get(name)
            if known_account is None or known_account.topic != pipe.topic:
                known_account = Account(pipe.topic, dict.fromkeys(range(pipe.partitions), 0))
            accounts[name] = known_account
        for spec in specs:
            for head in spec.topics:
                account = self._known_account(specs, spec, head) or prepared.opened[feed_of(spec, head)]
                if any(account is other for other in accounts.values()):  # several tasks read it now
                    account = Account(account.topic, dict(account.position))
                accounts[feed_of(spec, head)] = account
        self.accounts = accounts
        self.source_partitions = {n: len(account.first) for n, account in accounts.items() if n not in wanted}
        self.specs = {spec.id: spec for spec in specs}
        self.pipes, self.results = wanted, prepared.results
        checked = prepared.checked
        self.schemas, self.weights, self.labels = checked.schemas, checked.weights, checked.labels
        return before - self.own_topics()

    @property
    def shedders(self) -> list[str]:
        """The names of the shedders: sources, and streams "from>to"."""
        specs = self.specs.values()
        return [n for s in specs for n in ([s.id] if s.is_source else [f"{u}>{s.id}" for u in s.upstream])]

    @property
    def edges(self) -> set[tuple[str, str]]:
        """The streams between tasks, each with the stream that reads it."""
        return {
            (pipe.source, head.name)
            for pipe in self.pipes.values()
            for head in self.specs[pipe.target].heads
            if pipe.source in head.upstream
        }

    def jobs(self, spec: TaskSpec, generation: int) -> list[Job]:
        """One job per instance of a task; `generation` counts its new checkpoints."""
        found = origins(list(self.specs.values()))
        made = [self._job(spec, index, self.schemas, found, self.weights) for index in range(spec.parallelism)]
        return [replace(job, run=f"{self.session}-{generation}-{job.index + 1}") for job in made]

    def topics(self) -> list[str]:
        """The topics of sources and streams, whose end offsets are sampled."""
        return sorted({account.topic for account in self.accounts.values()})

    def _results_topic(self, spec: TaskSpec, schemas: Mapping[str, Any]) -> str:
        """The present topic while recipe and columns are the same, else a new one, without the old recipe's rows."""
        topic, known = self.results.get(spec.id), self.specs.get(spec.id)
        same = known is not None and known.tail.recipe == spec.tail.recipe
        if topic is not None and same and same_columns(self.schemas.get(spec.id), schemas[spec.id], ordered=False):
            return topic
        return self._new_topic(f"{spec.id}.out")

    def _new_topic(self, name: str) -> str:
        self.topics_made += 1
        return f"qod.{self.session}.{name}.{self.topics_made}"

    def _known_account(self, specs: Sequence[TaskSpec], spec: TaskSpec, head: str) -> Account | None:
        """The account of a head's topic: its own, else that of a task that read the same topic for the same stream and
        no longer will; None if there is neither."""
        topic = spec.topics[head]
        stay = {feed_of(each, name) for each in specs for name in each.topics}
        names = [feed_of(known, head) for known in self.specs.values() if head in known.topics]
        for name in [feed_of(spec, head), *(name for name in names if name not in stay)]:
            account = self.accounts.get(name)
            if account is not None and account.topic == topic.topic:
                return account
        return None

    def _job(
        self,
        spec: TaskSpec,
        index: int,
        schemas: Mapping[str, Any],
        found: Origins,
        weights: Weights,
        usages: Usages | None = None,
    ) -> Job:
        """One instance; with `usages`, to build its recipes only, before its topics are there."""
        probe = usages is not None
        feeds = []
        for head, source in spec.topics.items():
            name = feed_of(spec, head)
            count = 1 if probe else self.source_partitions[name]
            starting = {} if probe else self.accounts[name].position
            own = tuple(p for p in range(count) if p % spec.parallelism == index)
            feeds.append(
                Feed(
                    name,
                    (head,),
                    source.topic,
                    own,
                    starting,
                    source.schema,
                    stream=False,
                    malformed=source.effective_malformed,
                    shed_by=source.shed_by,
                )
            )
        for upstream in spec.upstream:
            name = f"{upstream}>{spec.id}"
            pipe = self.pipes.get(name)
            count = 1 if probe or pipe is None else pipe.partitions
            own = tuple(p for p in range(count) if p % spec.parallelism == index)
            topic = pipe.topic if pipe is not None else name
            starting = {} if probe else self.accounts[name].position
            schema, keyed = schema_of_stream(schemas[upstream]), weights.keys.get(upstream, ())
            feeds.append(
                Feed(
                    name, (upstream,), topic, own, dict(starting), schema, stream=True, shed_by=keyed and (RECORD_KEY,)
                )
            )
        outgoing = [] if probe else [pipe for pipe in self.pipes.values() if pipe.source == spec.id]

        @contextmanager
        def build(spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
            with opened_chain(spec, spark, inputs, found, weights, usages) as rows:
                yield rows

        return Job(
            task=spec.id,
            instance=f"{spec.id}.{index + 1}",
            index=index,
            feeds=tuple(feeds),
            build=build,
            outlets=tuple(pipe.name for pipe in outgoing),
            topics=tuple((pipe.topic, pipe.partitions, pipe.key) for pipe in outgoing),
            shed_by=() if probe else weights.keys.get(spec.id, ()),
            sink=spec.sink,
            results=None if probe else self.results.get(spec.id),
            trigger_s=spec.trigger_s,
            max_latency_s=spec.max_latency_s,
            aggregates=spec.aggregates,
        )
