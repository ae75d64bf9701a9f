"""Deadlines from windows, progress maps and profiled costs: the contexts of Cameo's own policy (2.5, 2.6)."""

from __future__ import annotations

from qod_magics.core.dispatch import Message, Topology, channel_of
from qod_magics.policies.cameo.contexts import PriorityContext, ReplyContext
from qod_magics.policies.cameo.frontier import frontier_progress, printed_frontier_progress
from qod_magics.policies.cameo.parameters import Parameters
from qod_magics.policies.cameo.priority import URGENCY
from qod_magics.policies.cameo.progress_map import ProgressMap


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
        """Nothing is known of costs and times yet: both count as 0."""
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
        """Of a source's message: its pair of progress and time is an observation of the stream."""
        self._map(message.source).update(message.progress, message.observed)
        return self._convert(message, message.source)

    def build_at_operator(self, message: Message, trigger: Message | None) -> PriorityContext:
        """Of an operator's message: if it names no stream, the map is that of the message that triggered it."""
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
        """When `frontier` is available at the sources (8), (9), (11); None without an estimate."""
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
        """The channel of a message. A window's result begins it at the start of the window, others at their end."""
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
    """Source streams upstream of each operator."""
    found: list[set[int]] = [set() for _ in topology.operators]
    for source, entries in enumerate(topology.entries):
        waiting = [*entries]
        while waiting:
            operator = waiting.pop()
            if source not in found[operator]:
                found[operator].add(source)
                waiting += topology.operators[operator].targets
    return [tuple(sorted(each)) for each in found]
