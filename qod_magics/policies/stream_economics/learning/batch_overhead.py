"""The overhead of a micro-batch on a task manager, beyond its tasks: planning, commits, scheduling. Pure.

CPU beyond the tasks = base + batch * batches/s, by least squares over the readings, with a prior for both and
exponential forgetting. Batches follow one another without a pause, so a task manager under light load spends all idle
CPU on them: that part is *elastic*, since a heavier load makes batches fewer and larger.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Forgetting factor per reading.
REMEMBERED = 0.9
#: The priors and their standard deviations, % of one core; of a batch: at one batch/s.
BASE, BASE_ERROR = 3.0, 3.0
BATCH, BATCH_ERROR = 3.0, 5.0
NOISE = 5.0  #: standard deviation of a reading, % of one core


@dataclass(frozen=True, slots=True)
class BatchOverhead:
    """Discounted sums over the readings: their number, batches/s, CPU, and products of these."""

    count: float = 0.0
    batches: float = 0.0
    squares: float = 0.0
    cpu: float = 0.0
    products: float = 0.0

    def after(self, batches: float, cpu: float) -> BatchOverhead:
        """Return the estimate with one more reading: `batches`/s of all tasks, and % of one core beyond the tasks."""
        return BatchOverhead(
            REMEMBERED * self.count + 1.0,
            REMEMBERED * self.batches + batches,
            REMEMBERED * self.squares + batches * batches,
            REMEMBERED * self.cpu + cpu,
            REMEMBERED * self.products + batches * cpu,
        )

    @property
    def of_a_batch(self) -> float:
        """% of one core at one batch/s; 0 or more."""
        certainty = 1.0 / NOISE**2
        base, batch = 1.0 / BASE_ERROR**2, 1.0 / BATCH_ERROR**2
        one = (base + certainty * self.count, certainty * self.batches)
        other = (certainty * self.batches, batch + certainty * self.squares)
        right = (base * BASE + certainty * self.cpu, batch * BATCH + certainty * self.products)
        determinant = one[0] * other[1] - one[1] * other[0]
        return max((one[0] * right[1] - other[0] * right[0]) / determinant, 0.0)
