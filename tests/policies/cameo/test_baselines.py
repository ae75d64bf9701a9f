"""FIFO and Orleans' default: whose turn it is."""

from __future__ import annotations

from qod_magics.core.engines import CLIENT, Message
from qod_magics.policies.cameo.dispatcher import ArrivalQueue


class Runs:
    """A queue, and the operators that workers get from it."""

    def __init__(self, *, workers: int, own: bool, quantum: int = 1) -> None:
        self.queue = ArrivalQueue(range(9), range(workers), quantum, own)
        self.made = 0

    def add(self, *operators: int, sender: int = CLIENT) -> None:
        for operator in operators:
            self.queue.add(Message(self.made, operator, sender))
            self.made += 1
            self.queue.check()

    def choose(self, worker: int, now: int) -> int:
        """The operator that the worker runs next; -1: none."""
        found = self.queue.choose(worker, now)
        self.queue.check()
        return -1 if found is None else found.operator


def test_fifo_goes_round_when_a_quantum_is_spent() -> None:
    runs = Runs(workers=1, own=False, quantum=5)
    runs.add(0, 0, 0, 1, 1, 2)
    turns = [runs.choose(0, now) for now in (0, 4, 5, 9, 11, 13, 15)]
    assert turns == [0, 0, 1, 1, 2, 0, -1]


def test_fifo_goes_on_if_nobody_waits() -> None:
    runs = Runs(workers=1, own=False)
    runs.add(0, 0)
    assert [runs.choose(0, now) for now in (0, 10, 20)] == [0, 0, -1]


def test_the_network_fills_the_bags_in_turns_and_a_worker_takes_its_newest() -> None:
    runs = Runs(workers=2, own=True)
    runs.add(0, 1, 2, 3)  # bags: [0, 2] and [1, 3]
    assert [runs.choose(1, 0), runs.choose(0, 0)] == [3, 2]


def test_a_worker_without_any_takes_the_oldest_of_the_next_bag() -> None:
    runs = Runs(workers=3, own=True)
    runs.add(0, 1, 2, 3, 4, 5)  # bags: [0, 3], [1, 4] and [2, 5]
    assert [runs.choose(0, now) for now in (0, 10, 20, 30, 40, 50, 60)] == [3, 0, 1, 4, 2, 5, -1]


def test_work_goes_into_the_bag_of_the_worker_that_made_it() -> None:
    runs = Runs(workers=2, own=True)
    runs.add(0, 1)
    assert [runs.choose(0, 0), runs.choose(1, 0)] == [0, 1]
    runs.add(2, 3)  # from the network: bags 0 and 1
    runs.add(4, 5, sender=1)  # by worker 1
    assert [runs.choose(1, 5), runs.choose(1, 9), runs.choose(1, 12), runs.choose(0, 12)] == [5, 4, 3, 2]


def test_an_operator_given_back_is_its_workers_newest() -> None:
    runs = Runs(workers=1, own=True)
    runs.add(0, 1, 1, 1)
    assert [runs.choose(0, now) for now in (0, 10, 20, 30)] == [1, 1, 1, 0]
