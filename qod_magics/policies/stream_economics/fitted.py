"""Stream Economics with what makes it better than the paper, one thing after the other."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from qod_magics.core.optional import BACKLOG, DRAIN, OPEN, PACE, PACED, REACT, RESTS, TRUST
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.stream_economics.draining import DRAIN_S, with_lag
from qod_magics.policies.stream_economics.filling import fill
from qod_magics.policies.stream_economics.helpful_moves import only_helpful
from qod_magics.policies.stream_economics.learning import Lessons, learn
from qod_magics.policies.stream_economics.load import Load
from qod_magics.policies.stream_economics.measures import known_requirements
from qod_magics.policies.stream_economics.policy import Minimums, Situation, StreamEconomics
from qod_magics.policies.stream_economics.reach import reached
from qod_magics.policies.stream_economics.requirements import Requirements, learned
from qod_magics.policies.stream_economics.rests import with_rests
from qod_magics.policies.stream_economics.topology import Topology
from qod_magics.policies.stream_economics.trust import REST_S, WAITING_S, rest_s, trusted

#: CPU of a task manager that runs open, % of one core: nothing is scarce there.
PLENTY = 1e9


class FittedStreamEconomics(StreamEconomics):
    """The same cycle with CPU = fixed + read * input rate + work * input rate * accuracy for each task, in place of
    "CPU is proportional to accuracy" (Eq. 3.9).

    What was learned is in the snapshot (`learn`); where it is not, a task is taken as the paper takes it.
    """

    name = "stream-economics-fitted"

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Lessons | None) -> tuple[Snapshot, Lessons]:
        """See `core.policy.LearningPolicy`; `memory` is what the last call returned."""
        return learn(snapshot, measured, memory)

    def requirements(self, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What each task needs for which accuracy, as far as it was learned."""
        return known_requirements(snapshot, topology)


class FilledStreamEconomics(FittedStreamEconomics):
    """Costs as learned; queries of one priority rise together (`filling`); and nothing moves where it would not fit."""

    name = "stream-economics-filled"

    def ensure_minimums(self, situation: Situation) -> Minimums:
        """As in the paper, but an instance for whose minimum no other task manager has room stays where it is."""
        return only_helpful(super().ensure_minimums(situation).failed, situation)

    def give_out(self, situation: Situation, available: list[float], left_out: Set[int]) -> list[float]:
        """desired(q) by task position: max-min fair within each priority."""
        load, topology = situation.load, situation.topology
        held = reached(topology, {load.task_of[i] for i in left_out}) if left_out else None
        sharing = [i for i in situation.by_id if i not in left_out]
        return fill(sharing, load, topology, situation.required, available, held)


class ReactiveStreamEconomics(FilledStreamEconomics):
    """The same, but nothing is shed before rows wait for it, or far more CPU is needed than there is (`trust`); an
    instance that has moved rests for a while (`rests`); and it is asked again before the period is over when much more
    comes than it planned with. What a rate costs is known (`learn`), so that a plan for it need not wait until the rows
    have been read.
    """

    name = "stream-economics-reactive"
    react_above = 1.4  #: times the rate planned with

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """See `core.policy.LearningPolicy`; `memory` is what the last call returned."""
        lessons, trusts, homes = memory if memory is not None else (None, None, None)
        snapshot, lessons = super().learn(snapshot, measured, lessons)
        snapshot, trusts = trusted(snapshot, measured, trusts)
        snapshot, homes = with_rests(snapshot, homes)
        return snapshot, (lessons, trusts, homes)

    def requirements(self, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """As learned; of task managers that run open nothing is asked, and their tasks need nothing."""
        known = super().requirements(snapshot, topology, load)
        is_open = [OPEN.of(manager) is not None for manager in snapshot.task_managers]
        # what moves is decided by costs: rows that wait for a cycle or two move nothing
        trust = [max(TRUST.of(manager) or 1.0, 1.0) for manager in snapshot.task_managers]
        available = [PLENTY if o else cpu * t for o, cpu, t in zip(is_open, known.available, trust, strict=True)]
        if not any(is_open):
            return replace(known, available=available)
        scarce = {t for t, manager in zip(load.task_of, load.manager_of, strict=True) if not is_open[manager]}
        base = [needed if t in scarce else 0.0 for t, needed in enumerate(known.base)]
        cpu = [needed if t in scarce else 0.0 for t, needed in enumerate(known.cpu)]
        at = [accuracy if t in scarce else 1.0 for t, accuracy in enumerate(known.at)]
        return replace(known, base=base, cpu=cpu, at=at, available=available)

    def waiting_for_warm_ups(self, situation: Situation) -> Sequence[bool]:
        """A warm-up on a task manager that runs open keeps nobody waiting."""
        managers = situation.snapshot.task_managers
        return [warms and OPEN.of(m) is None for warms, m in zip(situation.load.warming, managers, strict=True)]

    def ensure_minimums(self, situation: Situation) -> Minimums:
        """As `-filled` has it, of the instances that do not rest."""
        return only_helpful(self.failing(situation), situation)

    def give_out(self, situation: Situation, available: list[float], left_out: Set[int]) -> list[float]:
        """As `-filled` has it, of what trust leaves."""
        trust = [TRUST.of(manager) or 1.0 for manager in situation.snapshot.task_managers]
        less = [max(1.0 - t, 0.0) * cpu for t, cpu in zip(trust, situation.required.available, strict=True)]
        left = [max(cpu - gone, 0.0) for cpu, gone in zip(available, less, strict=True)]
        return super().give_out(situation, left, left_out)

    def failing(self, situation: Situation) -> Sequence[int]:
        """The instances that would leave for the minimum accuracies, without those that rest where they are."""
        instances = situation.snapshot.instances
        return [i for i in StreamEconomics.ensure_minimums(self, situation).failed if RESTS.of(instances[i]) is None]

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan; it says from when on it is not to be relied on, which backlogs are no reason to shed, and where
        micro-batches are to be kept apart."""
        plan, state = super().decide(_rested(snapshot), state)
        limits_s = [limit for manager in snapshot.task_managers if (limit := OPEN.of(manager)) is not None]
        rests = max(map(rest_s, snapshot.task_managers), default=REST_S)
        extra = {REACT.name: self.react_above, BACKLOG.name: [rests, max(2 * rests, *limits_s, WAITING_S)]}
        if pace := {m.id: pace_s for m in snapshot.task_managers if (pace_s := PACED.of(m)) is not None}:
            extra[PACE.name] = pace
        return replace(plan, extra={**plan.extra, **extra}), state


def _rested(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the warm-ups of instances that rest no longer: where their minimums do not fit, waiting for
    them to be reached would keep everything as it is."""
    if True not in column(snapshot.instances, "warming_up"):
        return snapshot
    instances = [replace(i, warming_up=i.warming_up and RESTS.of(i) is not None) for i in snapshot.instances]
    return replace(snapshot, instances=tuple(instances))


class DrainedStreamEconomics(FilledStreamEconomics):
    """The same, and what waits is part of what there is to do: it is gone within `drain_s` seconds.

    The controller would thin the input of a task behind which it lies, whoever has CPU to spare beside it. Here the CPU
    for a backlog is asked for like any other: those of lower priority give it first.
    """

    name = "stream-economics-drained"
    drain_s = DRAIN_S

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """See `core.policy.LearningPolicy`; `memory` is what the last call returned."""
        lessons, draining = memory if memory is not None else (None, frozenset())
        snapshot, lessons = super().learn(snapshot, measured, lessons)
        snapshot, draining = with_lag(snapshot, measured, draining)
        return snapshot, (lessons, draining)

    def requirements(self, snapshot: Snapshot, topology: Topology, load: Load) -> Requirements:
        """What each task needs for which accuracy, what waits included."""
        return learned(snapshot, topology, load, self.drain_s)

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan; it says that it drains."""
        plan, state = super().decide(snapshot, state)
        return replace(plan, extra={**plan.extra, DRAIN.name: self.drain_s}), state
