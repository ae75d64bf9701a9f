"""The same live run under several policies, each on a cluster of its own; before them, what one core takes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation.cluster import Run
from benchmarks.evaluation.flow import Flow
from benchmarks.evaluation.loads import Stage, scenario
from qod_magics.core.policy import Policy
from qod_magics.policies import policy

SATURATING = 3_000.0  #: rows/s, more than a core takes; else `MORE` times that is tried
ENOUGH, MORE = 0.7, 3.0
WARM_S, MEASURED_S = 20.0, 15.0
LEAST_MEASURED_S = 8.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy as it is run here."""

    make: Callable[[], Policy]
    sheds: bool = False


def named(name: str, *, sheds: bool = False) -> Variant:
    """The policy of this name, as it is."""
    return Variant(lambda: policy(name), sheds)


def carried(run: Run, query: str, topic: str, partitions: int, scale: float) -> float:
    """Rows/s in the query's results under a saturating load: what the first task manager takes. The streams have just
    been started."""
    warm_s = max(WARM_S * scale, LEAST_MEASURED_S)
    measured_s = max(MEASURED_S * scale, LEAST_MEASURED_S)
    offered = SATURATING
    while True:
        with Flow(run, query) as flow:
            load = run.inject(scenario([Stage("saturated", warm_s + measured_s, {topic: offered})], partitions))
            run.wait(warm_s + measured_s)
            load.stop()
            end = flow.rows.at[-1]
        rate = flow.rate(end - measured_s, end)
        if not rate > 0:
            raise RuntimeError(f"{query} had no results under a saturating load: is something else running here?")
        print(f"one core takes {rate:,.0f} of {offered:,.0f} rows/s", flush=True)
        if rate < ENOUGH * offered:
            return rate
        offered *= MORE


def by_policy(
    variants: Mapping[str, Variant], run: Callable[[str, Variant], Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Figures by policy; and why others have none."""
    found: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, variant in variants.items():
        print(f"policy {name}", flush=True)
        try:
            found[name] = run(name, variant)
        except Exception as error:  # keep the figures of the others
            traceback.print_exc()
            left_out[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    if not found:
        raise RuntimeError(f"no policy ran through: {left_out}")
    return {"policies": found, "left_out": left_out}
