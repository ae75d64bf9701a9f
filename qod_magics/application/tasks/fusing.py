"""Which neighbouring tasks can be one Spark query, and which tasks can be parted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks.task import TaskSpec

#: A stream between two streams, (from, to): its name is "from>to".
Edge = tuple[str, str]


def why_not_fused(first: TaskSpec, second: TaskSpec, specs: Iterable[TaskSpec]) -> str:
    """Why a task and one that reads it can't be one query, as one clause; "" if their declarations allow it. `specs`
    are all tasks."""
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
    if first.parallelism != second.parallelism:
        return f"{first.id} has parallelism {first.parallelism}, {second.id} {second.parallelism}"
    if second.key is not None and second.parallelism > 1:
        return f"--key {second.key} spreads the rows of {first.id} over the instances of {second.id}"
    return ""


def why_not_parted(
    spec: TaskSpec, edge: Edge, specs: Iterable[TaskSpec], instances: int = 1, keeps_state: bool = False
) -> str:
    """Why a task that runs can't be parted at one of its `fused_edges`, as one clause; "" if it can.

    Args:
        spec: the task.
        edge: the stream within it.
        specs: all tasks.
        instances: how many it has now.
        keeps_state: whether its query does.

    """
    others = [each for each in specs if each.id != spec.id]
    within = [each.id for each in others if edge in fused_edges(each)]
    if any(head.topic is None and not head.upstream for head in spec.heads):
        return f"{spec.id} reads a source of its own, which has no offsets to go on from"
    if edge[0] in (each.id for each in others):
        return f"{edge[0]} runs as a task of its own, too, which {spec.id} would have to read"
    if within:
        return f"{edge[0]} runs within {', '.join(within)}, too, which compute it by themselves"
    for part in parted(spec, edge):
        if part.parallelism != instances:
            return f"it has {instances} instance{'s' * (instances > 1)}, {part.id} was declared with {part.parallelism}"
    _, second = parted(spec, edge)
    if keeps_state and second.partitions > 1 and second.key is None:
        return (
            f"it keeps state, and a topic of {second.partitions} partitions does not keep the order of a group's rows"
        )
    return ""


def fused(first: TaskSpec, second: TaskSpec) -> TaskSpec:
    """Both as one task, which has the id of the second."""
    return replace(second, streams=(*first.streams, *second.streams))


def fused_edges(spec: TaskSpec) -> tuple[Edge, ...]:
    """The streams within a task at which it can be parted, inputs first: those behind which nothing else is read."""
    found = []
    for at, stream in enumerate(spec.streams):
        if len(stream.upstream) == 1 and stream.upstream[0] in spec.members:
            tail = spec.streams[at - 1]
            before = spec.members[:at]
            reads_all = all(head.name in before for head in spec.heads)
            if tail.name == stream.upstream[0] and reads_all and _ancestry(tail, spec.streams[: at - 1]) == at:
                found.append((tail.name, stream.name))
    return tuple(found)


def parted(spec: TaskSpec, edge: Edge) -> tuple[TaskSpec, TaskSpec]:
    """A task as two, the first of which writes this stream, one of its `fused_edges`. The second keeps its id."""
    at = spec.members.index(edge[1])
    return TaskSpec(spec.streams[:at], is_query=False), replace(spec, streams=spec.streams[at:])


def _ancestry(tail: StreamDeclaration, before: tuple[StreamDeclaration, ...]) -> int:
    """How many of the streams are `tail`, or upstream of it."""
    needed = {tail.name, *tail.upstream}
    for stream in reversed(before):
        if stream.name in needed:
            needed.update(stream.upstream)
    return 1 + sum(stream.name in needed for stream in before)
