"""The experiments of Cameo's table, by the figure of its source, and what virtual time costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.cameo import load, overhead, tokens, variants
from benchmarks.findings import Experiment, Row

EXPERIMENTS: Mapping[str, Experiment] = {
    "5.6": tokens.tokens,
    "5.7": load.single,
    "5.8a": load.volume,
    "5.8b": load.tenants,
    "5.8c": load.threads,
    "5.9": load.bursts,
    "5.10": variants.skew,
    "5.11": variants.orders,
    "5.12": overhead.overhead,
    "5.13": variants.batches,
    "5.14": variants.quanta,
    "5.15": variants.semantics,
    "5.16": variants.costs,
}


def all_rows(names: Sequence[str] | None = None, *, quick: bool = False) -> list[Row]:
    """The rows of these experiments, or of all. `quick`: short runs, whose figures mean nothing."""
    return [row for name in names or EXPERIMENTS for row in EXPERIMENTS[name](quick)]
