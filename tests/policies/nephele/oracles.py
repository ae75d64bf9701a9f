"""The cases of the source and around it, with exact numbers; and jobs of the tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qod_magics.core.job_graph import Channel, JobEdge, JobGraph, RuntimeGraph, Task

DATA = Path(__file__).parent / "data"


def oracle(number: int) -> dict[str, Any]:
    """The case of this number."""
    (path,) = DATA.glob(f"{number:02}_*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def task(name: str) -> Task:
    """Such as "D12"."""
    match = re.fullmatch(r"([A-Z]+)(\d+)", name)
    assert match is not None
    return Task(match[1], int(match[2]) - 1)


def channel(name: str) -> Channel:
    """Such as "P1-D2"."""
    sender, receiver = name.split("-")
    return Channel(task(sender), task(receiver))


def job_of(edges: Sequence[Sequence[Any]]) -> JobGraph:
    found = tuple(JobEdge(*edge) for edge in edges)
    return JobGraph(tuple(dict.fromkeys(v for e in found for v in (e.sender, e.receiver))), found)


def graph_of(edges: Sequence[Sequence[Any]], worker_of: Mapping[str, str]) -> RuntimeGraph:
    """`worker_of`: by task name; tasks are numbered from 1."""
    job = job_of(edges)
    workers: dict[str, dict[int, str]] = {}
    for name, worker in worker_of.items():
        workers.setdefault(task(name).vertex, {})[task(name).number] = worker
    return RuntimeGraph(job, {v: tuple(by[i] for i in range(len(by))) for v, by in workers.items()})


def even(edges: Sequence[Sequence[Any]], parallelism: int, workers: int) -> RuntimeGraph:
    """As many tasks of each vertex on each worker."""
    job = job_of(edges)
    return RuntimeGraph(
        job, {v: tuple(f"w{i * workers // parallelism}" for i in range(parallelism)) for v in job.vertices}
    )


PIPELINE = [
    ["P", "D", "all-to-all"],
    ["D", "M", "pointwise"],
    ["M", "O", "pointwise"],
    ["O", "E", "pointwise"],
    ["E", "R", "all-to-all"],
]
ELEMENTS = ["e(P,D)", "D", "e(D,M)", "M", "e(M,O)", "O", "e(O,E)", "E", "e(E,R)"]
