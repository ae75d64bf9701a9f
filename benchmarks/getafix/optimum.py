"""The least number of copies by an integer program (HiGHS, through scipy), beside what the packing makes.

The program: minimise the sum of x_jh, subject to sum over h of y_jh = c_j, sum over j of y_jh <=
capacity, y_jh <= c_j x_jh, y whole and >= 0, x 0 or 1. scipy comes with the extra `test`.
"""

from __future__ import annotations

import ctypes
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qod_magics.policies.getafix.packing import Allocation, capacities, minimum_replicas, pack

SEED = 20210504


def optimum(counts: Mapping[str, int], weights: Sequence[int]) -> Allocation:
    """A plan with the fewest copies that keeps to the capacities of `packing.capacities`. Raises RuntimeError if the
    solver can't prove one."""
    segments = [segment for segment, count in counts.items() if count]
    m, n = len(segments), len(weights)
    if not m:
        return Allocation(tuple({} for _ in weights))
    c = np.array([counts[segment] for segment in segments], dtype=float)
    per_segment = np.kron(np.eye(m), np.ones((1, n)))  # rows: segments; columns: y_jh, node by node
    per_node = np.kron(np.ones((1, m)), np.eye(n))
    nothing = np.zeros
    room = np.array(capacities(int(c.sum()), weights), dtype=float)
    linked = np.hstack([np.eye(m * n), -np.diag(np.repeat(c, n))])
    with _silent():
        solved = milp(
            c=np.concatenate([nothing(m * n), np.ones(m * n)]),
            constraints=[
                LinearConstraint(np.hstack([per_segment, nothing((m, m * n))]), c, c),
                LinearConstraint(np.hstack([per_node, nothing((n, m * n))]), -np.inf, room),
                LinearConstraint(linked, -np.inf, 0),
            ],
            integrality=np.ones(2 * m * n),
            bounds=Bounds(0, np.concatenate([np.repeat(c, n), np.ones(m * n)])),
        )
    if not solved.success:
        raise RuntimeError(f"the solver gave up on {dict(counts)} and weights {list(weights)}: {solved.message}")
    y = np.rint(solved.x[: m * n]).astype(int).reshape(m, n)
    return Allocation(tuple({s: int(y[j, h]) for j, s in enumerate(segments) if y[j, h] > 0} for h in range(n)))


@contextmanager
def _silent() -> Iterator[None]:
    """Without what the solver's C++ prints, whatever its options say: a line of debugging on some cases."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        libc.fflush(None)  # into nowhere, as it is buffered
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True, slots=True)
class Gap:
    """How far the packing is from the optimum in random cases."""

    cases: int
    checked: int  #: by the integer program too, which agreed
    beyond: Mapping[int, int]  #: copies beyond the least -> cases
    makespan: int  #: cases in which its makespan is above the capacity

    @property
    def missed(self) -> int:
        """Cases in which it makes more copies than the least."""
        return sum(cases for copies, cases in self.beyond.items() if copies > 0)


def drawn(number: int, seed: int = SEED) -> list[tuple[dict[str, int], int]]:
    """Random cases: counts by segment, and the number of nodes. 2-6 segments with 1-12 accesses on 2-4 nodes."""
    draw = random.Random(seed)
    return [
        ({f"S{j + 1}": draw.randint(1, 12) for j in range(draw.randint(2, 6))}, draw.randint(2, 4))
        for _ in range(number)
    ]


def gap(number: int, seed: int = SEED, checked: int = 0) -> Gap:
    """The gap in random cases, the first of them (`checked`) proved by the integer program. Raises RuntimeError if that
    disagrees with the minimum by partitions (`bounds.minimum_replicas`)."""
    beyond: Counter[int] = Counter()
    late = 0
    for case, (counts, nodes) in enumerate(drawn(number, seed)):
        plan, least = pack(counts, [1] * nodes), minimum_replicas(counts, nodes)
        if case < checked and (proved := optimum(counts, [1] * nodes).replicas) != least:
            raise RuntimeError(f"{counts} on {nodes} nodes: {least} copies by partitions, {proved} by the program")
        beyond[plan.replicas - least] += 1
        late += plan.makespan > -(-sum(counts.values()) // nodes)
    return Gap(number, min(number, checked), dict(sorted(beyond.items())), late)
