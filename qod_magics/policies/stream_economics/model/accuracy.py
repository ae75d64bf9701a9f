"""Conversion between accuracy and CPU. Fractions of 1, % of one core."""

from __future__ import annotations

FULL_CORE = 100.0  #: % of one core: the paper's instances are threads, which can't use more than one core


def required_cpu(accuracy: float, cpu: float, current: float, usable: float = FULL_CORE) -> float:
    """rCpu(t, a): % of one core that a task needs for `accuracy`, given its current CPU and accuracy (Eq. 3.9); at most
    `usable`."""
    if current == 0.0:
        return 0.0 if accuracy == 0.0 else FULL_CORE
    needed = accuracy * cpu / current
    return needed if needed < usable else usable


def obtained_accuracy(share: float, cpu: float, current: float) -> float:
    """obtAc(t, c): the accuracy that `share` % of one core buys, given the current CPU and accuracy (Eq. 3.12)."""
    if current == 0.0:
        return 0.0 if share == 0.0 else 1.0
    if cpu == 0.0:
        return current if share == 0.0 else 1.0
    accuracy = current * share / cpu
    return accuracy if accuracy < 1.0 else 1.0
