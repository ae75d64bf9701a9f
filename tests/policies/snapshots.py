"""Snapshots for tests: a writer for small ones, strategies for any valid one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager

#: any number a snapshot may hold, with those that make arithmetic misbehave
MEASURES = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 1.0, 50.0, 100.0, 1e9, 1.7e308]), st.floats(0.0, 1.7e308)
)
#: what a cluster does measure
CPU = st.one_of(st.just(0.0), st.floats(0.01, 100.0))
RATES = st.one_of(st.just(0.0), st.floats(0.1, 1e6))


@st.composite
def dags(draw: st.DrawFn, largest: int = 8) -> list[list[int]]:
    """By task, the tasks it reads from; listed in any order."""
    size = draw(st.integers(1, largest))
    upstream = [sorted(draw(st.sets(st.integers(0, t - 1), max_size=3))) if t else [] for t in range(size)]
    order = draw(st.permutations(range(size)))
    return [sorted(order.index(source) for source in upstream[t]) for t in order]


@st.composite
def snapshots(draw: st.DrawFn, *, wild: bool = False, warming: bool = True, most_managers: int = 3) -> Snapshot:
    """Any valid snapshot; with `wild` numbers of any size."""
    cpu, rates = (MEASURES, MEASURES) if wild else (CPU, RATES)
    cores = MEASURES.filter(bool) if wild else st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0])
    managers = tuple(TaskManager(f"tm{m}", draw(cores), draw(cpu)) for m in range(draw(st.integers(1, most_managers))))
    upstream = draw(dags())
    feeding = {source for sources in upstream for source in sources}
    accuracies = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
    tasks = tuple(
        Task(
            f"t{t}",
            tuple(f"t{source}" for source in sources),
            None if sources else draw(st.none() | rates),
            None if t in feeding else draw(st.integers(-1, 2)),
            None if t in feeding else draw(accuracies),
        )
        for t, sources in enumerate(upstream)
    )
    streams = tuple(Stream(f"t{s}", f"t{t}", draw(rates)) for t, sources in enumerate(upstream) for s in sources)
    instances = tuple(
        Instance(
            f"t{t}.{k}",
            f"t{t}",
            draw(st.sampled_from(managers)).id,
            draw(rates),
            draw(cpu),
            warming and draw(st.integers(0, 9)) == 0,
        )
        for t in range(len(tasks))
        for k in range(draw(st.integers(1, 2)))
    )
    return Snapshot(managers, tasks, streams, draw(st.permutations(instances).map(tuple)))


def one_manager(
    cpu: Mapping[str, float],
    *,
    priority: Mapping[str, int],
    min_accuracy: Mapping[str, float],
    accuracy: Mapping[str, float],
    cores: float = 1.0,
    used: float | None = None,
) -> Snapshot:
    """Independent queries of one task and one instance each on one task manager; `accuracy` is their current one."""
    return Snapshot(
        (TaskManager("tm1", cores, sum(cpu.values()) if used is None else used),),
        tuple(Task(q, (), 1000.0, priority[q], min_accuracy[q]) for q in cpu),
        (),
        tuple(Instance(f"{q}.1", q, "tm1", 1000.0 * accuracy[q], load, False) for q, load in cpu.items()),
    )


def chain_of(names: Sequence[str]) -> tuple[tuple[Task, ...], tuple[Stream, ...]]:
    """Tasks in a row, the last a query."""
    tasks = tuple(
        Task(
            name,
            (names[i - 1],) if i else (),
            None if i else 100.0,
            *((1, 0.5) if i == len(names) - 1 else (None, None)),
        )
        for i, name in enumerate(names)
    )
    return tasks, tuple(Stream(a, b, 100.0) for a, b in pairwise(names))
