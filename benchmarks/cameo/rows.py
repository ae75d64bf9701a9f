"""Rows of Cameo's table, beside those of `benchmarks.findings`: a largest factor over a sweep of loads."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isnan, log

from benchmarks.findings import Row, Source, decided, is_factor, shown

CAMEO = Source("Cameo")


def ratio(ours: float, by: float) -> float:
    """A factor; infinite if the numerator had no result."""
    return inf if isnan(ours) else ours / by


def up_to(experiment: str, figure: str, source: float, swept: Mapping[str, float], run: str) -> Row:
    """A largest factor, over a sweep of loads.

    Beyond saturation it grows with the run and with the end of the sweep, which the source does not give. It counts as
    reproduced if the sweep passes it, or comes within half of it. Ours: the nearest factor of the sweep.
    """
    finite = {each: factor for each, factor in swept.items() if 0 < factor < inf}
    near = min(finite, key=lambda each: abs(log(finite[each] / source)), default=None)
    alone = ", ".join(f"{each} {shown(factor)}" for each, factor in swept.items())
    if near is None:
        return CAMEO.row(experiment, figure, f"up to {source:g}x", "no result", "not decidable", alone)
    passed = min(finite.values()) <= source <= max(swept.values())
    close = is_factor(source, finite[near])
    word = "passed within the sweep" if passed else "never reached" if max(swept.values()) < source else "always above"
    ours = f"{shown(finite[near])} at {near}"
    why = f"{word} ({run}): {alone}"
    return CAMEO.row(experiment, figure, f"up to {source:g}x", ours, decided(passed or close), why)
