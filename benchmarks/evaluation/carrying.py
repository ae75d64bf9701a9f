"""Plain Spark's capacity for a recipe on one core, and its best batch bound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.evaluation.ages import ages, median_age
from benchmarks.evaluation.capacity import first, pid
from benchmarks.evaluation.cluster import Run, until
from benchmarks.evaluation.plain_query import plain_query
from benchmarks.evaluation.recipes import Recipe, scenario
from benchmarks.evaluation.sampler import Sampler
from benchmarks.evaluation.scenarios import LONG_S
from qod_magics.spark.queries.progress import Batch

FIRST_S = 0.25  #: of the saturating load: the batch bound while the capacity is unknown
WARM_S, AGAIN_S, MEASURED_S = 30.0, 5.0, 12.0  #: of a saturating load: first warm-up, later ones, and the measured rest
BOUNDS_S = (2.0, 5.0)  #: of its capacity
RISING, MOST_TIMES = 1.05, 10  #: measured again while the capacity rises by this factor; at most as often
NEAR = 0.9  #: of its capacity: the load under which bounds are tried
TRIED_S, LEAST_TRIED_S = 30.0, 6.0  #: at full length and at least; the second half counts
PATIENCE_S = 90.0


def carrying(run: Run, recipe: Recipe, scale: float) -> dict[str, Any]:
    """Capacity: the most rows/s of all topics together, under a saturating load and any bound, measured until it rises
    no more: the JVM has compiled the code then. The bound (rows; None: none) with the lowest age of rows at 0.9 of
    that, and the median age under each, seconds. And for how many seconds the core was saturated."""
    begun = time.monotonic()
    rates = risen(run, recipe, scale)
    rates.append(carried(run, recipe, round(BOUNDS_S[0] * max(rates)), scale, AGAIN_S))
    saturated_s = time.monotonic() - begun
    most = max(rates)
    bounds = [None, *(round(seconds * most) for seconds in BOUNDS_S)]
    tried = {str(bound): _age(run, recipe, bound, most, scale) for bound in bounds}
    known = {bound: age for bound in bounds if (age := tried[str(bound)]) is not None}
    if not known:
        raise RuntimeError("plain Spark ended no batch at 0.9 of its capacity: make the trial longer (--scale)")
    best = min(known, key=lambda bound: known[bound])
    return {"rows_s": most, "bound": best, "age_s_by_bound": tried, "tried_rows_s": rates, "saturated_s": saturated_s}


def risen(run: Run, recipe: Recipe, scale: float, queries: int = 1) -> list[float]:
    """Rows/s as `carried` measures them, again and again until they rise no more."""
    rates = [carried(run, recipe, round(FIRST_S * recipe.saturating), scale, queries=queries)]
    while len(rates) < MOST_TIMES and rates[-1] > RISING * max([0.0, *rates[:-1]]):
        rates.append(carried(run, recipe, round(BOUNDS_S[-1] * max(rates)), scale, AGAIN_S, queries))
    return rates


def carried(run: Run, recipe: Recipe, bound: int, scale: float, warm_s: float = WARM_S, queries: int = 1) -> float:
    """Rows/s of all topics together that each of `queries` equal queries processes, on average, under saturation."""
    session = run.session
    with ExitStack() as stack:
        started = [stack.enter_context(plain_query(session, recipe, bound)) for _ in range(queries)]

        def batches() -> list[Batch]:
            return [batch for query in started for batch in query.batches()]

        seen = stack.enter_context(Sampler(session.kafka, recipe.topics, pid(first(run)), batches))
        load = run.inject(scenario(recipe.topics, recipe.saturating, LONG_S))
        begin = time.time() + max(warm_s * scale, 2.0)
        run.wait(max((warm_s + MEASURED_S) * scale, 5.0))
        until(lambda: len(_since(seen.found, begin)) == queries, "a batch of each plain query", PATIENCE_S)
        load.stop()
        found = _since(seen.found, begin)
    return sum(map(_rate, found)) / queries


def _since(batches: Sequence[Batch], begin: float) -> list[list[Batch]]:
    """The batches that began after `begin`, by query."""
    by_run: dict[str, list[Batch]] = {}
    for batch in batches:
        if batch.start >= begin:
            by_run.setdefault(batch.run_id, []).append(batch)
    return list(by_run.values())


def _rate(batches: Sequence[Batch]) -> float:
    rows = sum(
        sum(feed.end.values()) - sum(feed.start.values()) for b in batches for feed in b.feeds if feed.start is not None
    )
    return rows / (batches[-1].end - batches[0].start)


def _age(run: Run, recipe: Recipe, bound: int | None, most: float, scale: float) -> float | None:
    """Median age of rows under a bound, seconds; None where no batch ended."""
    seconds = max(TRIED_S * scale, LEAST_TRIED_S)
    session = run.session
    with (
        plain_query(session, recipe, bound) as query,
        Sampler(session.kafka, recipe.topics, pid(first(run)), query.batches) as seen,
    ):
        load = run.inject(scenario(recipe.topics, NEAR * most, LONG_S))
        begin = time.time()
        run.wait(seconds)
        load.stop()
    return median_age(ages(seen.found, seen.ends, begin + seconds / 2, time.time()))
