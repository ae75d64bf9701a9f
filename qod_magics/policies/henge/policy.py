"""Henge as a policy: instances move among jobs so that the sum of their utilities grows. It sheds nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qod_magics.core.plan import Plan, keeping_all
from qod_magics.core.reasons import Reasons
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.henge.jobs import Jobs, jobs_of, working
from qod_magics.policies.henge.machine import Memory
from qod_magics.policies.henge.parameters import Parameters
from qod_magics.policies.henge.readings import Readings
from qod_magics.policies.henge.reasons import HengeReasons
from qod_magics.policies.henge.turn import KEY, Known, Turn, after, turn

#: Seconds from one snapshot to the next where they have no time.
CYCLE_S = 5.0
#: Part of `observe_s` by which a reading may be early: cycles are not exactly a period apart.
EARLY = 0.1


@dataclass(frozen=True, slots=True)
class Past:
    """The memory between cycles."""

    known: Known  #: after the last one
    readings: Readings
    jobs: Jobs
    managers: frozenset[str]  #: the task managers that work


class Henge:
    """The policy `henge`: reconfiguration, reduction and reversion as `Scale` actions.

    Juice comes from the row counts that `learn` gets. What was known before a decision is kept in the snapshot, under
    `turn.KEY`, so that a plan is a function of its snapshot alone. Without `learn`, `decide` does with the rates.
    """

    def __init__(self, parameters: Parameters | None = None, name: str = "henge") -> None:
        self.name = name
        self.parameters = parameters or Parameters()

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan for a valid snapshot. `state` is what the last call returned; it counts only where a snapshot was
        not completed by `learn`.

        Raises SnapshotError, one line, if what Henge keeps in the snapshot can't be read.
        """
        if KEY not in snapshot.extra:
            snapshot, state = self.learn(snapshot, Measured(), state)
        return keeping_all(snapshot, self.turn(snapshot).actions), state

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Past]:
        """See `core.policy.LearningPolicy`: a reading where one is due, and what is known in the snapshot.

        After a change of task managers or jobs the machine starts anew, when `warm_up_s` have passed. Raises
        SnapshotError for an optional field that can't be read.
        """
        past: Past | None = memory
        p = self.parameters
        jobs = jobs_of(snapshot)
        managers = frozenset(manager.id for manager in working(snapshot.task_managers))
        now_s = _now(snapshot, past)
        if past is None or past.jobs != jobs or past.managers != managers:
            readings, due_s, machine = Readings(), now_s + p.warm_up_s, Memory()
        else:
            readings, due_s, machine = past.readings, past.known.due_s, past.known.machine
        if readings.at_s is None or now_s - readings.at_s >= (1.0 - EARLY) * p.observe_s:
            readings = readings.after(now_s, snapshot, measured.counts, jobs, p.readings)
        known = Known(now_s, due_s, *readings.averages(p.average), machine)
        learned = replace(snapshot, extra={**snapshot.extra, KEY: known.to_json()})
        done = self.turn(learned)
        if done.actions:
            readings = readings.without(done.changed)
        return learned, Past(after(known, done), readings, jobs, managers)

    def turn(self, snapshot: Snapshot) -> Turn:
        """The cycle's outcome on a snapshot: state, utilities, step. Completed by `learn`, or as the first of a run."""
        known = Known.of(snapshot)
        if known is None:
            snapshot, _ = self.learn(snapshot, Measured(), None)
            return self.turn(snapshot)
        found = known
        return snapshot.derived(f"{KEY} {self.parameters!r}", lambda: turn(snapshot, found, self.parameters))

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return HengeReasons(self.turn(snapshot), self.parameters, self.name)


def _now(snapshot: Snapshot, past: Past | None) -> float:
    """The time, seconds: the snapshot's, else one cycle after the last."""
    if snapshot.at_s is not None:
        return snapshot.at_s
    return 0.0 if past is None else past.known.now_s + CYCLE_S
