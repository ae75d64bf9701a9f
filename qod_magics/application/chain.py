"""Build the chain of recipes of a task, with the weights of rows passed from stream to stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qod_magics.application.recipes.building import (
    active,
    analysis_errors_unprinted,
    first_line,
    raise_unless_connection,
)
from qod_magics.application.streams.rules import kept
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import (
    ONE_OF_A_PAIR,
    WEIGHT,
    Origins,
    Usage,
    Usages,
    Weights,
    joins_by_key,
    key_of,
    newly_weighed,
    one_weight,
    origins_of,
    spelled,
    twice,
    weighed,
    weight_problem,
)
from qod_magics.errors import ApplicationError, UsageProblem
from qod_magics.estimate.groups import ESTIMATE, Groups, Inputs, Key, recipe_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def opened_chain(
    spec: TaskSpec,
    spark: SparkSession,
    inputs: Mapping[str, DataFrame],
    origins: Origins | None = None,
    weights: Weights | None = None,
    usages: Usages | None = None,
) -> Iterator[DataFrame]:
    """Yield the DataFrame of the chain, while the context is open; start the query inside it.

    The views of SQL recipes exist until the context closes; meanwhile no other thread builds SQL on this session.

    Args:
        spec: the task.
        spark: the session.
        inputs: the upstream streams by name, or the topics by the names of the heads that read them.
        origins: of the upstream streams; each its own, where they are not given.
        weights: what is known of `_weight`; what is found is added.
        usages: finds what recipes do with `_weight`; None: it is in `weights` already.

    Raises:
        ApplicationError: a recipe fails: one line that names the stream. Connection errors pass through.

    """
    with ExitStack() as recipes, analysis_errors_unprinted(), active(inputs):
        chain = _Chain(spec, spark, inputs, origins or {}, Weights() if weights is None else weights, usages, recipes)
        for stream in spec.streams:
            frame = chain.add(stream)
        if spec.is_query and WEIGHT in frame.columns and not spec.tail.recipe.weighs:
            chain.weights.hidden.add(spec.id)
            frame = frame.drop(WEIGHT)
        same = twice(frame)
        if same is not None:
            raise ApplicationError(f"stream {spec.id!r} gives two columns {same!r}: rename one, or leave it out")
        yield frame


@dataclass(frozen=True, slots=True)
class _Opened:
    """A stream's DataFrame as its recipe makes it."""

    frame: DataFrame
    usage: Usage | None  #: None: what recipes do with weights is known already
    inputs: Inputs


class _Chain:
    """The DataFrames of a task's streams while they are composed, inputs first; notes what happens to their weights."""

    def __init__(
        self,
        spec: TaskSpec,
        spark: SparkSession,
        inputs: Mapping[str, DataFrame],
        origins: Origins,
        weights: Weights,
        usages: Usages | None,
        recipes: ExitStack,
    ) -> None:
        self.spec, self.spark, self.weights, self.usages, self.recipes = spec, spark, weights, usages, recipes
        self.known = {**{name: frozenset({name}) for name in spec.upstream}, **origins}
        self.keys: dict[str, Key] = {name: weights.keys.get(name) for name in spec.upstream}
        self.made = dict(inputs)

    def add(self, stream: StreamDeclaration) -> DataFrame:
        """Return the DataFrame of a stream, whose inputs were added before."""
        sampled = [self.keys[name] for name in stream.upstream]
        if stream.topic is not None:
            sampled = [stream.topic.shed_by or None]
        opened = self._open(stream, sampled)
        frame, usage = self._ruled(stream, opened.frame), opened.usage
        if usage is not None and joins_by_key(sampled, usage.joined):
            self.weights.by_key.add(stream.name)
        problem = self._problem(stream, opened, sampled)
        if usage is not None:
            _note_groups(stream, frame, usage, opened.inputs, sampled, self.weights)
        if self._begins_groups(stream):
            frame, problem = newly_weighed(frame), None
        if problem is not None:
            self.weights.unknown[stream.name] = problem
        elif usage is not None and usage.outer and WEIGHT in frame.columns:
            self.weights.partly.add(stream.name)
        self._note_key(stream, frame, usage, sampled)
        frame = one_weight(frame, problem is None, stream.name in self.weights.by_key)
        # every input of a recipe has a weight, as without fusion
        self.made[stream.name] = frame if stream is self.spec.tail else weighed(frame)
        self.known[stream.name] = origins_of(stream, self.known)
        return frame

    def _ruled(self, stream: StreamDeclaration, frame: DataFrame) -> DataFrame:
        """Return the rows that the stream's rules keep. Raises ApplicationError: Spark can't read one over them."""
        if not stream.expect:
            return frame
        try:
            ruled = kept(frame, stream.name, stream.expect)
            _ = ruled.columns
            return ruled
        except Exception as error:
            raise_unless_connection(error)
            raise ApplicationError(
                f"--expect of {stream.name!r} must be conditions over its columns, got "
                f"{'; '.join(map(str, stream.expect))}: {first_line(error)}",
                option="--expect",
            ) from error

    def _open(self, stream: StreamDeclaration, sampled: Sequence[Key]) -> _Opened:
        """Run the recipe; again without the weights that it compares, or with the groups that it repeats."""
        given, before = _given(stream, self.made), _groups(stream, self.weights)
        inputs = self.recipes.enter_context(recipe_over(sampled, before))
        if stream.name in self.weights.compared:
            given = _unweighed(given)
        try:
            frame = self._frame(stream, given)
            usage = self.usages(frame) if self.usages is not None else None
            if usage is not None and usage.compares and stream.name not in self.weights.compared:
                with suppress(ApplicationError):  # without the column fails what names it, and so means it
                    frame = self._frame(stream, _unweighed(given))
                    self.weights.compared.add(stream.name)
            if usage is not None and _repeats(stream, before, inputs, usage):
                self.weights.repeated.add(stream.name)
                inputs = self.recipes.enter_context(recipe_over(sampled, _groups(stream, self.weights)))
                frame = self._frame(stream, given)
        except (ApplicationError, UsageProblem) as error:
            raise ApplicationError(f"stream {stream.name!r}: {error}") from (error.__cause__ or error)
        return _Opened(frame, usage, inputs)

    def _frame(self, stream: StreamDeclaration, given: Mapping[str, DataFrame]) -> DataFrame:
        return spelled(self.recipes.enter_context(stream.recipe.opened(self.spark, given)))

    def _problem(self, stream: StreamDeclaration, opened: _Opened, sampled: Sequence[Key]) -> str | None:
        """Return why the weights of a stream's rows are unknown; None if they are known."""
        by_key, keyed = stream.name in self.weights.by_key, sum(key is not None for key in sampled)
        origins = [self.known[name] for name in stream.upstream]
        problem = weight_problem(opened.frame.columns, origins, keyed, by_key)
        joins = opened.usage is not None and opened.usage.joins
        if problem is None and (joins or stream.name in self.weights.unknown):
            return self.weights.unknown.get(stream.name, ONE_OF_A_PAIR)
        return problem

    def _begins_groups(self, stream: StreamDeclaration) -> bool:
        """Return whether a stream's rows are groups that other recipes read, and weigh 1 from here on."""
        groups = self.weights.groups.get(stream.name)
        is_result = self.spec.is_query and stream is self.spec.tail
        return not is_result and groups is not None and groups.begins

    def _note_key(
        self, stream: StreamDeclaration, frame: DataFrame, usage: Usage | None, sampled: Sequence[Key]
    ) -> None:
        """Note by which key the rows of a stream are kept, if by one."""
        by_key = stream.name in self.weights.by_key
        columns = frame.columns if usage is None or usage.kept is None else usage.kept
        whole = by_key or len(sampled) == 1 or (usage is not None and not usage.joined)
        keyed = any(key is not None for key in sampled)
        key = key_of(sampled, columns, by_key) if whole else () if keyed else None
        if self.usages is not None and key is not None:
            self.weights.keys[stream.name] = key
        self.keys[stream.name] = self.weights.keys.get(stream.name)


def _groups(stream: StreamDeclaration, weights: Weights) -> Groups | None:
    """Return the groups that a stream reads, if one of its inputs is of groups."""
    read = [weights.groups[name] for name in stream.upstream if name in weights.groups]
    if not read:
        return None
    shared = len(stream.upstream) > 1 or stream.name in weights.repeated or any(groups.shared for groups in read)
    return Groups(frozenset().union(*(groups.estimates for groups in read)), shared)


def _repeats(stream: StreamDeclaration, before: Groups | None, inputs: Inputs, usage: Usage) -> bool:
    """Return whether a recipe sums up estimates of groups as if it read each group once, but may not."""
    return before is not None and not before.shared and inputs.estimated and usage.overlaps


def _note_groups(
    stream: StreamDeclaration,
    frame: DataFrame,
    usage: Usage,
    inputs: Inputs,
    keys: Sequence[Key],
    weights: Weights,
) -> None:
    """Note a stream whose rows are groups: it estimates, sums weights up, or reads groups."""
    if not (inputs.estimated or usage.sums or inputs.groups):
        return
    shared = usage.overlaps or any(key is not None for key in keys)
    shared = shared or (inputs.groups is not None and inputs.groups.shared)
    begins = inputs.estimated and WEIGHT not in frame.columns and not usage.joined
    estimates = frozenset(each.name for each in frame.schema if each.dataType.simpleString() == ESTIMATE)
    weights.groups[stream.name] = Groups(estimates, shared, begins)


def _unweighed(given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the inputs without `_weight`; one that is given by several names stays one."""
    bare = {id(rows): rows.drop(WEIGHT) for rows in given.values()}
    return {name: bare[id(rows)] for name, rows in given.items()}


def _given(stream: StreamDeclaration, made: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return a stream's inputs by all the names that its recipe may use."""
    if stream.topic is not None:
        if stream.name not in made:
            raise ApplicationError(
                f"stream {stream.name!r}: no DataFrame for its topic {stream.topic.topic!r} is given",
                name=stream.topic.topic,
                rule="input",
            )
        return dict.fromkeys(stream.topic.names, made[stream.name])
    for name in stream.upstream:
        if name not in made:
            raise ApplicationError(f"stream {stream.name!r}: no DataFrame for its input {name!r} is given")
    return {name: made[name] for name in stream.upstream}
