"""The static resource-aware scheduler (RAS) that D-Storm is compared with (baseline B2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from qod_magics.policies.d_storm.packing import SLACK
from qod_magics.policies.d_storm.problem import Demand, Node


def resource_aware(
    tasks: Mapping[str, Sequence[str]],
    streams: Iterable[tuple[str, str]],
    profile: Mapping[str, Demand],
    nodes: Sequence[Node],
    already: Mapping[str, int] | None = None,
) -> dict[str, str] | None:
    """Node by task, each on the first node with room by its operator's profile; None if one finds none.

    Args:
        tasks: the tasks of each operator, in the order in which they are taken.
        streams: (from, to) between operators.
        profile: by operator, the demand of each of its tasks as measured in a pilot run.
        nodes: sorted once, by tasks of this topology `already` there, then by their share of the cluster.
        already: tasks of this topology by node.

    """
    order = node_order(nodes, already or {})
    free = [[node.cpu, node.memory] for node in order]
    placement = {}
    for operator, task in task_order(tasks, streams):
        need = profile[operator]
        for node, left in zip(order, free, strict=True):
            if need.cpu <= left[0] + SLACK and need.memory <= left[1] + SLACK:
                left[0] -= need.cpu
                left[1] -= need.memory
                placement[task] = node.id
                break
        else:
            return None
    return placement


def node_order(nodes: Sequence[Node], already: Mapping[str, int]) -> list[Node]:
    """Nodes by tasks already there, effective share and mean share, each the most first, then by id."""
    cpu, memory = sum(node.cpu for node in nodes), sum(node.memory for node in nodes)

    def key(node: Node) -> tuple[float, float, float, str]:
        shares = [node.cpu / cpu if cpu > 0 else 0.0]
        if 0 < memory < inf:  # unknown somewhere: no part of the comparison
            shares.append(node.memory / memory)
        return (-already.get(node.id, 0), -min(shares), -sum(shares) / len(shares), node.id)

    return sorted(nodes, key=key)


def task_order(tasks: Mapping[str, Sequence[str]], streams: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(operator, task) in the order of placement: the best connected operators first, in turn with their neighbours."""
    near: dict[str, dict[str, int]] = {operator: {} for operator in tasks}
    for a, b in streams:
        near[a][b] = near[b][a] = len(tasks[a]) * len(tasks[b])
    left = {operator: iter(instances) for operator, instances in tasks.items()}
    for operator in sorted(tasks, key=lambda name: (-sum(near[name].values()), name)):
        turn = [operator, *sorted(near[operator], key=lambda name: (-near[operator][name], name))]
        while taken := [(name, task) for name in turn if (task := next(left[name], None)) is not None]:
            yield from taken
