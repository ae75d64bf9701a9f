"""The JSON of a simulated job whose channels have output buffers.

    {"engine": "output-buffers", "seed": 1, "duration_s": 600, "workers": 2, "interval_s": 15,
     "policy": "nephele", "parameters": {"r": 0.98},
     "vertices": [
       {"name": "P", "kind": "source", "parallelism": 8},
       {"name": "D", "kind": "map", "parallelism": 8, "work_us": 1500, "bytes": 115200},
       {"name": "M", "kind": "merge", "parallelism": 8, "work_us": 100, "inputs": 4, "bytes": 460800},
       {"name": "E", "kind": "map", "parallelism": 8, "work_us": 4000, "bytes_ratio": 0.75},
       {"name": "R", "kind": "sink", "parallelism": 8}],
     "edges": [["P", "D", "all-to-all"], ["D", "M", "pointwise"], ["M", "E", "pointwise"], ["E", "R", "all-to-all"]],
     "constraints": [
       {"sequence": ["e(P,D)", "D", "e(D,M)", "M", "e(M,E)", "E", "e(E,R)"], "limit_ms": 300, "span_s": 15}],
     "streams": {"count": 64, "group": 4, "items_per_s": 15, "kbit_per_s": 100, "spread": 0.5, "item_spread": 0.3,
                 "slow_share": 0.02, "slow_kbit_per_s": [1, 17], "start_s": 1},
     "network": {"bits_per_s": 1e9, "buffer_cost_us": 102.4, "transport_ms": 38, "handover_ms": 1, "item_overhead": 19,
                 "window_bytes": 1048576}}

Tasks are spread evenly over the workers, from a vertex' `first_worker` on (1). Streams are numbered; consecutive ones
form a group. Stream s enters at source s modulo the parallelism; a group goes to one task of each following vertex, and
over different channels to different sinks. An item has `kbit_per_s` / `items_per_s` bits, times a lognormal factor
(`spread`: of the streams, `item_spread`: of their items), or exactly `item_bytes`. A map emits `bytes`, or
`bytes_ratio` times the bytes of the source's items. `items`: the number after which a stream ends; absent: none.
The same `seed` gives the same items under every policy; a sender that is held back emits them later.
`given` and `chosen` are notes: which numbers a source states, and by what the others were chosen.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from qod_magics.core.engines import MS, US, S
from qod_magics.core.job_graph import JobConstraint, JobEdge, JobGraph, JobSequence, Pattern, RuntimeGraph
from qod_magics.data.forms import Count, Form, Name, Names, NotNegative, Positive, Whole, read, read_json
from qod_magics.errors import ScenarioError, show

# --- Output buffers and links -----------------------------------------------------------------------------------------
# Items may span buffers; an item has arrived when its last byte has (N24). A link has the cost at the sender, the
# transmission, and the way to the receiver.


@dataclass(slots=True, eq=False)
class Item:
    """A frame, a row, a batch: what a task emits at once. Compared by identity."""

    stream: int  #: number of the source's stream
    group: int  #: of streams that are merged
    bytes: int
    #: bytes of the source's items in it (their mean, where items were merged): what an encoder's output depends on
    coded: float
    #: of the source's items whose next item it is, by the definition of sequence latency: how many, and the sum of the
    #: times at which they left the source's user code, ns
    origins: int
    origin_sum: int


@dataclass(slots=True, eq=False)
class Transit:
    """An item on a channel."""

    item: Item
    exits: int  #: when it left the sender's user code, ns
    #: buffer-size epoch, if it is the tagged item of the sender's interval; -1: it is not
    tag: int = -1
    ships: int = 0  #: when the buffer with its last byte was shipped, ns


@dataclass(slots=True)
class Shipment:
    """Full buffers that leave at once, and the items whose last byte is in the last of them."""

    buffers: int
    bytes: int
    items: list[Transit]


@dataclass(slots=True)
class OutputBuffer:
    """The open output buffer of a channel, and counters of those before it. Times are ns."""

    size: int  #: bytes
    fill: int = 0  #: bytes in the open buffer; 0: none is open
    opened: int = 0
    waiting: list[Transit] = field(default_factory=list)  #: items whose last byte is in the open buffer
    written: int = 0  #: bytes, in all
    shipped: int = 0  #: bytes, in all
    #: buffers shipped since the last look at them, and the sum of their life times
    ended: int = 0
    life: int = 0

    def write(self, transit: Transit, bytes: int, now: int) -> list[Shipment]:
        """Add an item of `bytes` >= 1 bytes; what is full is shipped."""
        self.written += bytes
        if not self.fill:
            self.opened = now
        room = self.size - self.fill
        if bytes < room:
            self.fill += bytes
            self.waiting.append(transit)
            return []
        full, rest = divmod(bytes - room, self.size)
        if bytes == room:
            self.waiting.append(transit)
        found = [self._ship(self.fill + room, now)]
        if full:
            self.ended += full  # they are filled at once, and have no life time
            self.shipped += full * self.size
            found.append(Shipment(full, full * self.size, []))
        if rest:
            self.fill, self.opened = rest, now
            self.waiting.append(transit)
        elif full:
            transit.ships = now
            found[-1].items.append(transit)
        return found

    def flush(self, now: int) -> list[Shipment]:
        """Ship the open buffer, if there is one, as it is."""
        return [self._ship(self.fill, now)] if self.fill else []

    def resize(self, size: int, now: int) -> list[Shipment]:
        """Set the size of buffers, bytes; the open one is shipped if it has as much already."""
        self.size = size
        return self.flush(now) if self.fill >= size else []

    def discard(self) -> int:
        """Drop the open buffer; the number of items that had their last byte in it."""
        lost = len(self.waiting)
        self.written -= self.fill
        self.fill = 0
        self.waiting = []
        return lost

    def take_life(self) -> float | None:
        """Return the mean life time of the buffers shipped since the last look, ns; None without any."""
        mean = self.life / self.ended if self.ended else None
        self.ended = self.life = 0
        return mean

    def _ship(self, bytes: int, now: int) -> Shipment:
        items, self.waiting, self.fill = self.waiting, [], 0
        self.shipped += bytes
        self.ended += 1
        self.life += now - self.opened
        for transit in items:
            transit.ships = now
        return Shipment(1, bytes, items)


@dataclass(frozen=True, slots=True)
class Network:
    """Figures that all links share. Times are ns."""

    bits_per_s: float = 1e9
    buffer_cost: int = 0  #: at the sender, for each buffer that leaves its worker; overlaps with transmission
    transport: int = 0  #: from the end of transmission to the receiver's queue
    handover: int = 0  #: the same between tasks of one worker, in place of cost, transmission and transport
    window_bytes: int = 1 << 20  #: a sender that has more than this under way waits; receivers never hold it back

    def transmission(self, bytes: int) -> int:
        """Return how long a link is taken."""
        return round(bytes * 8 * S / self.bits_per_s)


@dataclass(slots=True)
class Link:
    """The network interface of a worker."""

    network: Network
    free: int = 0  #: when it has sent all that it was given, ns


@dataclass(slots=True)
class Way:
    """The way of one channel's buffers; `link` is None within a worker."""

    network: Network
    link: Link | None
    prepared: int = 0  #: when the sender's part of all buffers is done, ns
    _under_way: deque[tuple[int, int]] = field(default_factory=deque)  #: (end of transmission, bytes)
    _bytes: int = 0

    def ship(self, buffers: int, bytes: int, now: int) -> int:
        """Return when the last of these buffers reaches the receiver's queue."""
        network, link = self.network, self.link
        if link is None:
            return now + network.handover
        first = max(now, self.prepared) + network.buffer_cost
        self.prepared = first + (buffers - 1) * network.buffer_cost
        takes = network.transmission(bytes)
        end = max(max(first, link.free) + takes, self.prepared + takes // buffers)
        link.free = end
        self._under_way.append((end, bytes))
        self._bytes += bytes
        return end + network.transport

    def may_write(self, now: int) -> int:
        """Return when the sender may write on: at once, or when no more than the window is under way."""
        under_way = self._under_way
        while under_way and under_way[0][0] <= now:
            self._bytes -= under_way.popleft()[1]
        left = self._bytes
        for end, bytes in under_way:
            if left <= self.network.window_bytes:
                break
            left -= bytes
            now = end
        return now


Kind = Literal["source", "map", "merge", "sink"]
ENGINE = "output-buffers"  #: what such a file names as its engine


class Vertex(Form, frozen=True):
    """What the tasks of a job vertex do."""

    name: Name
    kind: Kind
    parallelism: Count
    work_us: NotNegative = 0.0  #: CPU for each item that enters
    bytes: Whole = 0  #: of each item that leaves; 0: by the ratio
    bytes_ratio: NotNegative = 1.0  #: bytes of an item that leaves / mean bytes of the source's items in it
    inputs: Count = 1  #: streams that a merger makes one of
    first_worker: Count = 1  #: that of the first task

    @property
    def work(self) -> int:
        """Return CPU for each item that enters, ns."""
        return round(self.work_us * US)


class Streams(Form, frozen=True):
    """What the sources emit."""

    count: Count
    items_per_s: Positive
    group: Count = 1
    kbit_per_s: NotNegative = 0.0
    item_bytes: Whole = 0
    spread: NotNegative = 0.0
    item_spread: NotNegative = 0.0
    slow_share: NotNegative = 0.0
    slow_kbit_per_s: tuple[Positive, Positive] = (1.0, 17.0)
    start_s: NotNegative = 0.0
    items: Whole | None = None  #: of each stream; None: no end


class _Constraint(Form, frozen=True):
    sequence: Names
    limit_ms: Positive
    span_s: Positive = 15.0


class _Network(Form, frozen=True):
    bits_per_s: Positive = 1e9
    buffer_cost_us: NotNegative = 0.0
    transport_ms: NotNegative = 0.0
    handover_ms: NotNegative = 0.0
    item_overhead: Whole = 0
    window_bytes: Count = 1 << 20


class _ScenarioForm(Form, frozen=True, kw_only=True):
    """The JSON form in this module's docstring."""

    engine: Literal["output-buffers"]
    name: Any = None
    vertices: Annotated[tuple[Vertex, ...], Meta(min_length=1)]
    edges: Annotated[tuple[tuple[str, str, Pattern], ...], Meta(min_length=1)]
    streams: Streams
    constraints: tuple[_Constraint, ...] = ()
    workers: Count = 1
    network: _Network = _Network()
    seed: Whole = 1
    duration_s: Positive = 600.0
    interval_s: Positive = 15.0
    policy: Name = "nephele"
    parameters: dict[str, Any] | None = None
    given: Any = None
    chosen: Any = None


@dataclass(frozen=True, slots=True)
class BufferScenario:
    """A job, its input, its network, and who sizes the buffers."""

    graph: RuntimeGraph
    vertices: Mapping[str, Vertex]
    constraints: tuple[JobConstraint, ...]
    streams: Streams
    network: Network
    item_overhead: int = 0  #: bytes that serialization adds to an item
    seed: int = 1
    duration_s: float = 600.0
    interval_s: float = 15.0
    policy: str = "nephele"
    parameters: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: str | Path) -> BufferScenario:
        """Return the scenario of a JSON file. Raises ScenarioError or UsageProblem, one line, as `from_json` does."""
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, value: Any) -> BufferScenario:
        """Return the scenario of the JSON form in this module's docstring.

        Raises:
            ScenarioError: one line that names the field.
            UsageProblem: the edges make no job graph, or it has no such sequence.

        """
        form = read(_ScenarioForm, value, "scenario")
        vertices = {vertex.name: vertex for vertex in form.vertices}
        if len(vertices) < len(form.vertices):
            name = next(name for name, times in Counter(each.name for each in form.vertices).items() if times > 1)
            raise ScenarioError(f"two vertices are called {show(name)}: name them apart", name=name, rule="unique")
        job = JobGraph(tuple(vertices), tuple(JobEdge(*edge) for edge in form.edges))
        for name in job.vertices:
            if sum(edge.sender == name for edge in job.edges) > 1:
                raise ScenarioError(
                    f"vertex {show(name)} has two edges out of it: an item leaves by one; remove one",
                    name=name,
                    rule="one output",
                )
            kind = vertices[name].kind
            if job.is_source(name) != (kind == "source") or job.is_sink(name) != (kind == "sink"):
                raise ScenarioError(
                    f"vertex {show(name)} of kind {kind}: a source has no edge into it, a sink none out of it, and all "
                    "others have both; change its kind or its edges",
                    name=name,
                    rule="edges of its kind",
                )
        constraints = tuple(
            JobConstraint(JobSequence.parse(each.sequence), each.limit_ms, each.span_s) for each in form.constraints
        )
        for constraint in constraints:
            constraint.sequence.check(job)
        _check_streams(form.streams, form.vertices)
        network = form.network
        return cls(
            RuntimeGraph(job, {each.name: _spread(each, form.workers) for each in form.vertices}),
            vertices,
            constraints,
            form.streams,
            Network(
                network.bits_per_s,
                round(network.buffer_cost_us * US),
                round(network.transport_ms * MS),
                round(network.handover_ms * MS),
                network.window_bytes,
            ),
            network.item_overhead,
            form.seed,
            form.duration_s,
            form.interval_s,
            form.policy,
            form.parameters,
        )

    @property
    def interval(self) -> int:
        """Length of a measurement interval, ns."""
        return round(self.interval_s * S)

    @property
    def end(self) -> int:
        """When the simulation ends, ns."""
        return round(self.duration_s * S)


def _spread(vertex: Vertex, workers: int) -> tuple[str, ...]:
    """Return the worker of each task."""
    count, first = vertex.parallelism, vertex.first_worker - 1
    return tuple(f"w{(first + i * min(workers, count) // count) % workers + 1}" for i in range(count))


def _check_streams(streams: Streams, vertices: Iterable[Vertex]) -> None:
    """Raise ScenarioError where the size of items is unknown, or a merger does not take the streams of a group."""
    if not streams.item_bytes and not streams.kbit_per_s:
        raise ScenarioError(
            "streams: the size of items is unknown; give kbit_per_s or item_bytes", name="streams", rule="size"
        )
    for vertex in vertices:
        if vertex.kind == "merge" and vertex.inputs != streams.group:
            raise ScenarioError(
                f"vertex {show(vertex.name)} merges {vertex.inputs} streams, and a group has {streams.group}: "
                "give both the same number",
                name=vertex.name,
                rule="as many as a group",
            )


class Arrival(NamedTuple):
    """An item that a source has to emit."""

    at: int  #: ns; emitted then, or once its sender is free again
    bytes: float  #: before it is rounded


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of items."""

    number: int
    start: int  #: when its first item arrives, ns
    mean_bytes: float  #: of its items


def streams(scenario: BufferScenario) -> Iterator[Stream]:
    """Yield all streams, by number; the same seed gives the same ones."""
    given, draw = scenario.streams, random.Random(scenario.seed)
    for number in range(given.count):
        rate = given.kbit_per_s * draw.lognormvariate(0.0, given.spread)
        if draw.random() < given.slow_share:
            rate = draw.uniform(*given.slow_kbit_per_s)
        start = round(draw.uniform(0, given.start_s + 1 / given.items_per_s) * S) if given.start_s else 0
        yield Stream(number, start, given.item_bytes or rate * 1000 / 8 / given.items_per_s)


def arrivals(scenario: BufferScenario, stream: Stream) -> Iterator[Arrival]:
    """Yield the items of a stream. Each stream draws by itself, so that nothing else that happens in a run plays a
    part."""
    given, draw = scenario.streams, random.Random(f"items {scenario.seed}/{stream.number}")
    spread = given.item_spread
    shift = -spread * spread / 2  # so that the mean stays
    made = 0
    while given.items is None or made < given.items:
        factor = draw.lognormvariate(shift, spread) if spread else 1.0
        yield Arrival(stream.start + round(made * S / given.items_per_s), stream.mean_bytes * factor)
        made += 1
