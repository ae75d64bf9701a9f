"""The stream DAG: consumers, ancestors, cycles, order. Pure functions of name -> names of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

Upstreams = Mapping[str, tuple[str, ...]]


def consumers(upstreams: Upstreams) -> dict[str, tuple[str, ...]]:
    """Direct readers of each name, in order."""
    readers: dict[str, list[str]] = {name: [] for name in upstreams}
    for name, inputs in upstreams.items():
        for upstream in inputs:
            readers.setdefault(upstream, []).append(name)
    return {name: tuple(names) for name, names in readers.items()}


def ancestors(upstreams: Upstreams, names: Iterable[str]) -> frozenset[str]:
    """The names and everything upstream of them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(upstreams[name])
    return frozenset(found)


def cycle(upstreams: Upstreams) -> tuple[str, ...]:
    """A cycle along the flow of rows, first and last name the same: (a, b, a); () if there is none."""
    try:
        TopologicalSorter(upstreams).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def ordered(upstreams: Upstreams) -> tuple[str, ...]:
    """All names in topological order, inputs first, else as given. They must form a DAG."""
    # By hand: graphlib puts all names without inputs first.
    placed: dict[str, None] = {}
    waiting = list(upstreams)[::-1]
    while waiting:
        missing = [upstream for upstream in upstreams[waiting[-1]] if upstream not in placed]
        if missing:
            waiting.extend(reversed(missing))
        else:
            placed[waiting.pop()] = None
    return tuple(placed)
