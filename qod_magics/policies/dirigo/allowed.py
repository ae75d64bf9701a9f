"""Which workers may run a function: its lessor, and its neighbours (2.9; A6, A13). Pure."""

from __future__ import annotations

from zlib import crc32


def lessor(address: str, workers: int) -> int:
    """The worker that a function is bound to, by a stable hash of its address."""
    return crc32(address.encode()) % workers


def neighbours(lessor: int, parallelism_range: int | None, workers: int) -> tuple[int, ...]:
    """The workers that may run a function, lessor first: as many as the range says, upwards and around (Eq. 8)."""
    number = workers if parallelism_range is None else min(parallelism_range, workers)
    return tuple((lessor + k) % workers for k in range(number))
