"""All experiments, and all rows of Dirigo's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.dirigo import controlled, forwarding, nexmark, queue, social
from benchmarks.dirigo.row import Row

#: By figure of the source. The argument is a scale of the runs' lengths.
EXPERIMENTS: Mapping[str, Callable[[float], list[Row]]] = {
    "6.4": forwarding.parameters,
    "6.5": forwarding.targets,
    "6.6": forwarding.search,
    "6.9": controlled.skew,
    "6.10": controlled.granularity,
    "6.12a": social.no_cache,
    "6.12b": social.with_cache,
    "6.14a": social.capacity,
    "6.14b": social.object_size,
    "6.15a": social.popularity,
    "6.15b": social.moving,
    "6.18": nexmark.queries,
    "6.19": nexmark.windows,
    "6.20": nexmark.ranges,
    "6.21a": controlled.central,
    "6.21b": queue.operations,
}
#: Figure 6.13 is measured with 6.12a.
ALIASES: Mapping[str, str] = {"6.13": "6.12a"}


def rows(scale: float = 1.0) -> list[Row]:
    """All rows: system, figure, the source's value, ours, verdict, why. `Row.to_json` is the JSON form."""
    return [row for experiment in EXPERIMENTS.values() for row in experiment(scale)]


def quick() -> list[Row]:
    """Short runs of a few experiments, in less than 3 s: they show that all parts work, not what comes out."""
    return [
        *forwarding.search(0.02),
        *controlled.granularity(0.2, workers=8),
        *social.no_cache(0.03),
        *nexmark.queries(0.2),
        *queue.operations(0.1),
    ]
