"""Uniform replication, the other baseline of the source: the same number of copies of every segment."""

from __future__ import annotations

from qod_magics.core.segments import Copy, Observation, Round
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix.layout import copies_of, expired

COPIES = 3


class Uniform:
    """Every segment has the same number of copies (at most one per node), on nodes in turn; pairs are shared evenly."""

    name = "uniform"

    def __init__(self, copies: int = COPIES) -> None:
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise UsageProblem(f"uniform replication: copies is {copies!r}; give a whole number, 1 or more")
        self.copies = copies

    def decide(self, observation: Observation, state: int | None) -> tuple[Round, int]:
        """The round; its state is the position of the node whose turn it is."""
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
