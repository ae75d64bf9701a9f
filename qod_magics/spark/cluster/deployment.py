"""Map tasks to topics for their streams, to partitions for their instances, and to one job per instance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from qod_magics.application.application import Application
from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.shed_keys import Ask
from qod_magics.application.streams.sink import KafkaTopic, Memory
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec, head_of
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics, grow_topics, topic_partitions
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.cluster.books import Account, furthest_behind
from qod_magics.spark.plans.inspection import Checked, Inspection
from qod_magics.spark.plans.job import feed_of, feeds_of, reader, same_columns
from qod_magics.spark.plans.labels import Labels
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.servers.connection import reason

# --- Assignment of partitions -----------------------------------------------------------------------------------------

#: The partitions of one topic that each instance reads, in ascending order.
Assignment: TypeAlias = tuple[tuple[int, ...], ...]


def assigned(
    partitions: int, instances: int, before: Sequence[Iterable[int]] = (), *, some: bool = False
) -> Assignment:
    """Assign partitions 0, 1, ... to instances: each partition to exactly one, and to each instance as many as to any
    other, or one more.

    Instances keep as many of their partitions as that allows, so that few instances change. Without an assignment
    `before`, partition p goes to instance p mod `instances`. More partitions take none away from a balanced assignment
    to as many instances. `some`: with fewer partitions than instances, some instances get none.

    Raises:
        ValueError: there are fewer partitions than instances, and not `some`; or no instances.

    """
    if not 0 < instances <= (max(instances, 1) if some else partitions):
        raise ValueError(f"{partitions} partitions can't be assigned to {instances} instances: each needs one")
    share, larger = divmod(partitions, instances)
    had = [sorted(p for p in each if p < partitions) for each in before[:instances]]
    kept: list[list[int]] = [[] for _ in range(instances)]
    for index in sorted(range(len(had)), key=lambda index: -len(had[index])):  # the larger shares go to whoever has one
        most = share + (larger > 0 and len(had[index]) > share)
        larger -= most > share
        kept[index] = had[index][:most]
    left = sorted(set(range(partitions)).difference(*kept))
    for partition in left:
        kept[min(range(instances), key=lambda index: len(kept[index]))].append(partition)
    return tuple(tuple(sorted(each)) for each in kept)


#: The fields that a change of the application replaces.
_BOOKS = (
    "specs",
    "pipes",
    "accounts",
    "results",
    "sinks",
    "source_partitions",
    "assignments",
    "declarations",
    "retired",
    "earlier",
)


@dataclass(slots=True)
class Pipe:
    """A stream between two tasks: one Kafka topic, with a partition or more for each instance of the consumer."""

    name: str  #: "from>to"
    source: str
    target: str
    topic: str
    partitions: int
    key: str | None


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
class Deployment:
    """The topics, schemas and row accounting of the tasks that run."""

    kafka: Kafka
    session: str
    specs: dict[str, TaskSpec] = field(default_factory=dict)  #: inputs first
    pipes: dict[str, Pipe] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)  #: facts about the tasks
    accounts: dict[str, Account] = field(default_factory=dict)  #: by name of the feed
    results: dict[str, str] = field(default_factory=dict)  #: topic of each memory sink, by task
    #: by task with a Kafka sink, from which offsets on its topic has rows of this declaration, by partition
    sinks: dict[str, dict[int, int]] = field(default_factory=dict)
    created: dict[str, int] = field(
        default_factory=dict
    )  #: partitions of the sinks' topics that were created, by topic
    source_partitions: dict[str, int] = field(default_factory=dict)  #: by name of the feed
    assignments: dict[str, Assignment] = field(
        default_factory=dict
    )  #: by name of the feed, where its reader was scaled
    declarations: dict[str, int] = field(default_factory=dict)  #: by task: how often with another recipe or input
    #: shuffle partitions of a task with a key at its first start, by task and its declarations; copies share it
    shuffles: dict[tuple[str, int], int] = field(default_factory=dict)
    retired: dict[str, Account] = field(default_factory=dict)  #: of streams within fused tasks, by `_stream`
    #: by feed of a task of an earlier kernel, the stream that read its topic; until tasks are adopted
    earlier: dict[str, str] = field(default_factory=dict)
    topics_made: int = 0  #: numbers them: rows for a deleted topic must not reach a new one
    given: Sources | None = None  #: shared by copies; None: topics of the broker alone
    sources: Sources = field(init=False)
    inspection: Inspection = field(init=False)

    def __post_init__(self) -> None:
        self.sources = self.given = self.given or Sources(Context(self.kafka))
        self.inspection = Inspection(self.sources)

    def specs_with(self, name: str) -> list[TaskSpec]:
        """Return the tasks that run a stream, inputs first; several where it is inlined into each of its readers."""
        return [spec for spec in self.specs.values() if name in spec.members]

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

    def apart(self, spec: TaskSpec, keys: Collection[str] | None) -> bool:
        """Return whether each instance of a task has its own rows of a group, which has these columns."""
        return keys is not None and self.instances(spec) > 1 and (spec.lends or spec.key not in keys)

    def lends(self, task: str) -> bool:
        """Return whether rows of one key of a task may be sent to several of its instances."""
        return task in self.specs and self.specs[task].lends

    def copy(self) -> Deployment:
        """Return a copy for a rollback. It shares the accounts, which go on counting."""
        shallow: dict[str, Any] = {name: dict(getattr(self, name)) for name in _BOOKS}
        return replace(self, **shallow)

    def refitted(
        self, gone: Sequence[TaskSpec], made: Sequence[TaskSpec], specs: Sequence[TaskSpec], checked: Checked
    ) -> Deployment:
        """Return a copy in which neighbouring tasks have been fused, or one has been unfused. `restore` adopts it once
        none of them runs. Creates the topic of a stream that was within a task.

        Args:
            gone: the tasks that end, inputs first.
            made: those that replace them, with the same streams.
            specs: all tasks as they will be.
            checked: facts about them.

        Raises:
            KafkaError: the broker refuses or does not answer.

        """
        found = self.copy()
        for before, after in zip(feeds_of(gone[0]), feeds_of(made[0]), strict=True):
            found._rename(before, after)
        inner = [name for spec in gone[1:] for name in feeds_of(spec)]
        retired = {_stream(self.pipes[name], self.specs): self.accounts[name] for name in inner}
        prepared = found.prepare(specs, checked)
        self.topics_made = found.topics_made
        found.adopt(prepared)
        found.retired |= retired
        there = self.own_topics()
        for name, pipe in found.pipes.items():
            known = self.retired.get(_stream(pipe, found.specs))
            if known is not None and pipe.topic not in there:
                found.accounts[name] = known.reopened(pipe.topic, pipe.partitions)
        return found

    def _rename(self, before: str, after: str) -> None:
        """Let another task read this feed, at the same offsets."""
        books: Sequence[dict[str, Any]] = (self.pipes, self.accounts, self.source_partitions, self.assignments)
        for book in books:
            if before in book:
                moved = {after if name == before else name: each for name, each in book.items()}
                book.clear()
                book.update(moved)
        if after in self.pipes:
            self.pipes[after] = replace(self.pipes[after], name=after, target=reader(after))

    def restore(self, before: Deployment) -> set[str]:
        """Return to `before`, whose topics must still exist; returns the topics created since, to be deleted."""
        gone = self.own_topics() - before.own_topics()
        for name in _BOOKS:
            setattr(self, name, dict(getattr(before, name)))
        self.checked = before.checked
        return gone

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
        self.accounts[feed] = account
        if upstream is None:
            self.source_partitions[feed] = partitions
            self.earlier[feed] = stream
        else:
            self.pipes[feed] = Pipe(feed, upstream, reader(feed), account.topic, partitions, None)
        if assignment is not None:
            self.assignments[feed] = assignment

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
        """Make no topic with a number that an earlier kernel has used."""
        self.topics_made = max(self.topics_made, number)

    def own_topics(self) -> set[str]:
        """Return the topics of its streams and memory sinks."""
        return {pipe.topic for pipe in self.pipes.values()} | set(self.results.values())

    def prepare(
        self, specs: Sequence[TaskSpec], checked: Checked, other_columns: Collection[str] = frozenset()
    ) -> Prepared:
        """Create the topics that these tasks need, and fetch the first offsets of new accounts. Streams of the tasks
        in `other_columns` get new topics, as rows with their columns can't be read by those of others. All calls to
        the broker are here, so that `adopt` can be called under a lock. Raises KafkaError."""
        wanted = {
            f"{upstream}>{spec.id}": self._pipe(upstream, spec, new=upstream in other_columns)
            for spec in specs
            for upstream in spec.upstream
        }
        left = self._left(wanted)
        results = {spec.id: self._results_topic(spec, checked) for spec in specs if isinstance(spec.sink, Memory)}
        topics = {pipe.topic: pipe.partitions for pipe in wanted.values()}
        for spec in specs:  # instance i writes partition i; who resumes or is rebuilt keeps its instances
            if spec.id in results:
                topics[results[spec.id]] = max(spec.parallelism, self.instances(spec))
        self._make_topics(specs, topics)
        return Prepared(tuple(specs), checked, wanted, results, self._sinks(specs, checked), self._opened(specs), left)

    def _left(self, wanted: Mapping[str, Pipe]) -> dict[str, int]:
        """Return how many rows wait in the topics that these streams had, where they get others. Their senders have
        stopped."""
        old = {name: self.accounts[name] for name, pipe in wanted.items() if self._had_another(pipe)}
        ends = end_offsets(self.kafka, {account.topic for account in old.values()}) if old else {}
        found = {name: sum(account.waiting(ends[account.topic]).values()) for name, account in old.items()}
        return {name: rows for name, rows in found.items() if rows}

    def _had_another(self, pipe: Pipe) -> bool:
        """Return whether the stream had another topic."""
        return pipe.name in self.pipes and self.pipes[pipe.name].topic != pipe.topic

    def _pipe(self, upstream: str, spec: TaskSpec, *, new: bool) -> Pipe:
        """Return the stream between two tasks, on the topic that it has unless a `new` one is asked for.

        A stream that is sent by a key keeps its partitions, unless the task needs more at once. Only a rescaling adds
        some: it reads the stream to its end first, and assigns the state of the keys that change their partition.
        """
        name = f"{upstream}>{spec.id}"
        known = self.pipes.get(name)
        topic = known.topic if known and not new else self._new_topic(f"{upstream}.{spec.id}")
        partitions = spec.partitions
        if known is not None:
            least = spec.parallelism if spec.key is not None and not new else spec.partitions
            partitions = max(least, known.partitions)
        return Pipe(name, upstream, spec.id, topic, partitions, spec.key)

    def _make_topics(self, specs: Sequence[TaskSpec], topics: dict[str, int]) -> None:
        """Create or grow these topics, whose partitions are given, and create those of Kafka sinks."""
        there = topic_partitions(self.kafka)
        topics.update({topic: max(count, there.get(topic, 0)) for topic, count in topics.items()})
        grow_topics(self.kafka, {topic: n for topic, n in topics.items() if there.get(topic, n) < n})
        written = {spec.sink.topic: spec.sink.partitions for spec in specs if isinstance(spec.sink, KafkaTopic)}
        rejects = (source.rejects for spec in specs for source in spec.topics.values())
        written.update({topic: None for topic in rejects if topic is not None and topic not in written})
        create_topics(self.kafka, topics, retention=self.kafka.own_retention)
        create_topics(
            self.kafka, {topic: n or 1 for topic, n in written.items() if n is not None or topic not in there}
        )
        self.created |= {topic: n or 1 for topic, n in written.items() if topic not in there}

    def _opened(self, specs: Sequence[TaskSpec]) -> dict[str, Account]:
        """Return new accounts, by feed, of topics that no task has read so far."""
        return {
            feed_of(spec, head): Account(source.topic, dict(self.sources.begin(source.topic, source.starting)))
            for spec in specs
            for head, source in spec.topics.items()
            if self._known_account(specs, spec, head) is None
        }

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
            if known_account is not None and self._had_another(pipe):
                unread = known_account.unreported + prepared.left.get(name, 0)
                known_account = replace(known_account, unreported=unread).reopened(pipe.topic, pipe.partitions)
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
        self.assignments = {name: assignment for name, assignment in self.assignments.items() if name in accounts}
        self.source_partitions = {n: len(account.first) for n, account in accounts.items() if n not in wanted}
        self.specs = {spec.id: spec for spec in specs}
        self.pipes, self.results, self.sinks = wanted, prepared.results, prepared.sinks
        within = {
            f"{upstream}>{stream.name}"
            for spec in specs
            for stream in spec.streams
            for upstream in stream.upstream
            if upstream in spec.members
        }
        self.retired = {name: account for name, account in self.retired.items() if name in within}
        self.earlier = {}
        self.checked = prepared.checked
        return before - self.own_topics()

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
        self.checked = replace(self.checked, labels={id: known[id] for id in self.specs if id in known})

    def read_more(self, grown: Mapping[str, int]) -> None:
        """Take note of the numbers of partitions of these feeds, which have got more: read from their first rows."""
        self.source_partitions |= grown
        for name, count in grown.items():
            first = self.accounts[name].first
            first.update({partition: 0 for partition in range(count) if partition not in first})

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
                name, first = feed_of(spec, head), opened[source.topic]
                self.accounts[name] = Account(source.topic, dict(first))
                self.source_partitions[name] = len(first)
        return spec

    @property
    def shedders(self) -> list[str]:
        """Return the names of the shedders: sources, and streams "from>to"."""
        specs = self.specs.values()
        return [n for s in specs for n in ([s.id] if s.is_source else [f"{u}>{s.id}" for u in s.upstream])]

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

    def partitions(self, feed: str) -> int:
        """Return the number of partitions of a feed's topic."""
        pipe = self.pipes.get(feed)
        return self.source_partitions[feed] if pipe is None else pipe.partitions

    def instances(self, spec: TaskSpec) -> int:
        """Return how many instances a task has: as declared, until it is scaled."""
        return next(
            (len(self.assignments[name]) for name in feeds_of(spec) if name in self.assignments), spec.parallelism
        )

    def assignment(self, feed: str, spec: TaskSpec) -> Assignment:
        """Return which partitions of a feed each instance of the task that reads it has."""
        before, some = self.assignments.get(feed, ()), spec.pattern is not None
        return assigned(self.partitions(feed), self.instances(spec), before, some=some)

    def max_parallelism(self, spec: TaskSpec) -> int:
        """Return to how many instances a task can be scaled: a topic of the user's keeps its partitions, streams get
        more."""
        feeds = feeds_of(spec)
        table = self.checked.tables.get(spec.id)
        if (table is not None and table.by_insert) or (spec.sink is not None and spec.sink.file_log):
            return 1
        topics = [self.source_partitions[name] for name in feeds if name in self.source_partitions]
        if topics:
            most = min(topics) if spec.pattern is None else max(topics)
            return min(spec.stated_max_parallelism or most, most)
        return spec.max_parallelism if feeds else 1

    def assignments_for(self, spec: TaskSpec, instances: int) -> dict[str, Assignment]:
        """Return the assignment of a task's partitions to another number of instances, by feed. A stream with too few
        partitions counts with those that `grown_to` says."""
        found = {}
        for name in feeds_of(spec):
            there, some = self.partitions(name), spec.pattern is not None
            found[name] = assigned(
                self.grown_to(spec) if there < instances and not some else there,
                instances,
                self.assignment(name, spec),
                some=some,
            )
        return found

    def reassign(self, spec: TaskSpec, instances: int) -> set[str]:
        """Assign partitions as `assignments_for` says; the topics have them by now. Return the tasks that send to
        streams with more partitions than before."""
        self.assignments |= self.assignments_for(spec, instances)
        senders = set()
        for name, pipe in self.pipes.items():
            there = sum(map(len, self.assignments.get(name, ())))
            if pipe.target == spec.id and there > pipe.partitions:
                pipe.partitions = there
                self.accounts[name].first.update({p: 0 for p in range(there) if p not in self.accounts[name].first})
                senders.add(pipe.source)
        return senders

    def grown_to(self, spec: TaskSpec) -> int:
        """Return how many partitions streams to a task get once there are too few of them: enough for all later
        rescaling, so that senders restart once, and few enough for instances to share them evenly."""
        return max(self.max_parallelism(spec), spec.partitions)

    def declared(self, tasks: Collection[str], resuming: Collection[str] = ()) -> None:
        """Count these tasks as declared once more: they have the instances that they were declared with, but for those
        that go on with their state, which belongs to the instances that they have."""
        self.declarations |= {task: self.declarations.get(task, 0) + 1 for task in tasks}
        self.assignments = {
            name: assignment
            for name, assignment in self.assignments.items()
            if reader(name) not in tasks or reader(name) in resuming
        }

    def shuffle_of(self, task: str, partitions: int) -> int:
        """Return into how many partitions a task shuffles. The first start since it was declared decides: `partitions`
        is that start's number, and later ones get it whatever theirs is."""
        return self.shuffles.setdefault((task, self.declarations.get(task, 0)), partitions)

    def accounts_of(self, task: str) -> dict[str, Account]:
        """Return the accounts of what a task reads, by feed."""
        return {name: account for name, account in self.accounts.items() if reader(name) == task}

    def topics(self) -> list[str]:
        """Return the topics of sources and streams, whose end offsets are sampled."""
        return sorted({account.topic for account in self.accounts.values()})

    def _results_topic(self, spec: TaskSpec, checked: Checked) -> str:
        """Return the present topic while recipe, or state, and columns are the same, else a new one, without the old
        recipe's rows."""
        topic = self.results.get(spec.id)
        return topic if topic is not None and self._goes_on(spec, checked) else self._new_topic(f"{spec.id}.out")

    def _sinks(self, specs: Sequence[TaskSpec], checked: Checked) -> dict[str, dict[int, int]]:
        """First offsets in the topics of Kafka sinks: the present ones while recipe, columns and what tells rows apart
        are the same, else the ends."""
        found: dict[str, dict[int, int]] = {}
        anew: dict[str, str] = {}
        for spec in specs:
            if not isinstance(spec.sink, KafkaTopic):
                continue
            known = self.specs.get(spec.id)
            same = known is None or _spread(known) == _spread(spec)  # None: an earlier kernel's, if it goes on
            same = same or spec.id in checked.resumed  # as declared, it now has the instances that it was scaled to
            if spec.id in self.sinks and same and self._goes_on(spec, checked):
                found[spec.id] = self.sinks[spec.id]
            else:
                anew[spec.id] = spec.sink.topic
        ends = end_offsets(self.kafka, anew.values(), timeout_s=10.0) if anew else {}
        return found | {task: dict(ends[topic]) for task, topic in anew.items()}

    def _goes_on(self, spec: TaskSpec, checked: Checked) -> bool:
        """Return whether recipe and columns of a query are those that it has now, or columns and state are."""
        known = self.specs.get(spec.id)
        if known is None:
            return spec.id in checked.kept
        same = known.tail.recipe == spec.tail.recipe or spec.id in checked.resumed
        same = same and (spec.lends, spec.lends and spec.parallelism) == (
            known.lends,
            known.lends and known.parallelism,
        )
        return same and same_columns(self.checked.schemas.get(spec.id), checked.schemas[spec.id], ordered=False)

    def _new_topic(self, name: str) -> str:
        self.topics_made += 1
        return f"qod.{self.session}.{name}.{self.topics_made}"

    def _known_account(self, specs: Sequence[TaskSpec], spec: TaskSpec, head: str) -> Account | None:
        """Return the account of a head's topic: its own, else that of the tasks that read the same topic for the same
        stream and no longer will, also in an earlier kernel; of several the one furthest behind, so that no row is
        skipped; None if there is neither."""
        topic = spec.topics[head].topic
        stay = {feed_of(each, name) for each in specs for name in each.topics}
        same = head_of(head)
        names = [feed_of(k, name) for k in self.specs.values() for name in k.topics if head_of(name) == same]
        names += [name for name, stream in self.earlier.items() if stream == same and name not in names]
        accounts = {name: each for name, each in self.accounts.items() if each.topic == topic}
        own = accounts.get(feed_of(spec, head))
        left = [accounts[name] for name in names if name in accounts and name not in stay]
        return own or (furthest_behind(left) if left else None)


def _keeping_topics(stream: StreamDeclaration, now: StreamDeclaration) -> StreamDeclaration:
    """Return a stream with the topics that its pattern has `now`: it may have got some since it was declared."""
    if stream.topic is None or now.topic is None or now.topic.pattern is None:
        return stream
    return replace(stream, inputs=stream.topic.with_topics(now.topic.topics))


def _spread(spec: TaskSpec) -> object:
    """Return where a query's rows go, and how its input is spread over its instances."""
    return spec.sink, spec.parallelism, spec.key if spec.parallelism > 1 else None


def _stream(pipe: Pipe, specs: Mapping[str, TaskSpec]) -> str:
    """Return the stream that a topic carries, by the stream that reads it: "from>to", also once its reader is fused."""
    heads = [head.name for head in specs[pipe.target].heads if pipe.source in head.upstream]
    return f"{pipe.source}>{heads[0]}"


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
