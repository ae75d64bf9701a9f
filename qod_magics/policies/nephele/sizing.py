"""Adaptive output buffer sizing: one step for one channel (section 3.5.1, Eq. 2 and 3). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Literal

from qod_magics.policies.nephele.parameters import DEFAULTS, Parameters

Verdict = Literal["shrink", "at-floor", "grow", "at-ceiling", "keep", "no-data"]


@dataclass(frozen=True, slots=True)
class Step:
    """A buffer size in bytes, and why it is that."""

    bytes: int
    verdict: Verdict


def step(bytes: int, life_ms: float | None, sender_ms: float | None, parameters: Parameters = DEFAULTS) -> Step:
    """The next size of a channel's output buffers, which lies on a violated sequence.

    Args:
        bytes: the size now.
        life_ms: mean life time of its buffers, opening to shipping (oblt); None without a fresh sample.
        sender_ms: mean task latency of the sending task; None if it is unknown or undefined, as a source's (N11).
        parameters: limits and factors.

    """
    if life_ms is None:
        return Step(bytes, "no-data")
    waits_ms = life_ms / 2  # obl: items arrive evenly while a buffer is open
    if waits_ms > parameters.min_obl_ms and waits_ms > (sender_ms or 0.0):
        factor = max(parameters.r**waits_ms, parameters.min_factor)
        smaller = max(parameters.epsilon, floor(bytes * factor))
        return Step(smaller, "shrink") if smaller < bytes else Step(bytes, "at-floor")
    if waits_ms <= parameters.zero_obl_ms:
        larger = min(parameters.omega, floor(parameters.s * bytes))
        return Step(larger, "grow") if larger > bytes else Step(bytes, "at-ceiling")
    return Step(bytes, "keep")
