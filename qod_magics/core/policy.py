"""The protocol of every policy, the optional ones, and the reasons that a policy gives for its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from qod_magics.core.engines import ReplicationPolicy
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured, Placer, Unplaced, fewest_first
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager


@runtime_checkable
class Policy(Protocol):
    """Decides, purely: the same snapshot and state always give the same plan.

    `state` is the policy's own memory between cycles (windows, cooldowns), None at the first cycle.
    It is opaque to the controller, which passes it back unchanged.
    """

    name: str  #: what `--policy` selects

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        """Return the plan for this snapshot and the state for the next call."""
        ...


@runtime_checkable
class LearningPolicy(Policy, Protocol):
    """A policy that learns over many snapshots, such as the CPU cost of a row.

    What it learned is kept in the snapshot, not in its state: before each decision `learn` completes the snapshot, and
    the controller decides on the result and records it. So a plan is still a function of its snapshot, a recorded
    snapshot gives the same plan again, and a what-if on it uses what was known then.
    """

    def learn(self, snapshot: Snapshot, measured: Measured, memory: Any) -> tuple[Snapshot, Any]:
        """Return `snapshot` with learned values in its optional fields, and the memory for the next
        call.

        Pure: the same snapshot, measurements and memory (None at the first cycle) always give the same result.
        """
        ...


@runtime_checkable
class RememberingPolicy(LearningPolicy, Protocol):
    """A policy whose memory outlives the kernel."""

    def kept(self, memory: Any) -> Any:
        """Return what the memory is to be made from again, as plain JSON values."""
        ...

    def recalled(self, kept: Any, memory: Any) -> Any:
        """Return a memory (None: none yet) completed by what `kept` returned in an earlier process. Raises ValueError:
        that is of another form."""
        ...


@runtime_checkable
class PlacingPolicy(Policy, Protocol):
    """A policy that places instances: at first, and after their task manager was lost."""

    def place(
        self, unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
    ) -> Mapping[str, str]:
        """Return the task manager by instance; an instance without one waits. Pure."""
        ...


@runtime_checkable
class ExplainingPolicy(Policy, Protocol):
    """A policy that gives reasons."""

    def explain(self, snapshot: Snapshot, plan: Plan) -> Reasons:
        """Return the reasons for `plan`, which it made for this snapshot. Pure."""
        ...


@runtime_checkable
class StagedPolicy(Policy, Protocol):
    """A policy made of stages, which can be paused one by one."""

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages that can be paused."""
        ...

    @property
    def paused(self) -> frozenset[str]:
        """Names of the stages that propose nothing."""
        ...

    def pausing(self, stage: str, paused: bool = True) -> StagedPolicy:
        """Return this policy with a stage paused, or not; its state stays valid. Raises UsageProblem: no such stage."""
        ...


@runtime_checkable
class ParameterizedPolicy(Policy, Protocol):
    """A policy with parameters, a frozen dataclass of which fields can be set (`policies.parameters`)."""

    parameters: Any

    def with_parameters(self, parameters: Any, name: str) -> ParameterizedPolicy:
        """Return this policy with other parameters and another name; its state stays valid."""
        ...


class Router(Protocol):
    """Chooses the node of each access to one segment."""

    def route(self) -> str:
        """Return the node of the next access."""
        ...


@dataclass(frozen=True, slots=True)
class SliceRules:
    """How copies of slices of results are kept in the memory of task managers."""

    replication: ReplicationPolicy
    router: Callable[[Mapping[str, int]], Router]  #: of the shares of a segment's accesses, by node
    slice_s: float  #: time of a slice, seconds
    forget_s: float  #: seconds after which a slice that no query asked for is no segment any more
    #: whether further copies may be made in a cycle, as this was measured and planned; what is there stays
    may_load: Callable[[Snapshot, Plan], bool] = lambda snapshot, plan: True


@runtime_checkable
class SlicingPolicy(Policy, Protocol):
    """A policy under which slices of results are kept in the memory of task managers, whatever it decides about
    streams."""

    @property
    def slices(self) -> SliceRules | None:
        """Their rules; None: no copies are kept."""
        ...


def placer_of(policy: Policy) -> Placer:
    """Return the policy's own placement, or `fewest_first` if it has none."""
    return policy.place if isinstance(policy, PlacingPolicy) else fewest_first


def reasons_of(policy: Policy, snapshot: Snapshot, plan: Plan) -> Reasons:
    """Return the policy's reasons for `plan`; `Unexplained` if it gives none."""
    return policy.explain(snapshot, plan) if isinstance(policy, ExplainingPolicy) else Unexplained(policy.name)


class Reasons(Protocol):
    """A policy's reasons for one decision, as clauses: without a full stop, to follow "; " or ": "."""

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """Return the reason for the desired accuracy of each task."""
        ...

    def task(self, id: str) -> Sequence[str]:
        """Return the reasons for the desired accuracy of one task, at length."""
        ...

    def supply(self, id: str) -> str:
        """Return the CPU that a task manager has and its tasks need; "" if the policy does not model it."""
        ...

    def task_manager(self, id: str) -> Sequence[str]:
        """Return what else limits or raises the CPU for a task manager's tasks."""
        ...

    def starved(self, id: str) -> str:
        """Return why a task manager is starved."""
        ...

    def numbers(self, id: str) -> Mapping[str, float]:
        """Return the figures behind the clauses on a task manager, by name."""
        ...


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The Reasons of a policy that gives none."""

    policy: str  #: its name

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `Reasons`."""
        return dict.fromkeys(tasks, f"policy {self.policy} decided so")

    def task(self, id: str) -> Sequence[str]:
        """See `Reasons`."""
        return [f"policy {self.policy} decided so"]

    def supply(self, id: str) -> str:
        """See `Reasons`."""
        return ""

    def task_manager(self, id: str) -> Sequence[str]:
        """See `Reasons`."""
        return []

    def starved(self, id: str) -> str:
        """See `Reasons`."""
        return f"policy {self.policy} finds no room for the minimum accuracies on {id}"

    def numbers(self, id: str) -> Mapping[str, float]:
        """See `Reasons`."""
        return {}


class SheddingNothing:
    """A base for the Reasons of policies that shed nothing; without more, also of those that do not model CPU.

    What it says of tasks and task managers is each policy's own.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy  #: its name

    def shedding(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """See `Reasons`."""
        return dict.fromkeys(tasks, f"policy {self.policy} sheds nothing")

    def supply(self, id: str) -> str:
        """See `Reasons`: CPU is not modelled."""
        return ""

    def starved(self, id: str) -> str:
        """See `Reasons`: none is."""
        return ""


class ReasonsOfPlan(SheddingNothing):
    """A base for the Reasons of one plan, for the snapshot that it was decided on."""

    def __init__(self, snapshot: Snapshot, plan: Plan, policy: str) -> None:
        super().__init__(policy)
        self.snapshot = snapshot
        self.plan = plan

    def __repr__(self) -> str:
        return f"reasons of a plan for {len(self.snapshot.tasks)} tasks"
