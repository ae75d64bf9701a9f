"""Proportional shares by tokens (2.9): a policy that knows rates, and no deadlines."""

from __future__ import annotations

from qod_magics.core.dispatch import Message, Topology
from qod_magics.policies.cameo.contexts import PriorityContext, ReplyContext
from qod_magics.policies.cameo.parameters import TokenRates
from qod_magics.policies.cameo.priority import LEAST_URGENT


class Tokens:
    """The tokens of one source: `rate` per interval. Unused ones lapse at its end."""

    __slots__ = ("_taken", "_window", "interval", "rate")

    def __init__(self, rate: int, interval: int) -> None:
        self.rate = rate
        self.interval = interval  #: in the unit of the times
        self._window = -1  #: number of the interval
        self._taken = 0  #: in it

    def take(self, now: int) -> tuple[int, int]:
        """Number of the interval, and the tag of its next token (12), (13); LEAST_URGENT if none is left (14)."""
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
        """Every source of a job has as many tokens as the job's rate says."""
        self._jobs = [each.job for each in topology.operators]
        self._tokens: dict[tuple[int, int], Tokens] = {}
        self._without = 0  #: messages without a token so far: they go in order of arrival, whatever operator runs (14)

    def build_at_source(self, now: int, message: Message) -> PriorityContext:
        """With the tag of a token, while the source has one in this interval."""
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
        """As the message that triggered it; without one, least urgent."""
        if trigger is None or trigger.context is None:
            return PriorityContext(0, LEAST_URGENT, message.source)
        context: PriorityContext = trigger.context
        return context

    def prepare_reply(self, message: Message, took: int) -> ReplyContext | None:
        """Nothing to say."""
        return None

    def process_reply(self, reply: ReplyContext) -> None:
        """Never called: no replies are sent."""
