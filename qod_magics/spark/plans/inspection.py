"""What building the recipes of tasks tells about them, without starting anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from qod_magics.application.application import Application
from qod_magics.application.chain import opened_chain
from qod_magics.application.merging import Merges
from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.shed_keys import Ask, asking, renamed, with_keys
from qod_magics.application.streams.sink import KafkaTopic, Sink, TableFacts
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import RECORD_KEY
from qod_magics.application.tasks import Edges, TaskSpec, head_of, sources_of, tasks
from qod_magics.application.weights import WEIGHT, Origins, Usage, Usages, Weights, origins
from qod_magics.errors import ApplicationError
from qod_magics.kafka.topics import topic_partitions
from qod_magics.sources.registry import Sources, kind_of
from qod_magics.spark.plans.expressions import Label
from qod_magics.spark.plans.inlining import (
    analyzed_plan_of,
    groups_by,
    is_inlinable,
    joined_by,
    joins_outer,
    keeps_one,
    overlaps,
    streaming_plan_of,
    sums_weights,
)
from qod_magics.spark.plans.job import (
    Build,
    Feed,
    Job,
    Watermarks,
    feed_of,
    schema_of_stream,
    source_feed,
    watermarks_of,
)
from qod_magics.spark.plans.labels import Labels, labels
from qod_magics.spark.plans.merging import merges_of
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.plans.plan_text import kept_columns, positions
from qod_magics.spark.plans.records import Whole, check_whole, may_be_whole, whole_of
from qod_magics.spark.plans.shedder import taken_name
from qod_magics.spark.plans.state import TaskState, chained, key_columns, state_signature, task_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
#: Results by the declarations of the streams that they are of.
Cache: TypeAlias = "list[tuple[tuple[StreamDeclaration, ...], T]]"


@dataclass(frozen=True, slots=True)
class Checked:
    """Facts about some tasks, and what is known of their rows."""

    schemas: dict[str, StructType] = field(default_factory=dict)  #: output of each task, with `_weight` if it has one
    weights: Weights = field(default_factory=Weights)  #: in their streams
    labels: dict[str, Labels] = field(default_factory=dict)  #: by task, where a query may be shed
    chained: dict[str, str] = field(default_factory=dict)  #: the tasks whose groups an operator with state reads
    #: by task, the columns by which a row of its result replaces an earlier one; where a query writes to Kafka
    keys: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    #: by task, the watermarks of each task that feeds it, where it declares none itself: they are lost in Kafka
    watermarks: dict[str, Mapping[str, Watermarks]] = field(default_factory=dict)
    #: by task, what its state means; tasks without state, and those whose plans do not tell, have None
    signatures: dict[str, str | None] = field(default_factory=dict)
    resumed: frozenset[str] = frozenset()  #: tasks that are replaced, but go on with their state
    kept: frozenset[str] = frozenset()  #: tasks that start, and go on from the checkpoints of an earlier kernel
    whole: dict[str, str] = field(default_factory=dict)  #: the queries in complete mode, and what asks for it
    #: by query that lends rows of its keys: how the parts of a group are merged
    merges: dict[str, Merges] = field(default_factory=dict)
    tables: dict[str, TableFacts] = field(default_factory=dict)  #: by task, into which a query writes


def built(spec: TaskSpec, found: Origins, weights: Weights, usages: Usages | None = None) -> Build:
    """Builds a task's recipes: see `opened_chain`."""

    @contextmanager
    def build(spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        with opened_chain(spec, spark, inputs, found, weights, usages) as rows:
            yield rows

    return build


def probe(
    spec: TaskSpec,
    schemas: Mapping[str, Any],
    found: Origins,
    weights: Weights,
    usages: Usages | None = None,
    watermarks: Mapping[str, Watermarks] = MappingProxyType({}),
) -> Job:
    """Return a job that is only built: of its first instance, as if each topic had one partition, without output."""
    feeds = [source_feed(feed_of(spec, head), head, source, (0,), {}) for head, source in spec.topics.items()]
    for upstream in spec.upstream:
        name, keyed = f"{upstream}>{spec.id}", weights.keys.get(upstream, ())
        schema = schema_of_stream(schemas[upstream])
        by_key, marks = keyed and (RECORD_KEY,), watermarks.get(upstream, ())
        feeds.append(Feed(name, (upstream,), name, (0,), {}, schema, stream=True, shed_by=by_key, watermarks=marks))
    return Job(
        task=spec.id,
        instance=f"{spec.id}.1",
        index=0,
        feeds=tuple(feeds),
        build=built(spec, found, weights, usages),
        outlets=(),
        topics=(),
        sink=spec.sink,
        results=None,
        trigger_s=spec.trigger_s,
        max_latency_s=spec.max_latency_s,
        aggregates=spec.aggregates,
    )


class _Plans:
    """Finds what recipes do with `_weight`, and with the key if there is one; holds the physical plan of the last, None
    where Spark can't plan it."""

    def __init__(self, keyed: bool) -> None:
        self.last: str | None = None
        self._keyed = keyed

    def __call__(self, rows: DataFrame) -> Usage | None:
        try:
            plan = self.last = streaming_plan_of(rows)
            kept = kept_columns(analyzed_plan_of(rows)) if self._keyed else None
        except Exception as error:
            raise_unless_connection(error)
            self.last = None
            return None
        one = rows.columns.count(WEIGHT) == 1
        return Usage(
            groups_by(plan, WEIGHT),
            one and keeps_one(plan, WEIGHT),
            joins_outer(plan),
            joined_by(plan),
            overlaps(plan),
            one and sums_weights(plan),
            kept,
        )


def _keys_of(spec: TaskSpec, weights: Weights) -> list[tuple[str, ...] | None]:
    """Return the keys by which a task's inputs are shed."""
    keys: list[tuple[str, ...] | None] = [topic.shed_by or None for topic in spec.topics.values()]
    return keys + [weights.keys.get(upstream) for upstream in spec.upstream]


def _keys_of_rows(rows: DataFrame, inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """See `key_columns`; None, too, where Spark can't explain the plan."""
    try:
        return key_columns(analyzed_plan_of(rows), inputs)
    except Exception as error:
        raise_unless_connection(error)
        return None


def _is_append(whole: Whole, state: TaskState) -> bool:
    """Return whether a LIMIT is one of the first groups that are complete, each emitted once."""
    return whole.clauses == ("LIMIT",) and not whole.sorts_rows and state.completes


def losing_rows(specs: Sequence[TaskSpec]) -> set[str]:
    """Return the tasks of which rows may be dropped on their way there; inputs first in `specs`."""
    whole = {spec.id for spec in specs if spec.is_query and (spec.min_accuracy or 0.0) >= 1.0}
    for spec in reversed(specs):
        whole |= set(spec.upstream) if spec.id in whole else set()
    return {spec.id for spec in specs} - whole


def _as_it_is(_: DataFrame) -> None:
    return None


def _cached(cache: Cache[T], streams: tuple[StreamDeclaration, ...], find: Callable[[], T]) -> T:
    """Return what was found for these streams before, or now. Declarations are compared: recipes may have no hash."""
    for known, found in cache:
        if known == streams:
            return found
    found = find()
    cache.append((streams, found))
    return found


class _Check:
    """Builds the recipes of tasks, each once, and adds what that tells to `checked`; inputs first."""

    def __init__(self, specs: Sequence[TaskSpec], workshop: Workshop, known: Mapping[TaskSpec, Labels]) -> None:
        self.checked = Checked()
        self._specs, self._workshop, self._known = specs, workshop, known
        self._origins, self._losing = origins(specs), losing_rows(specs)
        self._states: dict[str, TaskState] = {}
        self._writes = any(isinstance(spec.sink, KafkaTopic) for spec in specs)
        self._may_shed = any(spec.is_query and (spec.min_accuracy or 0.0) < 1.0 for spec in specs)

    def add(self, spec: TaskSpec) -> None:
        """Build a task. Raises ApplicationError as `Inspection.check`."""
        checked, id = self.checked, spec.id
        plans = _Plans(any(_keys_of(spec, checked.weights)))
        marks = checked.watermarks[id] = self._watermarks(spec)
        job = probe(spec, checked.schemas, self._origins, checked.weights, plans, marks)
        with self._workshop.result(job) as rows:
            checked.schemas[id] = rows.schema
            if self._writes:
                inputs = checked.keys.get(spec.upstream[0]) if len(spec.upstream) == 1 else None
                checked.keys[id] = _keys_of_rows(rows, inputs)
            if plans.last is not None and "Union" in plans.last:
                _check_unions(spec, analyzed_plan_of(rows))
            if self._may_shed:
                labelled = self._known.get(spec) if spec.is_source else None
                _note_labels(spec, labelled or self._labels(spec, rows), checked.labels, self._losing)
            if spec.lends:
                checked.merges[id] = _checked_merges(spec, merges_of(analyzed_plan_of(rows), plans.last))
            whole = whole_of(analyzed_plan_of(rows)) if may_be_whole(plans.last) else None
        self._states[id] = TaskState(spec.aggregates) if plans.last is None else task_state(plans.last)
        checked.signatures[id] = None if plans.last is None else state_signature(plans.last)
        if whole is not None and not _is_append(whole, self._states[id]):
            self._add_whole(spec, whole)
        _check_columns(spec, checked.schemas)

    def chain(self) -> None:
        """Note which groups an operator with state reads. Raises ApplicationError if they are never complete."""
        self.checked.chained.update(chained(self._states, {spec.id: spec.upstream for spec in self._specs}))
        _check_chained(self.checked.chained, self._states)

    def _add_whole(self, spec: TaskSpec, whole: Whole) -> None:
        """Note a query in complete mode: its result is not emitted by groups."""
        check_whole(spec, whole, [other.id for other in self._specs if spec.id in other.upstream])
        self.checked.whole[spec.id] = whole.words
        self._states[spec.id] = TaskState(keeps=True)
        signature = self.checked.signatures[spec.id]
        self.checked.signatures[spec.id] = None if signature is None else f"complete {signature}"

    def _watermarks(self, spec: TaskSpec) -> Mapping[str, Watermarks]:
        """Return the watermarks that a task takes over from the tasks that feed it: none where its recipes declare
        some, since Spark has one for each column."""
        schemas, weights = self.checked.schemas, self.checked.weights
        marks = {upstream: made for upstream in spec.upstream if (made := watermarks_of(schemas[upstream]))}
        if not marks:
            return {}
        with self._workshop.result(probe(spec, schemas, self._origins, weights, _as_it_is)) as rows:
            try:
                plan = streaming_plan_of(rows)
            except Exception as error:
                raise_unless_connection(error)
                return {}
        return {} if "EventTimeWatermark" in plan else marks

    def _labels(self, spec: TaskSpec, rows: DataFrame) -> Labels | None:
        """Return what shedding does to a task's columns."""
        told, keys = self.checked.labels, _keys_of(spec, self.checked.weights)
        upstream = [name for name in spec.upstream if name in told]
        inputs: dict[str, Label] = {}
        for column in (column for name in upstream for column in told[name].columns):
            inputs[column.name] = max(column.label, inputs.get(column.name, column.label))
        unfit = next((why for name in upstream if name in self._losing and (why := told[name].unfit) is not None), None)
        try:
            known = [key for key in keys if key] if all(keys) else []
            return labels(analyzed_plan_of(rows), known, inputs if spec.upstream else None, unfit)
        except Exception as error:
            raise_unless_connection(error)
            return None


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
        check = _Check(specs, workshop, known)
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
                return _keys_of_rows(rows, inputs)
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
            with workshop.result(probe(spec, {}, {}, Weights(), _as_it_is)) as rows:
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
            with workshop.result(probe(spec, {}, {}, Weights(), _as_it_is)) as rows:
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


def _note_labels(spec: TaskSpec, found: Labels | None, labels: dict[str, Labels], losing: Collection[str]) -> None:
    """Add what shedding does to a task's columns. Raises ApplicationError if its rows may be dropped, and must not."""
    if found is None:
        return
    if all(name in labels for name in spec.upstream):
        labels[spec.id] = found  # else nothing is known of the columns that it reads
    if found.refused is not None and spec.id in losing:
        raise ApplicationError(f"stream {spec.id!r}: {found.refused}")


def _checked_merges(spec: TaskSpec, found: Merges | str) -> Merges:
    """Return how parts of its groups are merged. Raises ApplicationError where they can't be."""
    if isinstance(found, str):
        raise ApplicationError(
            f"--lend of {spec.id!r} must be of groups whose parts can be merged: {found}",
            name=spec.id,
            option="--lend",
            rule="merges",
        )
    return found


def _check_chained(groups: Mapping[str, str], states: Mapping[str, TaskState]) -> None:
    """Raise ApplicationError for groups that an operator with state reads, by the task that reads them, and that are
    never complete."""
    for task, reader in groups.items():
        if not states[task].completes:
            of = "groups of its own" if task == reader else f"the groups of {task!r}"
            raise ApplicationError(
                f"{reader!r} keeps state of {of}, which would count again each time that they change: give them "
                "withWatermark() and a window, so that each is emitted once, when it is complete",
                rule="watermark",
            )


def _check_columns(spec: TaskSpec, schemas: Mapping[str, StructType]) -> None:
    taken = taken_name(schemas[spec.id].names)
    if taken is not None:
        raise ApplicationError(
            f"{spec.id!r} makes a column {taken!r}, which load shedding reserves: give it another name",
            name=taken,
            rule="reserved column",
        )
    for upstream in spec.upstream if spec.key is not None else ():
        columns = schema_of_stream(schemas[upstream]).names
        if spec.key not in columns:
            raise ApplicationError(
                f"--key {spec.key} of {spec.id!r}: its input {upstream!r} has no such column; "
                f"it has {', '.join(columns)}"
            )


def _check_unions(spec: TaskSpec, plan: str) -> None:
    places = positions(plan, WEIGHT)
    if places:
        raise ApplicationError(
            f"a union in {spec.id!r} pairs columns by position, and {WEIGHT} is column {places[0]} of one input "
            f"and {places[1]} of another: use unionByName(), or select the columns of both in one order"
        )
