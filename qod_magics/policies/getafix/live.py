"""The policy `getafix` on a cluster: the default policy decides about streams, Getafix about slices of results.

Both are independent of each other. The session keeps copies of slices (`session.slices`), measures how long queries use
them, and asks `slices.replication` once a cycle; the plans for streams are those of the default policy.

What differs from the source: only slices that were asked for in the last `forget_s` seconds are segments; a segment is
loaded by the query that asks for it first, where no task manager has a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from qod_magics.core.engines import ReplicationPolicy
from qod_magics.core.policy import SliceRules
from qod_magics.policies.getafix import packing
from qod_magics.policies.getafix.policy import Getafix, Router, Uniform
from qod_magics.policies.parameters import Parameter, check
from qod_magics.policies.stream_economics.policy import LearningStreamEconomics, reactive

_MORE_THAN_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class Slicing:
    """What slices are. Raises UsageProblem, one line, for values out of range."""

    slice_s: Annotated[float, Parameter("time of a slice of results, seconds", least=1)] = 60.0
    forget_s: Annotated[
        float, Parameter("seconds after which a slice that no query asked for loses its copies", least=5)
    ] = 300.0

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class Parameters(Slicing):
    """The parameters of `LiveGetafix`. Raises as `Slicing`."""

    alpha: Annotated[
        float, Parameter("share of a slice's popularity that remains after a round", least=0, most=0.99)
    ] = 0.5
    measure: Annotated[packing.Measure, Parameter("popularity counts ms of access time, or accesses")] = "time"
    balance: Annotated[bool, Parameter("even out the numbers of copies, at the price of even load")] = False
    memory_limit: Annotated[
        float | None,
        Parameter("share of a task manager's memory for blocks above which least popular copies go", above=0, most=1),
    ] = 0.8

    @property
    def packing(self) -> packing.Parameters:
        """The parameters of `Getafix`."""
        return packing.Parameters(
            alpha=self.alpha, measure=self.measure, balance=self.balance, memory_limit=self.memory_limit
        )


class _Live(LearningStreamEconomics):
    """The default policy for streams, with a policy for slices of results beside it."""

    def __init__(self, name: str, parameters: Slicing, replication: ReplicationPolicy) -> None:
        of_streams = reactive()
        super().__init__(
            name,
            costs=of_streams.costs,
            moves=of_streams.moves,
            sharing=of_streams.sharing,
            evidence=of_streams.evidence,
        )
        self.parameters: Any = parameters
        self.slices = SliceRules(replication, Router, parameters.slice_s, parameters.forget_s)


class LiveGetafix(_Live):
    """Few copies of hot slices."""

    def __init__(self, parameters: Parameters = Parameters(), name: str = "getafix") -> None:
        super().__init__(name, parameters, Getafix(parameters.packing))

    def with_parameters(self, parameters: Any, name: str) -> LiveGetafix:
        """See `core.policy.ParameterizedPolicy`."""
        return LiveGetafix(parameters, name)


class Everywhere(_Live):
    """The baseline: each task manager keeps a copy of each slice that is asked for."""

    def __init__(self, parameters: Slicing = Slicing(), name: str = "getafix-everywhere") -> None:
        super().__init__(name, parameters, Uniform(_MORE_THAN_NODES))

    def with_parameters(self, parameters: Any, name: str) -> Everywhere:
        """See `core.policy.ParameterizedPolicy`."""
        return Everywhere(parameters, name)
