"""`auto` beside the default policy, on every simulated scenario: the same load and the same task managers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from benchmarks.evaluation.clusters import ROOT, fallen, kept, paused, sample, taxi
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.simulator import Simulation
from qod_magics.testing.runs import Watched, watch

AUTO = "auto"
CLUSTERS = 24  #: random ones of each kind at full scale
LAST = 8  #: cycles that count as the end
#: Differences that count as none: of accuracies, and of lags in seconds of input.
SAME, SAME_S = 0.01, 1.0
#: What is compared, and whether more of it is better.
GOOD = {"processed": True, "end": True, "margin": True, "lag_s": False, "lag_end_s": False}


def compared(scale: float) -> dict[str, list[dict[str, Any]]]:
    """By group of scenarios: a pair of figures for each scenario."""
    return {
        name: [
            {policy: judged(watch(replace(each, policy=policy))) for policy in (DEFAULT_POLICY, AUTO)} for each in group
        ]
        for name, group in scenarios(scale).items()
    }


def scenarios(scale: float) -> Mapping[str, Sequence[Simulation]]:
    """Return the clusters of `clusters.py`, and those of tests/scenarios, by group."""
    clusters = max(round(scale * CLUSTERS), 2)
    return {
        "taxi": [taxi(seed) for seed in range(1, 6)],
        "random": list(sample(clusters)),
        "paused": [paused(each) for each in sample(clusters, 1.1)],
        "fallen": [fallen(each) for each in sample(clusters, 2.0)],
        **{path.stem: [kept(path.stem)] for path in sorted((ROOT / "tests" / "scenarios").glob("*.json"))},
    }


def judged(run: Watched) -> dict[str, Any]:
    """The figures of a run. By priority, rows processed / due: in all and in the last cycles; the worst of the queries
    in the last cycles, minus its minimum, at most 0; the largest and the last backlog, in seconds of input."""
    looks, truth = run.looks, run.truth
    due = dict.fromkeys(truth.tasks, 0.0)
    due_last = dict(due)
    lags = []
    for number, (before, look) in enumerate(pairwise(looks)):
        middle = (before.at_s + look.at_s) / 2
        for name, rate in truth.full(middle).items():
            rows = rate * (look.at_s - before.at_s)
            due[name] += rows
            if number >= len(looks) - 1 - LAST:
                due_last[name] += rows
        lags.append(look.waiting / max(truth.rate(middle), 1e-9))
    end, begin, last = looks[-1], looks[0], looks[-1 - LAST]

    def share(since: Any, of: Mapping[str, float], name: str) -> float:
        return (end.kept[name] - since.kept[name]) / of[name] if of[name] > 0 else 1.0

    margins = [share(last, due_last, q.id) - (q.min_accuracy or 0.0) for q in truth.queries]
    return {
        "processed": _by_priority(run, {q.id: share(begin, due, q.id) for q in truth.queries}),
        "end": _by_priority(run, {q.id: share(last, due_last, q.id) for q in truth.queries}),
        "margin": min(0.0, *margins),
        "lag_s": max(lags),
        "lag_end_s": lags[-1],
    }


def _by_priority(run: Watched, values: Mapping[str, float]) -> list[float]:
    """Means, from the highest priority down."""
    found: dict[int, list[float]] = {}
    for query in run.truth.queries:
        found.setdefault(query.priority or 0, []).append(min(values[query.id], 1.0))
    return [sum(found[priority]) / len(found[priority]) for priority in sorted(found, reverse=True)]


def difference(pair: Mapping[str, Any], what: str) -> float:
    """How much better `auto` is, in the figure's own unit; of accuracies, at the highest priority that differs."""
    usual, auto = pair[DEFAULT_POLICY][what], pair[AUTO][what]
    if isinstance(auto, Sequence):
        each = [a - b for a, b in zip(auto, usual, strict=True)]
        return next((one for one in each if abs(one) > SAME), each[0])
    return auto - usual if GOOD[what] else usual - auto


def is_worse(pair: Mapping[str, Any], what: str) -> bool:
    """Whether `auto` is worse by more than counts."""
    return difference(pair, what) < -(SAME_S if what.startswith("lag") else SAME)
