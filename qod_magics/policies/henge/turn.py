"""One cycle of the policy: a round of the state machine where one is due, on what the snapshot knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qod_magics.core.actions import Scale
from qod_magics.core.freshness import is_moving
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError
from qod_magics.policies.henge.jobs import Jobs, jobs_of, loads, measured_jobs
from qod_magics.policies.henge.machine import (
    Configuration,
    Job,
    Memory,
    Reconfiguration,
    Reduction,
    Reversion,
    Step,
    advance,
    is_congested,
    targets,
    without_undone,
)
from qod_magics.policies.henge.memory_json import memory_from_json, memory_to_json
from qod_magics.policies.henge.parameters import Parameters
from qod_magics.policies.henge.utility import Utility

#: The key of a snapshot under which Henge keeps what it knew before the decision.
KEY = "henge"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a decision: the averages of the readings, and the state machine's memory."""

    now_s: float
    due_s: float  #: when the next round is due
    juice: Mapping[str, float]  #: by job
    latency_s: Mapping[str, float]  #: by query
    machine: Memory

    def to_json(self) -> dict[str, Any]:
        """JSON values, for `Snapshot.extra`."""
        return {
            "now_s": self.now_s,
            "due_s": self.due_s,
            "juice": dict(self.juice),
            "latency_s": dict(self.latency_s),
            "machine": memory_to_json(self.machine),
        }

    @classmethod
    def of(cls, snapshot: Snapshot) -> Known | None:
        """As the snapshot says; None if it says nothing. Raises a one-line SnapshotError for what can't be read."""
        row = snapshot.extra.get(KEY)
        if row is None:
            return None
        try:
            return cls(
                float(row["now_s"]),
                float(row["due_s"]),
                {name: float(value) for name, value in row["juice"].items()},
                {name: float(value) for name, value in row["latency_s"].items()},
                memory_from_json(row["machine"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"{KEY}: {show(row)} is not what Henge keeps; remove the key to start anew") from None


@dataclass(frozen=True, slots=True)
class Turn:
    """A cycle's outcome."""

    known: Known
    parts: Jobs
    jobs: Mapping[str, Job]  #: as the state machine saw them
    utilities: Mapping[str, Utility]  #: by job, by the targets that users set
    congested: bool
    step: Step | None  #: None: no round was due
    waits: str  #: why not; ""
    machine: Memory  #: after the round
    due_s: float  #: when the next one is due
    actions: tuple[Scale, ...]

    @property
    def changed(self) -> Mapping[str, tuple[str, ...]]:
        """The jobs that the actions change, with their tasks."""
        tasks = {action.task for action in self.actions}
        return {name: part for name, part in self.parts.items() if tasks.intersection(part)}


def turn(snapshot: Snapshot, known: Known, parameters: Parameters) -> Turn:
    """The cycle on `snapshot`. At most one step, and none before the last one has settled."""
    parts = jobs_of(snapshot)
    seen = measured_jobs(snapshot, parts, known.juice, known.latency_s, parameters)
    jobs = seen
    if parameters.margin != 1.0:
        jobs = measured_jobs(snapshot, parts, known.juice, known.latency_s, parameters, margin=parameters.margin)
    utilities = {name: job.utility for name, job in seen.items()}
    congested = is_congested(loads(snapshot), parameters.congested_above)
    waits = _waits(snapshot, known, parts)
    if waits:
        return Turn(known, parts, jobs, utilities, congested, None, waits, known.machine, known.due_s, ())
    machine = without_undone(known.machine, jobs)
    step, machine = advance(machine, known.now_s, jobs, parameters, congested=congested)
    due_s = known.now_s + parameters.settle_s
    actions = _actions(step, jobs)
    return Turn(known, parts, jobs, utilities, congested, step, "", machine, due_s, actions)


def after(known: Known, done: Turn) -> Known:
    """What is known for the next cycle, without new readings."""
    return replace(known, machine=done.machine, due_s=done.due_s)


def _waits(snapshot: Snapshot, known: Known, parts: Jobs) -> str:
    """Why no round is due, "" if one is. A job on trial is not judged while an instance of it starts."""
    if known.now_s < known.due_s:
        return f"the next step is due in {known.due_s - known.now_s:.0f} s"
    tried = {task for trial in known.machine.trials for task in parts.get(trial.job, ())}
    for instance in snapshot.instances:
        if instance.task in tried and (instance.warming_up or is_moving(instance)):
            return f"{instance.id} is still starting"
    return ""


def _actions(step: Step, jobs: Mapping[str, Job]) -> tuple[Scale, ...]:
    """The step as actions: only for tasks whose number of instances differs."""
    why = _why(step, jobs)
    wanted: Configuration = targets(step)
    return tuple(
        Scale(task, instances, why=why.get(job, ""))
        for job, tasks in wanted.items()
        for task, instances in tasks.items()
        if instances != jobs[job].operators[task].instances
    )


def _why(step: Step, jobs: Mapping[str, Job]) -> Mapping[str, str]:
    """By job, one clause for the actions on its tasks."""
    match step:
        case Reconfiguration(changes):
            return {job: f"reconfiguration: {job} {_has(jobs[job].utility)}" for job in changes}
        case Reduction(changes):
            return {job: f"reduction: {job} meets its target and the cluster is congested" for job in changes}
        case Reversion(utility):
            why = f"reversion: the last step did harm, the configuration before had a utility of {utility:.4g}"
            return dict.fromkeys(jobs, why)
    return {}


def _has(utility: Utility) -> str:
    return f"has {utility.current:.3g} of its utility of {utility.most:.3g}"
