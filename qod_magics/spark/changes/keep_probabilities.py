"""Set what the plans of running queries read at each batch: keep probabilities, accuracies, pauses and deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from qod_magics.core.plan import Lend, Plan, Refusal, SetBatch
from qod_magics.core.runtime import Dials, refused
from qod_magics.lifecycle.admission import Objection, why_not_lent
from qod_magics.lifecycle.events import State
from qod_magics.spark.changes.change import facts_of
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.state import can_lend, pipes_to
from qod_magics.spark.plans.dial import MOST_S, DialReading, due_value, lent_value
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import gap_s
from qod_magics.spark.servers.connection import begin, gather
from qod_magics.spark.servers.task_manager import TaskManager

# --- Rows of hot keys, lent -------------------------------------------------------------------------------------------
# What plans ask to lend becomes dials of the plans that send the rows.
#
# A sender sends a row to the partition of its key. Where an instance lends, a share of the rows of its partitions goes
# to a partition of the lessee, drawn row by row. Rows that were sent before stay where they are. A plan that asks for
# nothing takes all back.


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


#: The least change of a value for which a query restarts that can't read it while it runs, a fraction of 1.
LEAST_CHANGE = 0.02
#: The least timeout of setting the values of all task managers, seconds.
LEAST_TIMEOUT_S = 3.0


class KeepProbabilities:
    """Turns plans into the values that running queries read, and sets them on all task managers at once.

    The cluster keeps the value of each name, so that a query which starts later begins with it. Where a running query
    can't read new values, it restarts once one of them has changed enough.
    """

    def __init__(self, cluster: Cluster, mover: Mover) -> None:
        self.cluster = cluster
        self.mover = mover
        self.lender = Lender(cluster)
        self._without_gaps: set[str] = set()  #: tasks for which plans ask for gaps that can't be set

    def __repr__(self) -> str:
        return f"keep probabilities of {len(self.cluster.instances)} instances"

    def set(self, plan: Plan, dials: Dials) -> list[str]:
        """Set all values, with one call per task manager. Return what failed, in words."""
        self._note(plan, dials)
        by_manager = self._by_manager()
        restarts = self._must_restart(by_manager)
        failed = self._send(by_manager)
        for instance in restarts:
            self.cluster.event("dial-fallback", instance=instance.id, why="its task manager refuses reflect: restarted")
            begin(partial(self.mover.restart, instance), instance.id)
        return failed

    def _note(self, plan: Plan, dials: Dials) -> None:
        """Note the keep probability, accuracy and pause of each task, edge and instance by its name on the board."""
        board, specs = self.cluster.board, self.cluster.deployment.specs
        within = {member: d for task, d in plan.desired.items() if task in specs for member in specs[task].members}
        values = {board.accuracy(name): d for name, d in {**within, **plan.desired}.items()}
        values |= {board.accept(task): accepted for task, accepted in dials.accept.items()}
        for (source, reader), d in dials.keep.items():
            values[board.source(reader) if source is None else board.send(f"{source}>{reader}")] = d
        gaps = {each.task: each for each in plan.actions if isinstance(each, SetBatch)}
        with self.cluster.lock:
            for i in self.cluster.all_instances:
                gap = gaps.get(i.job.task)
                if i.is_paced and i.task_manager is not None:
                    pace_s = max(plan.pace_s.get(i.task_manager.id, 0.0), 0.0 if gap is None else gap.seconds)
                    waits_s = gap_s(pace_s, i.batches, i.job.batches_every_s, self.cluster.delay_s(i))
                    values[board.pace(i.id)] = 1.0 - waits_s / MOST_S
                if i.takes_turns:
                    values[board.due(i.id)] = due_value(None if gap is None else gap.due_s)
            self._refuse_gaps(gaps)
            values |= self.lender.dials([each for each in plan.actions if isinstance(each, Lend)])
            self.cluster.want(values)

    def _refuse_gaps(self, gaps: Mapping[str, SetBatch]) -> None:
        """Report the tasks whose gaps can't be set, or whose batches can take no turns, once for as long as that is
        so."""
        why: dict[str, str] = {}
        for i in self.cluster.all_instances:
            task = i.job.task
            if i.state is not State.RUNNING or task not in gaps:
                continue
            if not i.is_paced:
                why[task] = (
                    f"{task} runs in real-time mode, or its task manager refuses to set what a running query reads"
                )
            elif gaps[task].due_s is not None and not i.takes_turns:
                why[task] = (
                    f"batches of {task} take no turns: only those of a query without a trigger do that reads a topic "
                    "on a task manager that this session has started"
                )
        for task in sorted(why.keys() - self._without_gaps):
            self.cluster.add(refused(Refusal(gaps[task], why[task])))
        self._without_gaps = set(why)

    def _by_manager(self) -> dict[TaskManager, dict[str, float]]:
        """Return the values that the instances of each live task manager read."""
        with self.cluster.lock:
            return {
                manager: {
                    key: value
                    for i in self.cluster.all_instances
                    if i.task_manager is manager
                    for key, value in self.cluster.dials_of(i).items()
                }
                for manager in list(self.cluster.task_managers.values())
                if manager.alive()
            }

    def _must_restart(self, by_manager: Mapping[TaskManager, object]) -> list[Instance]:
        """Return the running instances that read new values only after a restart."""
        return [
            i
            for manager in by_manager
            if manager.reading is DialReading.RESTART
            for i in self.cluster.all_instances
            if i.task_manager is manager
            and i.state is State.RUNNING
            and any(abs(manager.dials.get(k, 1.0) - v) > LEAST_CHANGE for k, v in self.cluster.dials_of(i).items())
        ]

    def _send(self, by_manager: Mapping[TaskManager, Mapping[str, float]]) -> list[str]:
        """Set the values on all task managers that need no restart for it. Return what failed, in words."""
        results = gather(
            {
                manager.id: partial(manager.turn, wanted)
                for manager, wanted in by_manager.items()
                if manager.reading is not DialReading.RESTART  # a restart sets them
            },
            max(self.cluster.period_s, LEAST_TIMEOUT_S),
        )
        return [f"dials of {id} not set: {error}" for id, error in results.items() if isinstance(error, BaseException)]
