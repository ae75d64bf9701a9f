"""How the pairs of each segment are divided among nodes, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.errors import UsageProblem

#: Pairs ("balls") of each segment on one node; only positive numbers: each entry is a copy.
Bin = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of the packing: it makes one copy."""

    segment: str
    remaining: int  #: pairs of the segment that had no node before
    node: int  #: position, from 0
    put: int  #: pairs that the node takes

    @property
    def left(self) -> int:
        """Pairs that go back into the queue."""
        return self.remaining - self.put


@dataclass(frozen=True, slots=True)
class Allocation:
    """y_jh: the pairs of each segment on each node, nodes in declared order."""

    bins: tuple[Bin, ...]
    steps: tuple[Step, ...] = ()

    @property
    def replicas(self) -> int:
        """R, the number of copies."""
        return sum(len(each) for each in self.bins)

    @property
    def load(self) -> tuple[int, ...]:
        """Pairs by node."""
        return tuple(sum(each.values()) for each in self.bins)

    @property
    def makespan(self) -> int:
        """Pairs on the node that has the most."""
        return max(self.load, default=0)

    @property
    def sets(self) -> tuple[frozenset[str], ...]:
        """E_g: the segments that each node should hold."""
        return tuple(frozenset(each) for each in self.bins)

    @property
    def effective_replication_factor(self) -> float:
        """R / m, of the segments that have pairs; 0 without any."""
        segments = {segment for each in self.bins for segment in each}
        return self.replicas / len(segments) if segments else 0.0

    def relabelled(self, gets: Sequence[int]) -> Allocation:
        """The same with bin `gets[h]` on node h; steps are of the old order, and left out."""
        return Allocation(tuple(self.bins[g] for g in gets))

    def routing(self, nodes: Sequence[str]) -> dict[str, dict[str, int]]:
        """The routing table: segment -> node -> pairs."""
        table: dict[str, dict[str, int]] = {}
        for node, each in zip(nodes, self.bins, strict=True):
            for segment, pairs in each.items():
                table.setdefault(segment, {})[node] = pairs
        return table


def checked_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The segments that have pairs, in declared order. Raises UsageProblem for a number that is no count."""
    for segment, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise UsageProblem(f"Getafix: segment {segment} has {count!r} accesses; give a whole number, 0 or more")
    return {segment: count for segment, count in counts.items() if count}


def uneven(capacities: Iterable[int]) -> bool:
    """Whether nodes differ in what they can take."""
    return len(set(capacities)) > 1
