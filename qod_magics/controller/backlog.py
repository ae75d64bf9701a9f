"""Backlogs, and how long draining them may still take. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import gt

from qod_magics.core.columns import Keyed, column
from qod_magics.core.dag import Dag
from qod_magics.core.optional import BACKLOG
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot

#: ordinary backlog between two reads, in periods of input: not drained
ALLOWANCE_PERIODS = 0.2

#: backlog at which a drain begins, in periods of input: above the noise of a steady state; with hysteresis, it ends at
#: the allowance
TRIGGER_PERIODS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """Which backlogs are drained, in seconds of input: the same for all tasks but those of `by_task`."""

    rest_s: float  #: the ordinary backlog between two reads: drains end here
    trigger_s: float  #: a drain begins above this backlog
    by_task: Mapping[str, Limits] = field(default_factory=dict)

    def of_task(self, task: str) -> Limits:
        """Those of one task."""
        return self.by_task.get(task, self)

    def begins_drain(self, task: str, backlog: Backlog) -> bool:
        """Whether a backlog beyond the ordinary one is large enough for a drain to begin."""
        mine = self.of_task(task)
        return backlog.rows > (mine.trigger_s - mine.rest_s) * (backlog.rate or 0.0)

    @classmethod
    def usual(cls, period_s: float) -> Limits:
        """The limits under a policy that asks for none."""
        return cls(ALLOWANCE_PERIODS * period_s, TRIGGER_PERIODS * period_s)

    @classmethod
    def of(cls, plan: Plan, period_s: float) -> Limits:
        """The limits that a plan asks for, or the usual ones."""
        asked = plan.extra.get(BACKLOG.name)
        if isinstance(asked, Mapping):
            return replace(cls.usual(period_s), by_task={task: cls(*limits) for task, limits in asked.items()})
        return cls.usual(period_s) if asked is None else cls(*asked)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one task: in its topic if it is a source, else on all of its input streams."""

    rows: float  #: beyond the allowance
    rate: float | None  #: rows/s that arrive there; None: unknown


def backlogs(snapshot: Snapshot, measured: Measured, limits: Limits) -> Mapping[str, Backlog]:
    """The backlog of each task that has more than the ordinary one.

    Lags and rates are those of `measured`; a source without a measured rate counts with its `external_rate`.
    """
    dag, lag, rates = Dag.of(snapshot), measured.lag, measured.input_rate
    allowance_s = min([limits.rest_s, *(each.rest_s for each in limits.by_task.values())])
    if isinstance(lag, Keyed) and isinstance(rates, Keyed) and lag.order is rates.order:
        beyond = list(compress(lag.order.all, map(gt, lag.column, map(allowance_s.__mul__, rates.column))))
    else:
        beyond = [name for name, rows in lag.items() if rows > allowance_s * rates.get(name, 0.0)]
    waiting = {dag.reader[name] for name in beyond if name in dag.reader}
    external = column(snapshot.tasks, "external_rate")
    found = {}
    for position in sorted(waiting):
        rest_s = limits.of_task(dag.names[position]).rest_s
        backlog = _before(position, dag, external[position], measured, rest_s)
        if backlog.rows > 0:
            found[dag.names[position]] = backlog
    return found


@dataclass(frozen=True, slots=True)
class Draining:
    """A backlog that is being drained."""

    until: float  #: monotonic seconds
    rows: float  #: in the last cycle


@dataclass(frozen=True, slots=True)
class Drains:
    """The backlogs that are being drained, by task. Each has its own deadline, so that it does end."""

    by_task: Mapping[str, Draining] = field(default_factory=dict)

    def advance(self, found: Mapping[str, Backlog], now: float, drain_s: float, limits: Limits) -> Drains:
        """A backlog that is new, or has grown, has `drain_s` seconds from `now`; others keep their deadline."""
        going = {}
        for task, backlog in found.items():
            known = self.by_task.get(task)
            if (known is not None and backlog.rows > 0.0) or limits.begins_drain(task, backlog):
                until = now + drain_s if known is None or backlog.rows > known.rows else known.until
                going[task] = Draining(until, backlog.rows)
        return Drains(going)

    def left_s(self, now: float, period_s: float) -> Mapping[str, float]:
        """Seconds that each drain may still take: at least a period, since dials stay as they are for that long."""
        return {task: max(draining.until - now, period_s) for task, draining in self.by_task.items()}


def _before(position: int, dag: Dag, external_rate: float | None, measured: Measured, rest_s: float) -> Backlog:
    task, upstream = dag.names[position], dag.topology.upstream[position]
    if not upstream:
        rate = measured.input_rate.get(task, external_rate)
        return Backlog(_beyond(measured.lag.get(task, 0), rate, rest_s), rate)
    names = [f"{dag.names[source]}>{task}" for source in upstream]
    rates = [measured.input_rate.get(name) for name in names]
    known = [rate for rate in rates if rate is not None]
    rows = [_beyond(measured.lag.get(name, 0), rate, rest_s) for name, rate in zip(names, rates, strict=True)]
    return Backlog(sum(rows), sum(known) if known else None)


def _beyond(lag: float, rate: float | None, rest_s: float) -> float:
    return max(lag - rest_s * (rate or 0.0), 0.0)
