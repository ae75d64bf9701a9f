"""The baselines of the source: Scarlett and uniform replication.

Scarlett makes copies by concurrent accesses and places them by load; uniform replication makes the same number of
copies of every segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from qod_magics.core.engines import UNUSED, Copy, Observation, Round
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.policy import copies_of, expired

#: Copies beyond the greatest number of concurrent accesses.
DELTA = 1


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes by segment, in the order of their copies; and the load of each node."""

    nodes: Mapping[str, tuple[str, ...]]
    load: Mapping[str, Fraction]  #: sum over its copies of concurrent accesses / number of the copy

    @property
    def replicas(self) -> int:
        """The number of copies."""
        return sum(len(each) for each in self.nodes.values())


def replicas(concurrent: int, nodes: int, delta: int = DELTA) -> int:
    """Return r_j: min(n, concurrent accesses + delta), at least 1."""
    return max(1, min(nodes, concurrent + delta))


def place(
    concurrent: Mapping[str, int],
    nodes: Sequence[str],
    held: Mapping[str, Sequence[str]] | None = None,
    delta: int = DELTA,
) -> Placement:
    """Give segments in declared order r_j copies, on the nodes with least load first; of equal ones the first.

    Copy number i of a segment adds max(1, concurrent accesses) / i to its node's load.

    Args:
        concurrent: conc_j, the most concurrent accesses seen in the window.
        nodes: in declared order.
        held: nodes that have copies now, by segment. They count first, and where there are more than r_j, the most
            loaded ones lose theirs; of equal ones the last.
        delta: copies beyond the concurrent accesses.

    """
    rank = {node: h for h, node in enumerate(nodes)}
    load = dict.fromkeys(nodes, Fraction(0))
    #: by segment: its nodes, and what each copy adds to the load of its node
    found: dict[str, dict[str, Fraction]] = {segment: {} for segment in concurrent}

    def add(segment: str, node: str) -> None:
        found[segment][node] = Fraction(max(1, concurrent[segment]), len(found[segment]) + 1)
        load[node] += found[segment][node]

    for segment in concurrent:
        for node in (held or {}).get(segment, ()):
            add(segment, node)
    for segment, there in found.items():
        wanted = replicas(concurrent[segment], len(nodes), delta)
        while len(there) > wanted:
            heaviest = max(there, key=lambda node: (load[node], rank[node]))
            load[heaviest] -= there.pop(heaviest)
        lightest = sorted((node for node in nodes if node not in there), key=lambda node: (load[node], rank[node]))
        for node in lightest[: wanted - len(there)]:
            add(segment, node)
    return Placement({segment: tuple(there) for segment, there in found.items()}, load)


class Scarlett:
    """Replicates by concurrent accesses of the last round; pairs are shared evenly among the copies."""

    name = "scarlett"

    def __init__(self, delta: int = DELTA) -> None:
        if isinstance(delta, bool) or not isinstance(delta, int) or delta < 0:
            raise UsageProblem(f"Scarlett: delta is {delta!r}; give a whole number, 0 or more")
        self.delta = delta

    def decide(self, observation: Observation, state: None) -> tuple[Round, None]:
        """Return the round for what was measured since the last one."""
        seen = observation
        concurrent = {segment: seen.use.get(segment, UNUSED).concurrent for segment in seen.segments}
        held = {segment: copies_of(seen, segment) for segment in seen.segments}
        placed = place(concurrent, seen.nodes, held, self.delta).nodes
        loads: list[Copy] = []
        drops: list[Copy] = list(expired(seen))
        for segment, there in placed.items():
            loads += [(node, segment) for node in there if node not in held[segment]]
            drops += [(node, segment) for node in held[segment] if node not in there]
        return Round(
            {segment: dict.fromkeys(there, 1) for segment, there in placed.items()}, tuple(loads), tuple(drops)
        ), None


COPIES = 3


class Uniform:
    """Every segment has the same number of copies (at most one per node), on nodes in turn; pairs are shared evenly."""

    name = "uniform"

    def __init__(self, copies: int = COPIES) -> None:
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise UsageProblem(f"uniform replication: copies is {copies!r}; give a whole number, 1 or more")
        self.copies = copies

    def decide(self, observation: Observation, state: int | None) -> tuple[Round, int]:
        """Return the round; its state is the position of the node whose turn it is."""
        seen, turn = observation, state or 0
        wanted = min(self.copies, len(seen.nodes))
        routing: dict[str, dict[str, int]] = {}
        loads: list[Copy] = []
        drops: list[Copy] = list(expired(seen))
        for segment in seen.segments:
            holders = copies_of(seen, segment)
            drops += [(node, segment) for node in holders[wanted:]]
            there = holders[:wanted]
            while len(there) < wanted:
                node = seen.nodes[turn % len(seen.nodes)]
                turn += 1
                if node not in there:
                    there.append(node)
                    loads.append((node, segment))
            routing[segment] = dict.fromkeys(there, 1)
        return Round(routing, tuple(loads), tuple(drops)), turn
