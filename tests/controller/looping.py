"""The loop on its thread, for so many cycles."""

from __future__ import annotations

import threading

from qod_magics.controller import ControllerThread, Cycle

LONG_S = 30.0  #: longer than any test in virtual time may take


def until(loop: ControllerThread, count: int) -> list[Cycle]:
    """Runs the loop until it has made so many cycles; they stand still after that."""
    cycles: list[Cycle] = []
    done = threading.Event()

    def collect(cycle: Cycle) -> None:
        cycles.append(cycle)
        if len(cycles) == count:
            done.set()
            loop.stop(join=False)

    loop.subscribe(collect)
    loop.start()
    assert done.wait(LONG_S)
    loop.stop()
    return cycles
