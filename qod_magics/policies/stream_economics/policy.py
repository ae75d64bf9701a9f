"""Make one plan from one snapshot, as Stream Economics does; and name its variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from qod_magics.core.dag import Declared, Topology, declared
from qod_magics.core.load import Hosting, load_of
from qod_magics.core.plan import Action, Move, Plan, Stop
from qod_magics.core.policy import Reasons
from qod_magics.core.runtime import Measured, Unplaced
from qod_magics.core.snapshot import Instance, Keys, Snapshot, TaskManager, column
from qod_magics.policies.stream_economics.evidence.evidence import NO_EVIDENCE, BacklogEvidence, Evidence
from qod_magics.policies.stream_economics.learning import Lessons, completed, learn
from qod_magics.policies.stream_economics.placing import Moves, moves_of_all, no_moves, only_helpful, placed
from qod_magics.policies.stream_economics.reach import Minimums, Reach, Situation
from qod_magics.policies.stream_economics.reasons import StreamEconomicsReasons, needs, shortage
from qod_magics.policies.stream_economics.requirements import (
    Edges,
    Requirements,
    kept_shares,
    known_requirements,
    minimums,
    paper_requirements,
    propagate,
)
from qod_magics.policies.stream_economics.sharing import Sharing, even_shares, max_min_shares

#: CPU that each task needs by accuracy.
Costs = Callable[[Snapshot, Topology], Requirements]


@dataclass(frozen=True, slots=True)
class _Application:
    """What does not depend on loads. It is kept from cycle to cycle, so that a cycle computes with loads only."""

    declared: Declared
    topology: Topology
    reach: Reach
    tasks: Keys[str]
    edges: Edges
    hosting: Hosting

    @classmethod
    def of(cls, snapshot: Snapshot, last: Any) -> _Application:
        """`last` itself if its tasks and streams are declared in the same way and its instances run where they ran."""
        tasks = declared(snapshot.tasks)
        starts, ends = column(snapshot.streams, "source"), column(snapshot.streams, "target")
        found = [*tasks, starts, ends]
        if isinstance(last, cls) and last.declared == found:
            hosting = Hosting.of(snapshot, last.topology, last.hosting)
            return last if hosting is last.hosting else replace(last, hosting=hosting)
        topology = Topology.following(tasks)
        edges = Edges.of(starts, ends, topology)
        hosting = Hosting.of(snapshot, topology)
        return cls(found, topology, Reach.of(topology), Keys(topology.position), edges, hosting)


class StreamEconomics:
    """Algorithm 3.2: give every query its minimum accuracy, share the rest of the CPU by priority, then drop rows as
    early as possible.

    Without arguments it is the policy of the paper. Each part can be replaced:

    Args:
        name: what `--policy` selects.
        costs: CPU that each task needs by accuracy.
        moves: moves instances whose minimum accuracies do not fit.
        sharing: shares the CPU above the minimum accuracies.
        evidence: evidence beyond the snapshot's loads for when to shed and move.

    """

    def __init__(
        self,
        name: str = "stream-economics",
        *,
        costs: Costs = paper_requirements,
        moves: Moves = moves_of_all,
        sharing: Sharing = even_shares,
        evidence: Evidence = NO_EVIDENCE,
    ) -> None:
        self.name = name
        self.costs = costs
        self.moves = moves
        self.sharing = sharing
        self.evidence = evidence

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """Return the plan for a valid snapshot; it never raises on one.

        `state` (what the last call returned, or None) saves time while the application stays the same; it never changes
        the plan.
        """
        evidence = self.evidence
        snapshot = evidence.settled(snapshot)
        application = _Application.of(snapshot, state)
        topology = application.topology
        load = load_of(snapshot, topology, application.hosting)
        by_costs = self.costs(snapshot, topology)
        required = evidence.requirements(by_costs, snapshot, topology, load)
        min_required = minimums(snapshot, topology, required)
        situation = Situation(
            snapshot,
            topology,
            application.reach,
            load,
            required,
            by_costs,
            evidence.is_open(snapshot),
            min_required,
            application.hosting,
        )
        ensured = self.moves(situation, evidence.movable)
        left_out = set(ensured.failed)
        left_out.update(evidence.excluded_by_warm_ups(situation))
        by_task = self.sharing(situation, evidence.left(ensured.available, situation), left_out)
        propagate(by_task, topology)
        plan = Plan(
            desired=application.tasks.mapping(by_task),
            non_drop=kept_shares(by_task, application.edges),
            actions=_actions(ensured, snapshot),
            starved=tuple(snapshot.task_managers[manager].id for manager in ensured.starved),
            **evidence.requests(snapshot),
        )
        return plan, application

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """Algorithm 3.1; see `core.policy.PlacingPolicy`."""
        return placed(unplaced, managers, running)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        evidence = self.evidence
        return StreamEconomicsReasons(evidence.settled(snapshot), plan, excludes_all=evidence.warm_ups_exclude_all)


class LearningStreamEconomics(StreamEconomics):
    """Stream Economics with learned costs: CPU = fixed + read * input rate + work * input rate * accuracy for each
    task, in place of "CPU is proportional to accuracy" (Eq. 3.9).

    The snapshot holds the learned costs. A task without any follows the paper's model.
    """

    def __init__(self, name: str, **parts: Any) -> None:
        super().__init__(name, **{"costs": known_requirements, **parts})

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """See `core.policy.LearningPolicy`; `memory` is what the last call returned."""
        lessons, more = memory if memory is not None else (None, None)
        snapshot, lessons = learn(snapshot, measured, lessons)
        snapshot, more = self.evidence.learn(snapshot, measured, more)
        return snapshot, (lessons, more)

    def kept(self, memory: Any) -> Any:
        """Return costs and selectivities, and what evidence keeps: see `core.policy.RememberingPolicy`."""
        lessons, more = memory
        known = replace(lessons, windows={}, cold={})  # readings of runs that will have ended
        return {"lessons": msgspec.to_builtins(known), "evidence": self.evidence.kept(more)}

    def recalled(self, kept: Any, memory: Any) -> Any:
        """See `core.policy.RememberingPolicy`."""
        lessons, more = memory if memory is not None else (None, None)
        known = msgspec.convert(kept["lessons"], Lessons)
        return completed(lessons or Lessons(), known), self.evidence.recalled(kept["evidence"], more)


def _actions(ensured: Minimums, snapshot: Snapshot) -> tuple[Action, ...]:
    """Return the moves and stops of the instances that leave their task managers."""
    if not ensured.failed:
        return ()
    found = needs(snapshot)
    actions: list[Action] = []
    for instance in (snapshot.instances[i] for i in ensured.failed):
        why = shortage(instance.task_manager, found[instance.task_manager])
        target = ensured.place.get(instance.id)
        actions.append(Stop(instance.id, why) if target is None else Move(instance.id, target, why))
    return tuple(actions)


def fitted() -> LearningStreamEconomics:
    """Return the policy with learned costs."""
    return LearningStreamEconomics("stream-economics-fitted")


def filled() -> LearningStreamEconomics:
    """Return `fitted` in which queries of one priority rise together, and no instance moves to where it does not
    fit."""
    return LearningStreamEconomics("stream-economics-filled", moves=only_helpful, sharing=max_min_shares)


def reactive() -> LearningStreamEconomics:
    """Return `filled` that sheds load only once a backlog confirms the overload. The default policy."""
    return LearningStreamEconomics(
        "stream-economics-reactive", moves=only_helpful, sharing=max_min_shares, evidence=BacklogEvidence()
    )


def staying() -> LearningStreamEconomics:
    """Return `reactive` that moves nothing. No `--policy` selects it: it decides while another stage of a policy
    acts."""
    return LearningStreamEconomics(
        "stream-economics-staying", moves=no_moves, sharing=max_min_shares, evidence=BacklogEvidence()
    )
