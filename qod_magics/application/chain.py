"""The DataFrame of a task: its streams' recipes, one over the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from qod_magics.application.names import SOURCE
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

    `inputs` holds the upstream streams by name, or the topic as `source`; `weigh` gives rows between two recipes a
    `_weight` where the first let go of it. Views that SQL recipes need stand until the
    context closes; meanwhile no other thread builds SQL on this session. Raises ApplicationError, one line that names
    the stream, when a recipe fails; errors of the connection pass as they are.
    """
    with ExitStack() as open_recipes, analysis_errors_unprinted():
        given = _named(spec.head, inputs)
        for stream in spec.streams:
            try:
                frame = one_weight(open_recipes.enter_context(stream.recipe.opened(spark, given)))
            except ApplicationError as error:
                raise ApplicationError(f"stream {stream.name!r}: {error}") from (error.__cause__ or error)
            if weigh is not None and stream is not spec.tail:
                frame = weigh(frame)  # every input of a recipe has a weight, also when they are not fused
            given = {stream.name: frame}
        same = twice(frame)
        if same is not None:
            raise ApplicationError(f"stream {spec.id!r} gives two columns {same!r}: rename one, or leave it out")
        yield frame


def build_chain(spec: TaskSpec, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The DataFrame of the chain alone: enough on a classic session, or when no recipe of the chain is SQL."""
    with opened_chain(spec, spark, inputs) as frame:
        return frame


def _named(head: StreamDeclaration, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The inputs of the head by all the names that its recipe may use."""
    if head.topic is not None:
        _require(head, (SOURCE,), inputs)
        return dict.fromkeys(head.topic.names, inputs[SOURCE])
    _require(head, head.upstream, inputs)
    return {name: inputs[name] for name in head.upstream}


def _require(head: StreamDeclaration, names: tuple[str, ...], inputs: Mapping[str, DataFrame]) -> None:
    for name in names:
        if name not in inputs:
            raise ApplicationError(f"stream {head.name!r}: no DataFrame for its input {name!r} is given")
