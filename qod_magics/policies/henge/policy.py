"""The policy `henge`: readings, one round of the state machine where it is due, and the reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qod_magics.core.plan import Plan, Scale, keeping_all
from qod_magics.core.policy import Reasons, SheddingNothing
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, is_moving, replace
from qod_magics.errors import SnapshotError, listed, show
from qod_magics.policies.henge.jobs import Batches, Jobs, Readings, jobs_of, loads, measured_jobs, working
from qod_magics.policies.henge.machine import (
    Configuration,
    Converged,
    Hold,
    Job,
    Memory,
    Reconfiguration,
    Reduction,
    Reversion,
    Stable,
    State,
    Step,
    advance,
    is_congested,
    memory_from_json,
    memory_to_json,
    targets,
    without_undone,
)
from qod_magics.policies.henge.utility import Parameters, Utility, satisfaction

#: Seconds from one snapshot to the next where they have no time.
CYCLE_S = 5.0
#: Part of `observe_s` by which a reading may be early: cycles are not exactly a period apart.
_EARLY = 0.1


@dataclass(frozen=True, slots=True)
class _Past:
    """The memory between cycles."""

    known: Known  #: after the last one
    readings: Readings
    jobs: Jobs
    managers: frozenset[str]  #: the task managers that work
    batches: Batches


class Henge:
    """The policy `henge`: reconfiguration, reduction and reversion as `Scale` actions.

    Juice comes from the row counts that `learn` gets. What was known before a decision is kept in the snapshot, under
    `henge`, so that a plan is a function of its snapshot alone. Without `learn`, `decide` does with the rates.
    """

    def __init__(self, parameters: Parameters | None = None, name: str = "henge") -> None:
        self.name = name
        self.parameters = parameters or Parameters()

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def with_parameters(self, parameters: Parameters, name: str) -> Henge:
        """See `core.policy.ParameterizedPolicy`."""
        return Henge(parameters, name)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot. `state` is what the last call returned; it counts only where a snapshot
        was not completed by `learn`.

        Raises SnapshotError, one line, if what Henge keeps in the snapshot can't be read.
        """
        if snapshot.henge is None:
            snapshot, state = self.learn(snapshot, Measured(), state)
        return keeping_all(snapshot, self.turn(snapshot).actions), state

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, _Past]:
        """See `core.policy.LearningPolicy`: a reading where one is due, and what is known in the snapshot.

        After a change of task managers or jobs the machine starts over, when `warm_up_s` have passed. Raises
        SnapshotError for an optional field that can't be read.
        """
        past: _Past | None = memory
        p = self.parameters
        jobs = jobs_of(snapshot)
        managers = frozenset(manager.id for manager in working(snapshot.task_managers))
        now_s = _now(snapshot, past)
        if past is None or past.jobs != jobs or past.managers != managers:
            readings, due_s, machine = Readings(), now_s + p.warm_up_s, Memory()
        else:
            readings, due_s, machine = past.readings, past.known.due_s, past.known.machine
        if readings.at_s is None or now_s - readings.at_s >= (1.0 - _EARLY) * p.observe_s:
            readings = readings.after(now_s, snapshot, measured.counts, jobs, p.readings)
        known = Known(now_s, due_s, *readings.averages(p.average), machine)
        batches = (Batches() if past is None else past.batches).after(snapshot)
        learned = replace(_timed(snapshot, batches), henge=known.to_json())
        done = self.turn(learned)
        if done.actions:
            readings = readings.without(done.changed)
        return learned, _Past(after(known, done), readings, jobs, managers, batches)

    def turn(self, snapshot: Snapshot) -> Turn:
        """Return the cycle's outcome on a snapshot: state, utilities, step. Completed by `learn`, or as the first of a
        run."""
        known = Known.of(snapshot)
        if known is None:
            snapshot, _ = self.learn(snapshot, Measured(), None)
            return self.turn(snapshot)
        found = known
        return snapshot.derived(f"henge {self.parameters!r}", lambda: turn(snapshot, found, self.parameters))

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return _HengeReasons(self.turn(snapshot), self.parameters, self.name)


def _timed(snapshot: Snapshot, batches: Batches) -> Snapshot:
    """Return the snapshot with the time of a batch without rows, where it is known."""
    known = ((task, batches.fixed_s(task.id)) for task in snapshot.tasks)
    return replace(snapshot, tasks=tuple(t if s is None else replace(t, batch_time_s=s) for t, s in known))


def _now(snapshot: Snapshot, past: _Past | None) -> float:
    """Return the time, seconds: the snapshot's, else one cycle after the last."""
    if snapshot.at_s is not None:
        return snapshot.at_s
    return 0.0 if past is None else past.known.now_s + CYCLE_S


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a decision: the averages of the readings, and the state machine's memory."""

    now_s: float
    due_s: float  #: when the next round is due
    juice: Mapping[str, float]  #: by job
    latency_s: Mapping[str, float]  #: by query
    machine: Memory

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, for `Snapshot.henge`."""
        return {
            "now_s": self.now_s,
            "due_s": self.due_s,
            "juice": dict(self.juice),
            "latency_s": dict(self.latency_s),
            "machine": memory_to_json(self.machine),
        }

    @classmethod
    def of(cls, snapshot: Snapshot) -> Known | None:
        """Return what the snapshot says; None if it says nothing. Raises a one-line SnapshotError for what can't be
        read."""
        row = snapshot.henge
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
            why = f"henge: {show(row)} is not what Henge keeps; remove the key to start over"
            raise SnapshotError(why, rule="own memory") from None


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
        """Return the jobs that the actions change, with their tasks."""
        tasks = {action.task for action in self.actions}
        return {name: part for name, part in self.parts.items() if tasks.intersection(part)}


def turn(snapshot: Snapshot, known: Known, parameters: Parameters) -> Turn:
    """Return the cycle on `snapshot`. At most one step, and none before the last one has settled."""
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
    """Return what is known for the next cycle, without new readings."""
    return replace(known, machine=done.machine, due_s=done.due_s)


def _waits(snapshot: Snapshot, known: Known, parts: Jobs) -> str:
    """Return why no round is due, "" if one is. A job on trial is not judged while an instance of it starts."""
    if known.now_s < known.due_s:
        return f"the next step is due in {known.due_s - known.now_s:.0f} s"
    tried = {task for trial in known.machine.trials for task in parts.get(trial.job, ())}
    for instance in snapshot.instances:
        if instance.task in tried and (instance.warming_up or is_moving(instance)):
            return f"{instance.id} is still starting"
    return ""


def _actions(step: Step, jobs: Mapping[str, Job]) -> tuple[Scale, ...]:
    """Return the step as actions: only for tasks whose number of instances differs."""
    why = _why(step, jobs)
    wanted: Configuration = targets(step)
    return tuple(
        Scale(task, instances, why=why.get(job, ""))
        for job, tasks in wanted.items()
        for task, instances in tasks.items()
        if instances != jobs[job].operators[task].instances
    )


def _why(step: Step, jobs: Mapping[str, Job]) -> Mapping[str, str]:
    """Return one clause by job for the actions on its tasks."""
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


class _HengeReasons(SheddingNothing):
    """The `core.policy.Reasons` of a plan of Henge."""

    def __init__(self, turn: Turn, parameters: Parameters, policy: str) -> None:
        super().__init__(policy)
        self.turn = turn
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"reasons of Henge for {len(self.turn.jobs)} jobs"

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: the job, its utility and what it was measured by; the task's busy fraction."""
        job = next(name for name, tasks in self.turn.parts.items() if id in tasks)
        return [self._job(job), self._operator(job, id), self._search(), *self._skipped(job)]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: utility of the cluster, state and step."""
        congested = ["half of the task managers or more are congested"] if self.turn.congested else []
        return [self._search(), *congested]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: utility W, its maximum W*, and their ratio in %."""
        each = self.turn.utilities.values()
        return {
            "utility": sum(job.current for job in each),
            "most_utility": sum(job.most for job in each),
            "satisfaction": satisfaction(each),
        }

    def _search(self) -> str:
        numbers = self.numbers("")
        state = "converged" if self.turn.known.machine.state is State.CONVERGED else "searching"
        of = f"utility {numbers['utility']:.4g} of {numbers['most_utility']:.4g} ({numbers['satisfaction']:.1f} %)"
        return f"Henge is {state}, {of}: {self._step()}"

    def _step(self) -> str:
        match self.turn.step:
            case Reconfiguration(changes):
                return f"reconfiguration of {listed(list(changes))}"
            case Reduction(changes):
                return f"reduction of {listed(list(changes))}"
            case Reversion(utility):
                return f"reversion to the configuration that had a utility of {utility:.4g}"
            case Stable(rounds):
                return f"nothing to do, round {rounds} of {self.parameters.stable_rounds} until it has converged"
            case Converged():
                return "nothing to do, so the search has converged"
            case Hold():
                return "it holds until utility falls or a job misses its target"
        return self.turn.waits

    def _job(self, job: str) -> str:
        turn, utility = self.turn, self.turn.utilities[job]
        found = [
            f"{name} has a latency of {turn.known.latency_s[name]:.3g} s"
            for name in turn.parts[job]
            if name in turn.known.latency_s
        ]
        juice = turn.known.juice.get(job)
        words = [f"juice {juice:.3f}"] if juice is not None else ["no juice measured yet"]
        return f"job {job} has a utility of {utility.current:.3g} of {utility.most:.3g}; " + ", ".join(words + found)

    def _operator(self, job: str, id: str) -> str:
        operator = self.turn.jobs[job].operators[id]
        verb = "congested" if operator.busy > self.parameters.cap_thr else "not congested"
        return f"{id} has {operator.instances} of {operator.most} instances, busy {operator.busy:.2f}: {verb}"

    def _skipped(self, job: str) -> list[str]:
        until = self.turn.machine.skip.get(job)
        if until is None:
            return []
        return [f"its last step gave {job} too little: it is skipped for {until - self.turn.known.now_s:.0f} s more"]
