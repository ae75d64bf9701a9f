"""Strategies for jobs and placements."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from qod_magics.policies.stela.job import Graph, Job
from qod_magics.policies.stela.scaling import Hosted
from tests.policies.snapshots import dags

RATES = st.integers(0, 400).map(Fraction)
POSITIVE = st.integers(1, 400).map(Fraction)


@st.composite
def jobs(draw: st.DrawFn, *, rates: st.SearchStrategy[Fraction] = RATES, bounded: bool = True) -> Job:
    """Any job of up to eight operators; `bounded`: some have a maximum of instances, and may be at it."""
    upstream = draw(dags())
    ops = tuple(f"o{i}" for i in range(len(upstream)))
    graph = Graph(ops, tuple((ops[source], ops[i]) for i, sources in enumerate(upstream) for source in sources))
    instances = {op: draw(st.integers(1, 6)) for op in ops}
    most = {op: k + draw(st.integers(0, 2)) for op, k in instances.items() if bounded and draw(st.booleans())}
    busy = {op: draw(st.integers(1, 10)) for op in ops if draw(st.booleans())}
    processed = {op: draw(rates) for op in ops}
    return Job(
        graph,
        processed,
        {edge: draw(rates) for edge in graph.edges},
        {source: draw(rates) for source in graph.sources if draw(st.booleans())},
        instances,
        most,
        {op: processed[op] * 10 / share for op, share in busy.items()},
    )


@st.composite
def placements(draw: st.DrawFn, ops: tuple[str, ...]) -> dict[str, list[Hosted]]:
    """Instances of these operators on one to five machines."""
    machines = [f"m{i}" for i in range(draw(st.integers(1, 5)))]
    found: dict[str, list[Hosted]] = {machine: [] for machine in machines}
    for op in ops:
        for k in range(draw(st.integers(1, 3))):
            found[draw(st.sampled_from(machines))].append((f"{op}.{k}", op))
    return found
