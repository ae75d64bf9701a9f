"""Jobs as declared - sources, stages, targets - and the parallel operators and messages that they become.

`Dataflow` numbers operators and clients; `Router` makes the messages of an output, one for each operator that gets
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from random import Random
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from qod_magics.core.engines import MS, US, Kind, Message, OperatorInfo, S, Topology, stream_channel
from qod_magics.data.forms import Form, Name, Names, NotNegative, Positive, Whole
from qod_magics.simulator.messages.operators import (
    Emitted,
    EmittedPart,
    Ends,
    MarkerSource,
    Merging,
    PartialWindows,
    Regular,
    Windowed,
)

# --- Sources of messages ----------------------------------------------------------------------------------------------


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
        """Return whether each message has a key."""
        ...

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """Return all messages before `until`, ns, in order; the same seed gives the same ones."""
        ...


def zipf_weights(keys: int, exponent: float) -> list[float]:
    """Return the popularity of keys, relative to that of the first, the most popular; infinite: it alone."""
    return [(k + 1) ** -exponent for k in range(keys)]


def popularity(keys: int, exponent: float) -> list[float]:
    """Return the shares of keys among messages, fractions of 1, the most popular first."""
    weights = zipf_weights(keys, exponent)
    total = sum(weights)
    return [weight / total for weight in weights]


class Arrivals(Form, frozen=True):
    """How one client sends, with the names of a scenario. The same seed gives the same messages.

    Raises ValueError for values out of range.
    """

    per_s: Positive = 1.0  #: messages/s
    rows: Whole = 1_000  #: per message, in the mean
    delay_s: NotNegative = 0.0  #: from event time to arrival
    delay_spread_s: NotNegative = 0.0  #: uniform, on top; progress never goes back
    phase: NotNegative | None = None  #: of the first message, in periods; None: drawn
    poisson: bool = False  #: exponential gaps in place of equal ones
    #: shape of a Pareto distribution of rows, or of messages if `bursts_s` is above 0; None: all alike
    pareto: NotNegative | None = None
    bursts_s: NotNegative = 0.0  #: length of the intervals that draw a rate each
    keys: Whole = 0  #: number of keys, of which each message has one; 0: none
    zipf: NotNegative | Literal["inf", "infinite"] = (
        0.0  #: exponent of their popularity, key 0 first; "inf": key 0 alone
    )
    begin_s: NotNegative = 0.0
    end_s: NotNegative | None = None

    def __post_init__(self) -> None:
        if self.per_s <= 0 or self.rows < 0 or self.delay_s < 0 or self.delay_spread_s < 0 or self.bursts_s < 0:
            raise ValueError(f"a client needs per_s above 0, and nothing negative: {self}")
        if self.pareto is not None and self.pareto <= 1:
            raise ValueError(f"a Pareto distribution has a mean only with a shape above 1, not {self.pareto:g}")

    @property
    def has_keys(self) -> bool:
        """Return whether each message has a key."""
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
        zipf = float(self.zipf)
        weights = list(accumulate(zipf_weights(self.keys, zipf))) if zipf < inf else []
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


#: How the output of a sender reaches the operators of a stage: each gets a part of the rows (and the progress), or one
#: of them gets all: always the same one ("one": by the sender's number), in turns, or by the key of the rows.
Exchange: TypeAlias = Literal["all", "one", "turns", "key"]
#: (operators of a stage, how they are reached, number of the sender within its stage, or of the client in its source)
Route: TypeAlias = tuple[tuple[int, ...], Exchange, int]


@dataclass(frozen=True, slots=True)
class Source:
    """Clients that send alike, one stream each."""

    name: str
    clients: int = 1
    arrivals: ClientMessages = field(default_factory=Arrivals)
    bytes_per_row: int = 0


class Stage(Form, frozen=True):
    """One function, run by `width` parallel operators. Raises ValueError without any."""

    name: Name
    inputs: Names  #: sources or stages
    width: Whole = 1
    fixed_us: NotNegative = 0.0  #: CPU a message
    row_us: NotNegative = 0.0  #: CPU a row
    selectivity: NotNegative = 1.0  #: rows emitted a row read
    slide_ms: NotNegative = 0.0  #: 0: a regular operator
    length_ms: NotNegative = 0.0  #: of a window; 0: the slide
    origin_ms: NotNegative = 0.0
    exchange: Exchange = "all"
    bytes_per_row: Whole = 0  #: of its output
    stateful: bool = False  #: executing a message reads the state object of its key, or of the operator without a key
    #: several workers may execute messages of a window: its reader, of width 1, merges their partial results
    partial: bool = False
    hand_on_us: NotNegative = 0.0  #: CPU of handing on a partial result

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be 1 or more, is {self.width}")


@dataclass(frozen=True, slots=True)
class Job:
    """A dataflow with one latency target. Raises ValueError where an input is unknown, or stages are out of order."""

    name: str
    stages: tuple[Stage, ...]
    sources: tuple[Source, ...]
    max_latency_ms: float = 0.0  #: 0: none

    def __post_init__(self) -> None:
        known = {source.name for source in self.sources}
        for stage in self.stages:
            unknown = [name for name in stage.inputs if name not in known]
            if unknown or not stage.inputs or stage.name in known:
                raise ValueError(
                    f"stage {stage.name!r} of job {self.name!r} reads {stage.inputs}: inputs are sources or earlier "
                    "stages, and each name stands for one"
                )
            known.add(stage.name)
        self._check_keys()
        partial = {stage.name for stage in self.stages if stage.partial}
        for stage in self.stages:
            merges = [name in partial for name in stage.inputs]
            if any(merges) and not (all(merges) and stage.width == 1 and not stage.slide_ms):
                raise ValueError(
                    f"stage {stage.name!r} merges parts of windows: give it width 1, no window, no other input"
                )
            if stage.partial and (not stage.slide_ms or {*stage.inputs} & {each.name for each in self.stages}):
                raise ValueError(f"stage {stage.name!r} is partial: it needs a window, and inputs that are sources")

    def _check_keys(self) -> None:
        """Raise ValueError for an exchange by key of rows without one. A window's result has rows of many keys."""
        keyed = {source.name for source in self.sources if source.arrivals.has_keys}
        for stage in self.stages:
            without = [name for name in stage.inputs if name not in keyed]
            if stage.exchange == "key" and stage.width > 1 and without:
                raise ValueError(
                    f"stage {stage.name!r} gets rows by key, but {', '.join(without)} has none: give a source `keys`, "
                    "or the stage another exchange"
                )
            if not without and not stage.slide_ms:
                keyed.add(stage.name)


@dataclass(frozen=True, slots=True)
class Client:
    """One client's stream."""

    job: int
    source: Source
    number: int  #: among all clients
    seed: str  #: of its arrivals, within a run
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """What the engine knows of an operator, beyond `OperatorInfo`."""

    stage: Stage
    channels: tuple[int, ...]  #: that it reads
    routes: tuple[Route, ...]
    fixed_ns: float  #: CPU a message
    row_ns: float  #: CPU a row
    merges: int = 0  #: operators whose partial results it merges

    def make(self) -> Regular | Windowed | PartialWindows | Merging:
        """Return the operator's state before it has read anything."""
        stage = self.stage
        if self.merges:
            return Merging(self.merges, stage.selectivity)
        if stage.partial:
            return PartialWindows(*_window(stage), self.channels)
        if not stage.slide_ms:
            return Regular(self.channels, stage.selectivity)
        return Windowed(*_window(stage), self.channels, stage.selectivity)


class Dataflow:
    """All jobs on a cluster.

    Args:
        jobs: in the order of their numbers.
        machines: their number; operator i of all is on machine i modulo it.
        workers: threads of each machine.
        delay_us: one-way delay between two machines, and from clients.
        places: machine of operators by "job/stage/number", in place of the rule above.

    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        machines: int = 1,
        workers: int = 1,
        delay_us: float = 0.0,
        places: Mapping[str, int] | None = None,
    ) -> None:
        if machines < 1 or workers < 1:
            raise ValueError(f"a cluster needs a machine and a worker: {machines}, {workers}")
        self.jobs = tuple(jobs)
        self.clients: list[Client] = []
        self.operators: list[Operator] = []
        infos: list[OperatorInfo] = []
        for number, job in enumerate(self.jobs):
            infos += self._add(number, job, machines, places or {})
        self.topology = Topology(
            tuple(infos),
            tuple(machine for machine in range(machines) for _ in range(workers)),
            tuple(_reached(client.routes) for client in self.clients),
            delay=round(delay_us * US),
        )

    def _add(self, number: int, job: Job, machines: int, places: Mapping[str, int]) -> list[OperatorInfo]:
        """Add the clients and operators of a job."""
        operators: dict[str, tuple[int, ...]] = {}
        first = len(self.operators)
        for stage in job.stages:
            operators[stage.name] = tuple(range(first, first + stage.width))
            first += stage.width

        def routes(name: str, sender: int) -> tuple[Route, ...]:
            readers = (stage for stage in job.stages if name in stage.inputs)
            return tuple((operators[stage.name], stage.exchange, sender) for stage in readers)

        channels: dict[int, list[int]] = {o: [] for each in operators.values() for o in each}
        for source in job.sources:
            for c in range(source.clients):
                seed = f"{job.name}/{source.name}/{c}"
                client = Client(number, source, len(self.clients), seed, routes(source.name, c))
                self.clients.append(client)
                for o in _reached(client.routes):
                    channels[o].append(stream_channel(client.number))
        infos = []
        for stage in job.stages:
            slide, length, origin = _window(stage)
            for k, o in enumerate(operators[stage.name]):
                found = routes(stage.name, k)
                for target in _reached(found):
                    channels[target].append(o)
                name = f"{job.name}/{stage.name}/{k}"
                place, latency = places.get(name, o % machines), round(job.max_latency_ms * MS)
                # the grid of window ends that a dispatcher sees begins with the first end
                grid = origin + length % slide if slide else 0
                infos.append(
                    OperatorInfo(name, number, place, _reached(found), latency, slide, grid, length, stage.partial)
                )
        for stage in job.stages:  # upstream stages come first, so all channels are known by now
            merges = sum(len(operators[each.name]) for each in job.stages if each.partial and each.name in stage.inputs)
            for k, o in enumerate(operators[stage.name]):
                found = routes(stage.name, k)
                self.operators.append(
                    Operator(stage, tuple(channels[o]), found, stage.fixed_us * US, stage.row_us * US, merges)
                )
        return infos

    def marker_source(self) -> MarkerSource | None:
        """Return a new one, from the first windows on; None if no stage is partial."""
        infos = self.topology.operators
        ends = {
            client.number: [
                Ends(o, infos[o].slide, _first_end(infos[o]), round(self.operators[o].stage.hand_on_us * US))
                for o in _reached(client.routes)
                if infos[o].partial
            ]
            for client in self.clients
        }
        return MarkerSource(ends) if any(ends.values()) else None


def _window(stage: Stage) -> tuple[int, int, int]:
    """Return the slide, length and origin of its windows, ns."""
    slide, origin = round(stage.slide_ms * MS), round(stage.origin_ms * MS)
    return slide, round(stage.length_ms * MS) or slide, origin


def _first_end(info: OperatorInfo) -> int:
    """Return the end of the first window."""
    return info.origin if info.length % info.slide else info.origin + info.slide


def _reached(routes: Sequence[Route]) -> tuple[int, ...]:
    """Return the operators that a sender may reach, each once, in order."""
    found: dict[int, None] = {}
    for targets, exchange, number in routes:
        found |= dict.fromkeys((targets[number % len(targets)],) if exchange == "one" else targets)
    return tuple(found)


class Router:
    """Makes messages, and numbers them."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._operators = dataflow.operators
        self._infos = dataflow.topology.operators
        self._turns: dict[tuple[int, int, int], int] = {}  # the next, by sender, client and route
        self._last = 0

    def numbers(self) -> Iterator[int]:
        """Yield the ids of the next messages."""
        while True:
            yield self.number()

    def number(self) -> int:
        """Return the id of the next message."""
        self._last += 1
        return self._last

    def messages(
        self, sender: int, source: int, emitted: Emitted | EmittedPart, routes: Iterable[Route], bytes_per_row: int
    ) -> Iterator[Message]:
        """Yield the messages by which an operator, or CLIENT, sends an output along its routes."""
        progress, observed, all_rows, event_time, key, *part = emitted
        for r, (targets, exchange, number) in enumerate(routes):
            if exchange != "all":
                targets = (targets[self._chosen(exchange, number, key, (sender, source, r)) % len(targets)],)
            share, more = divmod(all_rows, len(targets))
            for k, target in enumerate(targets):
                rows = share + (k < more)
                operator = self._operators[target]
                work = round(operator.fixed_ns + operator.row_ns * rows)
                objects = self._objects(target, key) if operator.stage.stateful else ()
                self._last += 1
                yield Message(
                    self._last,
                    target,
                    sender,
                    progress,
                    event_time,
                    observed,
                    work,
                    rows,
                    rows * bytes_per_row,
                    source,
                    key,
                    objects,
                    Kind.DATA,
                    work,
                    payload=part[0] if part else None,
                )

    def _chosen(self, exchange: str, number: int, key: int, route: tuple[int, int, int]) -> int:
        """Return the number of the operator that gets all rows, modulo their count."""
        if exchange == "turns":
            number = self._turns.get(route, number)
            self._turns[route] = number + 1
        return key if exchange == "key" else number

    def _objects(self, target: int, key: int) -> tuple[Any, ...]:
        if key < 0:
            return (target,)
        return ((self._infos[target].job, self._operators[target].stage.name, key),)
