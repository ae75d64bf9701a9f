"""Parameters of Cameo, and the equations that rank messages: lower priorities run first.

A priority combines the latency target of the job, the *frontier time* of the message (when the window that it feeds is
complete) and the profiled costs of the operators downstream. All times are in one unit, ns where nothing else is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from graphlib import TopologicalSorter
from typing import Literal, TypeAlias, TypeVar

from qod_magics.core.engines import MS, S
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
        """Raise UsageProblem for a value out of range."""
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
        """Raise UsageProblem for a value out of range."""
        if self.interval < 1:
            raise UsageProblem(f"Cameo: the token interval is {self.interval!r}; give nanoseconds, 1 or more")
        for rate in (*self.rates.values(), self.default):
            if rate < 0:
                raise UsageProblem(f"Cameo: a token rate is {rate!r}; give a number of messages, 0 or more")


Node = TypeVar("Node", int, str)
#: of frontier time, latency target, cost on the target, cost after it
Urgency: TypeAlias = Callable[[int, int, int, int], int]
#: above every time: a message without a token. A number, so that all priorities are compared as such.
LEAST_URGENT = 1 << 80


def start_deadline(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Return the latest moment at which a message may start: least laxity first, the default (3)."""
    return frontier_time + target - cost - after


def completion_deadline(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Return the latest moment at which a message may be done: earliest deadline first."""
    return frontier_time + target - after


def shortest_job(frontier_time: int, target: int, cost: int, after: int) -> int:
    """Return the cost of the message: shortest job first. Knows no deadline."""
    return cost


URGENCY: Mapping[str, Urgency] = {"llf": start_deadline, "edf": completion_deadline, "sjf": shortest_job}


def critical_paths(targets: Mapping[Node, Sequence[Node]], cost: Mapping[Node, int]) -> dict[Node, int]:
    """Return the largest sum of costs over the paths from the successors of each operator to a sink (4); 0 of a sink.

    Raises:
        graphlib.CycleError: the graph is no DAG.

    """
    order = TopologicalSorter({node: targets.get(node, ()) for node in cost}).static_order()
    found: dict[Node, int] = {}
    for node in order:
        found[node] = max((cost[each] + found[each] for each in targets.get(node, ())), default=0)
    return found


def frontier_progress(previous: int, progress: int, slide: int, origin: int = 0) -> int:
    """Return the earliest window end that a channel had not passed before a message (6).

    Args:
        previous: progress of the channel before the message; of its first message, the smallest event time in it
        progress: of the message
        slide: between two window ends of the target; 0: a regular operator, and the message's own progress is returned
        origin: of the grid of window ends

    """
    return origin + ((previous - origin) // slide + 1) * slide if slide else progress


def waits(frontier: int, progress: int) -> bool:
    """Return whether a message may wait for others of its window: it completes none (7)."""
    return frontier > progress


def printed_frontier_progress(progress: int, slide: int, slide_of_sender: int) -> int:
    """Return equation 5.4 as printed, which puts off the message that completes a window (E1). For comparison only."""
    return (progress // slide + 1) * slide if slide_of_sender < slide else progress


class ProgressMap:
    """The line of one source stream, over its newest pairs. Exact: all sums are whole numbers, kept as they change."""

    __slots__ = ("_p", "_pairs", "_pp", "_pt", "_t", "history", "newest")

    def __init__(self, history: int = 64) -> None:
        self.history = history
        self.newest: tuple[int, int] | None = None
        self._pairs: deque[tuple[int, int]] = deque()
        self._p = self._t = self._pp = self._pt = 0

    def update(self, progress: int, time: int) -> None:
        """Add an observed pair, and forget the oldest one beyond the history. The newest one counts once."""
        pair = (progress, time)
        if pair == self.newest:
            return  # an event for several targets
        self.newest = pair
        pairs = self._pairs
        pairs.append(pair)
        self._p += progress
        self._t += time
        self._pp += progress * progress
        self._pt += progress * time
        if len(pairs) > self.history:
            progress, time = pairs.popleft()
            self._p -= progress
            self._t -= time
            self._pp -= progress * progress
            self._pt -= progress * time

    def _slope(self) -> tuple[int, int]:
        """Return the numerator and denominator of alpha; the latter is 0 where it falls back to 1."""
        n = len(self._pairs)
        above = n * self._pt - self._p * self._t
        below = n * self._pp - self._p * self._p
        return (above, below) if below > 0 and above > 0 else (1, 0)

    def time(self, progress: int) -> int | None:
        """Return when `progress` is seen, rounded down; None before the first pair."""
        if self.newest is None:
            return None
        above, below = self._slope()
        if not below:
            return progress + self.newest[1] - self.newest[0]
        n = len(self._pairs)
        return (self._t * below + (n * progress - self._p) * above) // (n * below)

    def line(self) -> tuple[Fraction, Fraction] | None:
        """Return alpha and gamma of (9), exact. Alpha is 1 for one pair, equal progress, or time that does not grow."""
        if self.newest is None:
            return None
        above, below = self._slope()
        if not below:
            return Fraction(1), Fraction(self.newest[1] - self.newest[0])
        alpha = Fraction(above, below)
        return alpha, (self._t - alpha * self._p) / len(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
