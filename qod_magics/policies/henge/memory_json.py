"""The state machine's memory as JSON values: it is kept in snapshots, so that recordings hold it. Pure."""

from __future__ import annotations

from typing import Any

from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError
from qod_magics.policies.henge.machine import Memory, Saved, State, Trial


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """The JSON form: plain dicts, lists and numbers."""
    best = memory.best
    return {
        "state": memory.state.value,
        "best": None if best is None else {"utility": best.utility, "instances": _plain(best.configuration)},
        "trials": [
            {
                "job": trial.job,
                "utility": trial.utility,
                "at_s": trial.at_s,
                "total": trial.total,
                "changes": {name: list(change) for name, change in trial.changes.items()},
            }
            for trial in memory.trials
        ],
        "reduced": memory.is_reduced,
        "stable": memory.stable,
        "skip": dict(memory.skip),
        "reference": memory.reference,
        "met": sorted(memory.met),
        "converged_s": memory.converged_s,
    }


def memory_from_json(row: Any) -> Memory:
    """The memory from its JSON form. Raises a one-line SnapshotError if it is none."""
    try:
        best = row["best"]
        return Memory(
            state=State(row["state"]),
            best=None if best is None else Saved(best["utility"], _plain(best["instances"])),
            trials=tuple(
                Trial(
                    trial["job"],
                    trial["utility"],
                    trial["at_s"],
                    trial["total"],
                    {name: (before, after) for name, (before, after) in trial["changes"].items()},
                )
                for trial in row["trials"]
            ),
            is_reduced=row["reduced"],
            stable=row["stable"],
            skip=dict(row["skip"]),
            reference=row["reference"],
            met=frozenset(row["met"]),
            converged_s=row["converged_s"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SnapshotError(
            f"henge.machine: {show(row)} is no memory of Henge; remove the key `henge` to start with none"
        ) from None


def _plain(configuration: Any) -> dict[str, dict[str, int]]:
    return {job: dict(instances) for job, instances in configuration.items()}
