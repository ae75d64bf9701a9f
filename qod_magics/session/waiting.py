"""Waiting in a notebook: the status is updated in place once a period, without blocking the kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qod_magics.errors import UsageProblem, nearest
from qod_magics.recordings.phases import DISTURBANCES

if TYPE_CHECKING:
    from qod_magics.controller import Cycle
    from qod_magics.kafka.injector import Injector
    from qod_magics.session.interface import SessionInterface

Show = Callable[[str], None]

LOOK_S = 0.1


async def watch(session: SessionInterface, seconds: float, show: Show | None = None) -> None:
    """`Session.watch`."""
    deadline = time.monotonic() + seconds
    show = show or in_place()
    while session.alive and time.monotonic() < deadline:
        show(session.status())
        await asyncio.sleep(max(min(session.controller.period_s, deadline - time.monotonic()), 0.0))


async def during(session: SessionInterface, injector: Injector, phase: str, show: Show | None = None) -> None:
    """`Session.during`."""
    order = [p.name for p in injector.scenario.phases]
    known(order, phase)
    show = show or in_place()
    while injector.alive():
        now = injector.phase()
        if now == phase:
            break
        if now is not None and order.index(now) > order.index(phase):
            raise UsageProblem(f"phase {phase!r} is over: it is phase {now!r} now; await it before it begins")
        await asyncio.sleep(LOOK_S)
    else:
        raise UsageProblem(f"phase {phase!r} does not come: the injector has ended; inject the scenario again")
    session.annotate(phase=phase)
    shown = 0.0
    while session.alive and injector.phase() == phase and injector.alive():
        if time.monotonic() - shown >= session.controller.period_s:
            shown = time.monotonic()
            show(session.status())
        await asyncio.sleep(LOOK_S)


async def until_settled(
    session: SessionInterface, at_least_s: float, quiet_s: float, at_most_s: float, show: Show | None = None
) -> bool:
    """`Session.until_settled`."""
    show = show or in_place()
    began = quiet_since = time.monotonic()
    seen = session.last
    while session.alive and (now := time.monotonic()) - began < at_most_s:
        cycle = session.last
        if cycle is not None and cycle is not seen:
            seen = cycle
            show(session.status())
            if disturbed(cycle):
                quiet_since = now
        if now - began >= at_least_s and now - quiet_since >= quiet_s:
            return True
        await asyncio.sleep(LOOK_S)
    return False


def disturbed(cycle: Cycle) -> bool:
    """Whether this cycle had a disturbance, an instance warming up, or no snapshot."""
    return (
        cycle.snapshot is None
        or any(event.kind in DISTURBANCES for event in cycle.events)
        or any(instance.warming_up for instance in cycle.snapshot.instances)
    )


def in_place() -> Callable[[str], None]:
    """Shows each text in place of the one before: updates one display in a notebook, prints elsewhere."""
    from IPython.core.getipython import get_ipython
    from IPython.display import Pretty, display

    if get_ipython() is None:
        return print

    handle = display(Pretty(" "), display_id=True)
    return lambda text: handle.update(Pretty(text)) if handle is not None else print(text)


def known(names: Sequence[str], name: str) -> str:
    """`name`, if it is one of `names`; otherwise raises UsageProblem with the nearest."""
    if name not in names:
        raise UsageProblem(f"there is no {name!r}.{nearest(name, names)}")
    return name
