"""End offsets of one partition, sampled over time: how many rows had arrived by when. Pure: no clock."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class Samples:
    """Times strictly increase, offsets never decrease; of equal offsets only the first and the last sample are kept."""

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

    def thin(self, most: int) -> None:
        """Drop every other one of the older half, if there are more than `most`."""
        if len(self.times) > most:
            del self.times[1 : most // 2 : 2]
            del self.offsets[1 : most // 2 : 2]

    def forget_before(self, time: float) -> None:
        """Drop older samples except the last of them: times just after `time` are interpolated from it."""
        self._forget(bisect_right(self.times, time) - 1)

    def forget_below(self, offset: int) -> None:
        """Drop the samples that rows from this offset on do not need."""
        self._forget(bisect_right(self.offsets, offset) - 1)

    def at(self, time: float) -> float | None:
        """The end offset at a time: linear between samples, flat after the last, unknown before the first."""
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
