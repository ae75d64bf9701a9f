"""How a step is judged once it has settled: did it do harm, did it help? Pure."""

from __future__ import annotations

from qod_magics.policies.henge.utility import Utility


def did_harm(before: float, now: float, drop_ratio: float) -> bool:
    """Whether utility W fell so far that the step is to be taken back: W before > `drop_ratio` W now (H-R7)."""
    return before > drop_ratio * now


def has_plateaued(before: float, now: Utility, min_gain: float) -> bool:
    """Whether a job's utility rose by less than `min_gain` of its maximum: it is left out for a while."""
    return (now.current - before) / now.most < min_gain if now.most else True
