"""What shipping a buffer takes: the cost at the sender, the link of its worker, and the way to the receiver."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from qod_magics.core.nanoseconds import S


@dataclass(frozen=True, slots=True)
class Network:
    """Figures that all links share. Times are ns."""

    bits_per_s: float = 1e9
    buffer_cost: int = 0  #: at the sender, for each buffer that leaves its worker; overlaps with transmission
    transport: int = 0  #: from the end of transmission to the receiver's queue
    handover: int = 0  #: the same between tasks of one worker, in place of cost, transmission and transport
    window_bytes: int = 1 << 20  #: a sender that has more than this under way waits; receivers never hold it back

    def transmission(self, bytes: int) -> int:
        """How long a link is taken."""
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
        """When the last of these buffers reaches the receiver's queue."""
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
        """When the sender may write on: at once, or when no more than the window is under way."""
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
