"""Windowed aggregates over Nexmark's bids: the highest bid, and counts of prices in buckets (figures 6.18 to 6.20)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from benchmarks.dirigo.setup import DIRIGO, LAXITY, MADE, REJECT, STATIC, Measured, calibration, measured
from benchmarks.findings import Row, is_near
from qod_magics.core.engines import MS, Dispatcher, Instruction, Kind, Message
from qod_magics.policies.dirigo import Options
from qod_magics.simulator.messages import Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Arrivals

HIGHEST, BUCKETS = "highest bid", "quantisation"


class Watch:
    """A dispatcher that notes when the state of each window was last updated, and its last bid made."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.updated: dict[tuple[int, int], int] = {}  #: by operator and window, ns
        self.newest: dict[tuple[int, int], int] = {}
        self.closed: set[tuple[int, int]] = set()
        self._infos: Any = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)

    def begin(self, topology: Any) -> None:
        self._infos = topology.operators
        self._dispatcher.begin(topology)

    def finished(self, now: int, worker: int, message: Message) -> Iterable[Instruction]:
        info = self._infos[message.operator]
        if info.partial and message.kind is Kind.DATA:
            after = 1 + (message.progress if message.event_time < 0 else message.event_time)
            window = (message.operator, after + (info.origin - after) % info.slide)
            self.updated[window] = now
            self.newest[window] = max(self.newest.get(window, 0), message.observed)
        elif info.partial and message.kind is Kind.MARKER:
            window = (message.operator, message.progress)
            if window in self.updated:
                self.updated[window] = now
                self.newest[window] = max(self.newest[window], message.observed)
                self.closed.add(window)
        return self._dispatcher.finished(now, worker, message)

    def aggregation_ms(self) -> float:
        """Median over windows, of the last update of the state after the last bid."""
        return (
            float(np.median([self.updated[each] - made for each, made in self.newest.items() if each in self.closed]))
            / MS
        )


@cache
def run(
    query: str, policy: str, *, window_s: float | None = None, number: int | None = None, scale: float = 1.0
) -> tuple[Measured, float]:
    """A run, and its latency of aggregation, ms."""
    with_ = calibration("nexmark")
    length = window_s or with_["window_s"]
    width = 1 if query == HIGHEST else with_["buckets"]
    bids = Stage(
        "bids",
        ("bidders",),
        width=width,
        exchange="key",
        fixed_us=with_["bid_ms"] * 1000,
        slide_ms=length * 1000,
        partial=True,
        hand_on_us=with_["hand_on_ms"] * 1000,
    )
    merge = Stage("merge", ("bids",), fixed_us=with_["merge_ms"] * 1000 / width)
    load = with_["highest_load"] if query == HIGHEST else with_["load"] * width + with_["hot_load"]
    per_s = load * 1000 / with_["bid_ms"]
    # the first bucket has the hot share on top of an equal one
    exponent = _exponent(width, (with_["hot_load"] + with_["load"]) / load) if width > 1 else 0.0
    arrivals = Arrivals(per_s=per_s / with_["sources"], rows=1, keys=width, zipf=exponent, poisson=True)
    job = Job(
        "job", (bids, merge), (Source("bidders", clients=with_["sources"], arrivals=arrivals),), with_["target_ms"]
    )
    if number is None:
        number = with_["range_reject"] if policy == REJECT else with_["range_laxity"]
    options = Options(parallelism_range=number, marker_cost=round(with_["marker_ms"] * MS))
    watch = Watch(MADE[policy](options))
    seconds = length * (max(round(with_["windows"] * scale * with_["window_s"] / length), 1) + 0.5)
    places = {f"job/bids/{k}": k * with_["workers"] // width for k in range(width)} | {
        "job/merge/0": with_["workers"] - 1
    }
    found = measured(
        [job],
        policy,
        workers=with_["workers"],
        delay_ms=with_["delay_ms"],
        seconds=seconds,
        dispatcher=watch,  # type: ignore[arg-type]
        drain=5,
        places=places,
    )
    return found, watch.aggregation_ms()


def _exponent(number: int, share: float) -> float:
    """Of a Zipf popularity whose first of `number` has this share."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        first = 1 / sum((k + 1) ** -middle for k in range(number))
        low, high = (middle, high) if first < share else (low, middle)
    return middle


def gain(query: str, window_s: float | None, scale: float) -> tuple[float, float]:
    """By how much RejectSend's median and tail are lower than LaxityBasedDirect's, shares."""
    reject, laxity = (run(query, policy, window_s=window_s, scale=scale)[0] for policy in (REJECT, LAXITY))
    return 1 - reject.median_ms / laxity.median_ms, 1 - reject.tail_ms / laxity.tail_ms


def queries(scale: float = 1.0) -> list[Row]:
    """Figure 6.18."""
    rows = []
    for query, middle, tail in ((HIGHEST, 0.70, 0.66), (BUCKETS, 0.91, 0.91)):
        found = gain(query, None, scale)
        rows.append(DIRIGO.factor("6.18", f"median, RejectSend over LaxityBasedDirect, {query}", middle, 1 - found[0]))
        rows.append(DIRIGO.factor("6.18", f"tail, RejectSend over LaxityBasedDirect, {query}", tail, 1 - found[1]))
    more = run(HIGHEST, LAXITY, scale=scale)[1] - run(HIGHEST, REJECT, scale=scale)[1]
    why = "a marker costs its receiver CPU here, its sender none"
    rows.append(
        DIRIGO.held(
            "6.18",
            "LaxityBasedDirect's pre-aggregation, highest bid",
            "+130 ms",
            f"{more:+.0f} ms",
            is_near(130, more),
            why,
        )
    )
    return rows


def windows(scale: float = 1.0) -> list[Row]:
    """Figure 6.19."""
    rows = []
    sizes = calibration("nexmark")["window_sizes_s"]
    for query, source in ((BUCKETS, (9, 35, 51)), (HIGHEST, (44, 52, 49))):
        for size, percent in zip(sizes, source, strict=True):
            found = gain(query, size, scale)[0]
            rows.append(
                DIRIGO.factor(
                    "6.19",
                    f"median, RejectSend over LaxityBasedDirect, {query}, windows of {size:g} s",
                    1 - percent / 100,
                    1 - found,
                    "only the largest window's length is given",
                )
            )
    return rows


def ranges(scale: float = 1.0) -> list[Row]:
    """Figure 6.20."""
    with_ = calibration("nexmark")
    static = run(BUCKETS, STATIC, scale=scale)[0].median_ms
    found = {
        policy: [run(BUCKETS, policy, number=n, scale=scale)[0].median_ms for n in with_["ranges"]]
        for policy in (REJECT, LAXITY)
    }
    at = dict(zip(with_["ranges"], zip(found[REJECT], found[LAXITY], strict=True), strict=True))

    def stable(policy: int) -> int:
        """The smallest range from which on medians differ by less than a tenth from the last one's."""
        medians = [at[n][policy] for n in with_["ranges"]]
        good = [n for k, n in enumerate(with_["ranges"]) if all(abs(m / medians[-1] - 1) <= 0.1 for m in medians[k:])]
        return int(good[0])

    words = ", ".join(f"N={n}: {r:.0f} and {x:.0f}" for n, (r, x) in at.items())
    return [
        DIRIGO.held(
            "6.20",
            "medians, RejectSend and LaxityBasedDirect: with a small N, worse than static",
            "worse",
            f"{words}; static {static:.0f} ms",
            at[2][0] > static or at[2][1] > static,
        ),
        DIRIGO.held("6.20", "RejectSend is stable from N on", "4", str(stable(0)), is_near(4, stable(0))),
        DIRIGO.held("6.20", "LaxityBasedDirect is stable from N on", "12", str(stable(1)), is_near(12, stable(1))),
        DIRIGO.held(
            "6.20",
            "RejectSend at 4 is better than LaxityBasedDirect at 8",
            "better",
            f"{at[4][0]:.1f} against {at[8][1]:.1f} ms",
            at[4][0] < at[8][1],
        ),
    ]
