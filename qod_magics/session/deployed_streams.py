"""Keep the streams of a session: those that are declared are those that run."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qod_magics.application import graph
from qod_magics.application.application import Application
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.shed_keys import Decision, Keys, chosen, decided, with_keys
from qod_magics.application.streams.sink import TWICE_BETWEEN, KafkaTopic
from qod_magics.application.tasks import TaskSpec, difference, tasks
from qod_magics.application.weights import EMPTY_SIDE, LEFT_OUT, WEIGHT, Weights
from qod_magics.errors import ApplicationError, KafkaError, TaskManagerError, UsageProblem, counted
from qod_magics.kafka.topics import topic_partitions
from qod_magics.session.results import read_results
from qod_magics.sources.source import LATEST, matching
from qod_magics.spark.changes.resuming import waiting_streams
from qod_magics.spark.cluster.books import lost_text
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.records import WHOLE_IN_KAFKA, record_form
from qod_magics.spark.queries.checkpoints import why_not_transplanted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qod_magics.application.streams.stream import StreamDeclaration
    from qod_magics.spark.plans.labels import Labels
    from qod_magics.spark.runtime import SparkRuntime


@dataclass(frozen=True, slots=True)
class Declared:
    """The outcome of a declaration."""

    replaced: bool  #: whether another stream of this name was
    unchanged: bool = False  #: whether it was declared in the same way before
    restarted: tuple[str, ...] = ()  #: instances that were given up and start again
    notes: tuple[str, ...] = ()  #: what its author should know, one line each


class Streams:
    """An application and its runtime. A change that the runtime rejects leaves both unchanged.

    Thread-safe: changes are serialised.

    Attributes:
        application: the declared streams; its tasks are the deployed ones.

    """

    def __init__(self, runtime: SparkRuntime) -> None:
        self.application = Application()
        self._runtime = runtime
        self._changing = threading.RLock()
        self._unknown: dict[str, str] = {}  # why `_weight` is null, by stream
        self._partly: set[str] = set()  # streams in which it is null in some rows
        self._hidden: set[str] = set()  # queries whose results are without it
        self._keys: Keys = {}  # of streams whose key is to be chosen
        self._checked = Checked()  # facts about the tasks that were checked last
        self._labels: Mapping[str, Labels] = {}  # what shedding does to columns, by task
        #: when streams were declared last whose inputs ran already, seconds since the epoch: the first windows of these
        #: lack rows
        self.began: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"streams of a session: {', '.join(self.application.names) or 'none'}"

    def declare(self, declaration: StreamDeclaration, dry_run: bool = False) -> Declared:
        """Declare and start a stream, or only check its recipe (`dry_run`). Queries of it that were given up are tried
        again.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self._changing:
            self.application, declaration = self._grown(self.application), self._with_topics(declaration)
            application = self.application.declare(declaration)
            name, before = declaration.name, self.application
            with suppress(KafkaError, TaskManagerError):  # a waiting stream may be declared before its topic exists
                awaited = tasks(with_keys(application.awaited(name), self._keys))
                if awaited:
                    self._check(awaited)
            made_before = set(self._runtime.deployment.created)
            decision, keys_before, ran = self._decided(application), self._keys, self._runtime.deployment.specs
            if dry_run:
                self._check(self._tasks(application, decision))
            else:
                self._run(application, decision)
            offsets = _offsets_note(before[name], declaration) if name in before.live else None
            notes = (
                offsets,
                self._topic_note(declaration, made_before),
                _estimates_note(declaration),
                self._weight_note(application, name),
                *_key_notes(name, decision, keys_before, ran.values()),
                self._labels_note(application, name),
                *([] if dry_run else self._state_notes(name)),
                self._records_note(application, name),
            )
            unchanged = name in before and before[name] == declaration
            if not (dry_run or unchanged):
                self._note_begin(name, before)
            restarted = () if dry_run else self._restart_given_up(name)
            return Declared(name in before, unchanged, restarted, tuple(note for note in notes if note is not None))

    def _with_topics(self, stream: StreamDeclaration) -> StreamDeclaration:
        """Return a stream with the topics that its pattern has: those that it has read so far, in this kernel or an
        earlier one; of a new stream, those that there are. Raises ApplicationError, KafkaError."""
        topic = stream.topic
        if topic is None or topic.pattern is None:
            return stream
        if why := why_not_transplanted(self._runtime.deployer.checkpoints):
            raise ApplicationError(
                f"--topic-pattern must have checkpoints at a local path, to which topics can be added: {why}; name the "
                "topics by --topic",
                option="--topic-pattern",
                rule="local",
            )
        known = self._topics_read(stream.name, topic.pattern)
        known = known or matching(topic.pattern, topic_partitions(self._runtime.deployment.sources.context.of("")))
        if not known:
            raise ApplicationError(
                f"--topic-pattern must match a topic that is there, and {topic.pattern!r} matches none; create one, "
                "and run the cell again",
                name=stream.name,
                option="--topic-pattern",
                rule="matches",
            )
        return replace(stream, inputs=topic.with_topics(known))

    def _topics_read(self, name: str, pattern: str) -> Sequence[str]:
        """Return the topics of a pattern that a stream has read, in the order of its checkpoint."""
        if running := self._runtime.deployment.topics_of_pattern(name, pattern):
            return running
        if name in self.application:
            declared = self.application[name].topic
            if declared is not None and declared.pattern == pattern:
                return declared.topics
        return self._runtime.resuming.topics_read(name, pattern)

    def _grown(self, application: Application) -> Application:
        """Return the streams with the topics that patterns have got since they were declared."""
        streams = []
        for stream in application.streams:
            topic = stream.topic
            now: Sequence[str] = ()
            if topic is not None and topic.pattern is not None:
                now = self._runtime.deployment.topics_of_pattern(stream.name, topic.pattern)
            streams.append(replace(stream, inputs=topic.with_topics(now)) if topic is not None and now else stream)
        grown = tuple(streams)
        return application if grown == application.streams else replace(application, streams=grown)

    def _note_begin(self, name: str, before: Application) -> None:
        """Note that a stream has begun, where its inputs had before and it does not go on with its state."""
        goes_on = name in self._runtime.deployer.resumed or name in self._runtime.deployer.returned
        if not goes_on and any(each in before.live for each in self.application.upstreams[name]):
            self.began[name] = time.time()
        elif not goes_on:
            self.began.pop(name, None)

    def remove(self, name: str) -> None:
        """Stop and remove a stream. Raises ApplicationError: there is no such stream, or others read it."""
        with self._changing:
            only_kept = name in self._runtime.resuming.streams and name not in self.application
            application = self.application if only_kept else self.application.remove(name)
            self._forget((name,), application)

    def clear(self) -> None:
        """Stop and remove all streams."""
        with self._changing:
            self._forget(self._runtime.resuming.streams, Application())

    def _forget(self, names: Collection[str], application: Application) -> None:
        """Run these streams, and drop what an earlier kernel left of the others by name."""
        resuming = self._runtime.resuming
        before, needed = dict(resuming.left), resuming.topics
        for name in names:
            resuming.forget(name)
        try:
            self._run(application)
        except BaseException:
            resuming.restore(before)
            raise
        if unneeded := needed - resuming.topics:
            self._runtime.deployer.delete(unneeded - self._runtime.deployment.own_topics())

    @property
    def waiting_streams(self) -> Mapping[str, tuple[str, ...]]:
        """Return the declared streams that wait for others, with which they exchanged rows under an earlier kernel, by
        name: those that are not declared. Rows would be lost between those that run and those that do not."""
        return self._waiting(self.application)

    def _waiting(self, application: Application) -> Mapping[str, tuple[str, ...]]:
        first = waiting_streams(self._runtime.resuming.left, application.names)
        if not first:
            return {}
        found = dict(first)
        for name in graph.ordered(application.upstreams):
            for upstream in application.upstreams[name]:
                if name not in found and upstream in found:
                    found[name] = found[upstream]
        return found

    def restrict(self, name: str, **restrictions: Any) -> str:
        """Change a query's restrictions while it runs, as `Application.restrict`; a stream that waited for a query
        becomes one, and starts. Nothing that runs is restarted. Return what therefore does not change, and what
        dropping rows does to its columns where no row was dropped so far; "" if there is nothing to say. Raises
        ApplicationError, KafkaError, TaskManagerError."""
        with self._changing:
            application = self.application.restrict(name, **restrictions)
            specs = self._tasks(application, self._as_now(application))
            deployer = self._runtime.deployer
            change = difference(self._runtime.deployment.specs.values(), specs)
            if not (change.is_empty or change.only_restarts):
                self._run(application)
                return self._labels_note(application, name) or ""
            labels: Mapping[str, Labels] = {}
            if application[name].effective_min_accuracy < 1.0 <= self.application[name].effective_min_accuracy:
                with suppress(KafkaError, TaskManagerError):
                    self._check(specs)  # its estimates, of rows that were all kept so far
                    labels = self._labels
            deployer.restrict(specs, labels)
            self.application = application
            notes = (deployer.held_modes(change.restart), self._labels_note(application, name) if labels else None)
            return "; ".join(note for note in notes if note)

    def results(self, name: str, spark: SparkSession) -> DataFrame:
        """Return a memory sink's rows so far, read on this session. Raises ApplicationError: there is no such query."""
        deployment = self._runtime.deployment
        topic = deployment.results.get(name)
        if topic is None:
            self.application[name]
            memory = ", ".join(deployment.results) or "none"
            raise ApplicationError(f"{name!r} keeps no rows in memory; streams with --sink memory: {memory}")
        options, checked = self._runtime.cluster.kafka_options, deployment.checked
        instances = [each for each in self._runtime.instances.values() if each.job.task == name]
        since_s = max((each.wrote_nothing_at for each in instances), default=0.0)
        whole, merges = name in checked.whole, checked.merges.get(name)
        return read_results(spark, options, topic, checked.schemas[name], whole, since_s, merges)

    def _topic_note(self, declaration: StreamDeclaration, made_before: Collection[str]) -> str | None:
        """Return a note that the topic of its Kafka sink was created now; None if it was not."""
        sink, made = declaration.effective_sink, self._runtime.deployment.created
        if not isinstance(sink, KafkaTopic) or sink.topic in made_before or sink.topic not in made:
            return None
        more = "" if sink.partitions else "; --sink-option partitions=N creates one with N"
        return f"there was no topic {sink.topic!r}: created with {counted(made[sink.topic], 'partition')}{more}"

    def _restart_given_up(self, name: str) -> tuple[str, ...]:
        with_it = [id for id, spec in self._runtime.deployment.specs.items() if name in spec.members]
        return self._runtime.recovery.restart_given_up(with_it)

    def _weight_note(self, application: Application, name: str) -> str | None:
        why = self._unknown.get(name)
        is_query, weighs = name in application.queries, application[name].recipe.weighs
        shown = weighs or not is_query
        if shown and why is not None and not (is_query and why == LEFT_OUT):
            return f"{WEIGHT} is null in its rows, as {why}"
        if shown and name in self._partly:
            return f"{WEIGHT} is null {EMPTY_SIDE}"
        if name in self._hidden and why is None and application[name].effective_min_accuracy < 1.0:
            return f"its rows are without {WEIGHT}: a recipe that names it keeps it"
        upstream = application.upstreams[name] if weighs else ()
        lost = [f"of {each}, as {self._unknown[each]}" for each in upstream if each in self._unknown]
        return f"{WEIGHT} is null in the rows {'; '.join(lost)}" if lost else None

    def _labels_note(self, application: Application, name: str) -> str | None:
        if name not in application.queries or application[name].effective_min_accuracy >= 1.0:
            return None
        found = self._labels.get(name)
        return None if found is None or found.are_exact else f"when rows are dropped: {found}"

    def _state_notes(self, name: str) -> list[str]:
        """Return what happened to the state of tasks that the last deployment replaced, one line each."""
        deployer, lost_at = self._runtime.deployer, self._runtime.incomplete.lost_at
        notes = []
        for task in deployer.returned:
            notes.append(("" if task == name else f"{task}: ") + deployer.resuming.notes[task])
        for task in sorted(deployer.resumed | deployer.lost_state):
            of = "" if task == name else f"{task}: "
            if task in deployer.resumed:
                notes.append(f"{of}its state is kept: windows and groups go on with the rows so far")
            elif task in lost_at:
                notes.append(f"{of}{lost_text(lost_at[task])}, and its results are marked as incomplete")
        return notes

    def _records_note(self, application: Application, name: str) -> str | None:
        """In which form a query writes to its Kafka topic, and how often a row is written to any sink."""
        sink = application[name].effective_sink
        if name not in application.queries or sink is None or name not in self._checked.schemas:
            return None
        if not isinstance(sink, KafkaTopic):
            told = sink.guarantee_in(self._checked.tables.get(name))
            return f"{told}; {TWICE_BETWEEN}" if told and application[name].upstream else told or None
        form = record_form(self._checked.schemas[name], sink)
        told = form.words(sink.topic, self._checked.keys.get(name))
        whole = f"; {WHOLE_IN_KAFKA}" if name in self._checked.whole else ""
        return f"{told}{whole}; {sink.guarantee}"

    def _check(self, specs: Sequence[TaskSpec]) -> None:
        checked = self._runtime.deployment.check(specs, self._runtime.workshop())
        self._learn(specs, checked.weights)
        self._checked, self._labels = checked, checked.labels

    def _learn(self, specs: Sequence[TaskSpec], weights: Weights) -> None:
        built = {name for spec in specs for name in spec.members}
        self._unknown = {name: why for name, why in self._unknown.items() if name not in built} | weights.unknown
        self._partly = {name for name in self._partly if name not in built} | weights.partly
        self._hidden = {name for name in self._hidden if name not in built} | weights.hidden

    def _run(self, application: Application, decision: Decision | None = None) -> None:
        decision = decision or self._as_now(application)
        deployed = False
        while not deployed:  # until no task was fused or unfused meanwhile
            edges, application = self._runtime.deployment.edges, self._grown(application)
            specs = self._tasks(application, decision)
            deployed = self._runtime.deployer.deploy(specs, edges)
        self.application, self._keys = application, decision.keys
        self._runtime.resuming.chosen = frozenset(decision.keys)
        self._learn(specs, self._runtime.deployment.checked.weights)
        self._checked = self._runtime.deployment.checked
        self._labels = self._checked.labels

    def _as_now(self, application: Application) -> Decision:
        """Return the present keys of the streams whose key is chosen automatically. Another key would restart their
        readers without their state, so only a declaration may change it."""
        return Decision({name: self._keys.get(name, ()) for name in chosen(application)})

    def _decided(self, application: Application) -> Decision:
        """Return the keys that serve the queries of these streams; the present ones where a recipe fails with another
        key."""
        present = self._as_now(application).keys
        if not present:
            return Decision()
        topics = {stream.name: stream.topic for stream in application.streams if stream.topic is not None}
        stated = {name: topic.shed_by for name, topic in topics.items() if name not in present}
        decision = decided(self._runtime.deployer.asks(application), present, stated)
        if decision.keys != present:
            try:
                self._runtime.deployment.check(self._tasks(application, decision), self._runtime.workshop())
            except (ApplicationError, UsageProblem) as error:  # one for other reasons is raised once more, without them
                return Decision(present, decision.asked, str(error))
        return decision

    def _tasks(self, application: Application, decision: Decision) -> tuple[TaskSpec, ...]:
        """Return the application's tasks. Streams that run as separate tasks stay separate, to keep their backlog."""
        application, waiting = self._grown(application), self._waiting(application)
        ready = Application(tuple(stream for stream in application.streams if stream.name not in waiting))
        keyed = with_keys(ready, decision.keys)
        edges = {*self._runtime.deployment.edges, *self._runtime.resuming.edges}
        return tasks(keyed, edges, self._runtime.deployer.inlinable(keyed))


def _key_notes(name: str, decision: Decision, before: Keys, ran: Iterable[TaskSpec]) -> list[str]:
    """Return by which keys streams are shed, where a key is new or concerns the declared stream."""
    notes = []
    for stream, key in decision.keys.items():
        replaced = [spec.id for spec in ran if stream in spec.members and spec.id not in (stream, name)]
        changed = key != before.get(stream, ())
        untold = name in decision.untold and not key
        if changed or untold or stream == name or name in decision.asked.get(stream, {}):
            restarted = (
                f"; {', '.join(replaced)} restart{'s' * (len(replaced) == 1)} without state"
                if changed and replaced
                else ""
            )
            notes.append(f"{stream} is {decision.words(stream)}{restarted}")
    return notes


def _estimates_note(declaration: StreamDeclaration) -> str | None:
    turned = declaration.recipe.turned if isinstance(declaration.recipe, SqlRecipe) else None
    return f"estimates, structs of value, low and high: {', '.join(turned.columns)}" if turned else None


def _offsets_note(before: StreamDeclaration, new: StreamDeclaration) -> str | None:
    one, other = before.topic, new.topic
    if one is None or other is None or one.topic != other.topic or other.starting == LATEST:
        return None
    return f"it goes on where it was: `%qod stop {new.name}` first lets it read {other.topic!r} from {other.starting}"
