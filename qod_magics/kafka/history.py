"""End offsets of topics, sampled over time: input rates, and when rows arrived at the broker. Pure: no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Samples of one partition; above it, every other one of the older half is dropped.
MOST_SAMPLES = 1024
#: A sample that is earlier than the one before by more than this says that the clock was set back, seconds.
SET_BACK_S = 1.0


@dataclass(slots=True)
class Samples:
    """End offsets of one partition by time.

    Times strictly increase, offsets never decrease; of equal offsets only the first and the last sample are kept.
    """

    times: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, time: float, offset: int) -> None:
        """Add one, later than all others. A lower offset is of a topic that was recreated: older samples are void."""
        if self.offsets and offset < self.offsets[-1]:
            self.times.clear()
            self.offsets.clear()
        if len(self.offsets) > 1 and self.offsets[-1] == self.offsets[-2] == offset:
            self.times[-1] = time
        else:
            self.times.append(time)
            self.offsets.append(offset)

    def thin(self) -> None:
        """Drop every other one of the older half, if there are more than MOST_SAMPLES."""
        if len(self.times) > MOST_SAMPLES:
            del self.times[1 : MOST_SAMPLES // 2 : 2]
            del self.offsets[1 : MOST_SAMPLES // 2 : 2]

    def forget_before(self, time: float) -> None:
        """Drop older samples except the last of them: times just after `time` are interpolated from it."""
        self._forget(bisect_right(self.times, time) - 1)

    def forget_below(self, offset: int) -> None:
        """Drop the samples that rows from this offset on do not need."""
        self._forget(bisect_right(self.offsets, offset) - 1)

    def at(self, time: float) -> float | None:
        """Return the end offset at a time: linear between samples, flat after the last, unknown before the first."""
        after = bisect_right(self.times, time)
        if after == 0:
            return None
        start, low = self.times[after - 1], self.offsets[after - 1]
        if after == len(self.times):
            return float(low)
        end, high = self.times[after], self.offsets[after]
        return low + (high - low) * ((time - start) / (end - start))

    def arrival(self, offset: int) -> float | None:
        """When the row of this offset arrived: linear between samples, the time of the first sample for rows from
        before it; None if no sample is behind the row."""
        after = bisect_right(self.offsets, offset)
        if after == len(self.offsets):
            return None
        if after == 0:
            return self.times[0]
        start, low = self.times[after - 1], self.offsets[after - 1]
        end, high = self.times[after], self.offsets[after]
        return start + (end - start) * (offset - low) / (high - low)

    def _forget(self, count: int) -> None:
        if count > 0:
            del self.times[:count]
            del self.offsets[:count]


class OffsetHistory:
    """End offsets of topics, sampled over the last `window_s` seconds.

    Times are of one monotonic clock, in seconds, given by the caller. Gaps in the samples (an unreachable broker) are
    interpolated linearly. A partition whose end offset falls (its topic was deleted and recreated) starts over.
    """

    def __init__(self, window_s: float = 120.0) -> None:
        if window_s <= 0:
            raise ValueError(f"window_s must be above 0, is {window_s:g}")
        self.window_s = window_s
        self._newest: float | None = None
        self._topics: dict[str, dict[int, Samples]] = {}

    def __repr__(self) -> str:
        return f"end offsets of {len(self._topics)} topics over the last {self.window_s:g} s"

    @property
    def newest(self) -> float | None:
        """Return the time of the last sample, or None before the first."""
        return self._newest

    def record(self, time: float, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Add the answer of `end_offsets` at `time`. Topics may be missing; one not sampled for a whole window is
        dropped.

        Raises:
            ValueError: `time` is before the last record.

        """
        if self._newest is not None and time < self._newest:
            raise ValueError(f"offsets of {time:g} s come after those of {self._newest:g} s: record them in order")
        repeated = time == self._newest
        self._newest = time
        for topic, partitions in offsets.items():
            known = self._topics.setdefault(topic, {})
            for partition, offset in partitions.items():
                samples = known.setdefault(partition, Samples())
                if not (repeated and samples.times and samples.times[-1] == time):
                    samples.add(time, offset)
        self._forget(time - self.window_s)

    def forget(self, topic: str) -> None:
        """Drop the samples of a topic that is being recreated."""
        self._topics.pop(topic, None)

    def topics(self) -> list[str]:
        """Return the topics sampled in the window, sorted."""
        return sorted(self._topics)

    def at(self, topic: str, time: float) -> dict[int, float]:
        """Partition -> end offset at `time`: interpolated between samples, constant after the last. Partitions first
        sampled later, or dropped from the window, are missing."""
        found = {partition: samples.at(time) for partition, samples in self._topics.get(topic, {}).items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def rows(self, topic: str, start: float, end: float) -> float:
        """Return rows that arrived from `start` to `end`, over the partitions sampled by `end`; rows from before the
        first sample of a partition do not count."""
        arrived = 0.0
        for samples in self._topics.get(topic, {}).values():
            high = samples.at(end)
            if high is not None:
                low = samples.at(start)
                arrived += high - (samples.offsets[0] if low is None else low)
        return arrived

    def rate(self, topic: str, over_s: float = 5.0) -> float | None:
        """Input rate of the topic, rows/s, over the last `over_s` seconds before its newest sample, or over its whole
        history if shorter. None before it has two samples.

        Raises:
            ValueError: `over_s` is not above 0.

        """
        if over_s <= 0:
            raise ValueError(f"over_s must be above 0, is {over_s:g}")
        partitions = self._topics.get(topic)
        if not partitions:
            return None
        first = min(samples.times[0] for samples in partitions.values())
        end = max(samples.times[-1] for samples in partitions.values())
        start = max(first, end - over_s)
        if end <= start:
            return None
        return self.rows(topic, start, end) / (end - start)

    def _forget(self, before: float) -> None:
        for topic in list(self._topics):
            partitions = self._topics[topic]
            for partition in list(partitions):
                partitions[partition].forget_before(before)
                if partitions[partition].times[-1] < before:
                    del partitions[partition]
            if not partitions:
                del self._topics[topic]


class Arrivals:
    """End offsets of topics over time, back to the first row that somebody still has to read.

    Times are of one clock, in seconds, given by the caller.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Samples]] = {}

    def __repr__(self) -> str:
        return f"arrivals of rows in {len(self._topics)} topics"

    def record(self, time: float, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Add end offsets by topic and partition; samples older than the last one of a partition are left out, but if
        the clock was set back, that partition starts again."""
        for topic, partitions in offsets.items():
            known = self._topics.setdefault(topic, {})
            for partition, offset in partitions.items():
                samples = known.setdefault(partition, Samples())
                if samples.times and time < samples.times[-1] - SET_BACK_S:
                    samples = known[partition] = Samples()
                if not samples.times or time > samples.times[-1]:
                    samples.add(time, offset)
                    samples.thin()

    def forget(self, topic: str, positions: Mapping[int, int]) -> None:
        """Drop what rows from these positions on, by partition, do not need."""
        for partition, position in positions.items():
            samples = self._topics.get(topic, {}).get(partition)
            if samples is not None:
                samples.forget_below(position)

    def keep(self, topics: set[str]) -> None:
        """Drop all other topics."""
        self._topics = {topic: known for topic, known in self._topics.items() if topic in topics}

    def oldest(self, topic: str, positions: Mapping[int, int], by: float | None = None) -> float | None:
        """When the first row at or after these positions, by partition, arrived: interpolated between samples. For a
        row from before the first sample, the time of that sample. None if there is no such row, or none by `by`."""
        found = []
        for partition, samples in self._topics.get(topic, {}).items():
            position = positions.get(partition, 0)
            arrived = samples.arrival(position)
            if arrived is not None and (by is None or arrived < by):
                found.append(arrived)
        return min(found, default=None)
