"""Lend rows of hot keys: carry out what plans ask for, as dials of the plans that send the rows.

A sender sends a row to the partition of its key. Where an instance lends, a share of the rows of its partitions goes to
a partition of the lessee, drawn row by row. Rows that were sent before stay where they are. A plan that asks for
nothing takes all back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qod_magics.core.plan import Lend, Refusal
from qod_magics.core.runtime import refused
from qod_magics.lifecycle.admission import Objection, why_not_lent
from qod_magics.spark.changes.change import facts_of
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.state import can_lend, pipes_to
from qod_magics.spark.plans.dial import lent_value


class Lender:
    """Sets which share of its rows each instance lends. `dials` is called under the cluster's lock."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._refused: dict[str, str] = {}  #: by instance: why its rows are not lent

    def __repr__(self) -> str:
        return f"lender of {self.cluster!r}"

    def dials(self, asked: Sequence[Lend]) -> Mapping[str, float]:
        """Return the dials of all streams whose readers may lend. A request that can't be met is an event, once for as
        long as that is so, and lends nothing."""
        values = {
            self.cluster.board.lent(pipe.name, partition): 1.0
            for task in self.cluster.deployment.specs
            if self.cluster.deployment.lends(task)
            for pipe in pipes_to(self.cluster, task)
            for partition in range(pipe.partitions)
        }
        why: dict[str, str] = {}
        for each in asked:
            objection = self._objection(each)
            if objection is None:
                values |= self._lent(each)
                continue
            why[each.instance] = objection.why
            if self._refused.get(each.instance) != objection.why:
                self.cluster.add(refused(Refusal(each, objection.why)))
        self._refused = why
        return values

    def _objection(self, asked: Lend) -> Objection | None:
        facts, settable = facts_of(self.cluster, asked.task), can_lend(self.cluster, asked.task)
        facts = replace(facts, state=replace(facts.state, lends=self.cluster.deployment.lends(asked.task)))
        return why_not_lent(facts, asked.instance, asked.to, settable)

    def _lent(self, asked: Lend) -> Mapping[str, float]:
        lessor, lessee = self.cluster.instances[asked.instance], self.cluster.instances[asked.to]
        found: dict[str, float] = {}
        for mine, other in zip(lessor.job.feeds, lessee.job.feeds, strict=True):
            value = lent_value(other.partitions[0], asked.share)
            found |= {self.cluster.board.lent(mine.name, partition): value for partition in mine.partitions}
        return found
