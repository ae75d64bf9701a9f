"""The engine: exact books, the order within an instant, links, stores, refusals."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.engines import MS, US, Forward, Instruction, Kind, Message, Reply, Run, S, Topology
from qod_magics.simulator.messages import Dataflow, Engine, Job, Links, Overheads, Source, Stage, Store
from qod_magics.simulator.messages.dataflow import Arrivals, Sent
from tests.simulator.messages.in_order import InOrder
from tests.simulator.messages.listed import Listed


def chain(clients: int = 2, *, width: int = 2, rows: int = 100, selectivity: float = 1.0) -> Job:
    return Job(
        "job",
        (
            Stage("parse", ("clicks",), width, fixed_us=100, row_us=1, exchange="turns"),
            Stage("count", ("parse",), width, fixed_us=200, selectivity=selectivity, slide_ms=1000),
            Stage("total", ("count",), 1, fixed_us=50, slide_ms=1000),
        ),
        (Source("clicks", clients, Arrivals(10, rows, delay_s=0.05)),),
        max_latency_ms=800,
    )


def listed(*sent: tuple[int, int]) -> Source:
    """Messages at these times, ms, that take this time, ms."""
    return Source("s", 1, Listed(tuple(Sent(at * MS, at * MS, 1, work=work * MS) for at, work in sent)))


@given(
    clients=st.integers(1, 4),
    width=st.integers(1, 3),
    machines=st.integers(1, 3),
    workers=st.integers(1, 2),
    delay_us=st.sampled_from([0, 100, 5000]),
    seed=st.integers(0, 5),
)
def test_no_message_and_no_row_is_lost(
    clients: int, width: int, machines: int, workers: int, delay_us: int, seed: int
) -> None:
    dataflow = Dataflow([chain(clients, width=width)], machines=machines, workers=workers, delay_us=delay_us)
    engine = Engine(dataflow, InOrder(), seed=seed)
    engine.run(2 * S)
    engine.check()
    engine.run(2 * S, end=60 * S)
    engine.check()
    assert engine.books.left == 0
    assert engine.rows_sent == 100 * 10 * 2 * clients
    parse, count, total = (engine.operators[k * width : (k + 1) * width] for k in range(3))
    assert sum(each.rows for each in parse) == engine.rows_sent
    assert sum(each.rows for each in count) == sum(each.emitted for each in parse)
    assert sum(each.waiting + each.emitted for each in count) == engine.rows_sent
    assert total[0].rows == sum(each.emitted for each in count)
    assert sum(engine.busy) == sum(
        engine.executed[o] * (100, 200, 50)[o // width] * US + (o < width) * engine.operators[o].rows * US
        for o in range(len(engine.operators))
    )


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    runs = []
    for seed in (1, 1, 2):
        engine = Engine(Dataflow([chain()]), InOrder(), seed=seed)
        runs.append((engine.run(5 * S).jobs[0].produced.tolist(), engine.busy))
    assert runs[0] == runs[1] != runs[2]


def test_latency_is_counted_from_the_last_row_that_influenced_a_result() -> None:
    job = Job("j", (Stage("w", ("s",), slide_ms=10),), (listed((8, 2), (13, 3)),), max_latency_ms=3)
    results = Engine(Dataflow([job]), InOrder()).run(S).jobs[0]
    assert (results.produced.tolist(), results.latency.tolist()) == ([16 * MS], [3 * MS])
    assert results.success == 1.0


def test_a_link_delays_messages_and_its_bandwidth_queues_them() -> None:
    source = Source("s", 1, Listed((Sent(0, 0, 10, work=0), Sent(0, 0, 10, work=0))), bytes_per_row=100)
    dataflow = Dataflow([Job("j", (Stage("a", ("s",)),), (source,))], delay_us=1000)
    engine = Engine(dataflow, InOrder(), links=Links(dataflow.topology, bytes_per_s=1e6))
    assert engine.run(S).jobs[0].produced.tolist() == [2 * MS, 3 * MS]
    assert engine.links.sent_bytes == {(-1, 0): 2000}


def test_state_is_fetched_once_while_the_cache_holds_it() -> None:
    keys = [0, 1, 0, 0, 2, 1]
    source = Source("s", 1, Listed(tuple(Sent(n * 10 * MS, 0, 1, key, work=MS) for n, key in enumerate(keys))))
    dataflow = Dataflow([Job("j", (Stage("a", ("s",), exchange="key", stateful=True),), (source,))])
    store = Store(2 * MS, capacity=2, workers=1)
    engine = Engine(dataflow, InOrder(), store=store)
    latencies = engine.run(S).jobs[0].latency.tolist()
    assert latencies == [each * MS for each in (3, 3, 1, 1, 3, 3)]
    assert (store.reads, store.fetches) == (6, [4])
    assert [name[2] for name in store.cached(0)] == [2, 1]


def test_overheads_of_the_dispatcher_take_time() -> None:
    job = Job("j", (Stage("a", ("s",)), Stage("b", ("a",))), (listed((0, 1), (100, 1)),))
    engine = Engine(Dataflow([job]), InOrder(), overheads=Overheads(run=10 * US, send=1 * US, switch=100 * US))
    engine.run(S)
    assert engine.busy == [2 * MS + 4 * 10 * US + 2 * US + 4 * 100 * US]


def test_a_worker_has_been_busy_for_as_long_as_it_ran() -> None:
    job = Job("j", (Stage("a", ("s",)),), (listed((0, 3), (1, 3)),))
    engine = Engine(Dataflow([job]), InOrder())
    engine.run(S, end=1 * MS)
    assert (engine.now, engine.busy) == (1 * MS, [1 * MS])
    engine.run(S)
    assert (engine.now, engine.busy) == (6 * MS, [6 * MS])


class Careless(InOrder):
    """Gives an instruction that can't be carried out."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        if self.broken == "busy":
            return (Run(0, message),)
        if self.broken == "elsewhere":
            return (Run(1, message),)
        if self.broken == "twice":
            return (Forward(message, 1), Forward(message, 1))
        return (Run(0, message), Run(1, message))

    def settle(self, now: int) -> Iterable[Instruction]:
        return ()


@pytest.mark.parametrize(
    ("broken", "says"),
    [("busy", "busy"), ("elsewhere", "machine 0"), ("twice", "flight"), ("run twice", "wait")],
)
def test_impossible_instructions_are_refused(broken: str, says: str) -> None:
    job = Job("j", (Stage("a", ("s",)),), (listed((0, 5), (1, 5)),))
    with pytest.raises(RuntimeError, match=says):
        Engine(Dataflow([job], machines=2), Careless(broken)).run(S)


class Asking(InOrder):
    """Asks the machine of each message before sending it: by a message between dispatchers, and a reply."""

    def begin(self, topology: Topology) -> None:
        super().begin(topology)
        self.held: list[Message] = []

    def made(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        self.held.append(message)
        return (Forward(Message(-1, message.operator, message.sender, kind=Kind.CONTROL), 0),)

    def arrived(self, now: int, at: int, message: Message) -> Iterable[Instruction]:
        return (Reply(-1, 0, "yes"),) if message.kind is Kind.CONTROL else super().arrived(now, at, message)

    def replied(self, now: int, at: int, operator: int, content: object) -> Iterable[Instruction]:
        assert (at, content) == (-1, "yes")
        return (Forward(self.held.pop(0), 0),)


def test_messages_between_dispatchers_and_replies_take_the_delay_of_the_link() -> None:
    dataflow = Dataflow([Job("j", (Stage("a", ("s",)),), (listed((0, 5)),))], delay_us=1000)
    engine = Engine(dataflow, Asking())
    assert engine.run(S).jobs[0].produced.tolist() == [8 * MS]
    engine.check()
    assert (engine.books.made, engine.books.done) == (2, 2)
