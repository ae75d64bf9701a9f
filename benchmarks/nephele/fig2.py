"""The buffer experiment (Fig. 2, section 2.2): latency and throughput by buffer size and rate of creation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import ceil
from typing import Any

from benchmarks.findings import Row, Source, decided, is_near
from benchmarks.nephele.calibrations import calibration
from qod_magics.core.engines import S
from qod_magics.policies.of_engines import channel_policy
from qod_magics.simulator.buffers import BufferScenario, BufferSimulation

NEPHELE = Source("Nephele Streaming")
SIZES = (4096, 8192, 16384, 32768, 65536)  #: bytes
RATES = tuple(10.0**power for power in range(9))  #: items/s
HIGH = RATES[-1]
FLUSH = 0  #: in the place of a size
BUFFERS = 3  #: full ones that are looked at, at least
LINK_BITS = 1e9


@dataclass(frozen=True, slots=True)
class Point:
    """One run."""

    latency_s: float  #: mean over the items that arrived
    bits_per_s: float  #: of payload, as the receiver gets it


def point(size: int, rate: float, items: int) -> Point:
    """Latency and throughput with buffers of `size` bytes (FLUSH: shipped after each item), at a rate of creation in
    items/s; of `items` items or more, so that some buffers are full."""
    value: dict[str, Any] = calibration("buffers")
    wire = value["streams"]["item_bytes"] + value["network"]["item_overhead"]
    count = max(items, BUFFERS * ceil(size / wire)) if size else min(items, 2000)
    value["streams"] = {**value["streams"], "items_per_s": rate, "items": count}
    # no sender is slower than one item for each buffer's cost
    slowest = max(1 / rate, value["network"]["buffer_cost_us"] / 1e6)
    value["duration_s"] = count * slowest + 10
    value["interval_s"] = value["duration_s"]
    name = "nephele-fixed-buffers" if size else "nephele-flush"
    policy = channel_policy(name, {"initial_bytes": size} if size else None)
    results = BufferSimulation(BufferScenario.from_json(value), policy).run()
    assert results.mean_latency_ms is not None
    sent_s = results.last_out / S - value["network"]["transport_ms"] / 1000
    bits = results.items_out * value["streams"]["item_bytes"] * 8
    return Point(results.mean_latency_ms / 1000, bits / sent_s)


@cache
def points(quick: bool = False) -> Mapping[tuple[int, float], Point]:
    """By size and rate. Quick: the ends only."""
    items = 3000 if quick else 15000
    rates = (RATES[0], HIGH) if quick else RATES
    sizes = (FLUSH, 4096, 32768, 65536) if quick else (FLUSH, *SIZES)
    return {(size, rate): point(size, rate, items) for size in sizes for rate in rates}


def rows(quick: bool = False) -> Iterator[Row]:
    """The source's figures and ours."""
    found = points(quick)
    sizes = sorted({size for size, _ in found} - {FLUSH})
    value = calibration("buffers")
    payload = value["streams"]["item_bytes"] / (value["streams"]["item_bytes"] + value["network"]["item_overhead"])

    row = partial(NEPHELE.row, "buffers")
    slow = found[65536, 1.0].latency_s
    overhead = value["network"]["item_overhead"]
    yield row(
        "mean latency at 1 item/s, 64 KB",
        "> 222 s",
        f"{slow:.1f} s",
        decided(is_near(222.0, slow)),
        f"anchor: {overhead} bytes that serialization adds to an item were chosen by it; without them it is 255.5 s",
        calibrated=True,
    )
    high = {size: found[size, HIGH].latency_s for size in sizes}
    yield row(
        "mean latency at the highest rate, any buffer size",
        "about 50 ms",
        f"{1000 * min(high.values()):.0f} to {1000 * max(high.values()):.0f} ms",
        decided(all(is_near(0.05, each) for each in high.values())),
        "38 ms of transport (anchor of the next row), and what is under way when a sender is held back (chosen: 1 MiB)",
    )
    flushed = [found[size, rate].latency_s for size, rate in found if size == FLUSH]
    yield row(
        "mean latency, flush after each item, any rate",
        "38 ms",
        f"{1000 * min(flushed):.1f} to {1000 * max(flushed):.1f} ms",
        decided(all(is_near(0.038, each) for each in flushed)),
        "anchor of the transport time; that it does not depend on the rate follows, as a sender that flushes waits",
        calibrated=True,
    )
    for size in (32768, 65536):
        bits = found[size, HIGH].bits_per_s / payload
        yield row(
            f"throughput at the highest rate, {size // 1024} KB",
            "saturates 1 Gbit/s",
            f"{bits / 1e6:.0f} Mbit/s on the wire",
            decided(bits >= 0.9 * LINK_BITS),
            "follows from the cost of a buffer",
        )
    flush = found[FLUSH, HIGH].bits_per_s
    yield row(
        "throughput at the highest rate, flush after each item",
        "at most 10 Mbit/s",
        f"{flush / 1e6:.1f} Mbit/s",
        decided(flush <= 10.05e6),
        "anchor of the cost of a buffer, 102.4 us",
        calibrated=True,
    )
    small = found[4096, HIGH].bits_per_s / payload
    yield row(
        "throughput at the highest rate, 4 KB",
        "clearly below 1 Gbit/s",
        f"{small / 1e6:.0f} Mbit/s on the wire",
        decided(small < 0.8 * LINK_BITS),
        "follows from the cost of a buffer",
    )
