"""What moves through a job: items, and their way over a channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Item:
    """A frame, a row, a batch: what a task emits at once. Compared by identity."""

    stream: int  #: number of the source's stream
    group: int  #: of streams that are merged
    bytes: int
    #: bytes of the source's items in it (their mean, where items were merged): what an encoder's output depends on
    coded: float
    #: of the source's items whose next item it is, by the definition of sequence latency: how many, and the sum of the
    #: times at which they left the source's user code, ns
    origins: int
    origin_sum: int


@dataclass(slots=True, eq=False)
class Transit:
    """An item on a channel."""

    item: Item
    exits: int  #: when it left the sender's user code, ns
    #: buffer-size epoch, if it is the tagged item of the sender's interval; -1: it is not
    tag: int = -1
    ships: int = 0  #: when the buffer with its last byte was shipped, ns
