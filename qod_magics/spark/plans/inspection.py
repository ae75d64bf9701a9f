"""What a session asks about the plans of its streams, from building their recipes on a task manager: whether tasks can
run, by which columns their results replace rows, which streams each reader may compute, and by which keys to shed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from qod_magics.application.application import Application
from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.shed_keys import Ask, asking, renamed, with_keys
from qod_magics.application.streams.sink import Sink, TableFacts
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import Edges, TaskSpec, head_of, sources_of, tasks
from qod_magics.application.weights import Weights, origins
from qod_magics.errors import ApplicationError
from qod_magics.kafka.topics import topic_partitions
from qod_magics.sources.registry import Sources, kind_of
from qod_magics.spark.plans.checking import Check, Checked, as_it_is, keys_of_rows, probe
from qod_magics.spark.plans.inlining import analyzed_plan_of, is_inlinable, streaming_plan_of
from qod_magics.spark.plans.labels import Labels, labels
from qod_magics.spark.plans.pipeline import Workshop

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")
#: Results by the declarations of the streams that they are of.
Cache: TypeAlias = "list[tuple[tuple[StreamDeclaration, ...], T]]"


def _cached(cache: Cache[T], streams: tuple[StreamDeclaration, ...], find: Callable[[], T]) -> T:
    """Return what was found for these streams before, or now. Declarations are compared: recipes may have no hash."""
    for known, found in cache:
        if known == streams:
            return found
    found = find()
    cache.append((streams, found))
    return found


@dataclass(slots=True)
class Inspection:
    """Builds recipes on a task manager. Results that must not change while a stream runs are cached."""

    sources: Sources
    _inlinable: Cache[int] = field(default_factory=list)
    _asks: Cache[tuple[Ask, ...] | None] = field(default_factory=list)
    _passed: Sequence[TaskSpec] = ()  #: of the last check: those run on also while one of their topics has no leader
    _tables: Mapping[Sink, TableFacts] = field(default_factory=dict)  #: of the last check

    def check(self, specs: Sequence[TaskSpec], workshop: Workshop, known: Mapping[TaskSpec, Labels]) -> Checked:
        """Return facts about tasks, from building each recipe once.

        Args:
            specs: the tasks, inputs first.
            workshop: where to build them.
            known: labels of tasks that have been checked before.

        Raises:
            ApplicationError: a recipe fails, a key column is missing, a topic has too few partitions, or a task keeps
                state of groups that are never complete.
            KafkaError: a topic of a task that is new, or another than before, doesn't exist or has no leader.

        """
        check = Check(specs, workshop, known)
        checked = check.checked
        for spec in specs:
            if spec not in self._passed:
                self._check_topics(spec, workshop)
            check.add(spec)
            _check_own_directory(spec, specs)
            table = self._table(spec, checked.schemas[spec.id], workshop)
            if table is not None:
                _check_alone(spec, table, checked.tables)
                checked.tables[spec.id] = table
        check.chain()
        self._passed = tuple(specs)
        self._tables = {
            spec.sink: checked.tables[spec.id] for spec in specs if spec.sink is not None and spec.id in checked.tables
        }
        return checked

    def _table(self, spec: TaskSpec, columns: StructType, workshop: Workshop) -> TableFacts | None:
        """Return what a task manager says of the table into which a query writes. One whose own catalog lacks the table
        learns of it what another told at the last check: that one may be lost."""
        sink = spec.sink
        if sink is None or not sink.looks_up:
            return None
        try:
            return sink.found(workshop.spark, columns)
        except ApplicationError as error:
            known = self._tables.get(sink)
            if error.rule != "exists" or known is None or not known.definition:
                raise
        known.define(workshop.spark)
        return sink.found(workshop.spark, columns)

    def _splits(self, spec: TaskSpec) -> dict[str, int]:
        """Return the splits of a task's topics; of those of a pattern, which can be deleted, only of topics that are
        there. Raises KafkaError."""
        topics = [topic.topic for topic in spec.topics.values()]
        if spec.pattern is None:
            return {topic: self.sources.splits(topic) for topic in topics}
        there = topic_partitions(self.sources.context.of(""))
        return {topic: there[topic] for topic in topics if topic in there}

    def _check_topics(self, spec: TaskSpec, workshop: Workshop) -> None:
        counts = self._splits(spec)
        most = max(counts.values(), default=spec.parallelism)
        for topic in spec.topics.values():
            count = counts[topic.topic] if spec.pattern is None else most
            if spec.parallelism > count:
                kind = kind_of(topic.topic)
                raise ApplicationError(
                    f"{spec.id!r} asks for {spec.parallelism} instances, but the {kind.unit} {topic.topic!r} has "
                    f"{count} {kind.splits_unit}{'s' if count > 1 else ''}: take --parallelism {count} or less",
                    rule="partitions",
                )
            if topic.ddl is not None:
                workshop.check_schema(topic.ddl, topic.shed_by, topic.record_columns)
                workshop.check_format(topic.values, topic.ddl)
            if topic.rejects is not None:
                workshop.check_rejects(topic.effective_malformed)

    def result_keys(
        self, task: str, specs: Mapping[str, TaskSpec], checked: Checked, workshop: Workshop
    ) -> tuple[str, ...] | None:
        """Return the columns by which a row of a task's result replaces an earlier one, as far as its plan tells; None:
        each row stands for itself.

        Args:
            task: its id.
            specs: all tasks, inputs first, by id.
            checked: facts about them.
            workshop: where to build it, and what feeds it.

        """
        if task in checked.keys:
            return checked.keys[task]
        spec = specs[task]
        inputs = self.result_keys(spec.upstream[0], specs, checked, workshop) if len(spec.upstream) == 1 else None
        job = probe(spec, checked.schemas, origins(list(specs.values())), checked.weights)
        try:
            with workshop.result(job) as rows:
                return keys_of_rows(rows, inputs)
        except Exception as error:
            raise_unless_connection(error)
            return None

    def inlinable(self, application: Application, edges: Edges, workshop: Workshop) -> dict[str, int]:
        """Return the streams between tasks that each reader may compute itself from their topics, with the number of
        instances over which the topics' partitions can be spread evenly. `edges`: those that are in use, which stay."""
        found: dict[str, int] = {}
        for name in {upstream for spec in tasks(application, edges) for upstream in spec.upstream}:
            streams = sources_of(application, name)
            if not streams or acts_on_rows(streams):
                continue
            found[name] = _cached(
                self._inlinable, streams, partial(self._even_split, TaskSpec(streams, is_query=False), workshop)
            )
        return found

    def _even_split(self, spec: TaskSpec, workshop: Workshop) -> int:
        """Over how many instances its topics' partitions can be spread evenly; 0 if it can't be inlined."""
        counts = self._splits(spec).values()
        try:
            with workshop.result(probe(spec, {}, {}, Weights(), as_it_is)) as rows:
                return gcd(*counts) if is_inlinable(streaming_plan_of(rows)) else 0
        except Exception as error:  # reported when the stream is checked
            raise_unless_connection(error)
            return 0

    def asks(self, application: Application, workshop: Workshop) -> dict[str, tuple[Ask, ...] | None]:
        """Return the keys by which its queries ask to shed streams, by query; None: unknown."""
        found = {}
        for query, needed in asking(application).items():
            streams = with_keys(needed, {}).streams
            found[query] = _cached(
                self._asks, streams, partial(self._asks_of, TaskSpec(streams, is_query=True), workshop)
            )
        return found

    def _asks_of(self, spec: TaskSpec, workshop: Workshop) -> tuple[Ask, ...] | None:
        """Return what a query asks for that computes all its inputs itself; None where its plan doesn't tell topics
        apart."""
        heads = {topic.topic: head_of(head) for head, topic in spec.topics.items()}
        views = [stream for stream in spec.streams if stream.topic is not None and isinstance(stream.recipe, SqlRecipe)]
        if len(heads) < len(spec.topics) or (len(heads) > 1 and len(views) > 1):
            return None
        try:
            with workshop.result(probe(spec, {}, {}, Weights(), as_it_is)) as rows:
                found = labels(analyzed_plan_of(rows))
        except Exception as error:  # reported when the query is checked
            raise_unless_connection(error)
            return ()
        return () if found is None else renamed(found.asks, heads)


def _check_alone(spec: TaskSpec, table: TableFacts, others: Mapping[str, TableFacts]) -> None:
    """Raise ApplicationError where two instances would insert into a table at the same time: Spark's writer of files
    removes what another one has under way."""
    if not table.by_insert:
        return
    if spec.parallelism > 1:
        raise ApplicationError(
            f"--parallelism must be 1 for {spec.sink}, got {spec.parallelism}: rows of one instance could remove those "
            "that another has under way",
            name=spec.id,
            option="--parallelism",
            rule="one writer",
        )
    twice = next((name for name, each in others.items() if each.by_insert and each.location == table.location), None)
    if twice is not None and table.location:
        raise ApplicationError(
            f"{twice!r} and {spec.id!r} both insert into the table at {table.location}; give each a table of its own",
            name=spec.id,
            option="--sink",
            rule="one writer",
        )


def _check_own_directory(spec: TaskSpec, specs: Sequence[TaskSpec]) -> None:
    """Raise ApplicationError where two instances or queries would share a log of batches, by whose numbers Spark skips
    those that another has written."""
    directory = "" if spec.sink is None else spec.sink.file_log
    if not directory:
        return
    if spec.parallelism > 1:
        raise ApplicationError(
            f"--parallelism must be 1 for {spec.sink}, got {spec.parallelism}: Spark could skip batches of one "
            "instance that have the numbers of another's",
            name=spec.id,
            option="--parallelism",
            rule="one writer",
        )
    twice = next((s.id for s in specs if s.id != spec.id and s.sink is not None and s.sink.file_log == directory), None)
    if twice is not None:
        raise ApplicationError(
            f"--sink must be a place that no other query writes, got {spec.sink} for {twice!r} and {spec.id!r}; give "
            "each a place of its own",
            name=spec.id,
            option="--sink",
            rule="one writer",
        )


def acts_on_rows(streams: Collection[StreamDeclaration]) -> bool:
    """Tell whether these streams count rows that break rules, or send rejects: each reader that made their rows itself
    would do so again."""
    return any(each.expect or (each.topic is not None and each.topic.rejects is not None) for each in streams)
