"""What a cluster of segments is made of, and what is asked of it. In JSON, with seconds, milliseconds and bytes:

    {"engine": "segments",
     "segments": {"kept": 21,             # that queries may ask for: a new one takes the place of the oldest
                  "slice_s": 60,          # a new one after each such time; absent: none
                  "handoff_s": 10,        # from its end until queries ask for it
                  "bytes": [300e6, 700e6]},                 # least and most, uniform
     "nodes": [{"count": 20, "cores": 1, "memory_bytes": 8e9}],  # memory: absent: unlimited
     "clients": {"count": 20, "queries_per_s": 6,          # each; at random times (Poisson)
                 "burst": 0},             # queries in all that are asked at once at the end
     "queries": {"kinds": [{"name": "group-by", "share": 0.4, "ms": 12}],  # mean CPU time of a pair, exponential
                 "zipf": 1.2,             # exponent of the number of slices that a query covers
                 "behind": [1.0]},        # weights: how many slices behind the newest one it ends: 0, 1, ...
     "deep_storage": {"latency_ms": 100, "bytes_per_s": 250e6},  # of each node, one segment at a time
     "round_s": 5, "duration_s": 175, "warm_up_s": 25, "seed": 1, "policy": "getafix",
     "policies": {"getafix": {"balance": true}}, "given": {}, "chosen": {}}

`policies` are options by policy. `given` and `chosen` are notes: which numbers a source states, and by what the others
were chosen.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import accumulate
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, field
from simpy import Environment

from qod_magics.core.engines import MS, S, Use
from qod_magics.data.forms import Count, Form, Name, NotNegative, Positive, Whole, read, read_json, refuse

ENGINE = "segments"  #: of a scenario's field `engine`


class _Segments(Form, frozen=True):
    kept: Count
    bytes: tuple[Annotated[float, Meta(ge=1, le=float_info.max)], Positive]  #: least, most
    slice_s: Positive | None = None
    handoff_s: NotNegative = 0.0


class _Clients(Form, frozen=True):
    queries_per_s: Positive
    count: Count = 1
    burst: Whole = 0


class _Kind(Form, frozen=True):
    name: Name
    share: Positive
    ms: Positive


class _Queries(Form, frozen=True):
    kinds: Annotated[tuple[_Kind, ...], Meta(min_length=1)]
    zipf: NotNegative
    behind: tuple[NotNegative, ...] = ()


class _Storage(Form, frozen=True):
    latency_ms: NotNegative
    bytes_per_s: Positive


class _Nodes(Form, frozen=True):
    count: Count = 1
    cores: Count = 1
    memory_bytes: Positive | None = None


class _ScenarioForm(Form, frozen=True, kw_only=True):
    """The JSON form in this module's docstring."""

    engine: Literal["segments"] = "segments"
    segments: _Segments
    clients: _Clients
    queries: _Queries
    deep_storage: _Storage
    nodes: Annotated[tuple[_Nodes, ...], Meta(min_length=1)]
    duration_s: Positive
    warm_up_s: NotNegative = 0.0
    round_s: Positive = 5.0
    seed: Whole = 1
    policy: Name = "getafix"
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: Any = None
    chosen: Any = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node that holds segments and answers pairs."""

    name: str
    cores: int = 1  #: pairs that it answers at a time
    memory: int | None = None  #: bytes that policies see; None: unlimited. The cluster loads beyond it, too


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A kind of query."""

    name: str
    share: float  #: of all queries, relative to the other kinds
    mean: int  #: CPU time of one pair, ns: exponential


@dataclass(frozen=True, slots=True)
class SegmentScenario:
    """A run, but for its policy. Times in ns, sizes in bytes, rates per second."""

    nodes: tuple[NodeInfo, ...]
    kinds: tuple[QueryKind, ...]
    kept: int  #: segments that queries may ask for
    bytes: tuple[int, int]  #: of a segment: least and most
    clients: int
    queries_per_s: float  #: of each client
    duration: int  #: queries are asked until then, and answered to the last one
    slice: int | None = None  #: a segment's stretch of time; None: none is added
    handoff: int = 0  #: from the end of a segment until queries ask for it: the time to place its first copy
    zipf: float = 1.2
    behind: tuple[float, ...] = (1.0,)
    load_latency: int = 0
    load_rate: int = 1_000_000_000  #: bytes/s of each node, from deep storage
    round: int = 5 * S
    warm_up: int = 0  #: not measured
    burst: int = 0  #: queries that are asked at once when the duration is over
    seed: int = 1

    policy: str = "getafix"
    options: Mapping[str, Mapping[str, Any]] = dataclass_field(default_factory=dict)  #: by policy

    @classmethod
    def read(cls, path: str | Path) -> SegmentScenario:
        """Return the scenario of a JSON file. Raises ScenarioError: it can't be read, or has wrong values."""
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, value: Any) -> SegmentScenario:
        """Return the scenario of the JSON form in this module's docstring. Raises ScenarioError, one line that names
        the field."""
        form = read(_ScenarioForm, value, "scenario")
        segments, clients, asked, storage = form.segments, form.clients, form.queries, form.deep_storage
        slice_ = None if segments.slice_s is None else round(segments.slice_s * S)
        handoff, duration, warm_up = (round(s * S) for s in (segments.handoff_s, form.duration_s, form.warm_up_s))
        if slice_ is not None and handoff >= slice_:
            must = "be below slice_s, so that a segment is there before the next one ends"
            raise refuse(segments, "segments", "handoff_s", must)
        if segments.bytes[0] > segments.bytes[1]:
            raise refuse(segments, "segments", "bytes", "be the least and the greatest size, such as [3e8, 7e8]")
        if warm_up >= duration:
            raise refuse(form, "scenario", "warm_up_s", "be below duration_s, or nothing is measured")
        behind = asked.behind or (1.0,)
        if not sum(behind):
            raise refuse(asked, "queries", "behind", "be weights of 0 or more, one above 0 at least")
        if len(behind) > segments.kept:
            must = f"reach back no further than the {segments.kept} segments that are kept"
            raise refuse(asked, "queries", "behind", must)
        return cls(
            nodes=_nodes(form.nodes),
            kinds=tuple(QueryKind(kind.name, kind.share, round(kind.ms * MS)) for kind in asked.kinds),
            kept=segments.kept,
            bytes=(round(segments.bytes[0]), round(segments.bytes[1])),
            clients=clients.count,
            queries_per_s=clients.queries_per_s,
            duration=duration,
            slice=slice_,
            handoff=handoff,
            zipf=asked.zipf,
            behind=behind,
            load_latency=round(storage.latency_ms * MS),
            load_rate=round(storage.bytes_per_s),
            round=round(form.round_s * S),
            warm_up=warm_up,
            burst=clients.burst,
            seed=form.seed,
            policy=form.policy,
            options=form.policies,
        )


def _nodes(forms: Sequence[_Nodes]) -> tuple[NodeInfo, ...]:
    each = [form for form in forms for _ in range(form.count)]
    return tuple(
        NodeInfo(f"node{n + 1}", form.cores, None if form.memory_bytes is None else round(form.memory_bytes))
        for n, form in enumerate(each)
    )


class Asked(NamedTuple):
    """A query, and what it takes."""

    at: int  #: ns
    kind: int
    newest: int  #: slice, by number; it covers this one and those before it
    work: tuple[int, ...]  #: CPU time of each pair, ns, from the newest slice backwards


class Slices:
    """When each slice ends, when queries may ask for it, and its size. Numbered from 0, the oldest at the start."""

    def __init__(self, scenario: SegmentScenario) -> None:
        self.scenario = scenario
        draw = random.Random(f"sizes {scenario.seed}")
        number = scenario.kept
        if scenario.slice is not None:
            number += -(-scenario.duration // scenario.slice)
        self.size = [draw.randint(*scenario.bytes) for _ in range(number)]

    def name(self, number: int) -> str:
        """Return the name by which policies know a slice."""
        return f"slice{number:04d}"

    def newest(self, at: int) -> int:
        """Return the newest slice that queries may ask for."""
        given = self.scenario
        if given.slice is None or at < given.handoff:
            return given.kept - 1
        return given.kept - 1 + (at - given.handoff) // given.slice


class Weighted:
    """Draws positions by weight."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._until = list(accumulate(weights))

    def draw(self, source: random.Random) -> int:
        """Return a position."""
        return min(bisect(self._until, source.random() * self._until[-1]), len(self._until) - 1)


def queries(scenario: SegmentScenario) -> Iterator[Asked]:
    """Yield all queries of a run in their order, at random times (Poisson), and those of the burst at its end."""
    draw, slices = random.Random(f"queries {scenario.seed}"), Slices(scenario)
    kinds = Weighted([kind.share for kind in scenario.kinds])
    behind = Weighted(scenario.behind)
    lengths = Weighted([length**-scenario.zipf for length in range(1, scenario.kept + 1)])
    rate = scenario.clients * scenario.queries_per_s / S  # per ns
    at, left = 0.0, scenario.burst
    while True:
        if at < scenario.duration:
            at = min(at + draw.expovariate(rate), scenario.duration)
        if at >= scenario.duration:
            if not left:
                return
            left -= 1
        kind, back = kinds.draw(draw), behind.draw(draw)
        length = min(lengths.draw(draw) + 1, scenario.kept - back)
        mean = scenario.kinds[kind].mean
        work = tuple(1 + round(draw.expovariate(1 / mean)) for _ in range(length))
        yield Asked(round(at), kind, slices.newest(round(at)) - back, work)


# --- Nodes ------------------------------------------------------------------------------------------------------------
# A node: segments in memory, a queue of pairs before its cores, loads from deep storage; and the accounting of a run.
#
# The counters hold every pair asked, every copy loaded and dropped, and memory over time, in whole numbers.


@dataclass(slots=True)
class Books:
    """Counts since the start, and use since the last round."""

    asked: int = 0  #: pairs
    answered: int = 0
    queries: int = 0
    finished: int = 0
    ordered: int = 0  #: loads
    loaded: int = 0
    loaded_bytes: int = 0
    called_off: int = 0  #: loads that had not begun when their copy was dropped
    dropped: int = 0  #: copies
    on_demand: int = 0  #: loads because a pair found no copy, and none on its way
    late: int = 0  #: segments whose first copy was not there when queries began to ask for them
    rounds: int = 0
    per_segment: Counter[str] = dataclass_field(default_factory=Counter)  #: pairs asked, by segment
    under_way: Counter[str] = dataclass_field(default_factory=Counter)  #: pairs without an answer yet, by segment
    _accesses: Counter[str] = dataclass_field(default_factory=Counter)
    _busy: Counter[str] = dataclass_field(default_factory=Counter)
    _most: Counter[str] = dataclass_field(default_factory=Counter)

    def ask(self, segment: str) -> None:
        """Count a pair that was asked."""
        self.asked += 1
        self.per_segment[segment] += 1
        self._accesses[segment] += 1
        self.under_way[segment] += 1
        if self.under_way[segment] > self._most[segment]:
            self._most[segment] = self.under_way[segment]

    def answer(self, segment: str, work: int) -> None:
        """Count a pair that was answered; `work`: its CPU time, ns."""
        self.answered += 1
        self.under_way[segment] -= 1
        self._busy[segment] += work

    def use(self) -> dict[str, Use]:
        """Return the use of each segment since the last call."""
        names = self._accesses.keys() | self._busy.keys() | self._most.keys()
        found = {name: Use(self._accesses[name], self._busy[name], self._most[name]) for name in sorted(names)}
        self._accesses, self._busy = Counter(), Counter()
        self._most = Counter({name: number for name, number in self.under_way.items() if number})
        return found


@dataclass(slots=True)
class MemoryOverTime:
    """Integrals over time, from the end of the warm-up until that of the duration: copies * ns, bytes * ns."""

    since: int
    until: int
    copies: int = 0
    segments: int = 0
    bytes: int = 0
    largest: int = 0  #: of the node that has most at the time
    most_on_a_node: int = 0  #: bytes, at any time
    length: int = 0  #: ns
    _at: int = 0
    _now: tuple[int, int, int, int] = (0, 0, 0, 0)

    def change(self, at: int, copies: int, segments: int, used: list[int]) -> None:
        """Set the number of copies, of segments that have one, and the bytes on each node, from now on."""
        self.stop(at)
        self._now = copies, segments, sum(used), max(used)
        if self.since <= at <= self.until:
            self.most_on_a_node = max(self.most_on_a_node, self._now[3])

    def stop(self, at: int) -> None:
        """Count the time until now."""
        took = self._within(at) - self._within(self._at)
        copies, segments, total, largest = self._now
        self.copies += copies * took
        self.segments += segments * took
        self.bytes += total * took
        self.largest += largest * took
        self.length += took
        self._at = at

    def _within(self, at: int) -> int:
        return min(max(at, self.since), self.until)


@dataclass(slots=True, eq=False)
class Query:
    """A query under way."""

    at: int  #: when it was asked, ns
    left: int  #: pairs that have no answer yet


@dataclass(slots=True, eq=False)
class Pair:
    """One segment of one query."""

    query: Query
    segment: str
    work: int  #: CPU time, ns


class Node:
    """First come, first served, by as many cores as it has; loads come one at a time, beside that."""

    def __init__(
        self,
        env: Environment,
        info: NodeInfo,
        load_latency: int,
        load_rate: int,
        answered: Callable[[Node, Pair], None],
        loaded: Callable[[Node, str], None],
    ) -> None:
        self.env, self.info, self.name = env, info, info.name
        self.holds: dict[str, int] = {}  #: bytes in memory, by segment
        self.queue: deque[Pair] = deque()
        self.running: set[Pair] = set()
        self.pinned: Counter[str] = Counter()  #: pairs that wait or run here, by segment
        self.loads: deque[tuple[str, int]] = deque()  #: (segment, bytes), the first one under way
        self.busy = 0  #: CPU time used, ns
        self._load_latency, self._load_rate = load_latency, load_rate
        self._answered, self._loaded = answered, loaded

    @property
    def used(self) -> int:
        """Return bytes in memory."""
        return sum(self.holds.values())

    def ask(self, pair: Pair) -> None:
        """Queue a pair of a segment that is in memory."""
        if pair.segment not in self.holds:
            raise RuntimeError(f"{self.name} does not hold {pair.segment}: a pair of it can't be answered there")
        self.pinned[pair.segment] += 1
        if len(self.running) < self.info.cores:
            self._run(pair)
        else:
            self.queue.append(pair)

    def _run(self, pair: Pair) -> None:
        self.running.add(pair)
        self.env.timeout(pair.work, pair).callbacks.append(self._done)

    def _done(self, event: Any) -> None:
        pair: Pair = event.value
        self.running.remove(pair)
        self.busy += pair.work
        self.pinned[pair.segment] -= 1
        if self.queue:
            self._run(self.queue.popleft())
        self._answered(self, pair)

    def is_loading(self, segment: str) -> bool:
        """Return whether a segment is on its way from deep storage."""
        return any(name == segment for name, _ in self.loads)

    def load(self, segment: str, size: int, first: bool = False) -> None:
        """Fetch a segment after those that were ordered before, or as the next one."""
        if segment in self.holds or self.is_loading(segment):
            raise RuntimeError(f"{self.name} holds or loads {segment} already")
        self.loads.insert(1 if first else len(self.loads), (segment, size))
        if len(self.loads) == 1:
            self._fetch()

    def cancel(self, segment: str) -> bool:
        """Call off a load that has not begun; whether there was one."""
        for each in list(self.loads)[1:]:
            if each[0] == segment:
                self.loads.remove(each)
                return True
        return False

    def _fetch(self) -> None:
        _, size = self.loads[0]
        took = self._load_latency + -(-size * S // self._load_rate)
        self.env.timeout(took).callbacks.append(self._fetched)

    def _fetched(self, _: Any) -> None:
        segment, size = self.loads.popleft()
        self.holds[segment] = size
        if self.loads:
            self._fetch()
        self._loaded(self, segment)

    def drop(self, segment: str) -> None:
        """Free the memory of a segment that no pair waits for here."""
        if self.pinned[segment]:
            raise RuntimeError(f"{self.name} has {self.pinned[segment]} pairs of {segment}: it can't be dropped yet")
        del self.holds[segment]
