"""Online cost estimate of a task: CPU = fixed + read * rows read + work * rows kept. Pure.

In micro-batches the fixed cost is per batch: CPU = batch * batches/s + read * rows read + work * rows kept.

Bayesian least squares for three non-negative coefficients. Its prior is close to the paper's model (CPU proportional to
the rows kept) and weak, so that two readings at different accuracies outweigh it. Three things suit it to online use:

- forgetting is directional: a reading discounts older ones only in its own direction, so that an hour at accuracy 0.5
  erases nothing of what was learned in a minute at 1;
- a reading far from its prediction counts less (Huber), so that one bad measurement moves little;
- several such readings in a row, all on the same side, are a change, and count in full.

CPU is % of one core, rates are thousands of rows/s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import copysign, sqrt

Vector = tuple[float, ...]  #: of (1 or batches/s, rows read, rows kept)
Matrix = tuple[Vector, ...]
#: Forgetting factor per reading, in its direction.
REMEMBERED = 0.9
#: The same once a change is detected.
REMEMBERED_AFTER_CHANGE = 0.5
#: Consecutive readings off by more than `HUBER` standard deviations on the same side that make a change.
CHANGE = 3
HUBER = 1.345
#: Standard deviation of a reading's CPU: in % of one core, and as a share of that CPU.
NOISE, RELATIVE_NOISE = 0.5, 0.04
#: The first where batches are rare, % of one core at one batch/s (20 ms of CPU each).
BATCH_NOISE = 2.0
#: The same share while a query that is known already is cold again: its first readings after a start are up to twice as
#: dear. At a low accuracy, as after an overload, they would make its cost one of reading.
COLD_NOISE = 0.5
#: The prior. A query costs some % of a core without a row; a dropped row costs a tenth of a kept one.
FIXED, FIXED_ERROR = 2.0, 4.0
READ_SHARE, READ_ERROR, WORK_ERROR = 0.1, 0.5, 1.0  #: of the cost of a row kept
#: Upper bound of a row's cost in the prior (4e-4 s each), as long as that leaves a fixed cost of at most the second. A
#: few rows/s say nothing of the cost of a thousand: nearly all CPU is the query's fixed cost.
MOST_WORK, MOST_FIXED = 40.0, 10.0
#: The prior of a micro-batch, % of one core at one batch/s (100 ms of CPU each), and its error. Rows then cost at least
#: this share of the CPU, and at most the last number (1e-4 s each): the rest is fixed.
BATCH, BATCH_ERROR, LEAST_WORK_SHARE, MOST_BATCH_WORK = 10.0, 30.0, 0.1, 10.0
#: The error of the read cost there, of the cost of a row kept. While nothing is shed, nothing tells reading from work,
#: and the readings of a cold query could make all of its cost one of reading: shedding then seemed to free no CPU.
BATCH_READ_ERROR = 0.1


@dataclass(frozen=True, slots=True)
class CostFit:
    """The cost estimate of one task, held as `information` and `evidence`."""

    information: Matrix  #: inverse of the covariance of the coefficients
    evidence: Vector  #: information * coefficients
    surprises: int = 0  #: readings in a row far above (> 0) or below (< 0) their prediction
    #: (fixed, read, work): % of one core (in micro-batches: at one batch/s), and % of one core for each 1000 rows/s;
    #: each 0 or more. Solved for once: they are asked for several times between two readings.
    costs: Vector = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "costs", _costs(self.information, self.evidence))

    @classmethod
    def first(cls, read: float, kept: float, cpu: float, batches: float | None = None) -> CostFit:
        """Return the prior, fitted to a first reading of `read` > 0 rows; `batches`/s > 0 in micro-batches."""
        weighed = READ_SHARE * read + kept
        if batches is None:
            fixed = max(min(FIXED, cpu / 2), min(cpu - MOST_WORK * weighed, MOST_FIXED))
            work = max((cpu - fixed) / weighed, 1e-9)
            fixed_error, read_error = FIXED_ERROR, READ_ERROR
        else:
            rows = max(cpu - BATCH * batches, LEAST_WORK_SHARE * cpu)
            work = max(min(rows / weighed, MOST_BATCH_WORK), 1e-9)
            fixed = max((cpu - work * weighed) / batches, 0.0)
            fixed_error, read_error = max(BATCH_ERROR, fixed), BATCH_READ_ERROR
        guess = (fixed, READ_SHARE * work, work)
        errors = (fixed_error, read_error * work, WORK_ERROR * work)
        certainty = tuple(1.0 / error**2 for error in errors)
        information = tuple(tuple(c if i == j else 0.0 for j in range(3)) for i, c in enumerate(certainty))
        evidence = tuple(c * value for c, value in zip(certainty, guess, strict=True))
        return cls(information, evidence)

    def after(
        self, read: float, kept: float, cpu: float, batches: float | None = None, *, cold: bool = False
    ) -> CostFit:
        """Return the fit with one more reading: an instance's means over a window; `cold` if it has just started."""
        row = (1.0 if batches is None else batches, read, kept)
        covariance = _inverse(self.information)
        expected = _dot(row, _times(covariance, self.evidence))
        noise = NOISE if batches is None else min(NOISE, BATCH_NOISE * batches)
        variance = (noise + (COLD_NOISE if cold else RELATIVE_NOISE) * max(cpu, expected, 0.0)) ** 2
        off = (cpu - expected) / sqrt(variance + max(_dot(row, _times(covariance, row)), 0.0))
        surprises = 0
        if abs(off) > HUBER:
            same_side = self.surprises * off > 0
            surprises = int(copysign(min(abs(self.surprises) + 1 if same_side else 1, CHANGE), off))
        changed = abs(surprises) >= CHANGE
        weight = (1.0 if changed else min(1.0, HUBER / max(abs(off), 1e-9))) / variance
        information, evidence = self._without(row, REMEMBERED_AFTER_CHANGE if changed else REMEMBERED)
        return CostFit(_updated(information, weight, row), _added(evidence, weight, row, cpu), surprises)

    def _without(self, row: Vector, remembered: float) -> tuple[Matrix, Vector]:
        """Information and evidence with less certainty in the direction of `row` only; the coefficients stay."""
        along = _times(self.information, row)
        sure = _dot(row, along)
        if sure <= 0.0:
            return self.information, self.evidence
        lost = (1.0 - remembered) / sure
        told = _dot(row, self.evidence)
        return _updated(self.information, -lost, along), _added(self.evidence, -lost, along, told)

    def expected(self, read: float, kept: float, batches: float | None = None) -> float:
        """Predicted CPU of an instance at these rates."""
        return _dot((1.0 if batches is None else batches, read, kept), self.costs)


def _costs(information: Matrix, evidence: Vector) -> Vector:
    """Return the most likely coefficients, none below 0."""
    best: Vector | None = None
    least = 0.0
    for size in (3, 2, 1):
        for used in combinations(range(3), size):
            found = _solved(information, evidence, used)
            if found is None or min(found) < 0.0:
                continue
            value = 0.5 * _dot(found, _times(information, found)) - _dot(found, evidence)
            if best is None or value < least:
                best, least = found, value
        if size == 3 and best is not None:
            return best
    return best or (0.0, 0.0, 0.0)


def _dot(one: Vector, other: Vector) -> float:
    return one[0] * other[0] + one[1] * other[1] + one[2] * other[2]


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return _dot(matrix[0], vector), _dot(matrix[1], vector), _dot(matrix[2], vector)


def _updated(matrix: Matrix, weight: float, row: Vector) -> Matrix:
    """Return the rank-one update: matrix + weight * row * row'."""
    (a, b, c), (d, e, f), (g, h, i) = matrix
    u, v, w = row
    p, q, r = weight * u, weight * v, weight * w
    return (
        (a + p * u, b + p * v, c + p * w),
        (d + q * u, e + q * v, f + q * w),
        (g + r * u, h + r * v, i + r * w),
    )


def _added(vector: Vector, weight: float, row: Vector, value: float) -> Vector:
    """Return vector + weight * value * row: the right-hand side of the normal equations with one more row."""
    p, q, r = row
    return vector[0] + weight * p * value, vector[1] + weight * q * value, vector[2] + weight * r * value


def _inverse(matrix: Matrix) -> Matrix:
    """For a symmetric positive definite matrix, scaled to a unit diagonal first: columns differ by many orders."""
    p, q, r = sqrt(matrix[0][0]), sqrt(matrix[1][1]), sqrt(matrix[2][2])
    a, b, c = matrix[0][1] / p / q, matrix[0][2] / p / r, matrix[1][2] / q / r
    determinant = max(1.0 + 2.0 * a * b * c - a * a - b * b - c * c, 1e-12)
    x, y, z = (b * c - a) / determinant, (a * c - b) / determinant, (a * b - c) / determinant
    return (
        ((1.0 - c * c) / determinant / p / p, x / p / q, y / p / r),
        (x / q / p, (1.0 - b * b) / determinant / q / q, z / q / r),
        (y / r / p, z / r / q, (1.0 - a * a) / determinant / r / r),
    )


def _solved(matrix: Matrix, vector: Vector, used: tuple[int, ...]) -> Vector | None:
    """Return the coefficients with those not `used` set to 0; None if undetermined."""
    if len(used) == 3:
        return _times(_inverse(matrix), vector)
    found = [0.0, 0.0, 0.0]
    if len(used) == 1:
        (i,) = used
        found[i] = vector[i] / matrix[i][i]
    else:
        i, j = used
        determinant = matrix[i][i] * matrix[j][j] - matrix[i][j] ** 2
        if determinant <= 0.0:
            return None
        found[i] = (matrix[j][j] * vector[i] - matrix[i][j] * vector[j]) / determinant
        found[j] = (matrix[i][i] * vector[j] - matrix[i][j] * vector[i]) / determinant
    return found[0], found[1], found[2]


# --- Overhead of a micro-batch ----------------------------------------------------------------------------------------
# CPU beyond the tasks = base + batch * batches/s, by least squares over the readings, with a prior for both and
# exponential forgetting. Batches follow one another without a pause, so a task manager under light load spends all idle
# CPU on them: that part is *elastic*, since a heavier load makes batches fewer and larger.

#: Forgetting factor per reading.
OVERHEAD_REMEMBERED = 0.9
#: The priors and their standard deviations, % of one core; of a batch: at one batch/s.
BASE_OVERHEAD, BASE_OVERHEAD_ERROR = 3.0, 3.0
BATCH_OVERHEAD, BATCH_OVERHEAD_ERROR = 3.0, 5.0
OVERHEAD_NOISE = 5.0  #: standard deviation of a reading, % of one core


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
            OVERHEAD_REMEMBERED * self.count + 1.0,
            OVERHEAD_REMEMBERED * self.batches + batches,
            OVERHEAD_REMEMBERED * self.squares + batches * batches,
            OVERHEAD_REMEMBERED * self.cpu + cpu,
            OVERHEAD_REMEMBERED * self.products + batches * cpu,
        )

    @property
    def of_a_batch(self) -> float:
        """% of one core at one batch/s; 0 or more."""
        certainty = 1.0 / OVERHEAD_NOISE**2
        base, batch = 1.0 / BASE_OVERHEAD_ERROR**2, 1.0 / BATCH_OVERHEAD_ERROR**2
        one = (base + certainty * self.count, certainty * self.batches)
        other = (certainty * self.batches, batch + certainty * self.squares)
        right = (base * BASE_OVERHEAD + certainty * self.cpu, batch * BATCH_OVERHEAD + certainty * self.products)
        determinant = one[0] * other[1] - one[1] * other[0]
        return max((one[0] * right[1] - other[0] * right[0]) / determinant, 0.0)
