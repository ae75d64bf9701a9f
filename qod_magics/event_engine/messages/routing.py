"""The messages of an output: one for each operator that gets rows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from qod_magics.core.dispatch import Kind, Message
from qod_magics.event_engine.messages.dataflow import Dataflow, Route
from qod_magics.event_engine.messages.operators import Emitted
from qod_magics.event_engine.messages.partials import EmittedPart


class Router:
    """Makes messages, and numbers them."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._operators = dataflow.operators
        self._infos = dataflow.topology.operators
        self._turns: dict[tuple[int, int, int], int] = {}  # the next, by sender, client and route
        self._last = 0

    def numbers(self) -> Iterator[int]:
        """The ids of the next messages."""
        while True:
            yield self.number()

    def number(self) -> int:
        """The id of the next message."""
        self._last += 1
        return self._last

    def messages(
        self, sender: int, source: int, emitted: Emitted | EmittedPart, routes: Iterable[Route], bytes_per_row: int
    ) -> Iterator[Message]:
        """The messages by which an operator, or CLIENT, sends an output along its routes."""
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
        """The number of the operator that gets all rows, modulo their count."""
        if exchange == "turns":
            number = self._turns.get(route, number)
            self._turns[route] = number + 1
        return key if exchange == "key" else number

    def _objects(self, target: int, key: int) -> tuple[Any, ...]:
        if key < 0:
            return (target,)
        return ((self._infos[target].job, self._operators[target].stage.name, key),)
