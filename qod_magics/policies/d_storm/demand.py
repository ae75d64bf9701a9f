"""What instances demand at the workload to plan for: Eq. 5.1, and its estimation from one window (section 2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.policies.d_storm.problem import Channel


@dataclass(frozen=True, slots=True)
class Requirement:
    """Demand for each row/s of input, and what does not depend on the input."""

    per_row: float  #: rho, points or MB per row/s
    fixed: float = 0.0  #: intercept, points or MB; 0 in the source

    def at(self, rate: float) -> float:
        """The demand at this input rate, rows/s (Eq. 5.1)."""
        return self.fixed + rate * self.per_row


def requirement(measured: float, rate: float, fixed: float = 0.0, last: Requirement | None = None) -> Requirement:
    """From the mean over a window: `measured` points or MB at `rate` rows/s.

    Without input nothing is learned about rows: the last known value stays, and all that it uses is fixed.
    """
    if rate <= 0:
        return Requirement(last.per_row if last is not None else 0.0, measured)
    fixed = min(fixed, measured)
    return Requirement((measured - fixed) / rate, fixed)


def input_rates(tasks: Iterable[str], channels: Iterable[Channel], external: Mapping[str, float]) -> dict[str, float]:
    """in(i), rows/s: the sum of its channels, or what a source takes from the outside."""
    rates = {task: external.get(task, 0.0) for task in tasks}
    for channel in channels:
        rates[channel.target] += channel.traffic
    return rates


def growth(
    tasks: Sequence[str],
    channels: Sequence[Channel],
    read: Mapping[str, float],
    workload: Mapping[str, float],
    tolerance: float = 0.0,
) -> dict[str, float]:
    """By task, the rate to plan for / the rate measured; 1 where it keeps up and so does all above it.

    A task that falls behind holds back all that it feeds, which would be planned at its throttled demand. What several
    tasks feed grows by the shares of their origin.

    Args:
        tasks: sources before their readers.
        channels: measured, rows/s.
        read: by task, rows/s that it processed.
        workload: by source, rows/s that it should process.
        tolerance: how far, as a fraction of 1, what is read may stay behind what arrives.

    """
    arriving = input_rates(tasks, channels, workload)
    feeding: dict[str, list[Channel]] = {task: [] for task in tasks}
    for channel in channels:
        feeding[channel.target].append(channel)
    factors: dict[str, float] = {}
    for task in tasks:
        above = sum(channel.traffic * factors[channel.source] for channel in feeding[task])
        mean = above / arriving[task] if feeding[task] and arriving[task] > 0 else 1.0
        behind = 0 < read[task] < (1.0 - tolerance) * arriving[task]
        factors[task] = mean * (arriving[task] / read[task] if behind else 1.0)
    return factors


def planned(channels: Iterable[Channel], factors: Mapping[str, float]) -> list[Channel]:
    """The channels at the rates to plan for: each grows as its source does."""
    return [Channel(each.source, each.target, each.traffic * factors[each.source]) for each in channels]
