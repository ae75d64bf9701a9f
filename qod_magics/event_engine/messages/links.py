"""Links between machines: a delay, and a bandwidth that messages share in the order of sending."""

from __future__ import annotations

from qod_magics.core.dispatch import Topology
from qod_magics.core.nanoseconds import S


class Links:
    """Arrival times. Messages of one link (from, to) arrive in the order of sending.

    Args:
        topology: its delays.
        bytes_per_s: bandwidth of each link between two machines; None: no limit. Within a machine nothing limits it.

    """

    def __init__(self, topology: Topology, bytes_per_s: float | None = None) -> None:
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be above 0, is {bytes_per_s:g}")
        self.topology = topology
        self.bytes_per_s = bytes_per_s
        self.sent_bytes: dict[tuple[int, int], int] = {}  #: by link
        self._free: dict[tuple[int, int], int] = {}  #: when the link has sent all so far

    def delay(self, now: int, one: int, other: int, size: int) -> int:
        """Ns until a message of this many bytes, sent now, has arrived whole."""
        if one == other:
            return 0
        link = (one, other)
        if size:
            self.sent_bytes[link] = self.sent_bytes.get(link, 0) + size
        delay = self.topology.delay_between(one, other)
        if self.bytes_per_s is None:
            return delay
        begun = max(now, self._free.get(link, 0))
        sent = begun + round(size * S / self.bytes_per_s)
        self._free[link] = sent
        return sent - now + delay
