"""The tasks that run, with their topics, row accounting and the facts about their plans, and how others replace them.

`preparing` makes the topics of tasks that are to run; `feeds` assigns the partitions that they read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from qod_magics.application.application import Application
from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.shed_keys import Ask
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec, head_of
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.names import own_topic
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.cluster.books import Account, furthest_behind
from qod_magics.spark.cluster.feeds import FEED_BOOKS, Assignment, Feeds, Pipe
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.inspection import Inspection
from qod_magics.spark.plans.job import feed_of
from qod_magics.spark.plans.labels import Labels
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.servers.connection import reason

#: The fields that a change of the application replaces, beside those of `Feeds`.
_BOOKS = ("specs", "results", "sinks", "declarations", "retired", "earlier")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tasks to run, with the topics created for them and their offsets on the broker."""

    specs: tuple[TaskSpec, ...]
    checked: Checked
    pipes: dict[str, Pipe]  #: by name
    results: dict[str, str]  #: topics of memory sinks, by task
    sinks: dict[str, dict[int, int]]  #: first offsets in the topics of Kafka sinks, by task
    opened: dict[str, Account]  #: new accounts of sources, by feed
    left: dict[str, int]  #: rows that no task will read, by stream whose rows had other columns


@dataclass(slots=True)
class Deployment(Feeds):
    """The topics, schemas and row accounting of the tasks that run."""

    kafka: Kafka
    session: str
    specs: dict[str, TaskSpec] = field(default_factory=dict)  #: inputs first
    results: dict[str, str] = field(default_factory=dict)  #: topic of each memory sink, by task
    #: by task with a Kafka sink, from which offsets on its topic has rows of this declaration, by partition
    sinks: dict[str, dict[int, int]] = field(default_factory=dict)
    #: partitions of the sinks' topics that were created, by topic; copies share it
    created: dict[str, int] = field(default_factory=dict)
    declarations: dict[str, int] = field(default_factory=dict)  #: by task: how often with another recipe or input
    #: shuffle partitions of a task with a key at its first start, by task and its declarations; copies share it
    shuffles: dict[tuple[str, int], int] = field(default_factory=dict)
    retired: dict[str, Account] = field(default_factory=dict)  #: of streams within fused tasks, by `stream_of`
    #: by feed of a task of an earlier kernel, the stream that read its topic; until tasks are adopted
    earlier: dict[str, str] = field(default_factory=dict)
    topics_made: int = 0  #: numbers them: rows for a deleted topic must not reach a new one
    given: Sources | None = None  #: shared by copies; None: topics of the broker alone
    sources: Sources = field(init=False)
    inspection: Inspection = field(init=False)

    def __post_init__(self) -> None:
        self.sources = self.given = self.given or Sources(Context(self.kafka))
        self.inspection = Inspection(self.sources)

    # -- what runs -----------------------------------------------------------------------------------------------------

    def kafka_of(self, topic: str) -> Kafka:
        """Return the cluster that has a topic."""
        context = self.sources.context
        return self.kafka if context.users is None else context.of(topic)

    def specs_with(self, name: str) -> list[TaskSpec]:
        """Return the tasks that run a stream, inputs first; several where it is inlined into each of its readers."""
        return [spec for spec in self.specs.values() if name in spec.members]

    @property
    def edges(self) -> set[tuple[str, str]]:
        """Return the streams between tasks, each with the stream that reads it."""
        return {
            (pipe.source, head.name)
            for pipe in self.pipes.values()
            if pipe.target in self.specs  # not of a task of an earlier kernel that is about to start
            for head in self.specs[pipe.target].heads
            if pipe.source in head.upstream
        }

    @property
    def shedders(self) -> list[str]:
        """Return the names of the shedders: sources, and streams "from>to"."""
        specs = self.specs.values()
        return [n for s in specs for n in ([s.id] if s.is_source else [f"{u}>{s.id}" for u in s.upstream])]

    def lends(self, task: str) -> bool:
        """Return whether rows of one key of a task may be sent to several of its instances."""
        return task in self.specs and self.specs[task].lends

    def apart(self, spec: TaskSpec, keys: Collection[str] | None) -> bool:
        """Return whether each instance of a task has its own rows of a group, which has these columns."""
        return keys is not None and self.instances(spec) > 1 and (spec.lends or spec.key not in keys)

    def own_topics(self) -> set[str]:
        """Return the topics of its streams and memory sinks."""
        return {pipe.topic for pipe in self.pipes.values()} | set(self.results.values())

    def topics_of_pattern(self, stream: str, pattern: str) -> tuple[str, ...]:
        """Return the topics of a pattern that a stream reads, in the order in which they were found; () if it does not
        run with this pattern."""
        found = (
            head.topic.topics
            for spec in self.specs.values()
            for head in spec.heads
            if head.name == stream and head.topic is not None and head.topic.pattern == pattern
        )
        return next(found, ())

    def stream_of(self, pipe: Pipe) -> str:
        """Return the stream that a topic carries, by the stream that reads it: "from>to", also once its reader is
        fused."""
        heads = [head.name for head in self.specs[pipe.target].heads if pipe.source in head.upstream]
        return f"{pipe.source}>{heads[0]}"

    def had_another_topic(self, pipe: Pipe) -> bool:
        """Return whether the stream had another topic."""
        return pipe.name in self.pipes and self.pipes[pipe.name].topic != pipe.topic

    def known_account(self, specs: Sequence[TaskSpec], spec: TaskSpec, head: str) -> Account | None:
        """Return the account of a head's topic: its own, else that of the tasks that read the same topic for the same
        stream and no longer will, also in an earlier kernel; of several the one furthest behind, so that no row is
        skipped; None if there is neither."""
        topic = spec.topics[head].topic
        stay = {feed_of(each, name) for each in specs for name in each.topics}
        same = head_of(head)
        names = [feed_of(k, name) for k in self.specs.values() for name in k.topics if head_of(name) == same]
        names += [name for name, stream in self.earlier.items() if stream == same and name not in names]
        accounts = {name: each for name, each in self.accounts.items() if each.topic == topic and each.gone is None}
        own = accounts.get(feed_of(spec, head))
        left = [accounts[name] for name in names if name in accounts and name not in stay]
        return own or (furthest_behind(left) if left else None)

    # -- facts about plans ---------------------------------------------------------------------------------------------

    def check(self, specs: Sequence[TaskSpec], workshop: Workshop) -> Checked:
        """Return facts about these tasks, which may become the current ones: see `Inspection.check`. This method and
        those below raise TaskManagerError where Spark can't be reached."""
        labels = self.checked.labels
        with _reached():
            return self.inspection.check(
                specs, workshop, {spec: labels[name] for name, spec in self.specs.items() if name in labels}
            )

    def result_keys(self, task: str, workshop: Workshop) -> tuple[str, ...] | None:
        """Return the columns by which a row of a task's result replaces an earlier one: see
        `Inspection.result_keys`."""
        with _reached():
            return self.inspection.result_keys(task, self.specs, self.checked, workshop)

    def inlinable(self, application: Application, workshop: Workshop) -> dict[str, int]:
        """Return the streams that each reader may compute itself: see `Inspection.inlinable`."""
        with _reached():
            return self.inspection.inlinable(application, self.edges, workshop)

    def asks(self, application: Application, workshop: Workshop) -> dict[str, tuple[Ask, ...] | None]:
        """Return the keys by which the queries need streams shed: see `Inspection.asks`."""
        with _reached():
            return self.inspection.asks(application, workshop)

    # -- changes of the tasks ------------------------------------------------------------------------------------------

    def new_topic(self, name: str) -> str:
        """Return the name of a topic that no deployment of this session has had."""
        self.topics_made += 1
        return own_topic(self.kafka.prefix, self.session, f"{name}.{self.topics_made}")

    def note_created(self, topics: Mapping[str, int]) -> None:
        """Take note of topics of sinks that were created, with their partitions."""
        self.created |= topics

    def adopt(self, prepared: Prepared) -> set[str]:
        """Make these tasks the current ones, with their accounts; return unneeded topics, to be deleted once the tasks
        run.

        If another task now reads a topic for the same stream, it continues at the present offsets: of several readers,
        at those of the slowest.
        """
        specs, wanted = prepared.specs, prepared.pipes
        before = self.own_topics()
        accounts: dict[str, Account] = {}
        for name, pipe in wanted.items():
            known_account = self.accounts.get(name)
            if known_account is not None and self.had_another_topic(pipe):
                unread = known_account.unreported + prepared.left.get(name, 0)
                known_account = replace(known_account, unreported=unread).reopened(pipe.topic, pipe.begin)
            if known_account is None or known_account.topic != pipe.topic:
                known_account = Account(pipe.topic, pipe.begin)
            accounts[name] = known_account
        for spec in specs:
            for head in spec.topics:
                account = self.known_account(specs, spec, head) or prepared.opened[feed_of(spec, head)]
                if any(account is other for other in accounts.values()):  # several tasks read it now
                    account = Account(account.topic, dict(account.position))
                accounts[feed_of(spec, head)] = account
        patterned = [spec.id for spec in specs if spec.pattern is not None]
        deleted = {name: self.accounts[name] for task in patterned for name in self.deleted_feeds(task)}
        self.replace_feeds(wanted, accounts, deleted)
        self.specs = {spec.id: spec for spec in specs}
        self.results, self.sinks = prepared.results, prepared.sinks
        within = {
            f"{upstream}>{stream.name}"
            for spec in specs
            for stream in spec.streams
            for upstream in stream.upstream
            if upstream in spec.members
        }
        self.retired = {name: account for name, account in self.retired.items() if name in within}
        self.earlier = {}
        self.know(prepared.checked)
        return before - self.own_topics()

    def declared(self, tasks: Collection[str], resuming: Collection[str] = ()) -> None:
        """Count these tasks as declared once more: they have the instances that they were declared with, but for those
        that go on with their state, which belongs to the instances that they have."""
        self.declarations |= {task: self.declarations.get(task, 0) + 1 for task in tasks}
        self.assign_as_declared({*tasks}.difference(resuming))

    def shuffle_of(self, task: str, partitions: int) -> int:
        """Return into how many partitions a task shuffles. The first start since it was declared decides: `partitions`
        is that start's number, and later ones get it whatever theirs is."""
        return self.shuffles.setdefault((task, self.declarations.get(task, 0)), partitions)

    def restrict(self, streams: Mapping[str, StreamDeclaration], labels: Mapping[str, Labels]) -> None:
        """Give tasks these declarations of their streams, which differ in their restrictions only, and what shedding
        does to the columns of tasks, by task. A pattern keeps the topics that it has by now."""
        self.specs = {
            id: replace(
                spec, streams=tuple(_keeping_topics(streams.get(each.name, each), each) for each in spec.streams)
            )
            for id, spec in self.specs.items()
        }
        known = {**self.checked.labels, **labels}
        self.know(replace(self.checked, labels={id: known[id] for id in self.specs if id in known}))

    def read_topics(self, task: str, opened: Mapping[str, Mapping[int, int]]) -> TaskSpec:
        """Let a task read more topics of its pattern, from these offsets by topic. Return the task as it is then."""
        spec = self.specs[task]
        streams = tuple(
            replace(each, inputs=each.topic.with_topics((*each.topic.topics, *opened)))
            if each.topic is not None and each.topic.pattern is not None
            else each
            for each in spec.streams
        )
        spec = self.specs[task] = replace(spec, streams=streams)
        for head, source in spec.topics.items():
            if source.topic in opened:
                self.read_topic(feed_of(spec, head), source.topic, opened[source.topic])
        return spec

    def leave_topics(self, task: str, ends: Mapping[str, Mapping[int, int]]) -> TaskSpec:
        """Let a task read topics of its pattern no more that were deleted, given where each ended. Return the task as
        it is then."""
        spec = self.specs[task]
        gone = {feed_of(spec, head): ends[source.topic] for head, source in spec.topics.items() if source.topic in ends}
        streams = tuple(
            replace(each, inputs=each.topic.with_topics([topic for topic in each.topic.topics if topic not in ends]))
            if each.topic is not None and each.topic.pattern is not None
            else each
            for each in spec.streams
        )
        self.read_no_more(gone)
        self.specs[task] = replace(spec, streams=streams)
        return self.specs[task]

    # -- copies: for a rollback, or to take the place of this deployment -----------------------------------------------

    def copy(self) -> Deployment:
        """Return a copy for a rollback. It shares the accounts, which go on counting."""
        shallow: dict[str, Any] = {name: dict(getattr(self, name)) for name in (*_BOOKS, *FEED_BOOKS)}
        return replace(self, **shallow)

    def follow(self, before: Deployment, within: Mapping[str, Account]) -> None:
        """Keep the accounts of streams that are `within` a task now, by `stream_of`. Go on with those of streams that
        were within one `before`, on their new topics."""
        self.retired |= within
        there = before.own_topics()
        for name, pipe in self.pipes.items():
            known = before.retired.get(self.stream_of(pipe))
            if known is not None and pipe.topic not in there:
                self.count_on(name, known.reopened(pipe.topic, pipe.begin))

    def restore(self, before: Deployment) -> set[str]:
        """Return to `before`, whose topics must still exist; returns the topics created since, to be deleted."""
        gone = self.own_topics() - before.own_topics()
        for name in _BOOKS:
            setattr(self, name, dict(getattr(before, name)))
        self.restore_feeds(before)
        return gone

    # -- tasks of an earlier kernel ------------------------------------------------------------------------------------

    def seed(
        self,
        feed: str,
        account: Account,
        partitions: int,
        stream: str,
        upstream: str | None,
        assignment: Assignment | None,
    ) -> None:
        """Enter a feed of an earlier kernel's task, for `prepare` and `adopt` to keep.

        Args:
            feed: its name in the earlier kernel.
            account: its row accounting.
            partitions: of its topic.
            stream: the stream that read the topic, if it was a source's.
            upstream: the task that sends it; None: it is a source's.
            assignment: of its partitions; None: as declared.

        """
        self.enter_feed(feed, account, partitions, upstream, assignment)
        if upstream is None:
            self.earlier[feed] = stream

    def seed_task(
        self, task: str, declared: int, results: str | None = None, sink_first: Mapping[int, int] | None = None
    ) -> None:
        """Know how often a task was declared under an earlier kernel and, where it goes on, its output."""
        self.declarations[task] = declared
        if results is not None:
            self.results[task] = results
        if sink_first is not None:
            self.sinks[task] = dict(sink_first)

    def number_topics_after(self, number: int) -> None:
        """Make no topic with a number up to this one: an earlier kernel or a copy has used them."""
        self.topics_made = max(self.topics_made, number)


def _keeping_topics(stream: StreamDeclaration, now: StreamDeclaration) -> StreamDeclaration:
    """Return a stream with the topics that its pattern has `now`: it may have got some since it was declared."""
    if stream.topic is None or now.topic is None or now.topic.pattern is None:
        return stream
    return replace(stream, inputs=stream.topic.with_topics(now.topic.topics))


@contextmanager
def _reached() -> Iterator[None]:
    """Within, an error of the connection to Spark is a TaskManagerError of one line."""
    try:
        yield
    except QodError:
        raise
    except Exception as error:
        try:
            raise_unless_connection(error)
        except Exception:
            why = reason(error).rstrip(".")
            raise TaskManagerError(
                f"Spark does not answer: {why}. Try again in a few seconds.", rule="answers"
            ) from error
        raise
