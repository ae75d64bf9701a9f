"""The experiments of Dirigo's table, by the figure of its source, and the notes beside their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.dirigo import controlled, forwarding, nexmark, queue, social
from benchmarks.findings import Experiment, Row

QUICK = 0.02  #: of the runs' lengths
QUICK_WORKERS = 8

#: scale of the runs' lengths -> rows. Figure 6.13 is measured with 6.12a.
SCALED: Mapping[str, Callable[[float], list[Row]]] = {
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
#: Where a short run needs another scale to have results, or fewer workers.
QUICKLY: Mapping[str, Callable[[], list[Row]]] = {
    "6.9": partial(controlled.skew, 0.1, workers=QUICK_WORKERS),
    "6.10": partial(controlled.granularity, 0.2, workers=QUICK_WORKERS),
    "6.12a": partial(social.no_cache, 0.03),
    "6.12b": partial(social.with_cache, 0.03),
    "6.14b": partial(social.object_size, 0.03),
    "6.15a": partial(social.popularity, 0.03),
    "6.18": partial(nexmark.queries, 0.2),
    "6.19": partial(nexmark.windows, 0.4),
    "6.20": partial(nexmark.ranges, 0.2),
    "6.21b": partial(queue.operations, 0.1),
}
CALIBRATIONS: Mapping[str, tuple[str, ...]] = {
    "forwarding": ("6.4", "6.5", "6.6"),
    "controlled": ("6.9", "6.10", "6.21a"),
    "social": ("6.12a", "6.12b", "6.14a", "6.14b", "6.15a", "6.15b"),
    "nexmark": ("6.18", "6.19", "6.20"),
}


def rows(name: str, quick: bool = False) -> list[Row]:
    """Of one experiment. Quick: of short runs, whose figures mean nothing."""
    if not quick:
        return SCALED[name](1.0)
    return QUICKLY[name]() if name in QUICKLY else SCALED[name](QUICK)


EXPERIMENTS: Mapping[str, Experiment] = {name: partial(rows, name) for name in SCALED}
