"""Policies of Dirigo in the engine, on messages that are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from qod_magics.core.engines import US, Dispatcher, Instruction, Message, Run
from qod_magics.policies.dirigo import (
    AcceptAndCheck,
    LaxityBasedDirect,
    Options,
    Parallel,
    Pipelined,
    PriorityBased,
    QueueBasedDirect,
    RejectSend,
    Sequential,
)
from qod_magics.policies.dirigo.base import Dirigo, Draws
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage, Store
from qod_magics.simulator.messages.dataflow import Sent
from tests.policies.dirigo.oracles import Listed
from tests.simulator.messages.listed import Listed as ListedMessages

POLICIES: Mapping[str, type[Dirigo]] = {
    "SBS": PriorityBased,
    "QueueBasedDirect": QueueBasedDirect,
    "LaxityBasedDirect": LaxityBasedDirect,
    "1RTT-RejectSend": RejectSend,
    "1RTT-AcceptAndCheck": AcceptAndCheck,
    "2RTT-Sequential": Sequential,
    "2RTT-Pipelined": Pipelined,
    "2RTT-Parallel": Parallel,
}


@dataclass
class Watched:
    """A dispatcher whose `Run`s are noted."""

    dispatcher: Dispatcher
    name: str = "watched"
    runs: list[tuple[int, int, Message]] = field(default_factory=list)  # time, worker, message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dispatcher, name)

    def made(self, now: int, at: int, message: Message) -> Iterator[Instruction]:
        return self._noted(now, self.dispatcher.made(now, at, message))

    def arrived(self, now: int, at: int, message: Message) -> Iterator[Instruction]:
        return self._noted(now, self.dispatcher.arrived(now, at, message))

    def finished(self, now: int, worker: int, message: Message) -> Iterator[Instruction]:
        return self._noted(now, self.dispatcher.finished(now, worker, message))

    def replied(self, now: int, at: int, operator: int, content: Any) -> Iterator[Instruction]:
        return self._noted(now, self.dispatcher.replied(now, at, operator, content))

    def settle(self, now: int) -> Iterator[Instruction]:
        return self._noted(now, self.dispatcher.settle(now))

    def _noted(self, now: int, instructions: Iterable[Instruction]) -> Iterator[Instruction]:
        for each in instructions:
            if isinstance(each, Run):
                self.runs.append((now, each.worker, each.message))
            yield each


@dataclass
class Ran:
    """What became of listed messages."""

    tasks: dict[str, list[int]]  # worker, start, end, lateness
    messages: dict[str, int]
    engine: Engine
    dispatcher: Dirigo


def ran(
    policy: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    workers: int,
    delay: int,
    draws: Sequence[Any] | None = None,
    options: Options | None = None,
    store: Store | None = None,
) -> Ran:
    """Messages with id, gen, cost, deadline, lessor, and a key of state if they have one; times in us."""
    chosen: Draws | None = None
    if draws is not None:
        chosen = Listed([each if isinstance(each, list) else [each] for each in draws])
    listed = sorted(messages, key=lambda each: each["gen"])
    deadlines = {number + 1: each["deadline"] * US for number, each in enumerate(listed)}
    dispatcher = POLICIES[policy](options, chosen, lambda message: deadlines[message.id])
    watched = Watched(dispatcher)
    sent = tuple(
        Sent(each["gen"] * US, each["gen"] * US, 1, key=each["lessor"], work=each["cost"] * US) for each in listed
    )
    stage = Stage("run", ("client",), width=workers, exchange="key", stateful=store is not None)
    job = Job("job", (stage,), (Source("client", arrivals=ListedMessages(sent)),))
    engine = Engine(Dataflow([job], machines=workers, delay_us=delay), watched, store=store)
    engine.run(10**9, end=10**12)
    engine.check()
    assert engine.books.left == 0
    tasks = {}
    for start, worker, message in watched.runs:
        each = listed[message.id - 1]
        end = start // US + each["cost"]
        tasks[each["id"]] = [worker, start // US, end, max(0, end - each["deadline"])]
    traffic = dispatcher.traffic
    counts = {
        "data": traffic.data,
        "request": traffic.requests,
        "reply": traffic.replies,
        "forward": traffic.forwards,
    }
    assert asdict(traffic)["markers"] == 0
    return Ran(tasks, counts, engine, dispatcher)
