"""What travels with messages and acknowledgements (contexts), and the two policies that fill it in.

`DeadlineContexts` derives latest starts from windows, progress maps and profiled costs (2.5, 2.6). `TokenContexts`
shares workers in proportion to token rates and knows no deadlines (2.9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from graphlib import TopologicalSorter
from typing import Literal, Protocol, TypeAlias, TypeVar

from qod_magics.core.engines import MS, Message, S, Topology, channel_of
from qod_magics.errors import UsageProblem

# --- Parameters and equations: lower priorities run first -------------------------------------------------------------
# A priority combines the latency target of the job, the *frontier time* of the message (when the window that it feeds
# is complete) and the profiled costs of the operators downstream. All times are in one unit, ns where nothing else is
# said.

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
            raise UsageProblem(f"Cameo: there is no order {self.order!r}; give 'llf', 'edf' or 'sjf'", name="order")
        if self.transform not in ("channel", "printed"):
            raise UsageProblem(
                f"Cameo: there is no transform {self.transform!r}; give 'channel' or 'printed'", name="transform"
            )
        if self.quantum < 0:
            raise UsageProblem(f"Cameo: quantum is {self.quantum!r}; give nanoseconds, 0 or more", name="quantum")
        if self.history < 1:
            raise UsageProblem(f"Cameo: history is {self.history!r}; give a number of pairs, 1 or more", name="history")
        if not 0 < self.weight <= 1:
            raise UsageProblem(f"Cameo: weight is {self.weight!r}; give a number above 0, and 1 at most", name="weight")


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
            raise UsageProblem(
                f"Cameo: the token interval is {self.interval!r}; give nanoseconds, 1 or more", name="interval"
            )
        for rate in (*self.rates.values(), self.default):
            if rate < 0:
                raise UsageProblem(
                    f"Cameo: a token rate is {rate!r}; give a number of messages, 0 or more",
                    value=rate,
                    rule="not negative",
                )


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


Node = TypeVar("Node", int, str)


def critical_paths(targets: Mapping[Node, Sequence[Node]], cost: Mapping[Node, int]) -> dict[Node, int]:
    """Return the largest sum of costs over the paths from the successors of each operator to a sink (4); 0 of a sink.
    It is what `DeadlineContexts` learns from the acknowledgements of all operators.

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


@dataclass(slots=True, eq=False)
class PriorityContext:
    """PC of a message. Its progress, observed time and latency target are those of the message and its job."""

    local: int  #: order within its operator: frontier progress
    priority: int  #: order among operators: of the message at the head
    source: int  #: stream whose progress map applies; -1: none


@dataclass(slots=True, eq=False)
class ReplyContext:
    """RC of an acknowledgement, from the operator that has run the message to its sender."""

    sender: int  #: operator that the reply is for, or a source's stream: `core.engines.channel_of`
    operator: int  #: that replies
    cost: int  #: of a message on it, ns
    after: int  #: on the longest path from it to a sink, ns
    size: int = 0  #: class of batch sizes that the cost is of


class ContextPolicy(Protocol):
    """How priorities are made: four functions at sources and operators (2.4)."""

    def begin(self, topology: Topology) -> None:
        """Prepare for a topology; called once, before all others."""
        ...

    def build_at_source(self, now: int, message: Message) -> PriorityContext:
        """Return the context of a message that a source is about to send."""
        ...

    def build_at_operator(self, message: Message, trigger: Message | None) -> PriorityContext:
        """Return the context of a message that an operator is about to send, having run `trigger`."""
        ...

    def prepare_reply(self, message: Message, took: int) -> ReplyContext | None:
        """Return the reply of an operator that has run a message for `took` ns; None: the sender knows all of it."""
        ...

    def process_reply(self, reply: ReplyContext) -> None:
        """Take in a reply at the sender."""
        ...


class Channel:
    """From one sender to one operator: what each end knows of the other."""

    __slots__ = ("after", "cost", "costs", "previous", "replied")

    def __init__(self, previous: int) -> None:
        self.previous = previous  #: progress of the messages sent
        self.cost = 0  #: on the target, by the latest reply, ns
        self.after = 0  #: after it, ns
        self.costs: dict[int, int] | None = None  #: on the target, by class of batch sizes, if it tells them apart
        self.replied: dict[int, tuple[int, int]] = {}  #: cost and path that the target last replied, by class


class DeadlineContexts:
    """State of the sources' and operators' converters and profiles.

    One map per source stream, shared by all that rank its messages; it learns from observed pairs at the source only.
    A reply that would repeat the last one on its channel is not sent: it would change nothing.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._urgency = URGENCY[parameters.order]
        self.maps: list[ProgressMap] = []  #: by source stream
        self.channels: list[dict[int, Channel]] = []  #: by target, and `channel_of` a message
        self.costs: list[dict[int, int]] = []  #: profiled mean cost, ns, by operator and class of batch sizes
        self.after: list[int] = []  #: C_path, ns, by operator: the largest of its targets' replies

    def begin(self, topology: Topology) -> None:
        """Reset what is known of costs and times: both count as 0."""
        operators = topology.operators
        self._targets = [each.targets for each in operators]
        self._slides = [each.slide if self.parameters.windows else 0 for each in operators]
        self._origins = [each.origin for each in operators]  # of the grid of window ends
        self._lengths = [(each.length or each.slide) if each.slide else 0 for each in operators]
        self._latency = [each.max_latency for each in operators]
        self._feeding = _feeding(topology)
        self.maps = [ProgressMap(self.parameters.history) for _ in topology.entries]
        self.channels = [{} for _ in operators]
        self.costs = [{} for _ in operators]
        self.after = [0] * len(operators)

    def build_at_source(self, now: int, message: Message) -> PriorityContext:
        """Return the context of a source's message: its pair of progress and time is an observation of the stream."""
        self._map(message.source).update(message.progress, message.observed)
        return self._convert(message, message.source)

    def build_at_operator(self, message: Message, trigger: Message | None) -> PriorityContext:
        """Return the context of an operator's message. If it names no stream, the map is that of the triggering
        message."""
        source = message.source
        if source < 0 and trigger is not None and trigger.context is not None:
            source = trigger.context.source
        return self._convert(message, source)

    def _convert(self, message: Message, source: int) -> PriorityContext:
        operator, progress, observed = message.operator, message.progress, message.observed
        channel = self.channel(message)
        slide = self._slides[operator]
        frontier, frontier_time = progress, observed
        if slide:
            if self.parameters.transform == "channel":
                frontier = frontier_progress(channel.previous, progress, slide, self._origins[operator])
            else:
                sender = self._slides[message.sender] if message.sender >= 0 else 0
                frontier = printed_frontier_progress(progress, slide, sender)
            if frontier > progress:  # it waits (7)
                estimate = self._frontier_time(frontier, source, operator)
                if estimate is not None and estimate > observed:
                    frontier_time = estimate
        if progress > channel.previous:
            channel.previous = progress
        cost = channel.cost
        if channel.costs is not None:
            cost = channel.costs.get(message.rows.bit_length(), cost)
        priority = self._urgency(frontier_time, self._latency[operator], cost, channel.after)
        return PriorityContext(frontier, priority, source)

    def _frontier_time(self, frontier: int, source: int, operator: int) -> int | None:
        """Return when `frontier` is available at the sources (8), (9), (11); None without an estimate."""
        if self.parameters.ingestion_time:
            return frontier
        if self.parameters.join_aware:
            times = [self._map(each).time(frontier) for each in self._feeding[operator]]
            return max((time for time in times if time is not None), default=None)
        return self._map(source).time(frontier) if source >= 0 else None

    def _map(self, source: int) -> ProgressMap:
        maps = self.maps
        while len(maps) <= source:
            maps.append(ProgressMap(self.parameters.history))
        return maps[source]

    def channel(self, message: Message) -> Channel:
        """Return the channel of a message. A window's result begins it at the start of the window, others at their
        end."""
        channels = self.channels[message.operator]
        found = channels.get(channel_of(message))
        if found is None:
            length = self._lengths[message.sender] if message.sender >= 0 else 0
            found = channels[channel_of(message)] = Channel(message.progress - length)
        return found

    def prepare_reply(self, message: Message, took: int) -> ReplyContext | None:
        """Take the measured cost into the profile, and say what the sender does not know yet."""
        operator = message.operator
        size = message.rows.bit_length() if self.parameters.by_size else 0
        costs = self.costs[operator]
        known = costs.get(size)
        if known == took:
            cost = took
        else:
            cost = took if known is None else known + round(self.parameters.weight * (took - known))
            costs[size] = cost
        after = self.after[operator]
        if self.parameters.cost_error is not None:
            cost += self.parameters.cost_error()
        replied = self.channel(message).replied
        if replied.get(size) == (cost, after):
            return None
        replied.clear()  # of the other classes, the path may be out of date at the sender
        replied[size] = (cost, after)
        return ReplyContext(channel_of(message), operator, cost, after, size)

    def process_reply(self, reply: ReplyContext) -> None:
        """Note what an operator costs, and recompute the longest path of the sender."""
        sender, operator = reply.sender, reply.operator
        channel = self.channels[operator].get(sender)
        if channel is None:
            channel = self.channels[operator][sender] = Channel(0)
        channel.cost, channel.after = reply.cost, reply.after
        if self.parameters.by_size:
            channel.costs = channel.costs or {}
            channel.costs[reply.size] = reply.cost
        if sender >= 0:
            known = (self.channels[each].get(sender) for each in self._targets[sender])
            self.after[sender] = max((each.cost + each.after for each in known if each is not None), default=0)


def _feeding(topology: Topology) -> list[tuple[int, ...]]:
    """Return source streams upstream of each operator."""
    found: list[set[int]] = [set() for _ in topology.operators]
    for source, entries in enumerate(topology.entries):
        waiting = [*entries]
        while waiting:
            operator = waiting.pop()
            if source not in found[operator]:
                found[operator].add(source)
                waiting += topology.operators[operator].targets
    return [tuple(sorted(each)) for each in found]


class Tokens:
    """The tokens of one source: `rate` per interval. Unused ones lapse at its end."""

    __slots__ = ("_taken", "_window", "interval", "rate")

    def __init__(self, rate: int, interval: int) -> None:
        self.rate = rate
        self.interval = interval  #: in the unit of the times
        self._window = -1  #: number of the interval
        self._taken = 0  #: in it

    def take(self, now: int) -> tuple[int, int]:
        """Return the number of the interval, and the tag of its next token (12), (13); LEAST_URGENT if none is left
        (14)."""
        window = now // self.interval
        if window != self._window:
            self._window, self._taken = window, 0
        k = self._taken
        if k >= self.rate:
            return window, LEAST_URGENT
        self._taken = k + 1
        return window, window * self.interval + k * self.interval // self.rate


class TokenContexts:
    """Messages of sources take tokens, and those of operators inherit (15). Nothing is profiled, nothing replied."""

    def __init__(self, rates: TokenRates) -> None:
        self.rates = rates

    def begin(self, topology: Topology) -> None:
        """Give every source of a job as many tokens as the job's rate says."""
        self._jobs = [each.job for each in topology.operators]
        self._tokens: dict[tuple[int, int], Tokens] = {}
        self._without = 0  #: messages without a token so far: they go in order of arrival, whatever operator runs (14)

    def build_at_source(self, now: int, message: Message) -> PriorityContext:
        """Return a context with the tag of a token, while the source has one in this interval."""
        job = self._jobs[message.operator]
        tokens = self._tokens.get((job, message.source))
        if tokens is None:
            rate = self.rates.rates.get(job, self.rates.default)
            tokens = self._tokens[job, message.source] = Tokens(rate, self.rates.interval)
        window, tag = tokens.take(now)
        if tag == LEAST_URGENT:
            self._without += 1
            tag += self._without
            window = LEAST_URGENT if self.rates.overtake else window
        return PriorityContext(window, tag, message.source)

    def build_at_operator(self, message: Message, trigger: Message | None) -> PriorityContext:
        """Return the context of the message that triggered it; without one, the least urgent."""
        if trigger is None or trigger.context is None:
            return PriorityContext(0, LEAST_URGENT, message.source)
        context: PriorityContext = trigger.context
        return context

    def prepare_reply(self, message: Message, took: int) -> ReplyContext | None:
        """Return None: nothing is profiled."""
        return None

    def process_reply(self, reply: ReplyContext) -> None:
        """Never called: no replies are sent."""
