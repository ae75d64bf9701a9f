"""Carry out the actions of plans that add and release task managers, for a runtime with a way to do so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from qod_magics.core.plan import Action, AddNode, Refusal, ReleaseNode
from qod_magics.core.runtime import Observation, refused
from qod_magics.core.snapshot import NodeState, Spare, replace
from qod_magics.errors import QodError
from qod_magics.spark.cluster.cluster import Cluster


class Nodes(Protocol):
    """Task managers that can be added and released. No method waits for a start, a move or an end."""

    def spares(self) -> Sequence[Spare]:
        """Return what `add` can add now."""
        ...

    def states(self) -> Mapping[str, NodeState]:
        """Return the task managers that join, stand by or leave, by id."""
        ...

    def text(self) -> str:
        """Return these, and the budget, in one line."""
        ...

    def add(self, kind: str, why: str) -> None:
        """Begin to add one of this kind. Raises TaskManagerError: none can be added now."""
        ...

    def release(self, id: str, why: str) -> object:
        """Begin to move its instances to the others; then it is closed, or stands by. Raises TaskManagerError: there
        is no such task manager, or it is the last."""
        ...

    def tend(self) -> None:
        """Do what is due without a plan. Called about once a second."""
        ...


class NodeActions:
    """Begins the `AddNode` and `ReleaseNode` of plans; failures become events of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._refused: frozenset[tuple[Action, str]] = frozenset()  #: of the last plan: reported once

    def begin(self, nodes: Nodes, actions: Iterable[Action]) -> None:
        """Begin these actions of a plan; other actions are left alone. One that is refused as in the plan before is no
        event."""
        refusals = set()
        for action in actions:
            try:
                if isinstance(action, AddNode):
                    nodes.add(action.kind, action.why)
                elif isinstance(action, ReleaseNode):
                    nodes.release(action.id, action.why)
            except QodError as error:
                refusals.add((action, str(error)))
        for action, why in refusals - self._refused:
            self._cluster.add(refused(Refusal(action, why)))
        self._refused = frozenset(refusals)


def with_nodes(seen: Observation, nodes: Nodes) -> Observation:
    """Return the observation with what can be added, joins, stands by or leaves."""
    spare_nodes = tuple(spare for spare in nodes.spares() if spare.count > 0)
    return replace(seen, snapshot=replace(seen.snapshot, spare_nodes=spare_nodes, node_states=nodes.states()))
