"""When rows arrived at the broker, from end offsets sampled over time. Pure: no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Samples of one partition; above it, every other one of the older half is dropped.
MOST_SAMPLES = 1024


@dataclass(slots=True)
class _Ends:
    """End offsets of one partition, in order of time; equal ones are one sample with its first and last time."""

    times: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, time: float, offset: int) -> None:
        if self.offsets and offset < self.offsets[-1]:  # the topic was recreated: older samples are void
            self.times.clear()
            self.offsets.clear()
        if len(self.offsets) > 1 and self.offsets[-1] == self.offsets[-2] == offset:
            self.times[-1] = time
        else:
            self.times.append(time)
            self.offsets.append(offset)
        if len(self.times) > MOST_SAMPLES:
            half = MOST_SAMPLES // 2
            del self.times[1:half:2]
            del self.offsets[1:half:2]

    def forget(self, position: int) -> None:
        """Drop the samples that rows from `position` on do not need."""
        keep = bisect_right(self.offsets, position) - 1
        if keep > 0:
            del self.times[:keep]
            del self.offsets[:keep]

    def arrival(self, offset: int) -> float | None:
        after = bisect_right(self.offsets, offset)
        if after == len(self.offsets):
            return None
        if after == 0:
            return self.times[0]
        start, low, end, high = *self._at(after - 1), *self._at(after)
        return start + (end - start) * (offset - low) / (high - low)

    def _at(self, index: int) -> tuple[float, int]:
        return self.times[index], self.offsets[index]


class Arrivals:
    """End offsets of topics over time, back to the first row that somebody still has to read.

    Times are of one clock, in seconds, given by the caller.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, _Ends]] = {}

    def __repr__(self) -> str:
        return f"arrivals of rows in {len(self._topics)} topics"

    def record(self, time: float, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Add end offsets by topic and partition; samples older than the last one of a topic are left out."""
        for topic, partitions in offsets.items():
            known = self._topics.setdefault(topic, {})
            for partition, offset in partitions.items():
                ends = known.setdefault(partition, _Ends())
                if not ends.times or time > ends.times[-1]:
                    ends.add(time, offset)

    def forget(self, topic: str, positions: Mapping[int, int]) -> None:
        """Drop what rows from these positions on, by partition, do not need."""
        for partition, position in positions.items():
            ends = self._topics.get(topic, {}).get(partition)
            if ends is not None:
                ends.forget(position)

    def keep(self, topics: set[str]) -> None:
        """Drop all other topics."""
        self._topics = {topic: ends for topic, ends in self._topics.items() if topic in topics}

    def oldest(self, topic: str, positions: Mapping[int, int], by: float | None = None) -> float | None:
        """When the first row at or after these positions, by partition, arrived: interpolated between samples. For a
        row from before the first sample, the time of that sample. None if there is no such row, or none by `by`."""
        found = []
        for partition, ends in self._topics.get(topic, {}).items():
            position = positions.get(partition, 0)
            arrived = ends.arrival(position)
            if arrived is not None and (by is None or arrived < by):
                found.append(arrived)
        return min(found, default=None)
