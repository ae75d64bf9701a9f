"""Which partitions of a topic each instance of a task reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

#: The partitions of one topic that each instance reads, in ascending order.
Deal: TypeAlias = tuple[tuple[int, ...], ...]


def dealt(partitions: int, instances: int, before: Sequence[Iterable[int]] = ()) -> Deal:
    """Deal partitions 0, 1, ... to instances: each to exactly one, and as many to each as to any other, or one more.

    Instances keep as many of their partitions as that allows, so that few of them are concerned. Without a deal
    `before`, partition p goes to instance p mod `instances`. Of a balanced deal to as many instances, more partitions
    take none away.

    Raises:
        ValueError: there are fewer partitions than instances, or no instances.

    """
    if not 0 < instances <= partitions:
        raise ValueError(f"{partitions} partitions can't be dealt to {instances} instances: each needs one")
    share, larger = divmod(partitions, instances)
    had = [sorted(p for p in each if p < partitions) for each in before[:instances]]
    kept: list[list[int]] = [[] for _ in range(instances)]
    for index in sorted(range(len(had)), key=lambda index: -len(had[index])):  # the larger shares go to whoever has one
        most = share + (larger > 0 and len(had[index]) > share)
        larger -= most > share
        kept[index] = had[index][:most]
    left = sorted(set(range(partitions)).difference(*kept))
    for partition in left:
        kept[min(range(instances), key=lambda index: len(kept[index]))].append(partition)
    return tuple(tuple(sorted(each)) for each in kept)
