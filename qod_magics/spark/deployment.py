"""From tasks to what runs them: topics for their streams, and one job for each instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from qod_magics.application.chain import opened_chain
from qod_magics.application.names import SOURCE
from qod_magics.application.sink import KafkaTopic, Memory
from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import ApplicationError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.offsets import beginning_offsets, end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics, grow_topics, partitions, topic_partitions
from qod_magics.spark.books import Account
from qod_magics.spark.pipeline import Feed, Job, Weigh, Workshop, same_columns, schema_of_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The fields of a deployment that a change of the application changes.
_BOOKS = ("specs", "pipes", "schemas", "accounts", "results", "source_partitions")


@dataclass(slots=True)
class Pipe:
    """A stream between two tasks: one Kafka topic, with as many partitions as the consumer has instances."""

    name: str  #: "from>to"
    source: str
    target: str
    topic: str
    partitions: int
    key: str | None


@dataclass(slots=True)
class Deployment:
    """The topics, schemas and books of the tasks that run."""

    kafka: Kafka
    session: str
    specs: dict[str, TaskSpec] = field(default_factory=dict)  #: inputs first
    pipes: dict[str, Pipe] = field(default_factory=dict)
    schemas: dict[str, StructType] = field(default_factory=dict)  #: output of each task, with `_weight` if it has one
    accounts: dict[str, Account] = field(default_factory=dict)  #: by source task or "from>to"
    results: dict[str, str] = field(default_factory=dict)  #: topic of each memory sink, by task
    source_partitions: dict[str, int] = field(default_factory=dict)  #: by source task
    results_made: int = 0  #: numbers the topics behind memory sinks

    def check(self, specs: Sequence[TaskSpec], workshop: Workshop) -> dict[str, StructType]:
        """The output schema of every task, from building each recipe once, without starting anything.

        Raises:
            ApplicationError: a recipe fails, a key column is not there, or an input can't be split so far.
            KafkaError: a topic isn't there.

        """
        schemas: dict[str, StructType] = {}
        for spec in specs:
            if spec.topic is not None:
                count = partitions(self.kafka, spec.topic.topic)
                if spec.parallelism > count:
                    raise ApplicationError(
                        f"{spec.id!r} asks for {spec.parallelism} instances, but the topic {spec.topic.topic!r} has "
                        f"{count} partition{'s' if count > 1 else ''}: take --parallelism {count} or less"
                    )
                if spec.topic.schema is not None:
                    workshop.check_schema(spec.topic.schema)
            job = self._job(spec, 0, schemas, probe=True)
            with workshop.result(job) as rows:
                schemas[spec.id] = rows.schema
            if spec.key is not None:
                for upstream in spec.upstream:
                    columns = schema_of_stream(schemas[upstream]).names
                    if spec.key not in columns:
                        raise ApplicationError(
                            f"--key {spec.key} of {spec.id!r}: its input {upstream!r} has no such column; "
                            f"it has {', '.join(columns)}"
                        )
        return schemas

    def copy(self) -> Deployment:
        """As it is now, to come back to; the accounts are shared and go on."""
        shallow: dict[str, Any] = {name: dict(getattr(self, name)) for name in _BOOKS}
        return replace(self, **shallow)

    def restore(self, before: Deployment) -> None:
        """Be as `before` again. Its topics must still be there; those made since are deleted."""
        gone = self.own_topics() - before.own_topics()
        for name in _BOOKS:
            setattr(self, name, dict(getattr(before, name)))
        delete_topics(self.kafka, gone)

    def own_topics(self) -> set[str]:
        """The topics of its streams and memory sinks."""
        return {pipe.topic for pipe in self.pipes.values()} | set(self.results.values())

    def adopt(self, specs: Sequence[TaskSpec], schemas: Mapping[str, Any]) -> set[str]:
        """Make the topics that these tasks need and open their books; returns the topics that nobody needs any more,
        to be deleted once the tasks run.

        A source whose head stream ran before, in a chain of another name, goes on where that one stopped.
        """
        wanted: dict[str, Pipe] = {}
        for spec in specs:
            for upstream in spec.upstream:
                name = f"{upstream}>{spec.id}"
                known = self.pipes.get(name)
                topic = f"qod.{self.session}.{upstream}.{spec.id}"
                parts = max(spec.parallelism, known.partitions if known else 1)
                wanted[name] = Pipe(name, upstream, spec.id, topic, parts, spec.key)
        results = {spec.id: self._results_topic(spec, schemas) for spec in specs if isinstance(spec.sink, Memory)}
        topics = {pipe.topic: pipe.partitions for pipe in wanted.values()}
        topics.update({results[spec.id]: spec.parallelism for spec in specs if spec.id in results})
        there = topic_partitions(self.kafka)
        topics.update({topic: max(count, there.get(topic, 0)) for topic, count in topics.items()})
        grow_topics(self.kafka, {topic: n for topic, n in topics.items() if there.get(topic, n) < n})
        written = {spec.sink.topic: 1 for spec in specs if isinstance(spec.sink, KafkaTopic)}
        create_topics(self.kafka, topics | {topic: n for topic, n in written.items() if topic not in there})
        before = self.own_topics()
        for name, pipe in wanted.items():
            if name not in self.accounts:
                self.accounts[name] = Account(pipe.topic, dict.fromkeys(range(pipe.partitions), 0))
        for spec in specs:
            if spec.topic is not None:
                known_account = self.accounts.get(spec.id)
                if known_account is None or known_account.topic != spec.topic.topic:
                    known_account = self._account_of_head(spec)
                if known_account is not None:
                    self.accounts[spec.id] = known_account
                else:
                    ask = end_offsets if spec.topic.starting == "latest" else beginning_offsets
                    first = dict(ask(self.kafka, [spec.topic.topic], timeout_s=10.0)[spec.topic.topic])
                    self.accounts[spec.id] = Account(spec.topic.topic, first)
                self.source_partitions[spec.id] = len(self.accounts[spec.id].first)
        keep = set(wanted) | {spec.id for spec in specs if spec.topic is not None}
        self.accounts = {name: account for name, account in self.accounts.items() if name in keep}
        self.specs = {spec.id: spec for spec in specs}
        self.pipes, self.results, self.schemas = wanted, results, dict(schemas)
        return before - self.own_topics()

    def jobs(self, spec: TaskSpec, generation: int) -> list[Job]:
        """One job for each instance of a task; a new generation starts afresh."""
        made = [self._job(spec, index, self.schemas) for index in range(spec.parallelism)]
        return [replace(job, run=f"{self.session}-{generation}-{job.index + 1}") for job in made]

    def topics(self) -> list[str]:
        """All topics whose end offsets count: those of sources and streams."""
        return sorted({account.topic for account in self.accounts.values()})

    def _results_topic(self, spec: TaskSpec, schemas: Mapping[str, Any]) -> str:
        """The same as before as long as the query is; another recipe's rows are no results of this one."""
        topic, known = self.results.get(spec.id), self.specs.get(spec.id)
        same = known is not None and known.tail.recipe == spec.tail.recipe
        if topic is not None and same and same_columns(self.schemas.get(spec.id), schemas[spec.id]):
            return topic
        self.results_made += 1
        return f"qod.{self.session}.{spec.id}.out{self.results_made}"

    def _account_of_head(self, spec: TaskSpec) -> Account | None:
        """The account of the task in which this one's first stream ran so far, at the head and of the same topic."""
        for known in self.specs.values():
            account = self.accounts.get(known.id)
            if account is None or spec.topic is None or account.topic != spec.topic.topic:
                continue
            if known.head.name == spec.head.name:
                return account
        return None

    def _job(self, spec: TaskSpec, index: int, schemas: Mapping[str, Any], probe: bool = False) -> Job:
        feeds = []
        if spec.topic is not None:
            count = 1 if probe else self.source_partitions[spec.id]
            starting = {} if probe else self.accounts[spec.id].position
            own = tuple(p for p in range(count) if p % spec.parallelism == index)
            feeds.append(Feed(spec.id, (SOURCE,), spec.topic.topic, own, starting, spec.topic.schema, False))
        for upstream in spec.upstream:
            name = f"{upstream}>{spec.id}"
            pipe = self.pipes.get(name)
            count = 1 if probe or pipe is None else pipe.partitions
            own = tuple(p for p in range(count) if p % spec.parallelism == index)
            topic = pipe.topic if pipe is not None else f"qod.{self.session}.{upstream}.{spec.id}"
            starting = {} if probe else self.accounts[name].position
            feeds.append(Feed(name, (upstream,), topic, own, dict(starting), schema_of_stream(schemas[upstream]), True))
        outgoing = [] if probe else [pipe for pipe in self.pipes.values() if pipe.source == spec.id]

        @contextmanager
        def build(spark: SparkSession, inputs: Mapping[str, DataFrame], weigh: Weigh) -> Iterator[DataFrame]:
            with opened_chain(spec, spark, inputs, weigh) as rows:
                yield rows

        return Job(
            task=spec.id,
            instance=f"{spec.id}.{index + 1}",
            index=index,
            feeds=tuple(feeds),
            build=build,
            outlets=tuple(pipe.name for pipe in outgoing),
            topics=tuple((pipe.topic, pipe.partitions, pipe.key) for pipe in outgoing),
            sink=spec.sink,
            results=None if probe else self.results.get(spec.id),
            trigger_s=spec.trigger_s,
        )
