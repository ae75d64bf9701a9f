"""Items on their way between tasks: output buffers on bytes, and the links that ship them.

Items may span buffers; an item has arrived when its last byte has (N24). A link has the cost at the sender, the
transmission, and the way to the receiver.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from qod_magics.core.engines import S


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


@dataclass(slots=True)
class Shipment:
    """Full buffers that leave at once, and the items whose last byte is in the last of them."""

    buffers: int
    bytes: int
    items: list[Transit]


@dataclass(slots=True)
class OutputBuffer:
    """The open output buffer of a channel, and counters of those before it. Times are ns."""

    size: int  #: bytes
    fill: int = 0  #: bytes in the open buffer; 0: none is open
    opened: int = 0
    waiting: list[Transit] = field(default_factory=list)  #: items whose last byte is in the open buffer
    written: int = 0  #: bytes, in all
    shipped: int = 0  #: bytes, in all
    #: buffers shipped since the last look at them, and the sum of their life times
    ended: int = 0
    life: int = 0

    def write(self, transit: Transit, bytes: int, now: int) -> list[Shipment]:
        """Add an item of `bytes` >= 1 bytes; what is full is shipped."""
        self.written += bytes
        if not self.fill:
            self.opened = now
        room = self.size - self.fill
        if bytes < room:
            self.fill += bytes
            self.waiting.append(transit)
            return []
        full, rest = divmod(bytes - room, self.size)
        if bytes == room:
            self.waiting.append(transit)
        found = [self._ship(self.fill + room, now)]
        if full:
            self.ended += full  # they are filled at once, and have no life time
            self.shipped += full * self.size
            found.append(Shipment(full, full * self.size, []))
        if rest:
            self.fill, self.opened = rest, now
            self.waiting.append(transit)
        elif full:
            transit.ships = now
            found[-1].items.append(transit)
        return found

    def flush(self, now: int) -> list[Shipment]:
        """Ship the open buffer, if there is one, as it is."""
        return [self._ship(self.fill, now)] if self.fill else []

    def resize(self, size: int, now: int) -> list[Shipment]:
        """Set the size of buffers, bytes; the open one is shipped if it has as much already."""
        self.size = size
        return self.flush(now) if self.fill >= size else []

    def discard(self) -> int:
        """Drop the open buffer; the number of items that had their last byte in it."""
        lost = len(self.waiting)
        self.written -= self.fill
        self.fill = 0
        self.waiting = []
        return lost

    def take_life(self) -> float | None:
        """Return the mean life time of the buffers shipped since the last look, ns; None without any."""
        mean = self.life / self.ended if self.ended else None
        self.ended = self.life = 0
        return mean

    def _ship(self, bytes: int, now: int) -> Shipment:
        items, self.waiting, self.fill = self.waiting, [], 0
        self.shipped += bytes
        self.ended += 1
        self.life += now - self.opened
        for transit in items:
            transit.ships = now
        return Shipment(1, bytes, items)


@dataclass(frozen=True, slots=True)
class Network:
    """Figures that all links share. Times are ns."""

    bits_per_s: float = 1e9
    buffer_cost: int = 0  #: at the sender, for each buffer that leaves its worker; overlaps with transmission
    transport: int = 0  #: from the end of transmission to the receiver's queue
    handover: int = 0  #: the same between tasks of one worker, in place of cost, transmission and transport
    window_bytes: int = 1 << 20  #: a sender that has more than this under way waits; receivers never hold it back

    def transmission(self, bytes: int) -> int:
        """Return how long a link is taken."""
        return round(bytes * 8 * S / self.bits_per_s)


@dataclass(slots=True)
class Link:
    """The network interface of a worker."""

    network: Network
    free: int = 0  #: when it has sent all that it was given, ns


@dataclass(slots=True)
class Way:
    """The way of one channel's buffers; `link` is None within a worker."""

    network: Network
    link: Link | None
    prepared: int = 0  #: when the sender's part of all buffers is done, ns
    _under_way: deque[tuple[int, int]] = field(default_factory=deque)  #: (end of transmission, bytes)
    _bytes: int = 0

    def ship(self, buffers: int, bytes: int, now: int) -> int:
        """Return when the last of these buffers reaches the receiver's queue."""
        network, link = self.network, self.link
        if link is None:
            return now + network.handover
        first = max(now, self.prepared) + network.buffer_cost
        self.prepared = first + (buffers - 1) * network.buffer_cost
        takes = network.transmission(bytes)
        end = max(max(first, link.free) + takes, self.prepared + takes // buffers)
        link.free = end
        self._under_way.append((end, bytes))
        self._bytes += bytes
        return end + network.transport

    def may_write(self, now: int) -> int:
        """Return when the sender may write on: at once, or when no more than the window is under way."""
        under_way = self._under_way
        while under_way and under_way[0][0] <= now:
            self._bytes -= under_way.popleft()[1]
        left = self._bytes
        for end, bytes in under_way:
            if left <= self.network.window_bytes:
                break
            left -= bytes
            now = end
        return now
