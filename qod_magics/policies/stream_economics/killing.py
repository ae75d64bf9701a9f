"""Which instances leave a task manager whose minimum accuracies do not fit (Algorithm 3.3, errata of the card)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from qod_magics.policies.stream_economics.load import total


class Candidate(NamedTuple):
    """An instance as the choice sees it."""

    id: str
    priority: int
    min_required: float  #: minReq of its task, % of one core


def tolerance(cpu: float) -> float:
    """Differences of CPU up to this are rounding, not load: without it, noise in the last bit would move a task."""
    return 1e-9 + 1e-12 * abs(cpu)


def kill(need: float, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The instances to fail so that at least `need` % of one core is released, or as much as there is.

    Whole priorities are added from the lowest up while they release less than `need`; then, from the highest priority
    and the largest requirement down (ties: id), an instance is spared if the others still release enough.
    Returned in that second order.
    """
    noise = tolerance(need)
    by_priority: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        by_priority.setdefault(candidate.priority, []).append(candidate)
    chosen: list[Candidate] = []
    released = 0.0
    for priority in sorted(by_priority):
        if released >= need - noise:
            break
        chosen += by_priority[priority]
        released += _released(by_priority[priority])
    chosen.sort(key=lambda candidate: (-candidate.priority, -candidate.min_required, candidate.id))
    failed = []
    for candidate in chosen:
        rest = released - candidate.min_required
        if rest >= need - noise:
            released = rest
        else:
            failed.append(candidate)
    return failed


def _released(candidates: Iterable[Candidate]) -> float:
    return total([candidate.min_required for candidate in candidates])
