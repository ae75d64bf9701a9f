"""When a task manager sheds load, and how far its cost estimates are trusted then: a table of regimes. Pure.

An estimate of CPU is off by some per cent, and in the first minute of a query, while its code is being compiled, by a
multiple. A backlog is exact. So a task manager runs *open*, every row kept, until its backlog exceeds a limit, or until
its costs are known and far exceed its CPU. From then on plans follow the costs, scaled by a factor of trust that rises
while the backlog is small and falls while it is large: a model that underestimates a core sheds too much for a few
cycles, not for ever. It rises as TCP CUBIC's window does (RFC 9438): fast while far from the factor at which a backlog
last built up, hardly at all near it, and faster again beyond, since code gets faster while it is compiled, and
neighbours leave. Once nothing has been shed for a while the task manager is open again.

`regime_of` says in which regime a task manager is, by what was `Seen` of it in a cycle; `after` is its state one cycle
later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the regimes compare with. Factors are of trust, unless said otherwise."""

    #: Known costs above this multiple of all cores shed load before there is a backlog. Other load there is not
    #: counted: compilers and reads of results give way, or a backlog will show what they take.
    certain: float = 1.1
    #: Cycles in a row in which a backlog beyond its limit has grown that refute the costs by which dropping is futile.
    refuted_cycles: int = 3
    #: Queries in micro-batches that share a task manager wait for each other. Where costs are within this share of the
    #: CPU, a backlog of up to twice the limit drains by itself, unless it grows for this many cycles in a row.
    within: float = 0.8
    grown_cycles: int = 2
    #: Factors of a cycle up (twice if there is hardly a backlog) as long as no ceiling is known, and down; limits.
    up: float = 1.03
    down: float = 0.9
    least: float = 0.5
    most: float = 2.0
    #: Rises after which trust is back at its ceiling.
    back: int = 8
    #: Cycles between two falls, unless the backlog is twice its limit: a plan's effect shows in the cycle after.
    hold: int = 2
    #: Cycles in a row in which a backlog that may not last has to fall to this share, while load is shed: it is drained
    #: within two, so one that stays is made by batches that last too long, for plans count on too much CPU. Only costs
    #: above `certain` say that: a load that fits may wait as long after a peak, and would be shed for ever.
    lasting_cycles: int = 3
    drained: float = 0.75
    #: In real-time mode trust rises by at most this part of the headroom below the utilization limit, and falls by this
    #: part of the excess above it while the backlog grows beyond `brief_s`: one that is drained uses all cores, too.
    #: Micro-batches use up idle CPU, so headroom says nothing of them, unless they are paced: then trust rises by this
    #: part of it at least.
    of_idle: float = 0.5
    #: Backlog where a core has headroom, seconds of input: rows in flight.
    brief_s: float = 0.25
    #: Trust rises only while the tasks use this share of the CPU it grants: otherwise something else limits them.
    used: float = 0.85
    #: In micro-batches, from this share of the cores on that batches could do without, the ceiling is no longer one:
    #: the load has fallen.
    spare: float = 0.1
    #: Cycles without shedding after which a task manager runs open again.
    calm_cycles: int = 4


THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class Trust:
    """State of one task manager."""

    is_open: bool = True
    factor: float = 1.0  #: CPU to plan with / CPU available by costs
    calm: int = 0  #: cycles in a row without shedding and with little backlog
    waiting_s: float = 0.0  #: backlog in the last cycle, seconds of input
    ceiling: float = inf  #: the factor at which a backlog last built up
    rises: int = 0  #: since then
    hold: int = 0  #: cycles until it may fall again
    grown: int = 0  #: cycles in a row in which its backlog was beyond the limit and grew
    lasting: int = 0  #: cycles in a row in which load was shed and its backlog was one that may not last
    lasted_s: float = 0.0  #: its backlog in the first of them, seconds of input
    paced: int = 0  #: cycles for which its micro-batches are still paced
    round_s: float = 0.0  #: the interval of its batches, without growth that an overload explains
    seen_at: float = 0.0  #: of the newest measurement of its tasks, seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was measured of a task manager in a cycle.

    - `waiting_s`: backlog, seconds of input
    - `limit_s`: backlog up to which it stays open, seconds of input
    - `rest_s`: ordinary backlog between two batches, seconds of input
    - `lasting_s`: backlog beyond which it may not last while load is shed, seconds of input; infinite where batches
      under way drop rows, too: there it drains by itself
    - `sheds`: whether rows were dropped in this cycle
    - `asked`: CPU that its tasks need at accuracy 1 / CPU available, by their costs; None: the costs are not known yet
    - `whole`: CPU that its tasks need at accuracy 1 / CPU of all of its cores or, where a task was moved to it, CPU
      available; 0: the costs are not known yet
    - `used`: CPU that its tasks need at the measured accuracies / CPU available, by their costs
    - `is_measured`: whether its tasks were measured since the cycle before: one measurement changes trust once
    - `applied`: whether its tasks run at accuracies at which they need no more CPU than is granted
    - `idle`: headroom below the utilization limit, as a share of it; infinite where that says nothing
    - `unused`: the same where paced micro-batches leave CPU idle
    - `overuse`: utilization above that limit, as a share of it, if its tasks cause it
    - `spare`: CPU that micro-batches could do without, as a share of its cores
    - `at_minimum`: whether all of its queries run at their minimums: less trust could not make them shed more
    - `shared`: whether several queries run in micro-batches there
    - `futile`: whether dropping rows down to the minimums would free next to no CPU, which is scarce
    - `limited`: whether the user has limited its CPU: plans follow the costs, whatever waits
    """

    waiting_s: float
    limit_s: float
    rest_s: float
    lasting_s: float = inf
    sheds: bool
    asked: float | None
    whole: float = 0.0
    used: float = inf
    is_measured: bool = True
    applied: bool = True
    idle: float = inf
    unused: float = 0.0
    overuse: float = 0.0
    spare: float = 0.0
    at_minimum: bool = False
    shared: bool = False
    futile: bool = False
    limited: bool = False


class Regime(Enum):
    """How a task manager is handled in a cycle."""

    FUTILE = "dropping rows would free no CPU: every row is kept"
    OPEN = "the backlog is within its limit: every row is kept"
    DRAINING = "the backlog is beyond its limit, and drains by itself: every row is kept"
    OVERLOADED = "the backlog is beyond its limit: load is shed from now on"
    BACKING_OFF = "the backlog grows while load is shed: trust falls"
    LASTING = "load is shed, and the backlog stays for some cycles: trust falls"
    OVERUSED = "the cores are busy beyond their limit: trust falls"
    WAITING = "the backlog is neither small nor growing beyond its limit: trust stays"
    PROBING = "load is shed and hardly a row waits: trust rises"
    RECOVERING = "no load is shed and hardly a row waits: it is open again after some cycles"


def regime_of(before: Trust, seen: Seen, at: Thresholds = THRESHOLDS) -> Regime:
    """Return the regime of a task manager that was in this state."""
    waiting_s, grown = seen.waiting_s, _grown(before, seen)
    if seen.futile and grown < at.refuted_cycles and not seen.limited:
        return Regime.FUTILE
    if before.is_open and not seen.limited:
        if waiting_s <= seen.limit_s:
            return Regime.OPEN
        fits = seen.asked is not None and seen.asked <= at.within
        drains = seen.shared and fits and grown < at.grown_cycles and waiting_s <= 2.0 * seen.limit_s
        return Regime.DRAINING if drains else Regime.OVERLOADED
    could_shed = not seen.at_minimum
    if waiting_s > seen.limit_s and waiting_s >= before.waiting_s and could_shed and seen.applied:
        return Regime.BACKING_OFF
    if _stays(before, seen, at) and seen.whole > at.certain and seen.sheds and could_shed and seen.applied:
        return Regime.LASTING
    overload = seen.sheds and waiting_s > max(at.brief_s, before.waiting_s)
    if seen.overuse > 0.0 and could_shed and (overload or seen.limited):
        return Regime.OVERUSED
    if waiting_s > seen.rest_s or (waiting_s > seen.rest_s / 2 and waiting_s > before.waiting_s):
        return Regime.WAITING
    return Regime.PROBING if seen.sheds else Regime.RECOVERING


def after(before: Trust, seen: Seen, at: Thresholds = THRESHOLDS) -> Trust:
    """Return the state one cycle later."""
    regime = regime_of(before, seen, at)
    same = replace(
        _lasting(before, seen, at),
        is_open=before.is_open and not seen.limited,
        calm=before.calm + 1 if regime is Regime.RECOVERING else 0,
        waiting_s=seen.waiting_s,
        hold=max(before.hold - 1, 0),
        grown=_grown(before, seen),
    )
    return _NEXT[regime](same, seen, at)


def _grown(before: Trust, seen: Seen) -> int:
    """Cycles in a row in which the backlog was beyond its limit and grew."""
    return before.grown + 1 if seen.waiting_s > max(seen.limit_s, before.waiting_s) else 0


def _lasting(before: Trust, seen: Seen, at: Thresholds) -> Trust:
    """Return the state with the cycles for which a backlog has lasted; they begin again once it has lasted too long."""
    if before.is_open or seen.waiting_s <= seen.lasting_s:
        return replace(before, lasting=0, lasted_s=0.0)
    if before.lasting in (0, at.lasting_cycles):
        return replace(before, lasting=1, lasted_s=seen.waiting_s)
    return replace(before, lasting=before.lasting + 1)


def _stays(before: Trust, seen: Seen, at: Thresholds) -> bool:
    """Return whether this is the last of the cycles in which a backlog had to fall, and it has not."""
    is_last = not before.is_open and before.lasting == at.lasting_cycles - 1
    return is_last and seen.waiting_s > max(seen.lasting_s, at.drained * before.lasted_s)


def _reopened(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    return replace(same, is_open=True, calm=0, ceiling=inf, rises=0)


def _open_until_certain(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    return replace(same, is_open=seen.whole <= at.certain * max(same.factor, 1.0))


def _unchanged(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    return same


def _closed(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    """Costs that predict no overload are off by at least the CPU missing."""
    if seen.asked is None or not seen.is_measured:
        return replace(same, is_open=False)
    failed = min(max(seen.asked, at.least), at.most)
    kept = max(min(same.factor, at.down * failed), at.least)
    return replace(same, is_open=False, factor=kept, ceiling=failed, rises=0, hold=at.hold)


def _fallen(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    if not seen.is_measured or (same.hold > 0 and seen.waiting_s <= 2.0 * seen.limit_s):
        return same
    return replace(same, factor=max(same.factor * at.down, at.least), ceiling=same.factor, rises=0, hold=at.hold)


def _fallen_by_overuse(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    return replace(same, factor=max(same.factor * (1.0 - at.of_idle * seen.overuse), at.least))


def _risen(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    """Nothing where a warm-up, or another task manager, limits its queries."""
    if not seen.is_measured or seen.used < at.used * same.factor:
        return same
    little = seen.waiting_s <= seen.rest_s / 2
    if seen.spare > at.spare and little:
        same = replace(same, ceiling=inf, rises=0)
    rises = same.rises + 1
    up = same.factor * (at.up * at.up if little else at.up)
    if same.ceiling < inf:
        up = max(same.factor, same.ceiling * (1.0 + (1.0 - at.down) * ((rises - at.back) / at.back) ** 3))
    up = max(up, same.factor * (1.0 + at.of_idle * seen.unused))
    return replace(same, factor=min(up, same.factor * (1.0 + at.of_idle * seen.idle), at.most), rises=rises)


def _recovered(same: Trust, seen: Seen, at: Thresholds) -> Trust:
    return _reopened(same, seen, at) if same.calm >= at.calm_cycles and not seen.limited else same


_NEXT: Mapping[Regime, Callable[[Trust, Seen, Thresholds], Trust]] = {
    Regime.FUTILE: _reopened,
    Regime.OPEN: _open_until_certain,
    Regime.DRAINING: _unchanged,
    Regime.OVERLOADED: _closed,
    Regime.BACKING_OFF: _fallen,
    Regime.LASTING: _fallen,
    Regime.OVERUSED: _fallen_by_overuse,
    Regime.WAITING: _unchanged,
    Regime.PROBING: _risen,
    Regime.RECOVERING: _recovered,
}
