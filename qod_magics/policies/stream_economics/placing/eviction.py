"""Which instances leave a task manager whose minimum accuracies do not fit (Algorithm 3.3, with its errata mended)."""

from __future__ import annotations

from collections.abc import Sequence

from qod_magics.core.load import total


def tolerance(cpu: float) -> float:
    """Differences of CPU up to this are rounding, not load: otherwise noise in the last bit would move a task."""
    return 1e-9 + 1e-12 * abs(cpu)


def kill(need: float, priority: Sequence[int], min_required: Sequence[float]) -> list[int]:
    """The candidates to fail so that at least `need` % of one core is released, or as much as there is.

    Candidate c is an instance of that priority whose task needs `min_required[c]` % of one core at least; candidates
    come in the order of their ids. Whole priorities are added from the lowest up while they release less than `need`;
    then, from the highest priority and the largest requirement down (ties: id), one is spared if the others still
    release enough. Returned in that second order.
    """
    enough = need - tolerance(need)
    by_priority: dict[int, list[int]] = {}
    for c, of in enumerate(priority):
        by_priority.setdefault(of, []).append(c)
    chosen: list[list[int]] = []
    released = 0.0
    for of in sorted(by_priority):
        if released >= enough:
            break
        chosen.append(by_priority[of])
        released += total([min_required[c] for c in by_priority[of]])
    failed = []
    for candidates in reversed(chosen):
        for c in sorted(candidates, key=lambda c: -min_required[c]):
            rest = released - min_required[c]
            if rest >= enough:
                released = rest
            else:
                failed.append(c)
    return failed
