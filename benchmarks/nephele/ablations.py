"""What each choice is worth: the video job in small, with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.nephele.video import PROCESSES, VideoRun, run, scenario

SECONDS = 450.0
PARALLELISM = 4
STREAMS = 16  #: one group for each pipeline, each on a channel of its own
NESTED = {"sequence": ["e(P,D)", "D", "e(D,M)"], "limit_ms": 110, "span_s": 15}

#: name -> keys of the scenario that change, parameters
CHANGES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "as it is": ({}, {}),
    "interval 5 s": ({"interval_s": 5}, {}),
    "interval 30 s": ({"interval_s": 30}, {}),
    "t 5 s": ({"span_s": 5}, {}),
    "t 30 s": ({"span_s": 30}, {}),
    "r 0.9": ({}, {"r": 0.9}),
    "r 0.995": ({}, {"r": 0.995}),
    "min_factor 0.1": ({}, {"min_factor": 0.1}),
    "chaining together with buffers": ({}, {"chaining": "together"}),
    "chaining never": ({}, {"chaining": "never"}),
    "queues are drained": ({}, {"queued": "drain"}),
    "Merger stays apart": ({}, {"never_chain": ["M"]}),
    "a nested constraint: e1, D, e2 in 110 ms": ({"nested": True}, {}),
}


def changed(name: str, seconds: float = SECONDS) -> VideoRun:
    """The job with this change."""
    keys, parameters = CHANGES[name]
    keys = dict(keys)
    value = scenario(PARALLELISM, seconds, STREAMS)
    span = keys.pop("span_s", None)
    if span is not None:
        value["constraints"] = [{**each, "span_s": span} for each in value["constraints"]]
    if keys.pop("nested", False):
        value["constraints"].append(NESTED)
    return run({**value, **keys}, "nephele", parameters)


def tables() -> Iterator[str]:
    """A row for each change."""
    yield f"{PARALLELISM} tasks of each type, {STREAMS} streams, {SECONDS:g} s"
    columns = (
        "mean, ms",
        "worst, ms",
        "converged after, s",
        "last change, s",
        "resizes",
        "chains",
        "reports",
        "out / in",
    )
    yield f"| change | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for name, found in zip(CHANGES, pool.map(changed, CHANGES), strict=True):
            kinds = [kind for _, kind in found.actions]
            counts = " | ".join(str(kinds.count(kind)) for kind in ("Resize", "Chain", "CannotBeMet"))
            last = "-" if found.last_action_s is None else f"{found.last_action_s:.0f}"
            yield (
                f"| {name} | {found.settled_mean:.0f} | {found.settled_most:.0f} | {found.converged_s:.0f} | {last} "
                f"| {counts} | {found.kept_up:.3f} |"
            )
