"""The bound on the records of a micro-batch. Pure: what batches took comes in, a better bound goes out.

Spark fixes the bound when a query starts, and what a record costs is known only from the batches before: the next one
may cost several times as much, because another task came to the same core or the rows are others. So the bound is one
under which a batch takes `AIM` of a period, and it is raised only by what full batches have shown. As long as a record
becomes no more than three times as dear from one judged batch to the next, no batch but a first one that is slow to
start takes longer than two periods.

A new bound takes a restart, which is dear. So a bound is left alone within wide limits, and after each time that it was
too high it takes twice as many batches to raise it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Records of a query's first micro-batch. Where a record takes up to 10 ms, it ends within two periods of 5 s.
FIRST_BOUND = 1_000
LEAST_BOUND = 100

#: Shares of a period that a full batch should take, at most takes, and takes when the bound could be higher.
AIM, LONG, SHORT = 0.4, 2 / 3, 0.3
#: The most by which a bound is multiplied at once: a batch so much larger may behave in another way.
MOST = 20
#: A batch with less than this share of the bound says little about a full one: most of its time is not its records'.
TELLING = 0.5
#: A batch with this share of the bound is full: topics with several partitions are not always read to the last record.
FULL = 0.95


@dataclass(frozen=True, slots=True)
class Took:
    """One batch of the present run."""

    records: int  #: of the topic that gave most: each has the bound for itself
    seconds: float
    planning_s: float = 0.0  #: of these, before the first task: they do not grow with the records


@dataclass(slots=True)
class Bound:
    """The bound of one instance, and what changing it has taught."""

    records: int = FIRST_BOUND
    lowered: int = 0  #: how often it was too high

    @property
    def patience(self) -> int:
        """Full and short batches in a row that it takes to raise it."""
        return int(2 ** (1 + min(self.lowered, 5)))

    def better(self, run: Sequence[Took], period_s: float) -> int | None:
        """A better bound by the batches of the present run, oldest first; None: leave it.

        The first batch of a run is dearer (code is compiled, connections are made, Python starts): it is judged only
        where it took longer than two periods, and then the bound is halved at most: little of that may be its records'.
        """
        judged = [took for took in run[1:] if took.records > 0]
        if not judged and run and run[0].records > 0 and run[0].seconds > 2 * period_s:
            judged = [run[0]]
        if not judged:
            return None
        # a single long batch of few records may have waited for anything
        tells = judged[-1].records >= TELLING * self.records
        told = judged[-1:] if tells or judged == run[:1] else judged[-3:] if len(judged) >= 3 else []
        if told and all(self._full_s(took) > LONG * period_s for took in told):
            least = LEAST_BOUND if told != run[:1] else max(self.records // 2, LEAST_BOUND)
            lower = max(least, *(self._for(took, AIM * period_s) for took in told))
            return lower if lower < self.records else None
        latest = run[1:][-self.patience :]
        proven = [took for took in latest if took.records >= FULL * self.records and took.seconds < SHORT * period_s]
        if len(proven) < self.patience:
            return None
        return min(self._for(took, AIM * period_s) for took in proven)

    def change(self, records: int) -> None:
        """Take over a better bound."""
        self.lowered += records < self.records
        self.records = records

    def _full_s(self, took: Took) -> float:
        """Seconds that a full batch would have taken instead, where this one tells."""
        if took.records < TELLING * self.records:
            return took.seconds
        work_s = max(took.seconds - took.planning_s, 0.0)
        return took.seconds + work_s * max(self.records / took.records - 1.0, 0.0)

    def _for(self, took: Took, seconds: float) -> int:
        """The records of a batch that takes so long."""
        planning_s = min(took.planning_s, took.seconds, seconds / 2)
        work_s = max(took.seconds - planning_s, 1e-3)
        return min(int(took.records * (seconds - planning_s) / work_s), MOST * self.records)
