"""Stream Economics with what makes it better than the paper, one thing after the other."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from qod_magics.core.optional import DRAIN, REACT
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stream_economics.draining import DRAIN_S, with_lag
from qod_magics.policies.stream_economics.filling import fill
from qod_magics.policies.stream_economics.helpful_moves import only_helpful
from qod_magics.policies.stream_economics.learning import Lessons, learn
from qod_magics.policies.stream_economics.load import Load
from qod_magics.policies.stream_economics.measures import known_requirements
from qod_magics.policies.stream_economics.policy import Minimums, Situation, StreamEconomics
from qod_magics.policies.stream_economics.reach import reached
from qod_magics.policies.stream_economics.requirements import Requirements, learned
from qod_magics.policies.stream_economics.topology import Topology


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
    """The same, and it is asked again before the period is over when much more comes than it planned with.

    What a rate costs is known (`learn`), so that a plan for it need not wait until the rows have been read.
    """

    name = "stream-economics-reactive"
    react_above = 1.4  #: times the rate planned with

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan; it says from when on it is not to be relied on."""
        plan, state = super().decide(snapshot, state)
        return replace(plan, extra={**plan.extra, REACT.name: self.react_above}), state


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
