"""The DataFrame of a task: its streams' recipes, composed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from qod_magics.application.recipes.building import active, analysis_errors_unprinted
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks.task import TaskSpec
from qod_magics.application.tasks.weight import (
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
from qod_magics.estimate.sampled import ESTIMATE, Groups, Inputs, Key, recipe_over

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
    """The DataFrame of the chain, while the context is open; start the query inside it.

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
    weights = Weights() if weights is None else weights
    known = {**{name: frozenset({name}) for name in spec.upstream}, **(origins or {})}
    keys: dict[str, Key] = {name: weights.keys.get(name) for name in spec.upstream}
    with ExitStack() as open_recipes, analysis_errors_unprinted(), active(inputs):
        made = dict(inputs)
        for stream in spec.streams:
            given = _given(stream, made)
            sampled = [keys[name] for name in stream.upstream]
            if stream.topic is not None:
                sampled = [stream.topic.shed_by or None]
            before = _groups(stream, weights)
            inputs_read = open_recipes.enter_context(recipe_over(sampled, before))
            if stream.name in weights.compared:
                given = _unweighed(given)
            try:
                frame = spelled(open_recipes.enter_context(stream.recipe.opened(spark, given)))
                usage = usages(frame) if usages is not None else None
                if usage is not None and usage.compares and stream.name not in weights.compared:
                    with suppress(ApplicationError):  # without the column fails what names it, and so means it
                        frame = spelled(open_recipes.enter_context(stream.recipe.opened(spark, _unweighed(given))))
                        weights.compared.add(stream.name)
                if usage is not None and _repeats(stream, before, inputs_read, usage):
                    weights.repeated.add(stream.name)
                    inputs_read = open_recipes.enter_context(recipe_over(sampled, _groups(stream, weights)))
                    frame = spelled(open_recipes.enter_context(stream.recipe.opened(spark, given)))
            except (ApplicationError, UsageProblem) as error:
                raise ApplicationError(f"stream {stream.name!r}: {error}") from (error.__cause__ or error)
            if usage is not None and joins_by_key(sampled, usage.joined):
                weights.by_key.add(stream.name)
            by_key = stream.name in weights.by_key
            keyed = sum(key is not None for key in sampled)
            problem = weight_problem(frame.columns, [known[name] for name in stream.upstream], keyed, by_key)
            if problem is None and ((usage is not None and usage.joins) or stream.name in weights.unknown):
                problem = weights.unknown.get(stream.name, ONE_OF_A_PAIR)
            if usage is not None:
                _note_groups(stream, frame, usage, inputs_read, sampled, weights)
            ends = spec.is_query and stream is spec.tail
            if not ends and stream.name in weights.groups and weights.groups[stream.name].begins:
                frame, problem = newly_weighed(frame), None
            if problem is not None:
                weights.unknown[stream.name] = problem
            elif usage is not None and usage.outer and WEIGHT in frame.columns:
                weights.partly.add(stream.name)
            columns = frame.columns if usage is None or usage.kept is None else usage.kept
            whole = by_key or len(sampled) == 1 or (usage is not None and not usage.joined)
            key = key_of(sampled, columns, by_key) if whole else () if keyed else None
            if usages is not None and key is not None:
                weights.keys[stream.name] = key
            keys[stream.name] = weights.keys.get(stream.name)
            frame = one_weight(frame, problem is None, by_key)
            # every input of a recipe has a weight, as without fusion
            made[stream.name] = frame if stream is spec.tail else weighed(frame)
            known[stream.name] = origins_of(stream, known)
        if spec.is_query and WEIGHT in frame.columns and not spec.tail.recipe.weighs:
            weights.hidden.add(spec.id)
            frame = frame.drop(WEIGHT)
        same = twice(frame)
        if same is not None:
            raise ApplicationError(f"stream {spec.id!r} gives two columns {same!r}: rename one, or leave it out")
        yield frame


def build_chain(spec: TaskSpec, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The DataFrame of the chain alone: enough on a classic session, or when no recipe of the chain is SQL."""
    with opened_chain(spec, spark, inputs) as frame:
        return frame


def _groups(stream: StreamDeclaration, weights: Weights) -> Groups | None:
    """The groups that a stream reads, if one of its inputs is of groups."""
    read = [weights.groups[name] for name in stream.upstream if name in weights.groups]
    if not read:
        return None
    shared = len(stream.upstream) > 1 or stream.name in weights.repeated or any(groups.shared for groups in read)
    return Groups(frozenset().union(*(groups.estimates for groups in read)), shared)


def _repeats(stream: StreamDeclaration, before: Groups | None, inputs: Inputs, usage: Usage) -> bool:
    """Whether a recipe sums up estimates of groups as if it read each group once, but may not."""
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
    """The inputs without `_weight`; one that is given by several names stays one."""
    bare = {id(rows): rows.drop(WEIGHT) for rows in given.values()}
    return {name: bare[id(rows)] for name, rows in given.items()}


def _given(stream: StreamDeclaration, made: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """A stream's inputs by all the names that its recipe may use."""
    if stream.topic is not None:
        if stream.name not in made:
            raise ApplicationError(
                f"stream {stream.name!r}: no DataFrame for its topic {stream.topic.topic!r} is given"
            )
        return dict.fromkeys(stream.topic.names, made[stream.name])
    for name in stream.upstream:
        if name not in made:
            raise ApplicationError(f"stream {stream.name!r}: no DataFrame for its input {name!r} is given")
    return {name: made[name] for name in stream.upstream}
