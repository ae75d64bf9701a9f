"""The messages that clients send: when, how large, and of which event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from random import Random
from typing import NamedTuple, Protocol

from qod_magics.core.engines import S


class Sent(NamedTuple):
    """A message of a client."""

    at: int  #: ns
    progress: int  #: ns of event time
    rows: int
    key: int = -1  #: of all its rows; -1: of many
    work: int = -1  #: execution time at its first operator, ns; -1: as its stage says


class ClientMessages(Protocol):
    """How one client sends."""

    @property
    def has_keys(self) -> bool:
        """Whether each message has a key."""
        ...

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """Return all messages before `until`, ns, in order; the same seed gives the same ones."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How one client sends, with the names of a scenario. The same seed gives the same messages.

    Raises ValueError for values out of range.
    """

    per_s: float = 1.0  #: messages/s
    rows: int = 1_000  #: per message, in the mean
    delay_s: float = 0.0  #: from event time to arrival
    delay_spread_s: float = 0.0  #: uniform, on top; progress never goes back
    phase: float | None = None  #: of the first message, in periods; None: drawn
    poisson: bool = False  #: exponential gaps in place of equal ones
    #: shape of a Pareto distribution of rows, or of messages if `bursts_s` is above 0; None: all alike
    pareto: float | None = None
    bursts_s: float = 0.0  #: length of the intervals that draw a rate each
    keys: int = 0  #: number of keys, of which each message has one; 0: none
    zipf: float = 0.0  #: exponent of their popularity, key 0 first; infinite: key 0 alone
    begin_s: float = 0.0
    end_s: float | None = None

    def __post_init__(self) -> None:
        if self.per_s <= 0 or self.rows < 0 or self.delay_s < 0 or self.delay_spread_s < 0 or self.bursts_s < 0:
            raise ValueError(f"a client needs per_s above 0, and nothing negative: {self}")
        if self.pareto is not None and self.pareto <= 1:
            raise ValueError(f"a Pareto distribution has a mean only with a shape above 1, not {self.pareto:g}")

    @property
    def has_keys(self) -> bool:
        """Whether each message has a key."""
        return self.keys > 0

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """Yield all messages before `until`, in order."""
        random = Random(seed)
        gap = S / self.per_s
        begin = self.begin_s * S
        end = until if self.end_s is None else min(until, round(self.end_s * S))
        at = begin + (random.random() if self.phase is None else self.phase) * gap
        bursts = round(self.bursts_s * S)
        factor, next_burst = 1.0, int(begin)
        progress = 0
        keys = range(self.keys)
        weights = list(accumulate((k + 1) ** -self.zipf for k in keys)) if self.keys and self.zipf < inf else []
        while True:
            if bursts and at >= next_burst:
                factor = self._pareto(random)
                next_burst += bursts * (1 + int(at - next_burst) // bursts)
            if bursts and factor * self.per_s < 1e-3:
                at = next_burst
                continue
            moment = round(at)
            if moment >= end:
                return
            delay = self.delay_s + (random.random() * self.delay_spread_s if self.delay_spread_s else 0.0)
            progress = max(progress, moment - round(delay * S))
            rows = self.rows
            if self.pareto is not None and not bursts:
                rows = round(rows * self._pareto(random))
            key = -1 if not self.keys else random.choices(keys, cum_weights=weights)[0] if weights else 0
            yield Sent(moment, progress, rows, key)
            at += (random.expovariate(1.0) if self.poisson else 1.0) * gap / factor

    def _pareto(self, random: Random) -> float:
        """Return a draw with mean 1."""
        if self.pareto is None:
            return 1.0
        return random.paretovariate(self.pareto) * (self.pareto - 1) / self.pareto


@dataclass(frozen=True, slots=True)
class Listed:
    """Messages as they are listed, in the order of time."""

    sent: tuple[Sent, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Whether each message has a key."""
        return all(each.key >= 0 for each in self.sent)

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """Return the messages before `until`; the seed is not used."""
        del seed
        return (each for each in self.sent if each.at < until)
