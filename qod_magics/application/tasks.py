"""Turn streams into tasks, find how declared tasks differ from those that run, and which tasks may be fused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from qod_magics.application import graph
from qod_magics.application.application import Application
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.streams.options import RESUMING
from qod_magics.application.streams.sink import Sink
from qod_magics.application.streams.stream import DEFAULT_MAX_PARALLELISM, Mode, StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.lifecycle.deployment import Declared, Difference, compare

# --- Tasks ------------------------------------------------------------------------------------------------------------
# From streams to the tasks of the model: which streams run in one Spark query, as in operator chaining.


#: Between a head and one of its several topics.
_OF_SEVERAL = ":"


def head_of(name: str) -> str:
    """Return the stream that reads the topic of this name in `TaskSpec.topics`."""
    return name.partition(_OF_SEVERAL)[0]


@dataclass(frozen=True)
class TaskSpec:
    """One task of the model: streams that run as one Spark query per instance.

    They are a chain, or a chain whose first stream computes all its inputs itself, from their topics. Rows enter at the
    heads only and leave at the tail only, so a shedder at each head is enough: a task's desired accuracy is the
    largest of its consumers', and inside a task each stream has one reader, so the non-drop probability
    desired(t') / desired(t) is 1 on every inner edge.

    Two specs are equal when the same recipes read the same inputs under the same settings.
    """

    streams: tuple[StreamDeclaration, ...]  #: inputs before their readers; at least one
    is_query: bool  #: whether it ends the DAG

    @property
    def id(self) -> str:
        """Return the name of its last stream."""
        return self.tail.name

    @property
    def members(self) -> tuple[str, ...]:
        """Return names of its streams, inputs before their readers."""
        return tuple(stream.name for stream in self.streams)

    @property
    def heads(self) -> tuple[StreamDeclaration, ...]:
        """Return the streams that read its inputs: one, or several with a topic each."""
        return tuple(s for s in self.streams if not s.upstream or not set(s.upstream) <= set(self.members))

    @property
    def tail(self) -> StreamDeclaration:
        """Return the stream that its consumers read, or that its sink writes."""
        return self.streams[-1]

    @property
    def path(self) -> str:
        """Return its streams, for display: "a -> b", or "(a + b) -> c" where c computes both its inputs itself."""
        drawn: dict[str, str] = {}
        for stream in self.streams:
            inner = [drawn[name] for name in stream.upstream if name in drawn]
            before = inner[0] if len(inner) == 1 else f"({' + '.join(inner)})"
            drawn[stream.name] = f"{before} -> {stream.name}" if inner else stream.name
        return drawn[self.id]

    @property
    def upstream(self) -> tuple[str, ...]:
        """Return ids of the tasks that feed it: a stream that another task reads is its task's tail."""
        return tuple(name for head in self.heads for name in head.upstream)

    @property
    def topics(self) -> Mapping[str, TopicInput]:
        """Return the topics that feed it, each by the name of its head (`head_of`); empty for tasks fed by tasks, and
        for recipes with a source of their own."""
        return {
            f"{head.name}{_OF_SEVERAL}{part.topic}" if head.topic.is_several else head.name: part
            for head in self.heads
            if head.topic is not None
            for part in head.topic.parts
        }

    @property
    def pattern(self) -> str | None:
        """Return the pattern of its topics, which get more while it runs; None: it reads those that are named."""
        return next((h.topic.pattern for h in self.heads if h.topic is not None and h.topic.pattern is not None), None)

    @property
    def is_source(self) -> bool:
        """Return whether no other task feeds it."""
        return not self.upstream

    @property
    def sink(self) -> Sink | None:
        """Return where a query's rows go; None for all other tasks."""
        return self.tail.effective_sink if self.is_query else None

    @property
    def priority(self) -> int | None:
        """Return a query's priority, higher wins; None for all other tasks."""
        return self.tail.effective_priority if self.is_query else None

    @property
    def min_accuracy(self) -> float | None:
        """Return a query's minimum accuracy, a fraction of 1; None for all other tasks."""
        return self.tail.effective_min_accuracy if self.is_query else None

    @property
    def parallelism(self) -> int:
        """Return instances."""
        return self.tail.parallelism

    @property
    def stated_max_parallelism(self) -> int | None:
        """Return the largest maximum parallelism that its streams state; None if none does."""
        return max((s.max_parallelism for s in self.streams if s.max_parallelism is not None), default=None)

    @property
    def near(self) -> tuple[str, ...]:
        """Return the streams beside which its instances are to start."""
        return tuple(s.near for s in self.streams if s.near is not None)

    @property
    def max_parallelism(self) -> int:
        """Maximum number of instances when it is scaled; the partitions of its topics may allow fewer."""
        return max(self.stated_max_parallelism or DEFAULT_MAX_PARALLELISM, self.parallelism)

    @property
    def partitions(self) -> int:
        """Return how many partitions each stream that feeds it has at the start."""
        return max(self.parallelism, self.stated_max_parallelism or 1)

    @property
    def key(self) -> str | None:
        """Return the column by which its input rows are spread over its instances."""
        return self.heads[0].key

    @property
    def lends(self) -> bool:
        """Return whether instances may count rows of a key for the one that it belongs to."""
        return self.tail.lend

    @property
    def mode(self) -> Mode:
        """Return its mode, the same for all its streams."""
        return self.tail.mode

    @property
    def trigger_s(self) -> float | None:
        """Return seconds between batches, the same for all streams that state it; None if none does."""
        return next((stream.trigger_s for stream in self.streams if stream.trigger_s is not None), None)

    @property
    def refresh_s(self) -> float | None:
        """Return the seconds after which tables beside its streams are read again, the smallest that one states; None:
        they are read when it starts."""
        return min((stream.refresh_s for stream in self.streams if stream.refresh_s is not None), default=None)

    @property
    def aggregates(self) -> bool:
        """Return whether one of its SQL recipes aggregates; for Python recipes only the plan tells."""
        return any(isinstance(s.recipe, SqlRecipe) and s.recipe.aggregates for s in self.streams)

    @property
    def max_latency_s(self) -> float | None:
        """Return the smallest maximum latency that its streams state, seconds; None if none does."""
        return min((s.max_latency_s for s in self.streams if s.max_latency_s is not None), default=None)

    @property
    def is_hurried(self) -> bool:
        """Return whether its maximum latency is below what micro-batches take."""
        return any(stream.is_hurried for stream in self.streams)

    @property
    def utility(self) -> float | None:
        """Return the utility of meeting a query's maximum latency, as stated; None for all other tasks."""
        return self.tail.utility if self.is_query else None

    @property
    def min_juice(self) -> float | None:
        """Return the share of the rows that arrive which a query must process, as stated; None for all other tasks."""
        return self.tail.min_juice if self.is_query else None


#: Pairs of a stream and one of its readers.
Edges = Collection[tuple[str, str]]


def tasks(
    application: Application,
    apart: Edges = (),
    inlinable: Mapping[str, int] | None = None,
) -> tuple[TaskSpec, ...]:
    """Return the live streams as tasks, inputs before their readers. The other streams wait (`Application.waiting`).

    A stream computes all its inputs itself when all are inlinable and none is `apart` from it; an input with another
    reader runs within that one too, or as a task of its own. Otherwise a stream joins the chain of its only input when
    it is that stream's only live reader and has the same parallelism. In both cases modes and triggers agree, no stream
    states --no-fuse, and no --key repartitions rows over several instances.

    Args:
        application: the streams.
        apart: pairs of a stream and a reader that are not fused, because their edge is in use: its backlog would be
            lost.
        inlinable: streams whose rows every reader may compute itself from their topics, with the number of instances
            (or a divisor of it) over which these topics' partitions can be split evenly.

    """
    inlined = {
        name: made
        for name in application.live
        if (made := _inlined(application, application[name], apart, inlinable or {}))
    }
    upstreams = _without_inlined(application, inlined)
    readers = graph.consumers(upstreams)
    chains: dict[str, tuple[StreamDeclaration, ...]] = {}  #: by the name of the last stream
    for name, inputs in upstreams.items():
        stream = application[name]
        chain = chains.get(inputs[0]) if len(inputs) == 1 else None
        if chain is not None and len(readers[chain[-1].name]) == 1 and _can_join(chain, stream, apart):
            del chains[chain[-1].name]
            chains[name] = (*chain, stream)
        else:
            chains[name] = (*inlined.get(name, ()), stream)
    return tuple(TaskSpec(chain, is_query=not readers[name]) for name, chain in chains.items())


def sources_of(application: Application, name: str) -> tuple[StreamDeclaration, ...]:
    """Return a stream and everything upstream of it, inputs first, if only topics feed them and each is reached by one
    path; else nothing."""
    found: dict[str, StreamDeclaration] = {}

    def enter(name: str) -> bool:
        stream = application[name]
        if name in found or not (stream.topic or stream.upstream) or not all(map(enter, stream.upstream)):
            return False
        found[name] = stream
        return True

    return tuple(found.values()) if enter(name) else ()


def _without_inlined(
    application: Application, inlined: Mapping[str, tuple[StreamDeclaration, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return the live streams, each with its inputs, without streams that only inlining readers need."""
    live = application.live
    read = {upstream for name in live for upstream in application.upstreams[name]}
    needed = {name for name in live if name not in read}
    for name in reversed(live):
        if name in needed and name not in inlined:
            needed.update(application.upstreams[name])
    return {name: () if name in inlined else application.upstreams[name] for name in live if name in needed}


def _inlined(
    application: Application,
    reader: StreamDeclaration,
    apart: Edges,
    inlinable: Mapping[str, int],
) -> tuple[StreamDeclaration, ...]:
    """Return the streams that a reader runs itself, all upstream of it; nothing if other tasks feed it."""
    splits = [inlinable.get(name, 0) for name in reader.upstream]
    if not all(splits) or any(count % reader.parallelism for count in splits):
        return ()
    streams = sources_of(application, reader.name)[:-1]
    topics = [name for stream in streams if stream.topic is not None for name in stream.topic.topics]
    # `source` can be the name of one view only
    views = [stream for stream in streams if stream.topic is not None and isinstance(stream.recipe, SqlRecipe)]
    grows = any(stream.topic is not None and stream.topic.pattern is not None for stream in streams)
    if not streams or grows or len(set(topics)) < len(topics) or (len(topics) > 1 and len(views) > 1):
        return ()
    everything = (*streams, reader)
    edges = {(name, stream.name) for stream in everything for name in stream.upstream}
    fits = _can_fuse(everything) and edges.isdisjoint(apart)
    return streams if fits and all(stream.parallelism in (1, reader.parallelism) for stream in streams) else ()


def _can_join(chain: tuple[StreamDeclaration, ...], stream: StreamDeclaration, apart: Edges) -> bool:
    last = chain[-1]
    return (
        last.parallelism == stream.parallelism and _can_fuse((*chain, stream)) and (last.name, stream.name) not in apart
    )


def _can_fuse(streams: tuple[StreamDeclaration, ...]) -> bool:
    """Return whether the settings of these streams, the last of which reads the others, allow one query."""
    reader = streams[-1]
    triggers = {stream.trigger_s for stream in streams if stream.trigger_s is not None}
    return (
        (reader.key is None or reader.parallelism == 1)
        and all(stream.fuse and stream.mode == reader.mode for stream in streams)
        and len(triggers) <= 1
    )


# --- Differences between two applications -----------------------------------------------------------------------------


def difference(old: Iterable[TaskSpec], new: Iterable[TaskSpec]) -> Difference:
    """Return the changes from the old tasks to the new ones."""
    return compare(map(declared, old), map(declared, new))


def declared(spec: TaskSpec) -> Declared:
    """Return what of a task's declaration decides whether it runs on, restarts or is replaced."""
    return Declared(
        spec.id,
        spec.upstream,
        frozenset(head.name for head in spec.heads),
        work_of(spec),
        (spec.parallelism, spec.partitions, spec.key, spec.lends),
        (spec.trigger_s, spec.refresh_s, spec.is_hurried and spec.mode == "auto", spec.partitions),
    )


def work_of(spec: TaskSpec) -> object:
    """Return everything that its rows depend on: equal for tasks that may share a checkpoint."""
    spread = spec.partitions if spec.key is not None and spec.parallelism > 1 else None  # which key goes where
    return spec.sink, spread, tuple(_unrestricted(stream) for stream in spec.streams)


def settings_of(spec: TaskSpec) -> object:
    """Return what a checkpoint depends on beside the recipes."""
    topics = [
        (*_place(head, topic), topic.ddl, topic.shed_by, topic.time_unit, *_stated(topic))
        for head, topic in spec.topics.items()
    ]
    topics = list(dict.fromkeys(topics))  # those of a pattern are one: more may be created
    lends = ("lends",) if spec.lends else ()
    return topics, spec.upstream, spec.sink, spec.key, spec.mode, spec.is_hurried, *lends


def _place(head: str, topic: TopicInput) -> tuple[str, str]:
    return (head, topic.topic) if topic.pattern is None else (head_of(head), f"pattern {topic.pattern}")


def _stated(topic: TopicInput) -> tuple[object, ...]:
    """Return what changes the columns, where it is stated: other checkpoints stay what they were."""
    return tuple(each for each in (topic.format, topic.record_columns) if each)


def _unrestricted(stream: StreamDeclaration) -> StreamDeclaration:
    # the sink is compared as the task's, where "none stated" and "memory" are the same; topics of a pattern get more
    topic = stream.topic
    inputs = stream.inputs if topic is None or topic.pattern is None else topic.with_topics(())
    return replace(stream, **RESUMING, sink=None, inputs=inputs)


# --- Tasks that can be fused or unfused -------------------------------------------------------------------------------

#: A stream between two streams, (from, to): its name is "from>to".
Edge = tuple[str, str]


def why_not_fused(first: TaskSpec, second: TaskSpec, specs: Iterable[TaskSpec], instances: int = 1) -> str:
    """Return why a task and one that reads it can't be one query, as one clause; "" if their declarations allow it.

    Args:
        first: the task that sends.
        second: the task that reads it.
        specs: all tasks.
        instances: how many the second has now.

    """
    readers = [spec.id for spec in specs if first.id in spec.upstream]
    streams = (*first.streams, *second.streams)
    alone = [stream.name for stream in streams if not stream.fuse]
    modes = sorted({stream.mode for stream in streams})
    triggers = sorted({stream.trigger_s for stream in streams if stream.trigger_s is not None})
    if first.id not in second.upstream:
        return f"{second.id} does not read {first.id}"
    if len(readers) > 1:
        return f"{', '.join(readers)} read {first.id}: each would need its rows"
    if len(second.upstream) + len(second.topics) > 1:
        return f"{second.id} has other inputs beside {first.id}"
    if alone:
        return f"{', '.join(alone)} {'was' if len(alone) == 1 else 'were'} declared with --no-fuse"
    if len(modes) > 1:
        return f"their modes differ: {', '.join(modes)}"
    if len(triggers) > 1:
        return f"their triggers differ: {', '.join(f'{seconds:g} s' for seconds in triggers)}"
    if refusal := _one_checkpoint(first) or _one_checkpoint(second):
        return refusal
    if first.parallelism != second.parallelism:
        return f"{first.id} has parallelism {first.parallelism}, {second.id} {second.parallelism}"
    if second.key is not None and second.parallelism > 1:
        return f"--key {second.key} spreads the rows of {first.id} over the instances of {second.id}"
    if second.key is not None and instances > 1:
        return (
            f"--key {second.key} spreads the rows of {first.id} over the {instances} instances of {second.id}: scale "
            "both to 1 before"
        )
    return ""


def _one_checkpoint(spec: TaskSpec) -> str:
    """Return why a task can't get another checkpoint; "" if it can."""
    if spec.sink is None or not spec.sink.file_log:
        return ""
    return f"{spec.id} would get another checkpoint, and a directory as that of {spec.sink} is of one"


def why_not_unfused(
    spec: TaskSpec, edge: Edge, specs: Iterable[TaskSpec], instances: int = 1, keeps_state: bool = False
) -> str:
    """Return why a running task can't be unfused at one of its `fused_edges`, as one clause; "" if it can.

    Args:
        spec: the task.
        edge: the stream within it.
        specs: all tasks.
        instances: how many it has now.
        keeps_state: whether its query does.

    """
    if refusal := _one_checkpoint(spec):
        return refusal
    others = [each for each in specs if each.id != spec.id]
    within = [each.id for each in others if edge in fused_edges(each)]
    if any(head.topic is None and not head.upstream for head in spec.heads):
        return f"{spec.id} reads a source of its own, which has no offsets to go on from"
    if edge[0] in (each.id for each in others):
        return f"{edge[0]} runs as a task of its own, too, which {spec.id} would have to read"
    if within:
        return f"{edge[0]} runs within {', '.join(within)}, too, which compute it by themselves"
    for part in unfused(spec, edge):
        if part.parallelism != instances:
            return f"it has {instances} instance{'s' * (instances > 1)}, {part.id} was declared with {part.parallelism}"
    _, second = unfused(spec, edge)
    if keeps_state and second.partitions > 1 and second.key is None:
        return (
            f"it keeps state, and a topic of {second.partitions} partitions does not keep the order of a group's rows"
        )
    return ""


def fused(first: TaskSpec, second: TaskSpec) -> TaskSpec:
    """Return both as one task, which has the id of the second."""
    return replace(second, streams=(*first.streams, *second.streams))


def fused_edges(spec: TaskSpec) -> tuple[Edge, ...]:
    """Return the streams within a task at which it can be unfused, inputs first: no stream behind one of them reads
    another input."""
    found = []
    for at, stream in enumerate(spec.streams):
        if len(stream.upstream) == 1 and stream.upstream[0] in spec.members:
            tail = spec.streams[at - 1]
            before = spec.members[:at]
            reads_all = all(head.name in before for head in spec.heads)
            if tail.name == stream.upstream[0] and reads_all and _ancestry(tail, spec.streams[: at - 1]) == at:
                found.append((tail.name, stream.name))
    return tuple(found)


def unfused(spec: TaskSpec, edge: Edge) -> tuple[TaskSpec, TaskSpec]:
    """Return a task as two, the first of which writes this stream, one of its `fused_edges`. The second keeps its
    id."""
    at = spec.members.index(edge[1])
    return TaskSpec(spec.streams[:at], is_query=False), replace(spec, streams=spec.streams[at:])


def _ancestry(tail: StreamDeclaration, before: tuple[StreamDeclaration, ...]) -> int:
    """Return how many of the streams are `tail`, or upstream of it."""
    needed = {tail.name, *tail.upstream}
    for stream in reversed(before):
        if stream.name in needed:
            needed.update(stream.upstream)
    return 1 + sum(stream.name in needed for stream in before)
