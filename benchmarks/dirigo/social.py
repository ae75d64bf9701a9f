"""A social network: parser, then compose post, read user timeline or read home timeline (figures 6.12 to 6.15)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import pstdev

from benchmarks.dirigo.setup import ACCEPT, DIRIGO, FIVE, LAXITY, QUEUE, REJECT, STATIC, Measured, calibration, measured
from benchmarks.findings import Row
from qod_magics.core.engines import MS, S
from qod_magics.simulator.messages import Job, Source, Stage, Store
from qod_magics.simulator.messages.dataflow import Arrivals, ClientMessages, Sent

Runs = dict[str, Measured]


@dataclass(frozen=True, slots=True)
class Spikes:
    """Requests whose most popular worker changes: at one mean rate, each interval draws a Pareto weight per worker."""

    per_s: float
    users: int
    workers: int
    shape: float
    interval_s: float
    has_keys = True

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        draw = Random(seed)
        at, change = 0.0, 0.0
        weights: list[float] = []
        while True:
            at += draw.expovariate(self.per_s) * S
            if at >= until:
                return
            if at >= change:
                weights = [draw.paretovariate(self.shape) for _ in range(self.workers)]
                change += self.interval_s * S
            (worker,) = draw.choices(range(self.workers), weights)
            user = draw.randrange(self.users // self.workers) * self.workers + worker
            yield Sent(round(at), round(at), 1, user)


@dataclass(frozen=True, slots=True)
class Popular:
    """Requests of which a share comes from few users."""

    per_s: float
    users: int
    popular: float  #: share of the users
    share: float  #: of the requests that they make
    has_keys = True

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        draw = Random(seed)
        few = max(round(self.users * self.popular), 1)
        at = 0.0
        while True:
            at += draw.expovariate(self.per_s) * S
            if at >= until:
                return
            user = draw.randrange(few) if draw.random() < self.share else draw.randrange(self.users)
            # users are spread over the workers by a fixed permutation
            yield Sent(round(at), round(at), 1, user * 7919 % self.users)


def run(
    policy: str,
    *,
    capacity: int | None = 0,
    load: float | None = None,
    size: int | None = None,
    popular: float | None = None,
    moving: bool = False,
    users: int | None = None,
    workers: int | None = None,
    seconds: float | None = None,
    warm: float | None = None,
    scale: float = 1.0,
) -> Measured:
    """Requests of users to one of three functions; each reads the state object of its user."""
    with_ = calibration("social")
    workers, count = workers or with_["workers"], users or with_["users"]
    mean = with_["parse_ms"] + sum(with_["shares"][name] * with_["task_ms"][name] for name in with_["shares"])
    if capacity == 0:
        mean += with_["read_ms"]
    per_s = (load or with_["load"]) * workers * 1000 / mean
    jobs = []
    for name, share in with_["shares"].items():
        rate = per_s * share
        arrivals: ClientMessages = Arrivals(per_s=rate, rows=1, keys=count, zipf=with_["zipf"], poisson=True)
        if popular is not None:
            arrivals = Popular(rate, count, popular, with_["popular_share"])
        if moving:
            arrivals = Spikes(rate, count, workers, with_["moving_shape"], with_["moving_interval_s"])
        jobs.append(
            Job(
                name,
                (
                    Stage("parse", ("users",), width=workers, exchange="turns", fixed_us=with_["parse_ms"] * 1000),
                    Stage(
                        "serve",
                        ("parse",),
                        width=workers,
                        exchange="key",
                        fixed_us=with_["task_ms"][name] * 1000,
                        stateful=True,
                    ),
                ),
                (Source("users", arrivals=arrivals),),
                max_latency_ms=with_["target_ms"],
            )
        )
    store = Store(
        round(with_["read_ms"] * MS),
        bytes_per_s=with_["bytes_per_s"],
        object_bytes=size or with_["object_bytes"],
        capacity=capacity,
        workers=workers,
    )
    return measured(
        jobs,
        policy,
        workers=workers,
        delay_ms=with_["delay_ms"],
        seconds=seconds or with_["seconds"] * scale,
        store=store,
        drain=3,
        warm=with_["warm"] if warm is None else warm,
    )


def _all(policies: tuple[str, ...] = FIVE, **options: object) -> Runs:
    return {policy: run(policy, **options) for policy in policies}  # type: ignore[arg-type]


def no_cache(scale: float = 1.0) -> list[Row]:
    """Figure 6.12a, and balance (6.13)."""
    found = _all(scale=scale)
    tail = {p: m.tail_ms for p, m in found.items()}
    middle = {p: m.median_ms for p, m in found.items()}
    worse_tail, worse_middle = max(tail[REJECT], tail[ACCEPT]), max(middle[REJECT], middle[ACCEPT])
    rows = [
        DIRIGO.factor(
            "6.12a",
            "tail without a cache, QueueBasedDirect over static",
            0.64,
            tail[QUEUE] / tail[STATIC],
            calibrated=True,
        ),
        DIRIGO.factor("6.12a", "tail, QueueBasedDirect over the worse offloading", 0.74, tail[QUEUE] / worse_tail),
        DIRIGO.factor("6.12a", "tail, LaxityBasedDirect over static", 0.67, tail[LAXITY] / tail[STATIC]),
        DIRIGO.factor("6.12a", "tail, LaxityBasedDirect over the worse offloading", 0.74, tail[LAXITY] / worse_tail),
        DIRIGO.factor("6.12a", "median, LaxityBasedDirect over static", 0.72, middle[LAXITY] / middle[STATIC]),
        DIRIGO.factor(
            "6.12a", "median, LaxityBasedDirect over the worse offloading", 0.77, middle[LAXITY] / worse_middle
        ),
        DIRIGO.factor(
            "6.12a",
            "median, LaxityBasedDirect over QueueBasedDirect",
            0.73,
            middle[LAXITY] / middle[QUEUE],
            "laxity decides only where one of two workers fits, and the shorter queue else",
        ),
    ]
    spread = {p: pstdev(m.busy) / (sum(m.busy) / len(m.busy)) for p, m in found.items()}
    words = ", ".join(f"{p} {each:.2f}" for p, each in spread.items())
    held = (
        max(spread[QUEUE], spread[LAXITY]) < min(spread[REJECT], spread[ACCEPT])
        and max(spread[REJECT], spread[ACCEPT]) < spread[STATIC]
    )
    rows.append(
        DIRIGO.held(
            "6.13",
            "balance of the workers: dynamic binding, then offloading, then static",
            "this order",
            words,
            held,
            "deviation of the workers' utilisation over its mean",
        )
    )
    return rows


def with_cache(scale: float = 1.0) -> list[Row]:
    """Figure 6.12b."""
    found = _all(capacity=_fits(), scale=scale)
    tail = {p: m.tail_ms for p, m in found.items()}
    middle = {p: m.median_ms for p, m in found.items()}
    slow_tail, slow_middle = max(tail[QUEUE], tail[LAXITY]), max(middle[QUEUE], middle[LAXITY])
    return [
        DIRIGO.factor(
            "6.12b",
            "median with a cache, AcceptAndCheck over dynamic binding",
            0.67,
            middle[ACCEPT] / slow_middle,
            calibrated=True,
        ),
        DIRIGO.factor("6.12b", "tail, AcceptAndCheck over dynamic binding", 0.79, tail[ACCEPT] / slow_tail),
        DIRIGO.factor("6.12b", "tail, AcceptAndCheck over static", 0.83, tail[ACCEPT] / tail[STATIC]),
        DIRIGO.factor("6.12b", "median, RejectSend over dynamic binding", 0.69, middle[REJECT] / slow_middle),
        DIRIGO.factor("6.12b", "tail, RejectSend over dynamic binding", 0.92, tail[REJECT] / slow_tail),
        DIRIGO.factor("6.12b", "median, RejectSend over static", 1.0, middle[REJECT] / middle[STATIC]),
    ]


def _fits() -> int:
    """Objects in the cache of a worker with which static binding misses none for want of room."""
    with_ = calibration("social")
    return math.ceil(3 * with_["users"] / with_["workers"])


def capacity(scale: float = 1.0) -> list[Row]:
    """Figure 6.14a."""
    with_ = calibration("social")
    sizes = with_["capacities"]
    options = {"users": with_["capacity_users"], "workers": with_["capacity_workers"], "load": with_["capacity_load"]}
    seconds = with_["capacity_seconds"] * scale
    first, second, third = sizes
    wanted = {first: (STATIC, ACCEPT), second: (STATIC, ACCEPT, LAXITY), third: (STATIC,)}
    found = {c: _all(policies, capacity=c, seconds=seconds, warm=0.0, **options) for c, policies in wanted.items()}
    rows = [
        DIRIGO.factor(
            "6.14a",
            f"fetches from {first} to {second} objects, {name}",
            source,
            found[first][policy].fetches / found[second][policy].fetches,
            "a run's first reads miss whatever fits, and are counted here",
            calibrated=policy == ACCEPT,
        )
        for name, policy, source in (("AcceptAndCheck", ACCEPT, 3.7), ("static", STATIC, 3.8))
    ]
    flat = found[second][STATIC].fetches / found[third][STATIC].fetches
    rows.append(DIRIGO.factor("6.14a", f"fetches from {second} to {third} objects, static", 1.0, flat))
    best = found[second]
    rows += [
        DIRIGO.factor(
            "6.14a", "tail, LaxityBasedDirect over AcceptAndCheck", 0.83, best[LAXITY].tail_ms / best[ACCEPT].tail_ms
        ),
        DIRIGO.factor(
            "6.14a", "tail, LaxityBasedDirect over static", 0.84, best[LAXITY].tail_ms / best[STATIC].tail_ms
        ),
        DIRIGO.factor(
            "6.14a",
            "median, LaxityBasedDirect over AcceptAndCheck",
            1.31,
            best[LAXITY].median_ms / best[ACCEPT].median_ms,
        ),
    ]
    return rows


def object_size(scale: float = 1.0) -> list[Row]:
    """Figure 6.14b."""
    sizes = calibration("social")["sizes"]
    found = {size: _all((STATIC, ACCEPT, LAXITY), capacity=_fits(), size=size, scale=scale) for size in sizes}
    small, large = found[sizes[0]], found[sizes[-1]]
    others = max(large[STATIC].fetches, large[ACCEPT].fetches)
    label = f"{sizes[0]} to {sizes[-1]} bytes"
    return [
        DIRIGO.factor("6.14b", f"fetches, {label}, static", 1.0, large[STATIC].fetches / small[STATIC].fetches),
        DIRIGO.factor("6.14b", "fetches, LaxityBasedDirect over the others", 5.0, large[LAXITY].fetches / others),
        DIRIGO.factor(
            "6.14b", f"tail, {label}, LaxityBasedDirect", 1.21, large[LAXITY].tail_ms / small[LAXITY].tail_ms
        ),
        DIRIGO.factor(
            "6.14b", f"median, {label}, LaxityBasedDirect", 1.26, large[LAXITY].median_ms / small[LAXITY].median_ms
        ),
        DIRIGO.factor(
            "6.14b", "fetches, AcceptAndCheck over static", 1.045, large[ACCEPT].fetches / large[STATIC].fetches
        ),
    ]


def popularity(scale: float = 1.0) -> list[Row]:
    """Figure 6.15a."""
    shares = calibration("social")["popular_users"]
    found = {share: _all((STATIC, ACCEPT, LAXITY), capacity=_fits(), popular=share, scale=scale) for share in shares}
    wide, narrow = found[shares[0]], found[shares[-1]]
    gain = narrow[LAXITY].success / max(narrow[ACCEPT].success, narrow[STATIC].success)
    return [
        DIRIGO.factor("6.15a", "success at 0.01, LaxityBasedDirect over the others", 1.1, gain),
        DIRIGO.factor(
            "6.15a",
            "tail at 0.01, AcceptAndCheck over LaxityBasedDirect",
            3.5,
            narrow[ACCEPT].tail_ms / narrow[LAXITY].tail_ms,
        ),
        DIRIGO.factor(
            "6.15a", "tail at 0.01, static over LaxityBasedDirect", 7.2, narrow[STATIC].tail_ms / narrow[LAXITY].tail_ms
        ),
        DIRIGO.factor(
            "6.15a", "fetches from 0.1 to 0.01, LaxityBasedDirect", 0.55, narrow[LAXITY].fetches / wide[LAXITY].fetches
        ),
    ]


def moving(scale: float = 1.0) -> list[Row]:
    """Figure 6.15b, and the two factors of the abstract."""
    found = _all((STATIC, ACCEPT, LAXITY), capacity=_fits(), moving=True, scale=3 * scale)
    return [
        DIRIGO.factor("6.15b", "tail, AcceptAndCheck over static", 0.4, found[ACCEPT].tail_ms / found[STATIC].tail_ms),
        DIRIGO.factor(
            "6.15b",
            "fetches, LaxityBasedDirect over AcceptAndCheck",
            19.0,
            found[LAXITY].fetches / found[ACCEPT].fetches,
        ),
        DIRIGO.factor(
            "6.15b",
            "median, LaxityBasedDirect over AcceptAndCheck",
            2.0,
            found[LAXITY].median_ms / found[ACCEPT].median_ms,
        ),
    ]
