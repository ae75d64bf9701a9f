"""Problems for tests: from the oracles' JSON, generated topologies, and any that hypothesis draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from qod_magics.policies.d_storm.packing import Channel, Demand, Node, Parameters, Problem

DATA = Path(__file__).parent / "data"


def oracle(name: str) -> dict[str, Any]:
    """The oracle with this id."""
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    assert found["id"] == name
    return found


def demands_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Demand, ...]:
    return tuple(Demand(row["id"], row["cpu"], row["mem"]) for row in rows)


def nodes_of(rows: Iterable[Mapping[str, Any]], prices: Mapping[str, float] | None = None) -> tuple[Node, ...]:
    """`prices`: by the first letter of a node's id."""
    found = prices or {}
    return tuple(Node(row["id"], row["cpu"], row["mem"], found.get(row["id"][0])) for row in rows)


def problem_of(given: Mapping[str, Any]) -> Problem:
    """That of an oracle's input."""
    channels = tuple(Channel(*edge) for edge in given["edges"])
    return Problem(demands_of(given["tasks"]), nodes_of(given["nodes"]), channels)


def parameters_of(given: Mapping[str, Any]) -> Parameters:
    return Parameters(given["alpha"], given["beta"], given["d_threshold"])


def spread(
    operators: Sequence[str], edges: Iterable[Sequence[str]], tasks: int, source_rate: float, selectivity: float = 1.0
) -> tuple[dict[str, float], tuple[Channel, ...]]:
    """Input rate of each operator, and the channels between tasks: shuffle grouping, a full copy for each reader.

    The sources share `source_rate` equally. Operators are listed before their readers.
    """
    edges = [tuple(edge) for edge in edges]
    sources = [name for name in operators if name not in {b for _, b in edges}]
    rates = {name: source_rate / len(sources) if name in sources else 0.0 for name in operators}
    channels = []
    for a in operators:
        for b in (b for source, b in edges if source == a):
            rates[b] += rates[a] * selectivity
            traffic = rates[a] * selectivity / tasks**2
            channels += [Channel(f"{a}.{i}", f"{b}.{j}", traffic) for i in range(tasks) for j in range(tasks)]
    return rates, tuple(channels)


def uniform(
    cpu: Mapping[str, float],
    edges: Iterable[Sequence[str]],
    nodes: Sequence[Node],
    tasks: int,
    memory: float,
    **more: Any,
) -> Problem:
    """A topology whose operators' tasks all demand the same: `cpu` points by operator."""
    _, channels = spread(list(cpu), edges, tasks, **more)
    demands = tuple(Demand(f"{name}.{i}", points, memory) for name, points in cpu.items() for i in range(tasks))
    return Problem(demands, tuple(nodes), channels)


@st.composite
def problems(draw: st.DrawFn, most: int = 9) -> Problem:
    """Any problem, with whole numbers, so that sums are exact and ties are many."""
    n = draw(st.integers(0, most))
    cpu, memory = st.integers(0, 60), st.integers(0, 50)
    demands = tuple(Demand(f"t{i}", float(draw(cpu)), float(draw(memory))) for i in range(n))
    nodes = tuple(
        Node(f"v{k}", float(draw(st.sampled_from([0, 40, 100, 200]))), float(draw(st.sampled_from([60, 100, 400]))))
        for k in range(draw(st.integers(1, 5)))
    )
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)) if n else st.nothing()
    edges = draw(st.dictionaries(ends, st.integers(0, 5), max_size=2 * n)) if n else {}
    channels = tuple(Channel(f"t{i}", f"t{j}", float(w)) for (i, j), w in edges.items() if i != j)
    return Problem(demands, nodes, channels)
