"""What D-Storm remembers between cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.d_storm.demand import Requirement
from qod_magics.policies.d_storm.fusion import Fusing
from qod_magics.policies.d_storm.means import is_measured
from qod_magics.policies.d_storm.monitor import Monitor
from qod_magics.policies.d_storm.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Ordered:
    """Task managers that a round ordered and that are not up yet."""

    before: frozenset[str]  #: those that took instances when it was ordered
    count: int
    until_s: float  #: when the policy stops waiting for them
    why: str  #: the round's reason


@dataclass(frozen=True, slots=True)
class Memory:
    """The policy's state. Times are seconds of the snapshots' clock."""

    now_s: float
    monitor: Monitor
    last_round_s: float
    known: Mapping[str, Requirement] = field(default_factory=dict)  #: by instance, CPU for each row as last measured
    ordered: Ordered | None = None
    emptied: tuple[str, ...] = ()  #: released once the next window confirms that the plan took effect
    starved: tuple[str, ...] = ()  #: task managers concerned by instances that fitted nowhere in the last round
    asked: frozenset[Fusing] = frozenset()  #: fused or parted by a plan, and not yet seen to have taken effect

    @classmethod
    def begun(cls, snapshot: Snapshot) -> Memory:
        """At the first cycle. The first deployment counts as a round, from whose time on windows and intervals count.

        A snapshot that tells no time and is measured throughout can be all there is, so it is decided at once.
        """
        if snapshot.at_s is None and all(map(is_measured, snapshot.instances)):
            return cls(0.0, Monitor(-inf), -inf)
        now_s = 0.0 if snapshot.at_s is None else snapshot.at_s
        return cls(now_s, Monitor(now_s), now_s)

    @classmethod
    def seeing(cls, snapshot: Snapshot, state: Any, parameters: Parameters) -> Memory:
        """With this cycle's snapshot; begun anew where the clock went back, as in another recording."""
        if not isinstance(state, cls):
            memory = cls.begun(snapshot)
        else:
            now_s = state.now_s + parameters.cycle_s if snapshot.at_s is None else snapshot.at_s
            memory = replace(state, now_s=now_s) if now_s >= state.now_s else cls.begun(snapshot)
        return replace(memory, monitor=memory.monitor.seeing(snapshot, memory.now_s, parameters))
