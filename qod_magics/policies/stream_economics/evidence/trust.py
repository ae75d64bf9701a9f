"""Trust in cost estimates: load is shed once a backlog confirms them, not on the estimates alone. Pure.

An estimate of CPU is off by some per cent, and in the first minute of a query, while its code is being compiled, by a
multiple. A backlog is exact. So a task manager runs *open*, every row kept, until its backlog exceeds a limit, or until
its costs are known and far exceed its CPU. From then on plans follow the costs, scaled by a factor of trust that rises
while the backlog is small and falls while it is large: a model that underestimates a core sheds too much for a few
cycles, not for ever. It rises as TCP CUBIC's window does (RFC 9438): fast while far from the factor at which a backlog
last built up, hardly at all near it, and faster again beyond, since code gets faster while it is compiled, and
neighbours leave. Once nothing has been shed for a while the task manager is open again.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from math import inf

from qod_magics.core.columns import column
from qod_magics.core.dag import Topology
from qod_magics.core.load import load_of
from qod_magics.core.optional import (
    BATCH_RATE,
    BATCH_TIME,
    CONCURRENCY,
    DECLARED,
    ELASTIC_CPU,
    FIXED_CPU,
    INTERVAL,
    NODE_COST,
    OPEN,
    PACED,
    ROUND,
    TOLERATED,
    TRIGGER,
    TRUST,
    has_failed,
    window_of,
)
from qod_magics.core.runtime import Measured
from qod_magics.core.snapshot import Snapshot, TaskManager
from qod_magics.policies.stream_economics.evidence.waiting import Collected, backlogs
from qod_magics.policies.stream_economics.model.requirements import FULL_CORE, known_requirements

#: Backlog above which an open task manager sheds, seconds of input: with queries that have run for a while, with a new
#: one, and with new ones that share it. Two periods of the controller are the default latency.
WAITING_S, WAITING_COLD_S, WAITING_COLD_SHARED_S = 5.0, 10.0, 20.0
#: Ordinary backlog between two micro-batches, seconds of input.
REST_S = 2.5
#: Where plans assume longer batch intervals: the ordinary backlog, and the limit, at least, as multiples of these.
REST_BATCHES, WAITING_BATCHES = 1.25, 2.0
#: The limit while nothing is shed, as a multiple of the latest batch interval: a batch that takes as long as the one
#: before reads what came during that one, and as much comes meanwhile.
WAITING_ROUNDS = 2.1
#: Intervals up to `LONGEST_S`, or up to this multiple of the one that plans assume, may be due to fixed costs.
PLAUSIBLE = 5.0
#: The limit while no query there has ended a batch yet, seconds.
WAITING_FIRST_S = 30.0
#: The same while batches are paced: the offsets of a batch are settled before it waits for its turn.
REST_PACED, WAITING_PACED = 2.25, 3.5
#: Batches may also wait for their trigger, or for something other than CPU, such as a slow sink. CPU is scarce from
#: this share of the cores in use, or of its core by the instance itself: long batches are a sign of that. Below, their
#: measured interval is the ordinary one, up to this many seconds: under an overload, each is longer than the last. As
#: long as compilers take CPU, too, up to the second number of seconds.
SCARCE, LONGEST_S, COLD_INTERVAL_S = 0.8, 30.0, 7.5
#: Cycles for which micro-batches are paced once load is shed, and the longest pace, seconds. Queries that share a task
#: manager take turns by the batch, so a nearly idle query would use as much of it as one with a thousand rows a batch.
PACED_CYCLES, LONGEST_PACE_S = 12, 10.0
#: Dropping rows is futile where the cores are busy and it could free less than this share of the CPU for tasks: fewer
#: batches help there, and these come by themselves as batches lengthen. A backlog beyond its limit that has grown for
#: this many cycles in a row refutes the costs that say so.
FUTILE, REFUTED_CYCLES = 0.1, 3
#: Queries in micro-batches that share a task manager wait for each other. Where costs are within this share of the CPU,
#: a backlog of up to twice the limit drains by itself, unless it grows for this many cycles in a row.
WITHIN, GROWN_CYCLES = 0.8, 2
#: A query is new for this long, in seconds since it was first measured; on a task manager, too, which compiles its code
#: anew: the backlog of a move says as little of the CPU there as that of a start.
COLD_S = 60.0
#: Known costs above this multiple of all cores shed load before there is a backlog. Other load there is not counted:
#: compilers and reads of results give way, or a backlog will show what they take.
CERTAIN = 1.1
#: Factors by which trust changes in a cycle, up (twice if there is hardly a backlog) as long as no ceiling is known,
#: and down; and its limits.
UP, DOWN, LEAST, MOST = 1.03, 0.9, 0.5, 2.0
#: Rises after which trust is back at its ceiling.
BACK = 8
#: Utilization limit: cores in use / cores that plans may use. A tenth of the cores is reserved for other load of the
#: machine, and backlogs begin at some 95 % utilization of all cores.
IN_USE = 1.05
#: In real-time mode trust rises by at most this part of the headroom below that limit, and falls by this part of the
#: excess above it while the backlog grows beyond `BRIEF_S`: one that is drained uses all cores, too. Micro-batches use
#: up idle CPU, so headroom says nothing of them, unless they are paced: then trust rises by this part of it at least.
OF_IDLE = 0.5
#: Backlog where a core has headroom, seconds of input: rows in flight.
BRIEF_S = 0.25
#: Overuse counts only if the tasks themselves use this share of the cores that plans may use: otherwise a neighbour
#: that takes all the rest would push them back for ever.
OURS = 0.6
#: Cycles between two falls, unless the backlog is twice its limit: a plan's effect shows in the cycle after.
HOLD = 2
#: Trust rises only while the tasks use this share of the CPU it grants: otherwise something else limits them.
USED = 0.85
#: It falls only where the tasks are within this multiple of that CPU, by their costs: beyond, they run at higher
#: accuracies than planned, as while the controller is paused, and the backlog says nothing of the plan.
APPLIED = 1.25
#: In micro-batches, from this share of the cores on that batches could do without, the ceiling is no longer one: the
#: load has fallen.
SPARE = 0.1
#: A task manager counts as dearer or cheaper than others only by the excess over this share: less is within the noise
#: of a few readings, and trust covers it.
SAME_COST = 0.05
#: Cycles without shedding after which a task manager runs open again.
CALM_CYCLES = 4
#: Accuracies from here on count as 1.
FULL = 0.995
#: Up to this multiple of its minimum accuracy a query counts as running at its minimum.
NEAR = 1.1


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
    paced: int = 0  #: cycles for which its micro-batches are still paced
    seen_at: float = 0.0  #: of the newest measurement of its tasks, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Trusts:
    """State of all task managers, and since when tasks have been measured, seconds since the epoch."""

    managers: Mapping[str, Trust] = field(default_factory=dict)
    since: Mapping[tuple[str, str], float] = field(default_factory=dict)  #: by (task, task manager)
    collected: Collected = field(default_factory=Collected)
    first: Mapping[str, float] = field(default_factory=dict)  #: by task: since when anywhere
    declared: Mapping[str, float | None] = field(default_factory=dict)  #: by task: see `core.optional.DECLARED`


def trusted(snapshot: Snapshot, measured: Measured, memory: Trusts | None) -> tuple[Snapshot, Trusts]:
    """`snapshot`, which has learned costs already, with `open_s` of task managers that run open and `trust` of the
    others."""
    before = memory if memory is not None else Trusts()
    declared = {task.id: DECLARED.of(task) for task in snapshot.tasks}
    since, first, now = _since(snapshot, before, declared)
    collected = before.collected.after(snapshot, measured, REST_S)
    waiting = dict(collected.waiting_s(snapshot, measured))
    idle = _idle_tasks(snapshot, measured) if len(first) < len(declared) else set()
    hosted: dict[str, set[str]] = {manager.id: set() for manager in snapshot.task_managers}
    batching = dict.fromkeys(hosted, 0)
    newest = dict.fromkeys(hosted, 0.0)
    own = dict.fromkeys(hosted, 0.0)
    failed = set()  #: instances by position
    for i, instance in enumerate(snapshot.instances):
        if has_failed(instance):  # rows wait for its restart, whatever CPU there is
            waiting[instance.task] = 0.0
            failed.add(i)
            continue
        own[instance.task_manager] += instance.cpu
        hosted[instance.task_manager].add(instance.task)
        batching[instance.task_manager] += BATCH_RATE.of(instance) is not None
        if (window := window_of(instance)) is not None:
            newest[instance.task_manager] = max(newest[instance.task_manager], window[1])
    topology = Topology.of(snapshot.tasks)
    needed, available = _needed(snapshot, topology, failed)
    new = {i for i, instance in enumerate(snapshot.instances) if now - first.get(instance.task, now) < COLD_S}
    certain, _ = _needed(snapshot, topology, failed | new)
    longer = _saved_by_rounds(snapshot, failed | new)
    asked = {name: cpu / max(available[name], 1e-9) for name, cpu in needed.items()}
    freed = _freed(snapshot, topology, failed)
    in_use, _ = _needed(snapshot, topology, failed, measured.accuracy)
    used = {name: cpu / max(available[name], 1e-9) for name, cpu in in_use.items()}
    starting, unproved = _unproved(snapshot, since, first, now)
    reached = _reached_by_moves(snapshot, since, first, now)
    rounds_s = _rounds_s(snapshot, waiting)
    intervals_s = _intervals_s(snapshot, waiting, {manager for _, manager in unproved})
    least = {t: NEAR * topology.min_accuracy[position] for t, position in topology.position.items()}
    managers: dict[str, Trust] = {}
    hosts = []
    for manager in snapshot.task_managers:
        tasks = hosted[manager.id]
        known = [task for task in tasks if task in first or task not in idle]  # others run once rows arrive
        is_cold = any(now - since.get((task, manager.id), now) < COLD_S for task in known)
        trust, seen_at = before.managers.get(manager.id, Trust()), newest[manager.id]
        batch_s = BATCH_TIME.of(manager) or 0.0
        interval_s = max(batch_s, intervals_s[manager.id])
        pace_s = min(batch_s, LONGEST_PACE_S) if trust.paced else 0.0
        cold_s = WAITING_COLD_SHARED_S if len(tasks) > 1 and batching[manager.id] else WAITING_COLD_S
        limit_s = max(cold_s if is_cold else WAITING_S, WAITING_BATCHES * interval_s, WAITING_PACED * pace_s)
        if trust.is_open:  # where batches do not lengthen from one to the next, no more than two of them wait
            limit_s = max(limit_s, WAITING_ROUNDS * max(ROUND.of(manager) or 0.0, rounds_s[manager.id]))
        proved = [task for task in tasks if (task, manager.id) not in unproved]
        judged = proved or [task for task in tasks if (task, manager.id) not in starting] or tasks
        waits_s = max((waiting[task] for task in judged), default=0.0)
        if not any((task, manager.id) in since for task in tasks):
            limit_s = max(limit_s, WAITING_FIRST_S)
        rests_s = max(REST_S, REST_BATCHES * interval_s, REST_PACED * pace_s)
        found = after(
            trust,
            waits_s,
            asked=None if is_cold else asked[manager.id],
            whole=max(
                (certain[manager.id] - longer[manager.id]) / max(100.0 * manager.cores, 1e-9),
                asked[manager.id] if manager.id in reached else 0.0,
            ),
            used=used[manager.id],
            is_measured=seen_at > trust.seen_at,
            applied=used[manager.id] <= APPLIED * trust.factor,
            spare=(ELASTIC_CPU.of(manager) or 0.0) / max(100.0 * manager.cores, 1e-9),
            sheds=any(accuracy is not None and accuracy < FULL for accuracy in map(measured.accuracy.get, tasks)),
            limit_s=limit_s,
            rest_s=rests_s,
            idle=inf if BATCH_TIME.of(manager) is not None else _idle(manager),
            unused=_idle(manager) if trust.paced else 0.0,
            overuse=0.0 if BATCH_TIME.of(manager) is not None else _overuse(manager, own[manager.id]),
            at_minimum=all((measured.accuracy.get(task) or 0.0) <= least[task] for task in tasks),
            shared=batching[manager.id] > 1,
            futile=manager.cpu >= SCARCE * 100.0 * manager.cores and freed[manager.id] < FUTILE * available[manager.id],
        )
        paced = 0
        if batching[manager.id] > 1:
            paced = max(trust.paced - 1, 0) if found.is_open else PACED_CYCLES
        managers[manager.id] = replace(found, seen_at=seen_at, paced=paced)
        if found.is_open:  # what waits there, if for another reason than CPU, is not thinned either
            most_s = max((waiting[task] for task in tasks), default=0.0)
            fields = {OPEN.name: limit_s}
            if most_s > limit_s:
                fields[TOLERATED.name] = 2.0 * most_s
        else:
            fields = {TRUST.name: found.factor}
        if interval_s > batch_s:
            fields[INTERVAL.name] = interval_s
        if paced:
            fields[PACED.name] = min(batch_s, LONGEST_PACE_S)
        if (cost := NODE_COST.of(manager)) is not None:
            fields[NODE_COST.name] = _beyond_noise(cost)
        hosts.append(replace(manager, extra={**manager.extra, **fields}))
    return replace(snapshot, task_managers=tuple(hosts)), Trusts(managers, since, collected, first, declared)


def after(
    before: Trust,
    waiting_s: float,
    *,
    asked: float | None,
    whole: float = 0.0,
    used: float = inf,
    is_measured: bool = True,
    sheds: bool,
    limit_s: float,
    rest_s: float = REST_S,
    idle: float = inf,
    unused: float = 0.0,
    overuse: float = 0.0,
    applied: bool = True,
    spare: float = 0.0,
    at_minimum: bool = False,
    futile: bool = False,
    shared: bool = False,
) -> Trust:
    """The state one cycle later.

    Args:
        before: the state before.
        waiting_s: backlog, seconds of input.
        asked: CPU that its tasks need at accuracy 1 / CPU available, by their costs; None: the costs are not known yet.
        whole: CPU that its tasks need at accuracy 1 / CPU of all of its cores or, where a task was moved to it, CPU
            available; 0: the costs are not known yet.
        used: CPU that its tasks need at the measured accuracies / CPU available, by their costs.
        is_measured: whether its tasks were measured since the cycle before: one measurement changes trust once.
        sheds: whether rows were dropped in this cycle.
        limit_s: backlog up to which it stays open, seconds of input.
        rest_s: ordinary backlog between two batches, seconds of input.
        idle: headroom below the utilization limit, as a share of it; infinite where that says nothing.
        unused: the same where paced micro-batches leave CPU idle: trust rises by a part of it at least.
        overuse: utilization above that limit, as a share of it, if its tasks cause it.
        applied: whether its tasks run at accuracies at which they need no more CPU than is granted.
        spare: CPU that micro-batches could do without, as a share of its cores.
        at_minimum: whether all of its queries run at their minimums: less trust could not make them shed more.
        shared: whether several queries run in micro-batches there.
        futile: whether dropping rows down to the minimums would free next to no CPU, which is scarce.

    """
    factor = before.factor
    grown = before.grown + 1 if waiting_s > max(limit_s, before.waiting_s) else 0
    same = replace(before, calm=0, waiting_s=waiting_s, hold=max(before.hold - 1, 0), grown=grown)
    if futile and grown < REFUTED_CYCLES:
        return replace(same, is_open=True, ceiling=inf, rises=0)
    if before.is_open:
        if waiting_s <= limit_s:
            return replace(same, is_open=whole <= CERTAIN * max(factor, 1.0))
        if shared and asked is not None and asked <= WITHIN and grown < GROWN_CYCLES and waiting_s <= 2.0 * limit_s:
            return same
        if asked is None or not is_measured:
            return replace(same, is_open=False)
        failed = min(max(asked, LEAST), MOST)  # costs that predict no overload are off by at least the CPU missing
        held = max(min(factor, DOWN * failed), LEAST)
        return replace(same, is_open=False, factor=held, ceiling=failed, rises=0, hold=HOLD)
    if waiting_s > limit_s and waiting_s >= before.waiting_s and not at_minimum and applied:
        if not is_measured or (same.hold > 0 and waiting_s <= 2.0 * limit_s):
            return same
        return replace(same, factor=max(factor * DOWN, LEAST), ceiling=factor, rises=0, hold=HOLD)
    if overuse > 0.0 and sheds and waiting_s > max(BRIEF_S, before.waiting_s) and not at_minimum:
        return replace(same, factor=max(factor * (1.0 - OF_IDLE * overuse), LEAST))
    if waiting_s > rest_s or (waiting_s > rest_s / 2 and waiting_s > before.waiting_s):
        return same
    if sheds:
        if not is_measured or used < USED * factor:  # a warm-up, or another task manager, holds its queries back
            return same
        if spare > SPARE and waiting_s <= rest_s / 2:
            same = before = replace(same, ceiling=inf, rises=0)
        rises = before.rises + 1
        up = factor * (UP if waiting_s > rest_s / 2 else UP * UP)
        if before.ceiling < inf:
            up = max(factor, before.ceiling * (1.0 + (1.0 - DOWN) * ((rises - BACK) / BACK) ** 3))
        up = max(up, factor * (1.0 + OF_IDLE * unused))
        return replace(same, factor=min(up, factor * (1.0 + OF_IDLE * idle), MOST), rises=rises)
    calm = before.calm + 1
    if calm >= CALM_CYCLES:
        return replace(same, is_open=True, ceiling=inf, rises=0)
    return replace(same, calm=calm)


def rest_s(manager: TaskManager) -> float:
    """Ordinary backlog there between two batches, seconds of input."""
    interval_s = INTERVAL.of(manager) or BATCH_TIME.of(manager) or 0.0
    return max(REST_S, REST_BATCHES * interval_s, REST_PACED * (PACED.of(manager) or 0.0))


def _unproved(
    snapshot: Snapshot, since: Mapping[tuple[str, str], float], first: Mapping[str, float], now: float
) -> tuple[Set[tuple[str, str]], Set[tuple[str, str]]]:
    """(task, task manager) of tasks that are starting, and of these and new ones: they make their own backlogs.

    Tasks that were moved there are left out: a plan has moved them, and has reckoned with them.
    """
    starting, unproved = set(), set()
    for instance in snapshot.instances:
        pair = instance.task, instance.task_manager
        here = since.get(pair, now)
        if first.get(instance.task, now) < here:
            continue
        if instance.warming_up:
            starting.add(pair)
        if instance.warming_up or now - here < COLD_S:
            unproved.add(pair)
    return starting, unproved


def _reached_by_moves(
    snapshot: Snapshot, since: Mapping[tuple[str, str], float], first: Mapping[str, float], now: float
) -> Set[str]:
    """Task managers to which a task was moved a short time ago, whose costs are known from elsewhere."""
    return {
        i.task_manager
        for i in snapshot.instances
        if first.get(i.task, now) < (here := since.get((i.task, i.task_manager), now)) and now - here < COLD_S
    }


def _saved_by_rounds(snapshot: Snapshot, without: Set[int]) -> Mapping[str, float]:
    """By task manager, in % of one core: fixed costs that longer batches would save, which come before shedding; those
    of the instances (positions) in `without` are not counted."""
    fixed = {task.id: FIXED_CPU.of(task) or 0.0 for task in snapshot.tasks}
    share = {m.id: 1.0 - (BATCH_TIME.of(m) or 0.0) / s for m in snapshot.task_managers if (s := ROUND.of(m))}
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for i, instance in enumerate(snapshot.instances):
        if i not in without and BATCH_RATE.of(instance) is not None:
            found[instance.task_manager] += fixed[instance.task] * share.get(instance.task_manager, 0.0)
    return found


def _rounds_s(snapshot: Snapshot, waiting: Mapping[str, float]) -> Mapping[str, float]:
    """By task manager, seconds: the longest micro-batch interval there for which rows wait, as far as costs explain it;
    0 without any."""
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for instance in snapshot.instances:
        rate = BATCH_RATE.of(instance)
        if rate and waiting[instance.task] > REST_S:
            found[instance.task_manager] = max(found[instance.task_manager], 1.0 / rate)
    most = {m.id: max(LONGEST_S, PLAUSIBLE * (BATCH_TIME.of(m) or 0.0)) for m in snapshot.task_managers}
    return {manager: min(seconds, most[manager]) for manager, seconds in found.items()}


def _intervals_s(snapshot: Snapshot, waiting: Mapping[str, float], cold: Set[str]) -> Mapping[str, float]:
    """By task manager, seconds: the longest interval of micro-batches there for which rows wait, though CPU is not
    scarce, or is taken by compilers, as on `cold` ones; 0 without any."""
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    idle = {manager.id for manager in snapshot.task_managers if manager.cpu < SCARCE * 100.0 * manager.cores}
    usable = {task.id: FULL_CORE * (CONCURRENCY.of(task) or 1.0) for task in snapshot.tasks}
    for instance in snapshot.instances:
        has_cpu = instance.task_manager in idle and instance.cpu < SCARCE * usable[instance.task]
        waits = waiting[instance.task] > REST_S  # else it is the input that is rare
        if waits and (has_cpu or instance.task_manager in cold):
            rate, asked_s = BATCH_RATE.of(instance), TRIGGER.of(instance) or 0.0
            measured_s = min(1.0 / rate, LONGEST_S if has_cpu else COLD_INTERVAL_S) if rate else 0.0
            found[instance.task_manager] = max(found[instance.task_manager], measured_s, asked_s)
    return found


def _idle_tasks(snapshot: Snapshot, measured: Measured) -> set[str]:
    """The tasks for which no rows wait or arrive."""
    return {task for task, (rows, rate) in backlogs(snapshot, measured).items() if rows == 0 and rate == 0.0}


def _since(
    snapshot: Snapshot, known: Trusts, declared: Mapping[str, float | None]
) -> tuple[Mapping[tuple[str, str], float], Mapping[str, float], float]:
    """When each task was first measured on each task manager, when anywhere, and the newest measurement, seconds since
    the epoch. A task that was declared anew is a new one."""
    same = {task for task, number in declared.items() if known.declared.get(task, number) == number}
    managers = set(column(snapshot.task_managers, "id"))
    before = {(task, manager): at for (task, manager), at in known.since.items() if task in same}
    since = {(task, manager): at for (task, manager), at in before.items() if manager in managers}
    first = {task: at for task, at in known.first.items() if task in same}
    for (task, _), at in before.items():
        first[task] = min(at, first.get(task, at))
    now = 0.0
    for instance in snapshot.instances:
        window = window_of(instance)
        if window is not None:
            begin, end = window
            now = max(now, end)
            pair = (instance.task, instance.task_manager)
            if pair not in before:
                since[pair] = min(begin, since.get(pair, begin))
                first[instance.task] = min(begin, first.get(instance.task, begin))
    return since, first, now


def _needed(
    snapshot: Snapshot,
    topology: Topology,
    failed: Set[int],
    accuracy: Mapping[str, float | None] | None = None,
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """By task manager, in % of one core: CPU that its tasks need, at accuracy 1 or at these accuracies, without the
    instances (positions) that have `failed`; and CPU available for them."""
    share = [1.0 if accuracy is None else accuracy.get(task.id) or 0.0 for task in snapshot.tasks]
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    needed = [0.0] * len(snapshot.task_managers)
    for i, (t, manager) in enumerate(zip(load.task_of, load.manager_of, strict=True)):
        if i not in failed:
            needed[manager] += required.base[t] + share[t] * required.cost(t)  # not capped at what it can use
    names = [manager.id for manager in snapshot.task_managers]
    return dict(zip(names, needed, strict=True)), dict(zip(names, required.available, strict=True))


def _freed(snapshot: Snapshot, topology: Topology, failed: Set[int]) -> Mapping[str, float]:
    """By task manager, in % of one core: CPU that dropping rows down to the minimum accuracies would free."""
    load, required = load_of(snapshot, topology), known_requirements(snapshot, topology)
    freed = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for i, (t, manager) in enumerate(zip(load.task_of, load.manager_of, strict=True)):
        if i not in failed:
            freed[snapshot.task_managers[manager].id] += (1.0 - topology.min_accuracy[t]) * required.cost(t)
    return freed


def _idle(manager: TaskManager) -> float:
    """Headroom below the utilization limit, as a share of it, at least 0."""
    return max(1.0 - manager.cpu / max(IN_USE * 100.0 * manager.cores, 1e-9), 0.0)


def _overuse(manager: TaskManager, own: float) -> float:
    """Utilization above the limit, as a share of it, at least 0; 0 where its tasks, which use `own` % of one core, are
    not the cause."""
    if own < OURS * 100.0 * manager.cores:
        return 0.0
    return max(manager.cpu / max(IN_USE * 100.0 * manager.cores, 1e-9) - 1.0, 0.0)


def _beyond_noise(cost: float) -> float:
    """The cost of a task manager, moved towards 1 by up to `SAME_COST`."""
    off = cost - 1.0
    return 1.0 + max(off - SAME_COST, 0.0) + min(off + SAME_COST, 0.0)
