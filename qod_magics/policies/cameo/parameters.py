"""The parameters of Cameo. Times are whole nanoseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from qod_magics.core.nanoseconds import MS, S
from qod_magics.errors import UsageProblem

Order = Literal["llf", "edf", "sjf"]
#: of messages per interval and source, where nothing else is given: the same for all jobs, so equal shares
TOKENS = 12


@dataclass(frozen=True, slots=True)
class Parameters:
    """How priorities are derived, and how often workers change operators. Defaults: the source's, or as said."""

    order: Order = "llf"  #: least laxity, earliest deadline, or shortest job first (5)
    quantum: int = MS  #: an operator keeps a worker for this long at least, ns
    windows: bool = True  #: knows the windows of operators; else every operator counts as regular (2)
    transform: Literal["channel", "printed"] = "channel"  #: frontier progress by (6), or as printed: for comparison
    ingestion_time: bool = False  #: progress is arrival time (8); else event time, with fitted maps (9)
    join_aware: bool = False  #: the frontier time is the latest over all sources of an operator (11)
    history: int = 64  #: pairs of progress and time that a map is fitted to; the source gives no number
    weight: float = 0.2  #: of the newest measured cost in the running mean; the source names no filter
    by_size: bool = False  #: costs are profiled per size of the batch, in powers of 2
    #: added to every cost that an operator reports, ns: for experiments with wrong estimates
    cost_error: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        """Raises UsageProblem for a value out of range."""
        if self.order not in ("llf", "edf", "sjf"):
            raise UsageProblem(f"Cameo: there is no order {self.order!r}; give 'llf', 'edf' or 'sjf'")
        if self.transform not in ("channel", "printed"):
            raise UsageProblem(f"Cameo: there is no transform {self.transform!r}; give 'channel' or 'printed'")
        if self.quantum < 0:
            raise UsageProblem(f"Cameo: quantum is {self.quantum!r}; give nanoseconds, 0 or more")
        if self.history < 1:
            raise UsageProblem(f"Cameo: history is {self.history!r}; give a number of pairs, 1 or more")
        if not 0 < self.weight <= 1:
            raise UsageProblem(f"Cameo: weight is {self.weight!r}; give a number above 0, and 1 at most")


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Shares of jobs as messages per interval and source that run at normal priority (2.9)."""

    interval: int = S  #: ns
    rates: Mapping[int, int] = field(default_factory=dict)  #: tokens per interval and source, by job
    default: int = TOKENS  #: of a job that `rates` does not name
    #: messages with a token run before those without in their operator, too. Else an operator whose next message has no
    #: token holds up all behind it, and shares are lost once a backlog is older than an interval (14)
    overtake: bool = False

    def __post_init__(self) -> None:
        """Raises UsageProblem for a value out of range."""
        if self.interval < 1:
            raise UsageProblem(f"Cameo: the token interval is {self.interval!r}; give nanoseconds, 1 or more")
        for rate in (*self.rates.values(), self.default):
            if rate < 0:
                raise UsageProblem(f"Cameo: a token rate is {rate!r}; give a number of messages, 0 or more")
