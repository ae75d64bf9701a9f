"""Which node holds which segment: the protocol between a policy that replicates segments and an engine of queries.

A segment is a time slice of stored data, and a node keeps copies of segments in memory. Sans I/O: once a round the
engine reports what it measured, and the policy answers with a routing table, loads and drops. Times are whole
nanoseconds and sizes whole bytes, so that books are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

#: (node, segment)
Copy: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Use:
    """How much one segment was used in a round. A pair is one segment of one query."""

    accesses: int = 0  #: pairs asked
    busy: int = 0  #: time that nodes spent on pairs, ns
    concurrent: int = 0  #: the most pairs that waited or ran at one time


UNUSED = Use()


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster at the end of a round."""

    segments: tuple[str, ...]  #: that queries may ask for, in declared order
    nodes: tuple[str, ...]  #: in declared order
    #: by node: segments in its memory or on the way there, without those that are about to be dropped
    held: Mapping[str, frozenset[str]]
    use: Mapping[str, Use] = field(default_factory=dict)  #: by segment; absent: unused
    size: Mapping[str, int] = field(default_factory=dict)  #: by segment, bytes; empty: unknown
    weight: Mapping[str, int] = field(default_factory=dict)  #: by node: share of the work (cores); empty: equal nodes
    memory: Mapping[str, int] = field(default_factory=dict)  #: by node, bytes; empty: unlimited


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be done after a round: all loads of a segment are carried out before its drops."""

    routing: Mapping[str, Mapping[str, int]]  #: by segment: the nodes that share its pairs, and in what proportion
    loads: tuple[Copy, ...] = ()
    drops: tuple[Copy, ...] = ()


class ReplicationPolicy(Protocol):
    """Chooses number and place of the copies. Pure: it has neither a clock nor memory beside its state."""

    name: str  #: what `--policy` selects

    def decide(self, observation: Observation, state: Any) -> tuple[Round, Any]:
        """Return the next layout, and the state for the next round; the first state is None.

        The engine refuses (RuntimeError) to drop the last copy of a segment that queries may ask for.
        """
        ...
