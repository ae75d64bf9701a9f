"""An output buffer on bytes: items may span buffers, and one has arrived when its last byte has (N24)."""

from __future__ import annotations

from dataclasses import dataclass, field

from qod_magics.event_engine.buffers.items import Transit


@dataclass(slots=True)
class Shipment:
    """Full buffers that leave at once, and the items whose last byte is in the last of them."""

    buffers: int
    bytes: int
    items: list[Transit]


@dataclass(slots=True)
class OutputBuffer:
    """The open output buffer of a channel, and what became of those before it. Times are ns."""

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
        """From now on, buffers are of `size` bytes; the open one is shipped if it has as much already."""
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
        """Mean life time of the buffers shipped since the last look, ns; None without any."""
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
