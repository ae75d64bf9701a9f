"""How long a job's throughput takes to settle after an operation, and how long it was down (section 2.4). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from statistics import fmean, pstdev

WINDOW_S = 10.0
WITHIN = 0.05  #: of the mean: the standard deviation up to which throughput has settled
FLAT = 4  #: samples equal to the mean that count as settled, too


def settled_mean(throughput: Sequence[float]) -> float:
    """The mean of the last half of the record (the longer half of an odd one), rows/s."""
    return fmean(throughput[len(throughput) // 2 :])


def convergence_s(throughput: Sequence[float], window_s: float = WINDOW_S) -> float | None:
    """Seconds from the start of an operation until its throughput has settled; None if it does not within the record.

    It has at the end of the first window that closes a run of windows with a standard deviation of at most 5 % of the
    settled mean, in which the throughput rose above that mean twice and fell below it twice, in any order; or where the
    last four windows equal the mean (R8).

    Args:
        throughput: rows/s of each window, the first one being that in which the operation starts.
        window_s: length of a window.

    """
    if not throughput:
        return None
    mean = settled_mean(throughput)
    for j in range(len(throughput)):
        if _is_flat(throughput[: j + 1], mean) or any(
            _oscillates(throughput[i : j + 1], mean) for i in range(j - 3, -1, -1)
        ):
            return (j + 1) * window_s
    return None


def down_s(throughput: Sequence[float], window_s: float = WINDOW_S) -> float:
    """Total length of the windows without any throughput, seconds."""
    return window_s * sum(1 for rate in throughput if not rate)


def _is_flat(run: Sequence[float], mean: float) -> bool:
    return len(run) >= FLAT and all(isclose(rate, mean, rel_tol=1e-9) for rate in run[-FLAT:])


def _oscillates(run: Sequence[float], mean: float) -> bool:
    above = below = 0
    side = 0
    for rate in run:
        now = (rate > mean) - (rate < mean) or side  # a sample equal to the mean goes on as it was
        if now != side:
            above += now > 0
            below += now < 0
        side = now
    return above >= 2 and below >= 2 and pstdev(run) <= WITHIN * mean
