"""Why figures fall short, in words with figures from the results. Pure.

Each cause was established from recordings or in the simulator; where the figures show none of them, the text says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import correlation, median
from typing import Any

from benchmarks.evaluation.goodput import OVERHEAD_OF_TASK, PLANNED, QUERIES, READ_US, most_possible, used

Figures = Mapping[str, Any]

FELL = 0.05  #: decrease of a planned accuracy that counts as a fall, fraction of 1
SOON_S = 20.0  #: after a fall, while rows sent before it are still being read
STEADY = 0.05  #: relative change of a rate between cycles up to which it is steady


def under_a_minimum(runs: Sequence[Figures]) -> str:
    """Why the worst measured accuracy lies below its minimum."""
    number, run = min(enumerate(runs, 1), key=lambda each: min(each[1]["worst_margin"].values(), default=0.0))
    query, margin = min(run["worst_margin"].items(), key=lambda each: each[1])
    series = run["series"]
    place = min(
        (i for i, cycle in enumerate(series) if cycle["accuracy"].get(query) is not None),
        key=lambda i: abs(series[i]["accuracy"][query] - series[i]["minimum"][query] - margin),
    )
    cycle = series[place]
    value, at, phase = cycle["accuracy"][query], cycle["t"], cycle["phase"]
    told = f"The worst is {query}'s {value:.3f} at {at:.0f} s ({phase}) of run {number}"
    fall = next(
        (
            (before["planned"][query], after["planned"][query], cycle["t"] - after["t"])
            for before, after in reversed(list(pairwise(series[: place + 1])))
            if query in before["planned"] and before["planned"][query] - after["planned"][query] > FELL
        ),
        None,
    )
    if fall is not None and fall[2] <= SOON_S:
        return (
            f"{told}, {fall[2]:.0f} s after its plan fell from {fall[0]:.2f} to {fall[1]:.2f}. The backlog of a "
            "stream was sent under the old plan and is shed when it is read; the measured accuracy multiplies the "
            "share kept there by the share that the source keeps meanwhile, although these are of different rows."
        )
    spread = _spread(cycle, query, float(run["period_s"]))
    if spread is not None and -margin <= 3 * spread:
        return (
            f"{told}. Rows are dropped at random: at that rate and accuracy the share kept in a "
            f"period scatters by {spread:.3f} (one standard deviation)."
        )
    return f"{told}. That is beyond chance, and the plan had not just fallen: why is not known."


def _spread(cycle: Figures, query: str, period_s: float) -> float | None:
    """The standard deviation of the share kept of a period's rows, each kept with the minimum accuracy as probability;
    None if the query's input rate is unknown. A query behind sources reads the rows of all of them."""
    rates = {edge: rate for edge, rate in cycle["input_rate"].items() if ">" not in edge and rate}
    rate = rates.get(query) or sum(
        rates.get(edge.partition(">")[0], 0.0) for edge in cycle["input_rate"] if edge.endswith(f">{query}")
    )
    share = cycle["minimum"][query]
    return sqrt(share * (1 - share) / (rate * period_s)) if rate else None


def few_cycles(runs: Sequence[Figures]) -> str:
    """Why the mean of |curAc - ac| is not lower."""
    middle = median(run["error_median"] for run in runs)
    share = median(run["error_of_worst"] for run in runs)
    return (
        f"In half of the cycles the error is below {100 * middle:.1f} %; the five worst make up {100 * share:.0f} % of "
        "the sum. In these, the load has just changed or instances have moved, and rows read under earlier plans are "
        "counted."
    )


def moved_no_further(runs: Sequence[Figures]) -> str:
    """Why not all instances of TDSnk1 end on the second task manager."""
    moved = [[move["instance"] for move in run["moves"] if move["phase"] == "heavier"] for run in runs]
    went = " or ".join(dict.fromkeys(", ".join(each) or "nothing" for each in moved))
    last = [[cycle for cycle in run["series"] if cycle["phase"] == "heavier"][-1]["accuracy"] for run in runs]
    reached = " and ".join(f"{median(each[query] or 0.0 for each in last):.2f} ({query})" for query in last[0])
    return (
        "Instances move only while a task manager can't give its tasks their minimum accuracies, and no more of them "
        f"than needed: {went}. Accuracies at the end of the phase were {reached}."
    )


def follows_later(runs: Sequence[Figures]) -> str:
    """Why accuracy correlates less with 1 / rate of the same cycle than it could."""
    planned, one, two, steady = (median(found) for found in zip(*map(_alike, runs), strict=True))
    return (
        "Accuracy follows the rate, but not within the cycle: a plan is made from the cycle's rate, while the rows "
        "measured were read under earlier plans. Correlation with 1 / rate: the planned accuracy, in the same cycle, "
        f"{planned:.2f}; the measured one {one:.2f} with the rate of one cycle before, {two:.2f} with that of two "
        f"before, and {steady:.2f} in cycles whose rate is steady."
    )


def _alike(run: Figures) -> Iterator[float]:
    """Correlations with 1 / rate: the planned accuracy; the measured one, one and two cycles later; the measured one
    in cycles of steady rate."""
    cycles = [
        (1 / cycle["input_rate"]["KNN"], cycle["planned"]["KNN"], cycle["accuracy"]["KNN"])
        for cycle in run["series"]
        if cycle["phase"] == "changing" and cycle["accuracy"].get("KNN") is not None and cycle["input_rate"]["KNN"]
    ]
    inverse, planned, measured = (list(column) for column in zip(*cycles, strict=True))
    yield correlation(planned, inverse)
    for late in (1, 2):
        yield correlation(measured[late:], inverse[:-late])
    steady = [i for i in range(1, len(cycles)) if abs(inverse[i] / inverse[i - 1] - 1) < STEADY]
    yield correlation([measured[i] for i in steady], [inverse[i] for i in steady])


def others_run_too(load: float) -> str:
    """Why the top query gets less than alone. `load`: offered load, as a multiple of the core's capacity."""
    share = most_possible(tuple(QUERIES), load)[0] / most_possible(("top",), load)[0]
    each, others = 100 * OVERHEAD_OF_TASK, len(QUERIES) - 1
    return (
        f"A query uses {each:.0f} % of the core at any load, and none may be stopped: the {others} others "
        f"take {others * each:.0f} of the {100 * PLANNED:.0f} % that may be planned. With all of that in use, "
        f"the top query can reach {share:.2f} of its goodput alone."
    )


def reads_more(load: float) -> str:
    """Why even the best total goodput falls under more load."""
    once, now = most_possible(tuple(QUERIES), 1.0), most_possible(tuple(QUERIES), load)
    return (
        f"The source must read each row before dropping it, {READ_US:g} us: at {load:g}x that is {100 * now[1]:.1f} % "
        f"of the core, at 1x {100 * once[1]:.1f} %. At most {now[2] / once[2]:.2f} is possible."
    )


def leaves_unused(policy: Figures, loads: Mapping[str, float], load: str) -> str:
    """The same for a policy that assumes CPU proportional to accuracy."""
    part = used({query: policy[load][query] for query in QUERIES}, loads[load])
    return (
        "The policy assumes CPU proportional to accuracy, even at the source, where most CPU goes to reading and does "
        f"not grow with accuracy: it reserves too much, and {100 * part:.0f} % of the core is used where "
        f"{100 * PLANNED:.0f} % may be."
    )
