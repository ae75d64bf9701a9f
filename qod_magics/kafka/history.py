"""Rates of arrival from end offsets seen at different times: pure, no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Samples:
    """End offsets of one partition; times strictly increase, offsets never decrease."""

    times: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, time: float, offset: int) -> None:
        if self.offsets and offset < self.offsets[-1]:  # the topic was made anew: what was before is of another one
            self.times.clear()
            self.offsets.clear()
        self.times.append(time)
        self.offsets.append(offset)

    def forget(self, before: float) -> None:
        """Drop what is older, but for the last sample that is: times just after `before` are interpolated from it."""
        keep = bisect_right(self.times, before) - 1
        if keep > 0:
            del self.times[:keep]
            del self.offsets[:keep]

    def at(self, time: float) -> float | None:
        """Linear between samples, flat after the last, unknown before the first."""
        after = bisect_right(self.times, time)
        if after == 0:
            return None
        start, low = self.times[after - 1], self.offsets[after - 1]
        if after == len(self.times):
            return float(low)
        end, high = self.times[after], self.offsets[after]
        return low + (high - low) * ((time - start) / (end - start))


class OffsetHistory:
    """The end offsets of topics over the last `window_s` seconds, as far as they were asked.

    Times are of one monotonic clock, in seconds, given by the caller. A broker that was away leaves a hole in the
    samples, and the offsets in it are taken to have grown evenly. A partition whose offset falls (its topic was deleted
    and made anew) starts anew.
    """

    def __init__(self, window_s: float = 120.0) -> None:
        if window_s <= 0:
            raise ValueError(f"window_s must be above 0, is {window_s:g}")
        self.window_s = window_s
        self._newest: float | None = None
        self._topics: dict[str, dict[int, _Samples]] = {}

    def __repr__(self) -> str:
        return f"end offsets of {len(self._topics)} topics over the last {self.window_s:g} s"

    @property
    def newest(self) -> float | None:
        """The time of the last sample, or None before the first."""
        return self._newest

    def record(self, time: float, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Add what `end_offsets` answered at `time`. Topics may be missing from it; one that is unseen for the length
        of the window is forgotten.

        Raises:
            ValueError: `time` is before that of the last record.

        """
        if self._newest is not None and time < self._newest:
            raise ValueError(f"offsets of {time:g} s come after those of {self._newest:g} s: record them in order")
        repeated = time == self._newest
        self._newest = time
        for topic, partitions in offsets.items():
            known = self._topics.setdefault(topic, {})
            for partition, offset in partitions.items():
                samples = known.setdefault(partition, _Samples())
                if not (repeated and samples.times and samples.times[-1] == time):
                    samples.add(time, offset)
        self._forget(time - self.window_s)

    def forget(self, topic: str) -> None:
        """Know nothing of a topic any more: it is made anew."""
        self._topics.pop(topic, None)

    def topics(self) -> list[str]:
        """The topics that were seen in the window, sorted."""
        return sorted(self._topics)

    def at(self, topic: str, time: float) -> dict[int, float]:
        """Partition -> end offset at `time`: linear between two samples, the last one after it. Partitions of which
        nothing was known at that time, or that fell out of the window, are missing."""
        found = {partition: samples.at(time) for partition, samples in self._topics.get(topic, {}).items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def rows(self, topic: str, start: float, end: float) -> float:
        """How many rows arrived from `start` to `end`, over the partitions of which both are known or that appeared
        between; rows from before the first sample of a partition does not count."""
        arrived = 0.0
        for samples in self._topics.get(topic, {}).values():
            high = samples.at(end)
            if high is not None:
                low = samples.at(start)
                arrived += high - (samples.offsets[0] if low is None else low)
        return arrived

    def rate(self, topic: str, over_s: float = 5.0) -> float | None:
        """Rows/s arriving in the topic over the last `over_s` seconds before its newest sample, or over what is known
        if that is less. None before there are two samples of it.

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
                partitions[partition].forget(before)
                if partitions[partition].times[-1] < before:
                    del partitions[partition]
            if not partitions:
                del self._topics[topic]
