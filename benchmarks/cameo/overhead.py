"""What dispatching costs: figure 5.12, and how an hour of virtual time grows with its messages."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from random import Random

from benchmarks.cameo.rows import CAMEO
from benchmarks.cameo.runs import run
from benchmarks.cameo.workload import calibration, jobs
from benchmarks.findings import Row
from qod_magics.core.engines import CLIENT, MS, Message, OperatorInfo, Topology
from qod_magics.policies.of_engines import dispatcher

US_PER_S = 1e6
QUICK_S = 3.0


def dispatch_us(name: str, tenants: int, messages: int) -> float:
    """CPU of a dispatcher a message, us: all its calls for one message of a tenant after another, on one worker."""
    infos = tuple(OperatorInfo(f"job{i}", i, 0, (), 800 * MS, 1000 * MS, 0, 1000 * MS) for i in range(tenants))
    made = dispatcher(name)
    made.begin(Topology(infos, (0,), tuple((i,) for i in range(tenants))))
    rounds = [
        [Message(i, i, CLIENT, number * 1000 * MS, observed=number * 1000 * MS + i, source=i) for i in range(tenants)]
        for number in range(1, messages // tenants + 1)
    ]
    began = time.process_time()
    for batch in rounds:
        now = batch[-1].observed
        for message in batch:
            made.made(now, CLIENT, message)
            made.arrived(now, 0, message)
        running = [*made.settle(now)]
        while running:
            now += MS
            made.finished(now, 0, running[0].message)
            running = [*made.settle(now)]
    return (time.process_time() - began) / (len(rounds) * tenants) * US_PER_S


def aggregation_us(rows: int, repeat: int) -> float:
    """CPU of a sum by key over a batch of rows, us, in plain Python."""
    random = Random(1)
    batch = [(random.randrange(64), random.random()) for _ in range(rows)]
    began = time.process_time()
    for _ in range(repeat):
        sums: dict[int, float] = defaultdict(float)
        for key, value in batch:
            sums[key] += value
    return (time.process_time() - began) / repeat * US_PER_S


def overhead(quick: bool = False) -> list[Row]:
    """Dispatching beside the work (5.12), measured: CPU of this machine, not virtual time."""
    found = calibration("overhead")
    tenants = found["tenants"]
    messages = tenants * (2 if quick else 60)
    ours, plain = (min(dispatch_us(name, tenants, messages) for _ in range(3)) for name in ("cameo", "fifo"))
    message_us = US_PER_S / tenants  # a saturated thread with a message a second of each tenant
    share = ours / message_us
    sizes = found["batch_rows"]
    shares = {rows: ours / (ours + aggregation_us(rows, 20 if quick else 400)) for rows in sizes}
    words = ", ".join(f"{rows} rows {each:.0%}" for rows, each in shares.items())
    falls = all(shares[one] > shares[two] for one, two in itertools.pairwise(sizes))
    return [
        CAMEO.held(
            "5.12",
            "dispatching by the time of a no-op message at saturation",
            "below 15 %",
            f"{share:.2%}",
            share < 0.15,
            f"{ours:.1f} us of CPU a message, FIFO {plain:.1f}, of the source's {message_us / 1000:.1f} ms a message "
            f"({tenants} tenants saturate a thread)",
        ),
        CAMEO.row(
            "5.12",
            "of that: scheduling, and making priorities",
            "4 % and 11 %",
            f"{plain:.1f} and {ours - plain:.1f} us",
            "not decidable",
            "shares of another engine's messages, in another language",
        ),
        CAMEO.held(
            "5.12",
            "share of dispatching beside a local aggregation as its batch grows",
            "falling",
            words,
            falls,
            "the work is a sum by key in plain Python",
        ),
        CAMEO.row(
            "5.12",
            "the same at 1 row",
            "6.4 %",
            f"{shares[sizes[0]]:.0%}",
            "not decidable",
            "the source's execution of a row includes its engine, ours does not",
        ),
    ]


def speeds(quick: bool = False) -> dict[float, tuple[int, float]]:
    """Messages and CPU seconds of 4 LS and 20 BA jobs, by seconds of virtual time."""
    found = calibration("speed", quick)
    of = jobs(found["jobs"], found["counts"])
    taken: dict[float, tuple[int, float]] = {}
    for seconds in [QUICK_S] if quick else found["seconds"]:
        by = run(of, "cameo", found["cluster"], seconds)
        taken[seconds] = by.engine.books.made, by.cpu_s
    return taken
