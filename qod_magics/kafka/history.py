"""Input rates from end offsets sampled over time. Pure: no clock."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.kafka.samples import Samples


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
        """The time of the last sample, or None before the first."""
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
        """The topics sampled in the window, sorted."""
        return sorted(self._topics)

    def at(self, topic: str, time: float) -> dict[int, float]:
        """Partition -> end offset at `time`: interpolated between samples, constant after the last. Partitions first
        sampled later, or dropped from the window, are missing."""
        found = {partition: samples.at(time) for partition, samples in self._topics.get(topic, {}).items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def rows(self, topic: str, start: float, end: float) -> float:
        """Rows that arrived from `start` to `end`, over the partitions sampled by `end`; rows from before the first
        sample of a partition do not count."""
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
