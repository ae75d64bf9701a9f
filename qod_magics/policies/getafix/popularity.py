"""How popular each segment is, over the rounds. Pure, exact."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from qod_magics.core.nanoseconds import MS
from qod_magics.core.segments import Use
from qod_magics.policies.getafix.parameters import Measure


def accesses(use: Mapping[str, Use], measure: Measure) -> dict[str, int]:
    """x_j of a round, by segment that was used: milliseconds of access time, started ones included, or accesses."""
    if measure == "count":
        found = {segment: each.accesses for segment, each in use.items()}
    else:
        found = {segment: -(-each.busy // MS) for segment, each in use.items()}
    return {segment: x for segment, x in found.items() if x}


def popularity(before: Mapping[str, int], x: Mapping[str, int], alpha: Fraction) -> dict[str, int]:
    """p_j after a round: x_j of a new segment, else ceil(x_j + alpha p_j). Known segments come first.

    A segment that is used no longer decays to 1, not to 0: once seen, it keeps a copy.
    """
    known = {segment: ceil(x.get(segment, 0) + alpha * p) for segment, p in before.items()}
    return known | {segment: value for segment, value in x.items() if segment not in before}
