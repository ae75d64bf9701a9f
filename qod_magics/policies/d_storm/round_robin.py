"""Storm's default scheduler: the same number of tasks on each node, whatever they need (baseline B1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def round_robin(
    tasks: Iterable[str], nodes: Sequence[str], free_slots: Mapping[str, int] | None = None, first: int = 0
) -> dict[str, str]:
    """Node by task: task number t, by id, goes to node t mod m.

    Nodes by free slots (one slot a node if not given), the most first, then by id. `first`: number of tasks dealt
    before. No test of capacity. Raises ValueError without nodes.
    """
    if not nodes:
        raise ValueError("nodes is empty: give one or more nodes to deal the tasks to")
    free = free_slots or {}
    order = sorted(nodes, key=lambda node: (-free.get(node, 1), node))
    return {task: order[t % len(order)] for t, task in enumerate(sorted(tasks), first)}
