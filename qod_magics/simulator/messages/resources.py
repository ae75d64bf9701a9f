"""What messages wait for besides workers: links between machines, and a remote state store with caches."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from qod_magics.core.engines import S, Topology


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
        """Return the ns until a message of this many bytes, sent now, has arrived whole."""
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


class Store:
    """State objects of all workers, by name.

    Args:
        read_ns: time of reading an object, without its bytes.
        bytes_per_s: bandwidth of a read; None: no limit.
        object_bytes: size of each object.
        capacity: objects in the cache of a worker; 0: no cache; None: no limit.
        workers: number of workers.

    """

    def __init__(
        self,
        read_ns: int = 0,
        *,
        bytes_per_s: float | None = None,
        object_bytes: int = 0,
        capacity: int | None = None,
        workers: int,
    ) -> None:
        if read_ns < 0 or object_bytes < 0 or (capacity is not None and capacity < 0):
            raise ValueError(f"negative values: read_ns {read_ns}, object_bytes {object_bytes}, capacity {capacity}")
        transfer = 0 if bytes_per_s is None else round(object_bytes * S / bytes_per_s)
        self.fetch_ns = read_ns + transfer
        self.capacity = capacity
        self.reads = 0  #: objects that messages asked for
        self.fetches = [0] * workers  #: those that were not in the cache, by worker
        self._caches: list[OrderedDict[Any, None]] = [OrderedDict() for _ in range(workers)]

    def read(self, worker: int, objects: tuple[Any, ...]) -> int:
        """Return the ns that a worker waits for these objects, one after another."""
        return sum(self.fetch(worker, each) for each in objects) if objects else 0

    def fetch(self, worker: int, name: Any) -> int:
        """Return the ns that a worker waits for an object: 0 if it is in its cache."""
        self.reads += 1
        cache = self._caches[worker]
        if name in cache:
            cache.move_to_end(name)
            return 0
        self.fetches[worker] += 1
        if self.capacity != 0:
            cache[name] = None
            if self.capacity is not None and len(cache) > self.capacity:
                cache.popitem(last=False)
        return self.fetch_ns

    def cached(self, worker: int) -> tuple[Any, ...]:
        """Return the objects in the cache of a worker, the least recently used first."""
        return tuple(self._caches[worker])
