"""From streams to the tasks of the model: linear chains are fused, as an engine chains operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from qod_magics.application import graph
from qod_magics.application.application import Application
from qod_magics.application.sink import Sink
from qod_magics.application.stream import Mode, StreamDeclaration, TopicInput


@dataclass(frozen=True)
class TaskSpec:
    """One task of the model: a chain of streams that runs as one Spark query for each instance.

    Rows come in at the head only and go out at the tail only, so one shedder, at the head, is enough: a task's desired
    accuracy is the largest of its consumers', and inside a chain each stream has one consumer, so the non-drop
    probability desired(t') / desired(t) is 1 on every inner edge.

    Two specs are equal when the same recipes read the same inputs under the same settings.
    """

    streams: tuple[StreamDeclaration, ...]  #: of the chain, in the order of the rows; at least one
    is_query: bool  #: whether it ends the DAG

    @property
    def id(self) -> str:
        """The name of its last stream."""
        return self.tail.name

    @property
    def members(self) -> tuple[str, ...]:
        """Names of its streams, in the order of the rows."""
        return tuple(stream.name for stream in self.streams)

    @property
    def head(self) -> StreamDeclaration:
        """The stream that reads its inputs, every one of them."""
        return self.streams[0]

    @property
    def tail(self) -> StreamDeclaration:
        """The stream that its consumers read, or that its sink writes."""
        return self.streams[-1]

    @property
    def upstream(self) -> tuple[str, ...]:
        """Ids of the tasks that feed it: a stream that another task reads is the tail of its own."""
        return self.head.upstream

    @property
    def topic(self) -> TopicInput | None:
        """The topic that feeds it; None for tasks fed by tasks, and for recipes with a source of their own."""
        return self.head.topic

    @property
    def is_source(self) -> bool:
        """Whether the outside world feeds it."""
        return not self.upstream

    @property
    def sink(self) -> Sink | None:
        """Where a query's rows go; None for all other tasks."""
        return self.tail.effective_sink if self.is_query else None

    @property
    def priority(self) -> int | None:
        """A query's priority, higher wins; None for all other tasks."""
        return self.tail.effective_priority if self.is_query else None

    @property
    def min_accuracy(self) -> float | None:
        """A query's minimum accuracy, a fraction of 1; None for all other tasks."""
        return self.tail.effective_min_accuracy if self.is_query else None

    @property
    def parallelism(self) -> int:
        """Instances; the same for all its streams."""
        return self.head.parallelism

    @property
    def key(self) -> str | None:
        """The column by which its input rows are spread over its instances."""
        return self.head.key

    @property
    def mode(self) -> Mode:
        """The same for all its streams."""
        return self.head.mode

    @property
    def trigger_s(self) -> float | None:
        """Seconds between batches, as the streams that state it agree; None if none does."""
        return next((stream.trigger_s for stream in self.streams if stream.trigger_s is not None), None)


def tasks(application: Application, apart: Collection[str] = ()) -> tuple[TaskSpec, ...]:
    """The live streams as tasks, inputs before their readers; the others wait (`Application.waiting`).

    `apart`: streams that are not fused with their readers, because their rows are on their way to these already:
    taking the edge between them away would lose what waits on it.

    A stream joins the chain of its only input when it is that stream's only live reader, both have the same
    parallelism and mode and no triggers that differ, neither says --no-fuse, and no --key asks for its rows to be
    spread anew over several instances.
    """
    live = application.live
    readers = graph.consumers({name: application.upstreams[name] for name in live})
    chains: dict[str, tuple[StreamDeclaration, ...]] = {}  #: by the name of the last stream
    for name in live:
        stream = application[name]
        chain = chains.get(stream.upstream[0]) if len(stream.upstream) == 1 else None
        if chain is not None and len(readers[chain[-1].name]) == 1 and _fuses(chain, stream, apart):
            del chains[chain[-1].name]
            chains[name] = (*chain, stream)
        else:
            chains[name] = (stream,)
    return tuple(TaskSpec(chain, is_query=not readers[name]) for name, chain in chains.items())


def task_of(specs: tuple[TaskSpec, ...]) -> Mapping[str, str]:
    """The id of the task in which each live stream runs."""
    return MappingProxyType({member: spec.id for spec in specs for member in spec.members})


def _fuses(chain: tuple[StreamDeclaration, ...], stream: StreamDeclaration, apart: Collection[str]) -> bool:
    last = chain[-1]
    triggers = {s.trigger_s for s in (*chain, stream) if s.trigger_s is not None}
    return (
        last.parallelism == stream.parallelism
        and (stream.key is None or stream.parallelism == 1)
        and last.fuse
        and stream.fuse
        and last.mode == stream.mode
        and len(triggers) <= 1
        and last.name not in apart
    )
