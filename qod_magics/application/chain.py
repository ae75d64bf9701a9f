"""The DataFrame of a task: its streams' recipes, composed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from qod_magics.application.quiet import analysis_errors_unprinted
from qod_magics.application.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weight import one_weight, twice
from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def opened_chain(
    spec: TaskSpec,
    spark: SparkSession,
    inputs: Mapping[str, DataFrame],
    weigh: Callable[[DataFrame], DataFrame] | None = None,
) -> Iterator[DataFrame]:
    """The DataFrame of the chain, while the context is open; start the query inside it.

    `inputs` holds the upstream streams by name, or the topics by the names of the heads that read them; `weigh` adds
    the `_weight` between two recipes where the first dropped it. The views of SQL recipes exist until the context
    closes; meanwhile no other thread builds SQL on this session. Raises ApplicationError, one line that names the
    stream, when a recipe fails; connection errors pass through.
    """
    with ExitStack() as open_recipes, analysis_errors_unprinted():
        made = dict(inputs)
        for stream in spec.streams:
            try:
                frame = one_weight(open_recipes.enter_context(stream.recipe.opened(spark, _given(stream, made))))
            except ApplicationError as error:
                raise ApplicationError(f"stream {stream.name!r}: {error}") from (error.__cause__ or error)
            if weigh is not None and stream is not spec.tail:
                frame = weigh(frame)  # every input of a recipe has a weight, as without fusion
            made[stream.name] = frame
        same = twice(frame)
        if same is not None:
            raise ApplicationError(f"stream {spec.id!r} gives two columns {same!r}: rename one, or leave it out")
        yield frame


def build_chain(spec: TaskSpec, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The DataFrame of the chain alone: enough on a classic session, or when no recipe of the chain is SQL."""
    with opened_chain(spec, spark, inputs) as frame:
        return frame


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
