"""Backlogs, how long draining them may still take, and those that a load leaves when it falls. Pure.

A backlog after a fall counts many seconds of the present input, but it was collected within a few. Thinned over two
periods, as any other, it would take the rows of all that time with it. Thinned as strongly as the load before, it is
read in the time in which it was collected; a cycle a second looks whether it has been, and then every row is kept. One
that was small for what was processed before is not thinned at all. Such cycles go on until no dropped row shows in the
accuracy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from qod_magics.core.columns import column
from qod_magics.core.dag import Dag
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot

#: ordinary backlog between two reads, in periods of input: not drained
ALLOWANCE_PERIODS = 0.2

#: backlog at which a drain begins, in periods of input: above the noise of a steady state; with hysteresis, it ends at
#: the allowance
TRIGGER_PERIODS = 0.5

#: times in which a backlog is drained: for so long at most a cycle a second looks whether no dropped row shows
SETTLED_WITHIN = 2.0


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
        asked = plan.backlog_s
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


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of a source's input."""

    at: float  #: when it was noticed, monotonic seconds
    before: float  #: rows/s that arrived before
    kept: float  #: of these, rows/s that the shedder kept

    def spares(self, backlog: Backlog, within_s: float) -> bool:
        """Whether the backlog goes within this time without dropping rows: at the rate that was processed before, less
        the present input."""
        return backlog.rows <= within_s * (self.kept - (backlog.rate or 0.0))

    def drain_s(self, backlog: Backlog) -> float:
        """Seconds in which the backlog was collected."""
        return backlog.rows / max(self.before, 1e-9)


def noticed(
    known: Mapping[str, Fall], new: Mapping[str, Fall], now: float, forgotten_after_s: float
) -> Mapping[str, Fall]:
    """The falls known so far, except those that are older than this, and the new ones."""
    return {**recent(known, now, forgotten_after_s), **new}


def recent(known: Mapping[str, Fall], now: float, within_s: float) -> Mapping[str, Fall]:
    """The falls of the last seconds: what an earlier one left is a backlog as any other."""
    return {name: fall for name, fall in known.items() if now - fall.at < within_s}


def waiting(
    found: Mapping[str, Backlog], falls: Mapping[str, Fall], limits: Limits, within_s: float
) -> Mapping[str, Backlog]:
    """The backlogs that are to be drained, by task. Of one that a fall left, the CPU that is free now reads the rest
    once that would begin no drain by itself."""
    return {
        task: backlog
        for task, backlog in found.items()
        if task not in falls or (limits.begins_drain(task, backlog) and not falls[task].spares(backlog, within_s))
    }


def unsettled(falls: Mapping[str, Fall], plan: Plan, measured: Measured) -> Collection[str]:
    """The sources that fell of which the plan keeps every row, while rows dropped before show in their accuracy."""
    whole = [name for name in falls if plan.non_drop.get((None, name)) == 1.0]
    shown = {name: accuracy for name in whole if (accuracy := measured.accuracy.get(name)) is not None}
    return [name for name, accuracy in shown.items() if accuracy < FULL_ACCURACY]


def hastened(
    left_s: Mapping[str, float], found: Mapping[str, Backlog], falls: Mapping[str, Fall], least_s: float
) -> Mapping[str, float]:
    """`left_s`, the seconds that each drain may take, with those of backlogs that a fall left: the time in which these
    were collected, at least `least_s`."""
    return {
        task: min(max(falls[task].drain_s(found[task]), least_s), seconds) if task in falls else seconds
        for task, seconds in left_s.items()
    }
