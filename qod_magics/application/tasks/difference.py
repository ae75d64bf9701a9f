"""What a change of the application means for the running tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from qod_magics.application import graph
from qod_magics.application.streams.options import RESUMING
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks.task import TaskSpec


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids of tasks, each in one group only; all but `stop`, and what `restarting` adds, in the order of the new tasks.

    `restart` and `rebuild` may resume from their checkpoints, `rebuild` only if its input schema is unchanged.
    """

    unchanged: tuple[str, ...]  #: keeps running; its restrictions may have changed
    start: tuple[str, ...]  #: new
    stop: tuple[str, ...]  #: gone
    restart: tuple[str, ...]  #: same recipe and inputs; other outputs, trigger, maximum parallelism, or hurried
    rebuild: tuple[str, ...]  #: itself unchanged, but a stream upstream was replaced: its input schema may differ
    replace: tuple[str, ...]  #: another recipe, other inputs, members or settings: starts afresh

    @property
    def is_empty(self) -> bool:
        """Whether every task keeps running unchanged."""
        return not (self.start or self.stop or self.restart or self.rebuild or self.replace)

    @property
    def only_restarts(self) -> bool:
        """Whether every task keeps running, some of them after a restart."""
        return not (self.start or self.stop or self.rebuild or self.replace)

    def restarting(self, tasks: Collection[str]) -> Difference:
        """The same, with those of these tasks restarted that would keep running unchanged."""
        also = tuple(task for task in self.unchanged if task in tasks)
        unchanged = tuple(task for task in self.unchanged if task not in tasks)
        return replace(self, unchanged=unchanged, restart=(*self.restart, *also))


def difference(old: Iterable[TaskSpec], new: Iterable[TaskSpec]) -> Difference:
    """The changes from the old tasks to the new ones. Pure; neither list is modified."""
    before = {spec.id: spec for spec in old}
    after = {spec.id: spec for spec in new}
    fresh = {id_ for id_, spec in after.items() if id_ not in before or _work(spec) != _work(before[id_])}
    old_edges, new_edges = _edges(before), _edges(after)
    upstreams = {id_: spec.upstream for id_, spec in after.items()}
    groups: dict[str, list[str]] = {name: [] for name in ("unchanged", "start", "restart", "rebuild", "replace")}
    for id_, spec in after.items():
        if id_ not in before:
            group = "start"
        elif id_ in fresh:
            group = "replace"
        elif graph.ancestors(upstreams, (id_,)) & fresh:
            group = "rebuild"
        elif old_edges[id_] != new_edges[id_] or _timing(before[id_]) != _timing(spec):
            group = "restart"
        else:
            group = "unchanged"
        groups[group].append(id_)
    stop = tuple(id_ for id_ in before if id_ not in after)
    return Difference(stop=stop, **{name: tuple(ids) for name, ids in groups.items()})


def _timing(spec: TaskSpec) -> object:
    """Its trigger, whether its maximum latency may need real-time mode, and the partitions of its input streams."""
    return spec.trigger_s, spec.is_hurried and spec.mode == "auto", spec.partitions


def _work(spec: TaskSpec) -> object:
    """Everything that its rows depend on: equal for tasks that may share a checkpoint."""
    spread = spec.partitions if spec.key is not None and spec.parallelism > 1 else None  # which key goes where
    return spec.sink, spread, tuple(_unrestricted(stream) for stream in spec.streams)


def _unrestricted(stream: StreamDeclaration) -> StreamDeclaration:
    # the sink is compared as the task's, where "none stated" and "memory" are the same
    return replace(stream, **RESUMING, sink=None)


def _edges(specs: Mapping[str, TaskSpec]) -> dict[str, frozenset[tuple[str, int, int, str | None]]]:
    """For each task the edges that it writes: consumer, its parallelism, the edge's partitions and key."""
    edges: dict[str, set[tuple[str, int, int, str | None]]] = {id_: set() for id_ in specs}
    for spec in specs.values():
        for upstream in spec.upstream:
            edges[upstream].add((spec.id, spec.parallelism, spec.partitions, spec.key))
    return {id_: frozenset(written) for id_, written in edges.items()}
