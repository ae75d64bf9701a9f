"""Whether rows that wait bear out what costs say: load is shed on evidence, not on an estimate alone. Pure.

An estimate of CPU is off by some per cent, and in the first minute of a query, while its code is being compiled, by a
multiple. Rows that wait are exact. So a task manager runs *open*, every row kept, until more of its input waits than it
may, or until its costs are known and say that far more CPU is needed than it has. From then on plans follow the costs,
with a factor of trust that rises while little waits and falls while much does: a model that takes a core for smaller
than it is gives rows away for a few cycles, not for ever. Once nothing has been shed for a while it is open again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from qod_magics.core.optional import BATCH_TIME, OPEN, TRUST
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.policies.stream_economics.measures import known_requirements, load_of
from qod_magics.policies.stream_economics.topology import Topology

#: Seconds of input that may wait before an open task manager sheds: of queries that have run for a while, and of those
#: that are new. Two periods of the controller are the latency that users get unless they ask for another.
WAITING_S, WAITING_COLD_S = 5.0, 10.0
#: Up to here, in seconds of input, what waits is the ordinary rest between two micro-batches.
REST_S = 2.5
#: Where plans count on longer times between batches: the rest, and what may wait at least, as multiples of these.
REST_BATCHES, WAITING_BATCHES = 1.25, 2.0
#: A query is new for this long, in seconds since it was first measured.
COLD_S = 60.0
#: Known costs that ask for more than this multiple of the CPU available shed before any row waits.
CERTAIN = 1.25
#: By how much trust changes in a cycle, up (twice as much where nearly nothing waits) and down, and within what limits.
UP, DOWN, LEAST, MOST = 1.04, 0.9, 0.5, 2.0
#: Trust rises only while its tasks use this share of what it lets them have: nothing else holds them back then.
USED = 0.85
#: From this share of the trust at which rows came to wait last, it rises by less.
NEAR_CEILING, UP_NEAR_CEILING = 0.93, 1.002
#: Cycles without shedding after which a task manager runs open again.
CALM_CYCLES = 4
#: Accuracies from here on are taken for 1.
FULL = 0.995
#: Up to this multiple of its minimum accuracy a query is taken to run at its minimum.
NEAR = 1.1


@dataclass(frozen=True, slots=True)
class Trust:
    """What is known of one task manager."""

    is_open: bool = True
    factor: float = 1.0  #: CPU to plan with by the CPU that costs say there is
    calm: int = 0  #: cycles in a row in which nothing was shed and little waited
    waiting_s: float = 0.0  #: seconds of input that waited when last looked at
    ceiling: float = inf  #: the factor at which rows came to wait last
    seen_at: float = 0.0  #: of the newest measurement of its tasks, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Trusts:
    """What is known of all task managers, and since when each task has been measured."""

    managers: Mapping[str, Trust] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)  #: by task, seconds since the epoch


def trusted(snapshot: Snapshot, measured: Measured, memory: Trusts | None) -> tuple[Snapshot, Trusts]:
    """`snapshot`, whose costs are known as far as they are, with `open_s` of task managers that run open and `trust` of
    the others."""
    before = memory if memory is not None else Trusts()
    since, now = _since(snapshot, before.since)
    waiting = waiting_s(snapshot, measured)
    hosted: dict[str, set[str]] = {manager.id: set() for manager in snapshot.task_managers}
    newest = dict.fromkeys(hosted, 0.0)
    for instance in snapshot.instances:
        hosted[instance.task_manager].add(instance.task)
        if (window := instance.extra.get("window")) is not None:
            newest[instance.task_manager] = max(newest[instance.task_manager], window[1])
    topology = Topology.of(snapshot.tasks)
    asked, used = _asked(snapshot, topology), _asked(snapshot, topology, measured.accuracy)
    least = {t: NEAR * topology.min_accuracy[position] for t, position in topology.position.items()}
    managers: dict[str, Trust] = {}
    hosts = []
    for manager in snapshot.task_managers:
        tasks = hosted[manager.id]
        is_cold = any(task not in since or now - since[task] < COLD_S for task in tasks)
        limit_s = max(WAITING_COLD_S if is_cold else WAITING_S, WAITING_BATCHES * (BATCH_TIME.of(manager) or 0.0))
        trust, seen_at = before.managers.get(manager.id, Trust()), newest[manager.id]
        found = after(
            trust,
            max((waiting[task] for task in tasks), default=0.0),
            asked=None if is_cold else asked[manager.id],
            used=used[manager.id] if seen_at > trust.seen_at else 0.0,  # one measurement raises trust once
            sheds=any(accuracy is not None and accuracy < FULL for accuracy in map(measured.accuracy.get, tasks)),
            limit_s=limit_s,
            rest_s=rest_s(manager),
            at_minimum=all((measured.accuracy.get(task) or 0.0) <= least[task] for task in tasks),
        )
        managers[manager.id] = replace(found, seen_at=seen_at)
        told = {OPEN.name: limit_s} if found.is_open else {TRUST.name: found.factor}
        hosts.append(replace(manager, extra={**manager.extra, **told}))
    return replace(snapshot, task_managers=tuple(hosts)), Trusts(managers, since)


def after(
    before: Trust,
    waiting_s: float,
    *,
    asked: float | None,
    used: float = inf,
    sheds: bool,
    limit_s: float,
    rest_s: float = REST_S,
    at_minimum: bool = False,
) -> Trust:
    """One cycle later.

    Args:
        before: what was known.
        waiting_s: seconds of input that wait.
        asked: CPU that its tasks need at accuracy 1 / CPU available, by their costs; None: the costs are not known yet.
        used: CPU that its tasks need at the measured accuracies / CPU available, by their costs.
        sheds: whether rows were dropped in this cycle.
        limit_s: seconds of input that may wait while it is open.
        rest_s: seconds of input that are the ordinary rest between two batches.
        at_minimum: whether all of its queries run at their minimums: trust could not have them shed more.

    """
    factor, same = before.factor, replace(before, calm=0, waiting_s=waiting_s)
    if before.is_open:
        if waiting_s > limit_s:  # costs that see no overload are wrong by as much as is missing, at least
            failed = factor if asked is None else min(max(asked, LEAST), MOST)
            held = factor if asked is None else min(factor, DOWN * failed)
            return replace(same, is_open=False, factor=max(held, LEAST), ceiling=failed)
        return replace(same, is_open=asked is None or asked <= CERTAIN * max(factor, 1.0))
    if waiting_s > limit_s and waiting_s >= before.waiting_s and not at_minimum:
        return replace(same, factor=max(factor * DOWN, LEAST), ceiling=factor)
    if waiting_s > rest_s:
        return same
    if sheds:
        if used < USED * factor:  # a warm-up, or another task manager, holds its queries back
            return same
        up = UP if waiting_s > rest_s / 2 else UP * UP
        if factor * up > NEAR_CEILING * before.ceiling:
            up = UP_NEAR_CEILING
        return replace(same, factor=min(factor * up, MOST))
    calm = before.calm + 1
    return replace(same, is_open=calm >= CALM_CYCLES, calm=calm)


def rest_s(manager: TaskManager) -> float:
    """Seconds of input that ordinarily wait there between two batches."""
    return max(REST_S, REST_BATCHES * (BATCH_TIME.of(manager) or 0.0))


def waiting_s(snapshot: Snapshot, measured: Measured) -> Mapping[str, float]:
    """By task, the seconds of its present input that wait before it; 0 where nothing comes, or that is unknown."""
    found = {}
    for task in snapshot.tasks:
        feeds: Collection[str] = [f"{source}>{task.id}" for source in task.upstream] or [task.id]
        lag = sum(measured.lag.get(name, 0) for name in feeds)
        rate = sum(measured.input_rate.get(name, 0.0) for name in feeds) or task.external_rate or 0.0
        found[task.id] = lag / rate if rate > 0.0 else 0.0
    return found


def _since(snapshot: Snapshot, before: Mapping[str, float]) -> tuple[Mapping[str, float], float]:
    """When each task was first measured, and the newest measurement, seconds since the epoch."""
    since: dict[str, float] = {}
    now = 0.0
    for instance in snapshot.instances:
        window = instance.extra.get("window")
        if window is not None:
            begin, end = window
            now = max(now, end)
            since[instance.task] = before.get(instance.task, min(begin, since.get(instance.task, begin)))
        elif instance.task in before:
            since[instance.task] = before[instance.task]
    return since, now


def _asked(
    snapshot: Snapshot, topology: Topology, accuracy: Mapping[str, float | None] | None = None
) -> Mapping[str, float]:
    """By task manager, CPU that its tasks need / CPU available: at accuracy 1, or at these accuracies."""
    share = [1.0 if accuracy is None else accuracy.get(task.id) or 0.0 for task in snapshot.tasks]
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    needed = [0.0] * len(snapshot.task_managers)
    for t, manager in zip(load.task_of, load.manager_of, strict=True):
        needed[manager] += required.base[t] + share[t] * required.cost(t)  # be it more than a core
    return {
        manager.id: needed[m] / max(required.available[m], 1e-9) for m, manager in enumerate(snapshot.task_managers)
    }
