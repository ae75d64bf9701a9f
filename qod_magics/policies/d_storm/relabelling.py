"""Relabelling: nodes of one size change roles so that fewer instances move (section 2.7, our choice)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from qod_magics.policies.d_storm.packing import SLACK
from qod_magics.policies.d_storm.problem import Demand, Node


def relabelled(
    placement: Mapping[str, str], nodes: Sequence[Node], demands: Sequence[Demand], current: Mapping[str, str]
) -> dict[str, str]:
    """`placement` with the roles of equal nodes exchanged so that the most instances stay where they are.

    Nodes are equal if of one `size`; where less of it is free on one of them, it only takes a role that fits. Traffic
    between nodes and the number of nodes of each size stay the same. O(m ** 3) for m nodes of one size.
    """
    alike: dict[object, list[Node]] = defaultdict(list)
    for node in nodes:
        alike[node.size].append(node)
    renamed: dict[str, str] = {}
    loads = {node.id: [0.0, 0.0] for node in nodes}
    together: dict[tuple[str, str], int] = defaultdict(int)  #: (role, node) -> instances that would stay
    for demand in demands:
        role = placement[demand.id]
        loads[role][0] += demand.cpu
        loads[role][1] += demand.memory
        together[role, current.get(demand.id, "")] += 1
    for group in alike.values():
        # overlap first, then as few new names as possible, then nodes that are up
        weights = [
            [_weight(role, node, loads[role.id], together[role.id, node.id], len(group)) for node in group]
            for role in group
        ]
        names = [node.id for node in group]
        renamed |= {name: names[k] for name, k in zip(names, assignment(weights), strict=True)}
    return {instance: renamed[node] for instance, node in placement.items()}


def _weight(role: Node, node: Node, load: Sequence[float], staying: int, size: int) -> float:
    if role.id != node.id and (load[0] > node.cpu + SLACK or load[1] > node.memory + SLACK):
        return -inf
    is_used_and_up = node.kind is None and (load[0] > 0 or load[1] > 0)
    return float(staying * (3 * size + 1) + 2 * is_used_and_up + (role.id == node.id))


def assignment(weights: Sequence[Sequence[float]]) -> list[int]:
    """By row, its column: one each, so that the sum of weights is largest. -inf: never, unless there is no other way.

    The Hungarian method with potentials; square matrices, O(n ** 3).
    """
    n = len(weights)
    finite = [abs(w) for row in weights for w in row if w != -inf]
    never = 1.0 + 2.0 * n * max(finite, default=0.0)
    cost = [[never if w == -inf else -w for w in row] for row in weights]
    of_row, of_column = [0.0] * (n + 1), [0.0] * (n + 1)  #: potentials; the last is that of no row or column
    row_of = [n] * (n + 1)  #: by column; n: none
    for row in range(n):
        row_of[n] = row
        column, least, before, seen = n, [inf] * n, [n] * n, [False] * (n + 1)
        while row_of[column] != n:
            seen[column] = True
            here, delta, best = row_of[column], inf, n
            for k in range(n):
                if not seen[k]:
                    reduced = cost[here][k] - of_row[here] - of_column[k]
                    if reduced < least[k]:
                        least[k], before[k] = reduced, column
                    if least[k] < delta:
                        delta, best = least[k], k
            for k in range(n + 1):
                if seen[k]:
                    of_row[row_of[k]] += delta
                    of_column[k] -= delta
                elif k < n:
                    least[k] -= delta
            column = best
        while column != n:
            row_of[column] = row_of[before[column]]
            column = before[column]
    chosen = [0] * n
    for k in range(n):
        chosen[row_of[k]] = k
    return chosen
