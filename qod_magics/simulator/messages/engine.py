"""The engine: delivers messages, runs them on workers, and carries out the instructions of a dispatcher.

`summary` describes a run in a few lines.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import simpy

from qod_magics.core.engines import (
    CLIENT,
    IN_FLIGHT,
    MS,
    Dispatcher,
    Forward,
    Instruction,
    Kind,
    Message,
    Reply,
    Run,
    S,
    Topology,
)
from qod_magics.errors import counted
from qod_magics.simulator.messages.dataflow import Client, Dataflow, Router, Sent
from qod_magics.simulator.messages.operators import Emitted, EmittedPart
from qod_magics.simulator.messages.results import Books, JobResults, Results

# --- Workers and the network ------------------------------------------------------------------------------------------
# What messages wait for besides workers: links between machines, and a remote state store with caches.


class Links:
    """Arrival times. Messages of one link (from, to) arrive in the order of sending.

    Args:
        topology: its delays.
        bytes_per_s: bandwidth of each link between two machines; None: no limit. Within a machine nothing limits it.

    """

    def __init__(self, topology: Topology, bytes_per_s: float | None = None) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be above 0, is {bytes_per_s:g}")
        self.topology = topology
        self.bytes_per_s = bytes_per_s
        self.sent_bytes: dict[tuple[int, int], int] = {}  #: by link
        self._free: dict[tuple[int, int], int] = {}  #: when the link has sent all so far

    def delay(self, now: int, one: int, other: int, size: int) -> int:
        """Return the ns until a message of this many bytes, sent now, has arrived whole."""
        if one == other:
            return 0
        link = (one, other)
        if size:
            self.sent_bytes[link] = self.sent_bytes.get(link, 0) + size
        delay = self.topology.delay_between(one, other)
        if self.bytes_per_s is None:
            return delay
        begun = max(now, self._free.get(link, 0))
        sent = begun + round(size * S / self.bytes_per_s)
        self._free[link] = sent
        return sent - now + delay


class Store:
    """State objects of all workers, by name.

    Args:
        read_ns: time of reading an object, without its bytes.
        bytes_per_s: bandwidth of a read; None: no limit.
        object_bytes: size of each object.
        capacity: objects in the cache of a worker; 0: no cache; None: no limit.
        workers: number of workers.

    """

    def __init__(
        self,
        read_ns: int = 0,
        *,
        bytes_per_s: float | None = None,
        object_bytes: int = 0,
        capacity: int | None = None,
        workers: int,
    ) -> None:
        if read_ns < 0 or object_bytes < 0 or (capacity is not None and capacity < 0):
            raise ValueError(f"negative values: read_ns {read_ns}, object_bytes {object_bytes}, capacity {capacity}")
        transfer = 0 if bytes_per_s is None else round(object_bytes * S / bytes_per_s)
        self.fetch_ns = read_ns + transfer
        self.capacity = capacity
        self.reads = 0  #: objects that messages asked for
        self.fetches = [0] * workers  #: those that were not in the cache, by worker
        self._caches: list[OrderedDict[Any, None]] = [OrderedDict() for _ in range(workers)]

    def read(self, worker: int, objects: tuple[Any, ...]) -> int:
        """Return the ns that a worker waits for these objects, one after another."""
        return sum(self.fetch(worker, each) for each in objects) if objects else 0

    def fetch(self, worker: int, name: Any) -> int:
        """Return the ns that a worker waits for an object: 0 if it is in its cache."""
        self.reads += 1
        cache = self._caches[worker]
        if name in cache:
            cache.move_to_end(name)
            return 0
        self.fetches[worker] += 1
        if self.capacity != 0:
            cache[name] = None
            if self.capacity is not None and len(cache) > self.capacity:
                cache.popitem(last=False)
        return self.fetch_ns

    def cached(self, worker: int) -> tuple[Any, ...]:
        """Return the objects in the cache of a worker, the least recently used first."""
        return tuple(self._caches[worker])


@dataclass(frozen=True, slots=True)
class Overheads:
    """CPU that the dispatcher costs on a worker, ns."""

    run: int = 0  #: of choosing a message
    send: int = 0  #: of ranking a message that a worker emits
    switch: int = 0  #: of going on with another operator


class Engine:
    """A run of a dataflow under a dispatcher, in virtual time.

    Args:
        dataflow: jobs and cluster.
        dispatcher: a new one.
        seed: of the clients.
        links: None: delays only.
        store: None: state costs no time.
        overheads: of the dispatcher.

    """

    def __init__(
        self,
        dataflow: Dataflow,
        dispatcher: Dispatcher,
        *,
        seed: int = 0,
        links: Links | None = None,
        store: Store | None = None,
        overheads: Overheads | None = None,
    ) -> None:
        self.dataflow, self.dispatcher = dataflow, dispatcher
        self.topology = dataflow.topology
        self.links = links or Links(self.topology)
        self.store = store
        self.books = Books()
        self.results = Results([(job.name, round(job.max_latency_ms * MS)) for job in dataflow.jobs])
        self.operators = [operator.make() for operator in dataflow.operators]
        self.executed = [0] * len(dataflow.operators)  #: messages, by operator
        self.rows_sent = 0  #: by clients
        self._seed = seed
        self._overheads = overheads or Overheads()
        self._machine = self.topology.workers
        self._declared = dataflow.operators
        self._infos = self.topology.operators
        self._running: list[Message | None] = [None] * len(self.topology.workers)
        self._busy = [0] * len(self.topology.workers)  # ns, with all of the running messages
        self._ends = [0] * len(self.topology.workers)  # when a worker's last message ends or has ended
        self._last: list[int] = [-1] * len(self.topology.workers)  # operator that a worker ran last
        self._router = Router(dataflow)
        self._markers = dataflow.marker_source()
        self._clock = simpy.Environment(initial_time=0)
        self._finished: list[int] = []
        self._arrived: list[tuple[int, Message | Reply]] = []
        self._here: deque[tuple[int, Message | Reply]] = deque()  # sent within a machine, in this instant
        self._clients: list[tuple[Client, Iterator[Sent], Sent]] = []
        self._until = 0
        dispatcher.begin(self.topology)

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return int(self._clock.now)

    @property
    def busy(self) -> list[int]:
        """Return the time at work so far by worker, ns."""
        return [busy - max(end - self.now, 0) for busy, end in zip(self._busy, self._ends, strict=True)]

    def run(self, until: int, *, end: int | None = None) -> Results:
        """Run, and on from where it stopped if called again.

        Args:
            until: when clients stop sending, ns: the first call decides; and the end of the run, without `end`.
            end: of the run, ns: before `until` it is a pause, after it the time by which messages that are left are
                executed.

        """
        clock = self._clock
        if not self._until:
            self._until = until
            for client in self.dataflow.clients:
                arrivals = client.source.arrivals.messages(f"{self._seed}/{client.seed}", until)
                self._next(client, arrivals)
        end = until if end is None else end
        while (at := clock.peek()) <= end and at != math.inf:
            clock.step()
            while clock.peek() == at:
                clock.step()
            self._instant(int(at))
        return self.results

    def check(self) -> None:
        """Raise AssertionError where the books don't add up, or the dispatcher's state is not as it should be."""
        self.books.check()
        assert self.books.running == sum(message is not None for message in self._running)
        self.dispatcher.check()

    # --- one instant --------------------------------------------------------------------------------------------------

    def _instant(self, now: int) -> None:
        if self._finished:
            finished, self._finished = self._finished, []
            if len(finished) > 1:
                finished.sort()
            for worker in finished:
                self._finish(now, worker)
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            for at, message in arrived:
                self._deliver(now, at, message)
        if self._clients:
            clients, self._clients = self._clients, []
            for client, arrivals, sent in clients:
                self._enter(now, client, sent)
                self._next(client, arrivals)
        here = self._here
        while True:
            while here:
                self._deliver(now, *here.popleft())
            self._do(now, CLIENT, self.dispatcher.settle(now))
            if not here:
                return

    def _finish(self, now: int, worker: int) -> None:
        message = self._running[worker]
        assert message is not None
        self._running[worker] = None
        self.books.running -= 1
        self.books.done += 1
        machine = self._machine[worker]
        if message.kind is not Kind.CONTROL:  # else it was the work of a dispatcher
            message.at = machine
            for emitted in self.operators[message.operator].execute(message):
                self._emit(now, machine, message, emitted)
        self._do(now, machine, self.dispatcher.finished(now, worker, message))

    def _emit(self, now: int, machine: int, message: Message, emitted: Emitted | EmittedPart) -> None:
        routes = self._declared[message.operator].routes
        if not routes:
            self.results.jobs[self._infos[message.operator].job].add(
                now, emitted.observed, emitted.progress, emitted.rows
            )
            return
        size = self._declared[message.operator].stage.bytes_per_row
        for made in self._router.messages(message.operator, message.source, emitted, routes, size):
            self.books.made += 1
            self.books.held += 1
            made.at = machine
            self._do(now, machine, self.dispatcher.made(now, machine, made))

    def _enter(self, now: int, client: Client, sent: Sent) -> None:
        self.rows_sent += sent.rows
        emitted = Emitted(sent.progress, now, sent.rows, key=sent.key)
        for made in self._router.messages(CLIENT, client.number, emitted, client.routes, client.source.bytes_per_row):
            self.books.made += 1
            self.books.held += 1
            if sent.work >= 0:
                made.cost = made.work = sent.work
            self._do(now, CLIENT, self.dispatcher.made(now, CLIENT, made))
        if self._markers is not None:
            for marker in self._markers.markers(client.number, now, sent.progress, self._router.numbers()):
                self.books.made += 1
                self.books.held += 1
                self._do(now, CLIENT, self.dispatcher.made(now, CLIENT, marker))

    def _next(self, client: Client, arrivals: Iterator[Sent]) -> None:
        sent = next(arrivals, None)
        if sent is not None:
            event = self._clock.timeout(sent.at - self.now, (client, arrivals, sent))
            event.callbacks.append(self._on_client)

    def _deliver(self, now: int, at: int, message: Message | Reply) -> None:
        if message.__class__ is Reply:
            self._do(now, at, self.dispatcher.replied(now, at, message.operator, message.content))
            return
        assert isinstance(message, Message)
        books = self.books
        books.in_flight -= 1
        message.at = at
        if message.kind is Kind.CONTROL and not message.work:
            books.done += 1
        else:
            message.waits = True
            books.waiting += 1
        self._do(now, at, self.dispatcher.arrived(now, at, message))

    # --- instructions -------------------------------------------------------------------------------------------------

    def _do(self, now: int, at: int, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            kind = each.__class__
            if kind is Run:
                self._run(now, each)  # type: ignore[arg-type]
            elif kind is Forward:
                self._forward(now, at, each)  # type: ignore[arg-type]
            else:
                assert kind is Reply, f"{each!r} is no instruction"
                self._reply(now, at, each)  # type: ignore[arg-type]

    def _run(self, now: int, run: Run) -> None:
        worker, message = run.worker, run.message
        if self._running[worker] is not None:
            raise RuntimeError(f"worker {worker} is to run message {message.id}, but is busy")
        if not message.waits or message.at != self._machine[worker]:
            raise RuntimeError(
                f"worker {worker} on machine {self._machine[worker]} is to run message {message.id}, which "
                + (f"waits on machine {message.at}" if message.waits else "does not wait")
            )
        message.waits = False
        self._running[worker] = message
        self.books.waiting -= 1
        self.books.running += 1
        message.at = IN_FLIGHT
        took = message.work + self._overheads.run
        if self._overheads.switch and self._last[worker] != message.operator:
            took += self._overheads.switch
        if self._overheads.send and self._declared[message.operator].routes:
            took += self._overheads.send
        self._last[worker] = message.operator
        if self.store is not None:
            took += self.store.read(worker, message.objects)
        self._busy[worker] += took
        self._ends[worker] = now + took
        self.executed[message.operator] += 1
        event = self._clock.timeout(took, worker)
        event.callbacks.append(self._on_finish)

    def _forward(self, now: int, at: int, forward: Forward) -> None:
        message, books = forward.message, self.books
        if message.id < 0:  # the dispatcher has made it
            message.id, message.at = self._router.number(), at
            books.made += 1
        elif message.waits:
            message.waits = False
            books.waiting -= 1
        elif message.at != IN_FLIGHT:
            books.held -= 1
        else:
            raise RuntimeError(
                f"message {message.id} is to be sent to machine {forward.to}, but it is in flight, or runs"
            )
        books.in_flight += 1
        self._send(now, message.at, forward.to, message, message.bytes)
        message.at = IN_FLIGHT

    def _reply(self, now: int, at: int, reply: Reply) -> None:
        self._send(now, at, reply.to, reply, 0)

    def _send(self, now: int, one: int, other: int, what: Message | Reply, size: int) -> None:
        delay = self.links.delay(now, one, other, size)
        if delay:
            event = self._clock.timeout(delay, (other, what))
            event.callbacks.append(self._on_arrival)
        else:
            self._here.append((other, what))

    # --- simpy's callbacks: they collect the events of an instant -----------------------------------------------------

    def _on_finish(self, event: simpy.Event) -> None:
        self._finished.append(cast(int, event.value))

    def _on_arrival(self, event: simpy.Event) -> None:
        self._arrived.append(cast("tuple[int, Message | Reply]", event.value))

    def _on_client(self, event: simpy.Event) -> None:
        self._clients.append(cast("tuple[Client, Iterator[Sent], Sent]", event.value))


#: Jobs that get a line each.
_MOST_JOBS = 30


def summary(engine: Engine, cpu_s: float) -> str:
    """Return one line for the run, and one for each job. `cpu_s`: CPU seconds that it took."""
    books, workers = engine.books, len(engine.busy)
    seconds = max(engine.now / S, 1e-9)
    lines = [
        f"{seconds:g} s of {counted(workers, 'worker')} and {counted(len(engine.operators), 'operator')} under "
        f"{engine.dispatcher.name} in {cpu_s:.1f} s ({seconds / max(cpu_s, 1e-9):,.0f} times as fast); "
        f"{books.made:,} messages, {books.left:,} of them not done; utilization "
        f"{sum(engine.busy) / workers / engine.now if engine.now else 0.0:.0%}"
    ]
    if engine.store is not None and engine.store.reads:
        reads, fetches = engine.store.reads, sum(engine.store.fetches)
        lines.append(f"state: {reads:,} reads, {fetches:,} of them from the store ({fetches / reads:.1%})")
    jobs = engine.results.jobs
    lines += [_line(job) for job in jobs[:_MOST_JOBS]]
    if len(jobs) > _MOST_JOBS:
        lines.append(f"... and {len(jobs) - _MOST_JOBS} more jobs")
    return "\n".join(lines)


def _line(job: JobResults) -> str:
    median, p99 = job.percentile_ms(50), job.percentile_ms(99)
    if median is None or p99 is None:
        return f"{job.name}: no result"
    target = "" if job.success is None else f", {job.success:.1%} within {job.max_latency / MS:g} ms"
    results = counted(len(job.latency), "result")
    return f"{job.name}: {results}, latency {median:.1f} ms (median), {p99:.1f} ms (99 %){target}"
