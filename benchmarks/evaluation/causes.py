"""Why figures fall short, in words with figures from the results. Pure.

Each cause was looked for in recordings or in the simulator; where a function finds other facts than those it knows a
cause for, it says that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import correlation, median
from typing import Any

from benchmarks.evaluation.goodput import OVERHEAD_OF_TASK, PLANNED, QUERIES, READ_US, most_possible, used

Figures = Mapping[str, Any]

FELL = 0.05  #: of a planned accuracy, that counts as a fall, fraction of 1
SOON_S = 20.0  #: after a fall, while rows that were sent before it are still read
STEADY = 0.05  #: relative change of a rate from cycle to cycle that is none


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
            f"{told}, {fall[2]:.0f} s after its plan fell from {fall[0]:.2f} to {fall[1]:.2f}. Rows that waited in a "
            "stream then had been sent under the old plan and are shed when they are read; the share of them that is "
            "kept and that of the rows that the source sheds meanwhile are of different rows, but are multiplied."
        )
    spread = _spread(cycle, query, float(run["period_s"]))
    if spread is not None and -margin <= 3 * spread:
        return (
            f"{told}. Each row is kept or dropped by chance: at that rate and accuracy the share that is kept in a "
            f"period scatters by {spread:.3f} (one standard deviation)."
        )
    return f"{told}. It is more than chance, and the plan had not just fallen: why is not known."


def _spread(cycle: Figures, query: str, period_s: float) -> float | None:
    """The standard deviation of the share that is kept of a period's rows, where each is kept with the minimum
    accuracy; None where the query's input is not known. A query behind sources has the rows of all of them."""
    rates = {edge: rate for edge, rate in cycle["input_rate"].items() if ">" not in edge and rate}
    rate = rates.get(query) or sum(
        rates.get(edge.partition(">")[0], 0.0) for edge in cycle["input_rate"] if edge.endswith(f">{query}")
    )
    share = cycle["minimum"][query]
    return sqrt(share * (1 - share) / (rate * period_s)) if rate else None


def few_cycles(runs: Sequence[Figures]) -> str:
    """Why the mean of |curAc - ac| is what it is."""
    middle = median(run["error_median"] for run in runs)
    share = median(run["error_of_worst"] for run in runs)
    return (
        f"In half of the cycles it is below {100 * middle:.1f} %; the five worst make up {100 * share:.0f} % of the "
        "sum. In those the load has just changed or instances have moved, and rows are counted that were read under "
        "the plans before."
    )


def moved_no_further(runs: Sequence[Figures]) -> str:
    """Why not all instances of TDSnk1 end on the second task manager."""
    moved = [[move["instance"] for move in run["moves"] if move["phase"] == "heavier"] for run in runs]
    went = " or ".join(dict.fromkeys(", ".join(each) or "nothing" for each in moved))
    last = [[cycle for cycle in run["series"] if cycle["phase"] == "heavier"][-1]["accuracy"] for run in runs]
    reached = " and ".join(f"{median(each[query] or 0.0 for each in last):.2f} ({query})" for query in last[0])
    return (
        "Instances move only while a task manager can't give its tasks their minimum accuracies, and of them no more "
        f"than is needed: {went}. At the end of the phase accuracies were {reached}."
    )


def follows_later(runs: Sequence[Figures]) -> str:
    """Why accuracy and 1 / rate of the same cycle are less alike than they could be."""
    planned, one, two, steady = (median(found) for found in zip(*map(_alike, runs), strict=True))
    return (
        "Accuracy follows the rate, but not within the cycle: a plan is made from the cycle's rate, and what is "
        "measured is the rows of the plans before. With 1 / rate of the same cycle the planned accuracy correlates by "
        f"{planned:.2f}; the measured one by {one:.2f} with that of the cycle before and by {two:.2f} with that of two "
        f"before, and in cycles whose rate is that of the cycle before by {steady:.2f}."
    )


def _alike(run: Figures) -> Iterator[float]:
    """Correlations with 1 / rate: of the planned accuracy, of the measured one one and two cycles later, and of the
    measured one in cycles of a steady rate."""
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
    """Why the top query doesn't get what it would get without the others. `load` is what is offered, times the core."""
    share = most_possible(tuple(QUERIES), load)[0] / most_possible(("top",), load)[0]
    each, others = 100 * OVERHEAD_OF_TASK, len(QUERIES) - 1
    return (
        f"A query uses {each:.0f} % of the core whatever it processes, and none may be stopped: the {others} others "
        f"take {others * each:.0f} % of the {100 * PLANNED:.0f} % that may be planned with. Where "
        f"all of that is used, the top one can have {share:.2f} of what it can have alone."
    )


def reads_more(load: float) -> str:
    """Why less work is done under more load, at best."""
    once, now = most_possible(tuple(QUERIES), 1.0), most_possible(tuple(QUERIES), load)
    return (
        f"The source reads each row before it can drop it, {READ_US:g} us: at {load:g}x that is {100 * now[1]:.1f} % "
        f"of the core, at 1x {100 * once[1]:.1f} %. {now[2] / once[2]:.2f} is the most that leaves."
    )


def leaves_unused(policy: Figures, loads: Mapping[str, float], load: str) -> str:
    """The same for a policy that takes CPU for proportional to accuracy."""
    part = used({query: policy[load][query] for query in QUERIES}, loads[load])
    return (
        "It takes CPU for proportional to accuracy, also that of the source, most of which is for reading and does not "
        f"grow with it: it sets CPU aside for that, and {100 * part:.0f} % of the core are used where "
        f"{100 * PLANNED:.0f} % may be."
    )
