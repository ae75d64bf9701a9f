"""A policy that scales a job when it is asked to: task managers joined, or some are to leave. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from qod_magics.core.actions import Action, ReleaseNode
from qod_magics.core.plan import Plan, keeping_all
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.job import Job
from qod_magics.policies.stela.requests import joined, leaving, machines
from qod_magics.policies.stela.samples import NO_SAMPLES, Samples
from qod_magics.policies.stela.scale_in import Hosted


@dataclass(frozen=True, slots=True)
class Deployment:
    """A job and what runs where."""

    job: Job
    instances: tuple[Hosted, ...]  #: in the snapshot's order
    placement: Mapping[str, tuple[Hosted, ...]]  #: by task manager, both in the snapshot's order

    @classmethod
    def of(cls, snapshot: Snapshot, job: Job, names: Collection[str]) -> Deployment:
        """The instances on these task managers."""
        there: dict[str, list[Hosted]] = {m.id: [] for m in snapshot.task_managers if m.id in names}
        found = []
        for instance in snapshot.instances:
            if instance.task_manager in there:
                found.append((instance.id, instance.task))
                there[instance.task_manager].append(found[-1])
        return cls(job, tuple(found), {name: tuple(hosted) for name, hosted in there.items()})


class Strategy(Protocol):
    """Where instances go."""

    def scale_out(self, deployment: Deployment, new: tuple[str, ...]) -> tuple[Action, ...]:
        """Use these new task managers; they are part of the deployment."""
        ...

    def scale_in(self, deployment: Deployment, remove: int, among: Collection[str] | None) -> tuple[Action, ...]:
        """Moves and releases that remove `remove` task managers of `among` (None: of all), but never the last one."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """What an `Elastic` keeps between cycles."""

    samples: Samples = NO_SAMPLES
    known: frozenset[str] = frozenset()  #: the task managers of the last cycle, but for those still to be used
    asked: int = 0  #: the number of task managers that is to leave
    chosen: tuple[str, ...] = ()  #: those picked for that


class Elastic:
    """Scales on request and does nothing else: without one its plans have no actions, and it sheds nothing.

    A task manager that joins and hosts nothing is a request to use it; in the first cycle, all are new. It waits while
    an instance warms up, since rates say little then. `leaving`, a key of snapshots, is a request to end task managers;
    it waits while others join. By number, it is served once, until the number changes or the key is gone; the plan is
    repeated while those that were picked are there.
    """

    def __init__(self, name: str, strategy: Strategy) -> None:
        self.name = name
        self.strategy = strategy

    def __repr__(self) -> str:
        return f"policy {self.name}"

    def decide(self, snapshot: Snapshot, state: Any = None) -> tuple[Plan, Any]:
        """The plan for a valid snapshot; `state`: what the last call returned, None at first.

        Raises SnapshotError, one line, for an optional field or a `leaving` of another form.
        """
        memory = state if isinstance(state, Memory) else Memory()
        memory = replace(memory, samples=memory.samples.with_(snapshot))
        usable = machines(snapshot)
        new = joined(snapshot, memory.known)
        if new and any(instance.warming_up for instance in snapshot.instances):
            memory = replace(memory, known=frozenset(usable).difference(new))
            new = ()
        else:
            memory = replace(memory, known=frozenset(usable))
        if new:
            deployment = Deployment.of(snapshot, memory.samples.job(snapshot), usable)
            return keeping_all(snapshot, self.strategy.scale_out(deployment, new)), memory
        actions, memory = self._leave(snapshot, usable, memory)
        return keeping_all(snapshot, actions), memory

    def _leave(self, snapshot: Snapshot, usable: tuple[str, ...], memory: Memory) -> tuple[tuple[Action, ...], Memory]:
        wanted = leaving(snapshot)
        if not wanted:
            return (), replace(memory, asked=0, chosen=())
        present = {manager.id for manager in snapshot.task_managers}
        among: set[str] | None = None
        if not isinstance(wanted, int):
            among, remove, memory = present.intersection(wanted), len(wanted), replace(memory, asked=0, chosen=())
        elif wanted == memory.asked:
            among, remove = present.intersection(memory.chosen), wanted
        else:
            remove = wanted
        if among is not None and not among:
            return (), memory
        deployment = Deployment.of(snapshot, memory.samples.job(snapshot), {*usable, *(among or ())})
        actions = self.strategy.scale_in(deployment, remove, among)
        if among is None:
            chosen = tuple(action.id for action in actions if isinstance(action, ReleaseNode))
            memory = replace(memory, asked=remove, chosen=chosen)
        return actions, memory
