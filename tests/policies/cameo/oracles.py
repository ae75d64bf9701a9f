"""The cases worked out by hand, and a minimal loop that drives a dispatcher or a queue through one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from qod_magics.core.engines import (
    CLIENT,
    Dispatcher,
    Forward,
    Instruction,
    Message,
    OperatorInfo,
    Reply,
    Run,
    Topology,
)
from qod_magics.policies.cameo.dispatcher import TwoLevelQueue

DATA = Path(__file__).parent / "data"
Row = list[Any]  #: [message, worker, start, end]


def oracle(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"cameo-{name}.json").read_text("utf-8"))
    return found


def one_machine(operators: Sequence[OperatorInfo], workers: int = 1, sources: int = 0) -> Topology:
    return Topology(tuple(operators), (0,) * workers, tuple(() for _ in range(sources)))


def drive(dispatcher: Dispatcher, topology: Topology, sends: Iterable[tuple[int, Message]]) -> list[Row]:
    """Run messages that a client sends, without delays, and the replies to it; rows in the order of the starts.

    Order within an instant: messages that end by worker, then those sent by id, then the dispatcher's choice.
    """
    dispatcher.begin(topology)
    rows: list[Row] = []
    #: (time, 0: ends or 1: is sent, worker or id, message)
    agenda: list[tuple[int, int, int, Message]] = []
    for time, message in sends:
        heappush(agenda, (time, 1, message.id, message))
    busy: set[int] = set()
    now = 0

    def follow(instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            match each:
                case Forward(message, to):
                    follow(dispatcher.arrived(now, to, message))
                case Reply(to, operator, content):
                    follow(dispatcher.replied(now, to, operator, content))
                case Run(worker, message):
                    assert worker not in busy
                    busy.add(worker)
                    rows.append([message.id, worker, now, now + message.work])
                    heappush(agenda, (now + message.work, 0, worker, message))

    while agenda:
        now = agenda[0][0]
        while agenda and agenda[0][0] == now:
            _, sent, number, message = heappop(agenda)
            if sent:
                follow(dispatcher.made(now, CLIENT, message))
            else:
                busy.discard(number)
                follow(dispatcher.finished(now, number, message))
        follow(dispatcher.settle(now))
        dispatcher.check()
    return rows


def schedule(
    messages: Sequence[dict[str, Any]],
    workers: int,
    quantum: int,
    make: Callable[[list[int], list[int], int], TwoLevelQueue] = TwoLevelQueue,
) -> list[Row]:
    """What a two-level queue makes of messages with given priorities; rows in the order of the starts."""
    names = sorted({each["op"] for each in messages})
    queue = make([*range(len(names))], [*range(workers)], quantum)
    by_id = dict(enumerate(messages))
    waiting = sorted(by_id, key=lambda i: (by_id[i]["arrive"], i))
    ends: dict[int, int] = {}  # by busy worker
    rows: list[Row] = []
    while waiting or ends:
        now = min([*ends.values(), *(by_id[i]["arrive"] for i in waiting[:1])])
        ends = {worker: end for worker, end in ends.items() if end > now}
        while waiting and by_id[waiting[0]]["arrive"] == now:
            i = waiting.pop(0)
            each = by_id[i]
            queue.add(Message(i, names.index(each["op"]), CLIENT), each["pri_local"], each["pri_global"])
        for worker in range(workers):
            if worker not in ends:
                message = queue.choose(worker, now)
                if message is not None:
                    each = by_id[message.id]
                    ends[worker] = now + each["cost"]
                    rows.append([each["id"], worker, now, ends[worker]])
        queue.check()
    assert queue.waiting == 0
    return rows
