"""Policies that scale a job on request: task managers joined, or some are to leave. Pure.

`Elastic` finds the requests and applies a strategy. `Stela` is the one that scales by ETP, and explains itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from qod_magics.core.plan import Action, Plan, ReleaseNode, keeping_all
from qod_magics.core.policy import Reasons, SheddingNothing
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.stela.job import DEFAULT, NO_SAMPLES, Job, Options, Rate, Samples, congested, etps, job_of
from qod_magics.policies.stela.scaling import ByETP, ByLinkLoad, Deployment, ReDeal, Strategy, score

#: An optional key of snapshots: the task managers to end, by id, or how many of them.
LEAVING = "leaving"


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
        """Return the plan for a valid snapshot; `state`: what the last call returned, None at first.

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


class Stela(Elastic):
    """New instances for the operators that move the throughput most; machines whose work moves it least go.

    Le Xu's dissertation, 2021, chapter 2.
    """

    def __init__(self, name: str = "stela", options: Options = DEFAULT) -> None:
        super().__init__(name, ByETP(options))
        self.options = self.parameters = options

    def with_parameters(self, parameters: Options, name: str) -> Stela:
        """See `core.policy.ParameterizedPolicy`."""
        return Stela(name, parameters)

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """See `core.policy.ExplainingPolicy`."""
        return _StelaReasons(snapshot, self.options, self.name)


def storm_re_deal() -> Elastic:
    """Return Storm's default scheduler."""
    return Elastic("storm-re-deal", ReDeal())


def least_link_load() -> Elastic:
    """Return the migration of the instances with the least load on their links."""
    return Elastic("least-link-load", ByLinkLoad("least"))


def most_link_load() -> Elastic:
    """Return the migration of the instances with the most load on their links."""
    return Elastic("most-link-load", ByLinkLoad("most"))


def leaving(snapshot: Snapshot) -> tuple[str, ...] | int:
    """Return the task managers that are to leave: their ids, or their number; 0 if none. Raises SnapshotError, one
    line.

    An id that is not there has left already.
    """
    return snapshot.leaving


def machines(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the task managers that instances may be placed on, in the snapshot's order: all but those on standby."""
    return tuple(manager.id for manager in snapshot.task_managers if takes_instances(manager))


def joined(snapshot: Snapshot, known: Collection[str]) -> tuple[str, ...]:
    """Return the machines that are not known, host nothing and are not to leave: a scale-out is asked for (section
    2.2.6)."""
    wanted = leaving(snapshot)
    excluded = {instance.task_manager for instance in snapshot.instances}.union(known)
    if not isinstance(wanted, int):
        excluded.update(wanted)
    return tuple(name for name in machines(snapshot) if name not in excluded)


class _StelaReasons(SheddingNothing):
    """The `core.policy.Reasons` of a plan of Stela.

    The actions of the plan carry those that they were chosen for, by mean rates; here are those of the snapshot alone.
    """

    def __init__(self, snapshot: Snapshot, options: Options, policy: str) -> None:
        super().__init__(policy)
        self.snapshot = snapshot
        self.options = options

    def __repr__(self) -> str:
        return f"reasons of a plan for {len(self.snapshot.tasks)} tasks"

    def task(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: its ETP, and whether it is congested."""
        job = self._job
        flow = f"input {round(job.input(id))} rows/s, {round(job.processed[id])} of them read"
        state = "congested" if id in self._congested else "not congested"
        return [f"ETP {float(self._etp[id]):.0%} of {round(job.throughput)} rows/s", f"{state}: {flow}"]

    def task_manager(self, id: str) -> Sequence[str]:
        """See `core.policy.Reasons`: its ETPSum and its place among the others, the lowest of which goes first."""
        sums = self._sums
        lower = sum(1 for other in sums.values() if other < sums[id])
        return [f"ETPSum {float(sums[id]):.2f}, lower on {lower} of {len(sums) - 1} others"]

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `core.policy.Reasons`: ETPSum of a task manager."""
        return {"etp_sum": float(self._sums[id])}

    @cached_property
    def _job(self) -> Job:
        return job_of(self.snapshot)

    @cached_property
    def _congested(self) -> frozenset[str]:
        return frozenset(congested(self._job, self.options))

    @cached_property
    def _etp(self) -> Mapping[str, Rate]:
        return etps(self._job, self._congested, self.options.mode)

    @cached_property
    def _sums(self) -> Mapping[str, Rate]:
        names = [manager.id for manager in self.snapshot.task_managers]
        placement = Deployment.of(self.snapshot, self._job, names).placement
        return {machine: score(hosted, self._etp) for machine, hosted in placement.items()}
