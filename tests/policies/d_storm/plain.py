"""Algorithm 1 straight from the formulas, O(n ** 3): the reference for the incremental form."""

from __future__ import annotations

from math import inf

from qod_magics.policies.d_storm.packing import Parameters, Problem


def packed(problem: Problem, parameters: Parameters) -> tuple[dict[str, str], list[str]]:
    """Node by instance in the order of placement, and the unplaced."""
    demands, nodes, n = problem.demands, problem.nodes, len(problem.demands)
    position = {demand.id: i for i, demand in enumerate(demands)}
    xi = [[0.0] * n for _ in demands]
    for channel in problem.channels:
        xi[position[channel.source]][position[channel.target]] += channel.traffic
    x = [[0] * len(nodes) for _ in demands]
    placed: dict[str, str] = {}

    def avail(k: int) -> float:
        cpu, memory = sum(d.cpu for d in demands), sum(d.memory for d in demands)
        return min(n * nodes[k].cpu / cpu if cpu else inf, n * nodes[k].memory / memory if memory else inf)

    def usage(k: int, extra: int | None = None) -> float:
        there = [i for i in range(n) if x[i][k] or i == extra]
        shares = [
            (sum(demands[i].cpu for i in there), nodes[k].cpu),
            (sum(demands[i].memory for i in there), nodes[k].memory),
        ]
        return max(used / capacity if capacity else 0.0 for used, capacity in shares)

    def fits(i: int, k: int) -> bool:
        there = [j for j in range(n) if x[j][k]]
        return (
            demands[i].cpu <= nodes[k].cpu - sum(demands[j].cpu for j in there) + 1e-9
            and demands[i].memory <= nodes[k].memory - sum(demands[j].memory for j in there) + 1e-9
        )

    def priority(i: int, k: int) -> tuple[int, float, float]:
        """(is infinite, value or numerator, cost)."""
        q1 = sum(x[j][k] * (xi[i][j] + xi[j][i]) for j in range(n))
        q2 = sum(xi[i][j] + xi[j][i] for j in range(n) if not any(x[j]))
        numerator = parameters.alpha * q1 + (parameters.beta * q2 if usage(k) <= parameters.threshold + 1e-9 else 0.0)
        cost = usage(k, i) - usage(k)
        if cost <= 1e-12:
            return (1, numerator, cost) if numerator > 1e-12 else (0, 0.0, cost)
        return 0, numerator / cost, cost

    def wins(a: tuple[int, float, float], b: tuple[int, float, float]) -> bool:
        if a[0] != b[0]:
            return a[0] > b[0]
        if abs(a[1] - b[1]) > 1e-9 * max(a[1], b[1]):
            return a[1] > b[1]
        return a[2] > b[2] + 1e-9

    todo = list(range(n))
    for k in sorted(range(len(nodes)), key=lambda k: -avail(k)):
        while fitting := [i for i in todo if fits(i, k)]:
            best = fitting[0]
            for i in fitting[1:]:
                if wins(priority(i, k), priority(best, k)):
                    best = i
            x[best][k] = 1
            todo.remove(best)
            placed[demands[best].id] = nodes[k].id
    return placed, [demands[i].id for i in todo]
