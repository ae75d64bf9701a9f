"""Find how much backlog is ordinary on a task manager, and how much makes it shed load, from its batch intervals.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import inf

from qod_magics.core.snapshot import Snapshot, TaskManager, is_down
from qod_magics.policies.stream_economics.requirements import FULL_CORE

#: Backlog above which an open task manager sheds, seconds of input: with queries that have run for a while, with a new
#: one, with new ones that share it, and while no query there has ended a batch yet. Two periods of the controller are
#: the default latency.
WAITING_S, WAITING_COLD_S, WAITING_COLD_SHARED_S, WAITING_FIRST_S = 5.0, 10.0, 20.0, 30.0
#: The same with a new query where a batch under way can't be thinned: under an overload, the one that begins after that
#: takes as many times as long as rows come faster than they are carried.
WAITING_UNTHINNED_S = 15.0
#: Batches settle if their rows take less than this share of the time, as measured. Then `WAITING_ROUNDS` of these
#: intervals may wait, up to `WAITING_FIRST_S`.
SETTLING = 0.8
#: Ordinary backlog between two micro-batches, seconds of input.
REST_S = 2.5
#: Where plans assume longer batch intervals: the ordinary backlog, and the limit, at least, as multiples of these.
REST_BATCHES, WAITING_BATCHES = 1.25, 2.0
#: The same while batches are paced: where the Kafka reader is Spark's own, a batch waits after its offsets are settled.
REST_PACED, WAITING_PACED = 2.25, 3.5
#: The limit while nothing is shed, as a multiple of the latest batch interval: a batch that takes as long as the one
#: before reads what came during that one, and as much comes meanwhile. The first batch of a new query reads next to
#: nothing, so its second one may be nearly twice as long.
WAITING_ROUNDS, WAITING_ROUNDS_COLD = 2.1, 3.1
#: Beyond the first minute that interval counts as far as it grows by this factor in a cycle: under an overload, each
#: batch takes longer than the last by the same factor.
GROWTH = 1.1
#: Batches may also wait for their trigger, or for something other than CPU, such as a slow sink. CPU is scarce from
#: this share of the cores in use, or of its core by the instance itself: long batches are a sign of that. Below, their
#: measured interval is the ordinary one, up to this many seconds: under an overload, each is longer than the last. As
#: long as compilers take CPU, too, up to the second number of seconds.
SCARCE, LONGEST_S, COLD_INTERVAL_S = 0.8, 30.0, 7.5
#: Intervals up to `LONGEST_S`, or up to this multiple of the one that plans assume, may be due to fixed costs.
PLAUSIBLE = 5.0
#: The longest pace, seconds. Queries that share a task manager take turns by the batch, so a nearly idle query would
#: use as much of it as one with a thousand rows a batch.
LONGEST_PACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Micro-batch intervals of one task manager, seconds; 0 where there are none."""

    batch_s: float = 0.0  #: that plans assume
    longest_s: float = 0.0  #: the longest of those that rows wait for, though CPU is not scarce or compilers take it
    settles_s: float = 0.0  #: at which batches settle back to back at accuracy 1, by costs
    round_s: float = 0.0  #: the latest that rows wait for, as far as costs explain it
    pace_s: float = 0.0  #: minimum interval, if batches are paced
    settles_by_times_s: float = 0.0  #: at which batches settle back to back, by their times; 0: they may not

    @property
    def ordinary_s(self) -> float:
        """Return the interval that counts as ordinary."""
        return max(self.batch_s, self.longest_s)

    @property
    def rest_s(self) -> float:
        """Ordinary backlog, seconds of input."""
        return max(REST_S, REST_BATCHES * self.ordinary_s, REST_PACED * self.pace_s)

    @property
    def lasting_s(self) -> float:
        """Return the backlog beyond which it may not last while load is shed, seconds of input: a period of the
        controller, or the ordinary one where batches take longer."""
        return max(WAITING_S, REST_BATCHES * self.ordinary_s)

    def steady_s(self, before_s: float, *, is_cold: bool) -> float:
        """Return the latest interval without growth that an overload explains; `before_s`: the same in the cycle
        before."""
        return self.round_s if is_cold or before_s == 0.0 else min(self.round_s, GROWTH * before_s)

    def limit_s(
        self,
        steady_s: float,
        *,
        is_open: bool,
        is_cold: bool,
        shared: bool,
        any_ended: bool,
        thinned: bool = True,
        settles: bool = True,
    ) -> float:
        """Return the backlog above which load is shed, seconds of input.

        Args:
            steady_s: see above.
            is_open: whether nothing is shed there yet: no more than two of its batches wait where batches do not
                lengthen from one to the next.
            is_cold: whether a query there is new.
            shared: whether several queries run there, one of them in micro-batches.
            any_ended: whether a query there has ended a batch.
            thinned: whether a batch under way drops rows once load is shed; elsewhere the next one does.
            settles: whether all cores are enough for accuracy 1, by costs: otherwise batches lengthen for ever.

        """
        cold_s = WAITING_COLD_SHARED_S if shared else WAITING_COLD_S
        usual_s = WAITING_BATCHES * self.ordinary_s
        limit_s = max(cold_s if is_cold else WAITING_S, usual_s, WAITING_PACED * self.pace_s)
        if is_open:
            rounds = WAITING_ROUNDS_COLD if is_cold else WAITING_ROUNDS
            settled_s = min(WAITING_ROUNDS * self.settles_by_times_s, WAITING_FIRST_S)
            most_s = inf if thinned or not is_cold else max(WAITING_UNTHINNED_S, usual_s, settled_s)
            round_s = max(self.settles_s if settles else 0.0, steady_s)
            limit_s = min(max(limit_s, rounds * round_s), most_s)
        return limit_s if any_ended else max(limit_s, WAITING_FIRST_S)


def intervals_of(
    snapshot: Snapshot,
    waiting: Mapping[str, float],
    cold: Set[str],
    paced: Set[str],
    rates: Mapping[str, float],
) -> Mapping[str, Intervals]:
    """Return the intervals by task manager.

    Args:
        snapshot: with learned costs.
        waiting: backlog by task, seconds of input.
        cold: task managers on which compilers take CPU.
        paced: task managers whose batches are paced.
        rates: input rate by task, rows/s.

    """
    rounds, longest = _rounds_s(snapshot, waiting), _longest_s(snapshot, waiting, cold)
    settled = _settled_s(snapshot, rates)
    found = {}
    for manager in snapshot.task_managers:
        batch_s = manager.batch_s or 0.0
        pace_s = min(batch_s, LONGEST_PACE_S) if manager.id in paced else 0.0
        settles_s = manager.round_s or 0.0
        found[manager.id] = Intervals(
            batch_s, longest[manager.id], settles_s, rounds[manager.id], pace_s, settled[manager.id]
        )
    return found


def rest_s(manager: TaskManager) -> float:
    """Ordinary backlog between two batches on a task manager whose fields are filled, seconds of input."""
    assumed_s = manager.interval_s or manager.batch_s or 0.0
    return Intervals(assumed_s, pace_s=manager.paced_s or 0.0).rest_s


def saved_by_rounds(snapshot: Snapshot, without: Set[int]) -> Mapping[str, float]:
    """By task manager, in % of one core: fixed costs that longer batches would save, which come before shedding; those
    of the instances (positions) in `without` are not counted."""
    fixed = {task.id: task.fixed_cpu or 0.0 for task in snapshot.tasks}
    share = {m.id: 1.0 - (m.batch_s or 0.0) / s for m in snapshot.task_managers if (s := m.round_s)}
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for i, instance in enumerate(snapshot.instances):
        if i not in without and instance.batches_per_s is not None:
            found[instance.task_manager] += fixed[instance.task] * share.get(instance.task_manager, 0.0)
    return found


def _rounds_s(snapshot: Snapshot, waiting: Mapping[str, float]) -> Mapping[str, float]:
    """Return the longest micro-batch interval for which rows wait, if costs explain it, by task manager: seconds, 0
    without any."""
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    for instance in snapshot.instances:
        rate = instance.batches_per_s
        if rate and waiting[instance.task] > REST_S:
            found[instance.task_manager] = max(found[instance.task_manager], 1.0 / rate)
    most = {m.id: max(LONGEST_S, PLAUSIBLE * (m.batch_s or 0.0)) for m in snapshot.task_managers}
    return {manager: min(seconds, most[manager]) for manager, seconds in found.items()}


def _longest_s(snapshot: Snapshot, waiting: Mapping[str, float], cold: Set[str]) -> Mapping[str, float]:
    """By task manager, seconds: the longest interval of micro-batches there for which rows wait, though CPU is not
    scarce, or is taken by compilers, as on `cold` ones; 0 without any."""
    found = dict.fromkeys((manager.id for manager in snapshot.task_managers), 0.0)
    idle = {manager.id for manager in snapshot.task_managers if manager.cpu < SCARCE * 100.0 * manager.cores}
    usable = {task.id: FULL_CORE * (task.concurrency or 1.0) for task in snapshot.tasks}
    for instance in snapshot.instances:
        has_cpu = instance.task_manager in idle and instance.cpu < SCARCE * usable[instance.task]
        waits = waiting[instance.task] > REST_S  # else it is the input that is rare
        if waits and (has_cpu or instance.task_manager in cold):
            rate, asked_s = instance.batches_per_s, instance.trigger_s or 0.0
            measured_s = min(1.0 / rate, LONGEST_S if has_cpu else COLD_INTERVAL_S) if rate else 0.0
            found[instance.task_manager] = max(found[instance.task_manager], measured_s, asked_s)
    return found


def _settled_s(snapshot: Snapshot, rates: Mapping[str, float]) -> Mapping[str, float]:
    """Return the interval at which batches back to back settle, seconds, by task manager: fixed time / (1 - share of
    the time that rows take). 0 where rows of a task there take too much of it, or its times are not known.

    These are known before its costs: while code is compiled, a batch without rows is long, and costs take that for
    its rows'.
    """
    tasks = {task.id: task for task in snapshot.tasks}
    width = Counter(instance.task for instance in snapshot.instances)
    found: dict[str, list[float]] = {manager.id: [0.0] for manager in snapshot.task_managers}
    for instance in snapshot.instances:
        if instance.batches_per_s is None or is_down(instance):
            continue
        task, rate = tasks[instance.task], rates[instance.task] / width[instance.task]
        rows = inf if task.work_time_us is None else 1e-6 * rate * (task.work_time_us + (task.read_time_us or 0.0))
        found[instance.task_manager].append((task.batch_time_s or 0.0) / (1.0 - rows) if rows < SETTLING else inf)
    return {manager: most if (most := max(each)) < inf else 0.0 for manager, each in found.items()}
