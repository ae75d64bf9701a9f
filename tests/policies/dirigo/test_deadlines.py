"""Deadlines by Eq. 1, in ms."""

from __future__ import annotations

from qod_magics.core.engines import CLIENT, Message, OperatorInfo, Topology
from qod_magics.policies.dirigo.laxity_queue import NEVER, Deadlines

CHAIN = Topology(
    (
        OperatorInfo("a", 0, 0, (1, 2), 800),
        OperatorInfo("b", 0, 1, (3,), 800),
        OperatorInfo("c", 0, 2, (3,), 800),
        OperatorInfo("d", 0, 0, (), 800),
        OperatorInfo("window", 1, 0, (), 50, slide=60, origin=10, length=60),
        OperatorInfo("free", 2, 0),
    ),
    (0, 1, 2),
)


def test_the_dearest_path_behind_an_operator_is_taken_off() -> None:
    deadlines = Deadlines(CHAIN)
    first = Message(1, 0, CLIENT, observed=1000, cost=5)
    assert deadlines(first) == 1800
    for operator, cost in ((1, 7), (2, 20), (3, 5)):
        deadlines(Message(2, operator, 0, observed=1000, cost=cost))
    assert deadlines(first) == 1000 + 800 - 25
    assert deadlines(Message(3, 1, 0, observed=1000, cost=7)) == 1000 + 800 - 5
    assert deadlines(Message(4, 3, 2, observed=1000, cost=5)) == 1800
    deadlines(Message(5, 2, 0, observed=1000, cost=2))  # a cheaper one: the largest cost stays
    assert deadlines.after(0) == 25


def test_a_window_is_due_when_it_can_be_complete() -> None:
    deadlines = Deadlines(CHAIN)
    assert deadlines(Message(1, 4, CLIENT, progress=15, observed=100, cost=1)) == 100 + 55 + 50
    assert deadlines(Message(1, 4, CLIENT, progress=70, observed=100, cost=1)) == 100 + 50
    assert deadlines(Message(1, 4, CLIENT, progress=99, event_time=15, observed=100, cost=1)) == 100 + 55 + 50


def test_without_a_target_nothing_is_ever_late() -> None:
    assert Deadlines(CHAIN)(Message(1, 5, CLIENT, observed=100, cost=1)) == NEVER
