"""When rows arrived at the broker, from end offsets sampled over time. Pure: no clock."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.kafka.samples import Samples

#: Samples of one partition; above it, every other one of the older half is dropped.
MOST_SAMPLES = 1024
#: A sample that is earlier than the one before by more than this says that the clock was set back, seconds.
SET_BACK_S = 1.0


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
        the clock was set back, that partition starts anew."""
        for topic, partitions in offsets.items():
            known = self._topics.setdefault(topic, {})
            for partition, offset in partitions.items():
                samples = known.setdefault(partition, Samples())
                if samples.times and time < samples.times[-1] - SET_BACK_S:
                    samples = known[partition] = Samples()
                if not samples.times or time > samples.times[-1]:
                    samples.add(time, offset)
                    samples.thin(MOST_SAMPLES)

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
