"""The operators of a job and who reads from whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter

Edge = tuple[str, str]  #: (from, to)


@dataclass(frozen=True)
class Graph:
    """A DAG of operators (Stela, section 2.2). The declared order settles ties."""

    ops: tuple[str, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Those that read from each operator; () marks a sink."""
        return _neighbours(self.ops, self.edges)

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """Those that each operator reads from; () marks a source."""
        return _neighbours(self.ops, [(target, source) for source, target in self.edges])

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The operators without parents, in declared order."""
        return tuple(op for op in self.ops if not self.parents[op])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """The operators without children, in declared order."""
        return tuple(op for op in self.ops if not self.children[op])

    @cached_property
    def parents_first(self) -> tuple[str, ...]:
        """The operators in topological order."""
        return tuple(TopologicalSorter(self.parents).static_order())


def _neighbours(ops: Sequence[str], edges: Iterable[Edge]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {op: [] for op in ops}
    for source, target in edges:
        found[source].append(target)
    return {op: tuple(names) for op, names in found.items()}
