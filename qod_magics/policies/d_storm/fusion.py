"""Co-located tasks become one query, and part where they no longer pack: what a placement without traffic between task
managers saves beyond the network. Not in the source. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from qod_magics.core.actions import Fuse, Unfuse
from qod_magics.core.fusion import separable_streams
from qod_magics.core.neighbours import CORE, neighbours, within_a_core
from qod_magics.core.snapshot import Snapshot

#: An action of this module.
Fusing = Fuse | Unfuse


def possible(snapshot: Snapshot) -> frozenset[Fusing]:
    """The actions that a snapshot leaves possible: one that is among them still has not taken effect."""
    parts = (Unfuse(stream) for task in snapshot.tasks for stream in separable_streams(task))
    return frozenset([*map(Fuse, neighbours(snapshot)), *parts])


def to_fuse(snapshot: Snapshot, needs: Mapping[str, float], asked: Collection[Fusing]) -> tuple[Fuse, ...]:
    """The first two co-located neighbours whose query needs no more than the core that an instance can use, but for
    those `asked` for before; one action at a time. `needs`: by instance, CPU in % of one core."""
    found = [pair for pair in neighbours(snapshot) if Fuse(pair) not in asked]
    why = "they run on one task manager, and throughput and latency meet their targets"
    return tuple(Fuse(pair, why) for pair in within_a_core(found, snapshot, needs)[:1])


def to_part(
    snapshot: Snapshot, needs: Mapping[str, float], unplaced: Sequence[str], asked: Collection[Fusing]
) -> tuple[Unfuse, ...]:
    """The fused task to part, at the last stream where it can be, but for those `asked` for before: the largest of
    those that need more than the core that an instance can use, or have an instance in `unplaced`."""
    within = {task.id: separable_streams(task) for task in snapshot.tasks}
    found = [
        each
        for each in snapshot.instances
        if within[each.task]
        and Unfuse(within[each.task][-1]) not in asked
        and (each.id in unplaced or needs[each.id] > CORE)
    ]
    if not found:
        return ()
    largest = max(found, key=lambda each: needs[each.id])
    why = (
        f"{largest.id} needs {needs[largest.id]:.0f} % of a core, more than it can use"
        if needs[largest.id] > CORE
        else f"{largest.id} fits on no task manager"
    )
    return (Unfuse(within[largest.task][-1], why),)
