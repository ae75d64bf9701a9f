"""Snapshots of applications of different shapes, of any size, under different loads."""

from __future__ import annotations

import random
from collections.abc import Callable

from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager

SEED = 20161121

Dag = list[list[int]]  #: by task: the tasks it reads from


def taxi_apps(n: int, _: random.Random) -> Dag:
    """Small applications of two sources that both feed two queries, as in the source's evaluation."""
    return [[] if t % 4 < 2 else [t // 4 * 4, t // 4 * 4 + 1] for t in range(n // 4 * 4)]


def single(n: int, _: random.Random) -> Dag:
    """Queries that read a topic themselves, one task each."""
    return [[] for _ in range(n)]


def chain(n: int, _: random.Random) -> Dag:
    """One query at the end of a chain of all tasks."""
    return [[t - 1] if t else [] for t in range(n)]


def fan_out(n: int, _: random.Random) -> Dag:
    """One source that feeds all queries."""
    return [[0] if t else [] for t in range(n)]


def comb(n: int, _: random.Random) -> Dag:
    """A chain with a query at each link: every task of the chain reaches another set of queries."""
    return [[] if t == 0 else [t - 1] if t % 2 else [t - 2] for t in range(n)]


def mesh(n: int, rng: random.Random) -> Dag:
    """Twenty layers; each task reads from two tasks of the layer before."""
    width = max(n // 20, 1)
    return [
        [] if t < width else sorted(rng.sample(range(t // width * width - width, t // width * width), min(2, width)))
        for t in range(n)
    ]


def tangle(n: int, rng: random.Random) -> Dag:
    """Each task reads from two earlier tasks, any: reaching sets are large, different and scattered."""
    return [sorted(rng.sample(range(t), 2)) if t >= max(n // 100, 2) else [] for t in range(n)]


SHAPES: dict[str, Callable[[int, random.Random], Dag]] = {
    "taxi apps": taxi_apps,
    "single": single,
    "chain": chain,
    "fan-out": fan_out,
    "comb": comb,
    "mesh": mesh,
    "tangle": tangle,
}


#: CPU of the two task managers / CPU that their instances use
LOADS = {"calm": (2.0, 2.0), "shedding": (0.9, 0.8), "killing": (0.25, 1.5)}


def snapshot(shape: str, n: int, load: str, priorities: int, seed: int = SEED) -> Snapshot:
    """About n tasks of that shape, an instance each (every fifth query has two), on two task managers."""
    rng = random.Random(seed)
    upstream = SHAPES[shape](n, rng)
    feeding = {source for sources in upstream for source in sources}
    accuracy = 0.7  # share that each source passes on now
    tasks = []
    streams = []
    instances = []
    used = [0.0, 0.0]
    for t, sources in enumerate(upstream):
        name = f"t{t}"
        query = t not in feeding
        tasks.append(
            Task(
                name,
                tuple(f"t{source}" for source in sources),
                None if sources else 1000.0,
                rng.randrange(priorities) if query else None,
                round(rng.uniform(0.1, 0.6), 2) if query else None,
            )
        )
        rate = 1000.0 * accuracy
        streams += [Stream(f"t{source}", name, rate) for source in sources]
        arriving = rate * max(len(sources), 1)
        width = 2 if query and t % 5 == 0 else 1
        for k in range(width):
            cpu = rng.uniform(2.0, 60.0)
            manager = rng.randrange(2)
            used[manager] += cpu
            instances.append(Instance(f"{name}.{k + 1}", name, f"tm{manager + 1}", arriving / width, cpu, False))
    managers = tuple(
        TaskManager(f"tm{m + 1}", max(used[m] * LOADS[load][m] / 100, 0.01), used[m] * min(LOADS[load][m], 1))
        for m in range(2)
    )
    return Snapshot(managers, tuple(tasks), tuple(streams), tuple(instances))
