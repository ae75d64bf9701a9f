"""Snapshots of clusters that a policy is asked to scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from tests.policies.stela.oracles import model_of


def machine(id: str, **extra: Any) -> TaskManager:
    return TaskManager(id, 1.0, 50.0, **extra)


def snapshot_of(
    case: Mapping[str, Any],
    *,
    homes: Sequence[str] | None = None,
    new: Sequence[str] = (),
    instances: Mapping[str, int] | None = None,
    busy: bool = False,
    warming: bool = False,
    **extra: Any,
) -> Snapshot:
    """A scenario of S9 as measured in the proportional model, its instances dealt out to `homes` (m1, m2, ...).

    `new`: task managers besides; `instances`: other than the scenario's, by task.
    """
    counts = {**dict.fromkeys(case["ops"], case["k"]), **(instances or {})}
    job = model_of(case).job(counts, {})
    homes = homes or [f"m{i + 1}" for i in range(case["machines"])]
    rows = [
        Instance(
            f"{op}.{k + 1}",
            op,
            "",
            float(job.processed[op] / counts[op]),
            10.0,
            warming,
            **({"busy": float(job.processed[op] / job.capacity[op])} if busy else {}),
        )
        for op in case["ops"]
        for k in range(counts[op])
    ]
    sinks = job.graph.sinks
    return Snapshot(
        tuple(machine(id) for id in [*homes, *new]),
        tuple(
            Task(
                op,
                job.graph.parents[op],
                None if job.graph.parents[op] else float(case["offered"][op]),
                1 if op in sinks else None,
                0.5 if op in sinks else None,
                max_parallelism=case["tasks"],
            )
            for op in case["ops"]
        ),
        tuple(Stream(a, b, float(rate)) for (a, b), rate in job.emitted.items()),
        tuple(replace(row, task_manager=homes[i % len(homes)]) for i, row in enumerate(rows)),
        **extra,
    )
