"""Rescale tasks: assign their partitions to another number of instances, and with them the state of their keys.

The unit is the partition. Instances that get other partitions stop at the end of their batch. The next offset of each
of their partitions is then in the row accounting, and runs on new checkpoints start there. Instances that keep their
partitions keep running. In micro-batches the next batch is held before it reads, so that no row is read twice. In
real-time mode rows may be read twice that the next batch has read by the time it is stopped, a small part of one batch.

A stream that is partitioned by a key, and gets more partitions, is read to its end first, while the tasks that send to
it stand still: a row would otherwise overtake older rows of its key, which wait in another partition.

Of a task that keeps state, each new instance goes on from a checkpoint with the state of the keys that it reads from
then on (`spark.cluster.state`), which is written while the task stands still.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from qod_magics.application import graph
from qod_magics.application.tasks import TaskSpec
from qod_magics.core.plan import Scale
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.kafka.topics import grow_topics
from qod_magics.lifecycle.admission import Answer, Asked, why_not_scaled
from qod_magics.lifecycle.changes import (
    CopyCheckpoints,
    Drain,
    Group,
    GrowTopics,
    Kind,
    Resume,
    StartAll,
    StopAll,
    SwitchOver,
    TaskChange,
)
from qod_magics.lifecycle.events import Instruction, NotPlaced, State, Tell
from qod_magics.lifecycle.query import QueryLife
from qod_magics.spark.changes.change import (
    Draining,
    begin_change,
    carry_out,
    ended,
    facts_of,
    in_one_line,
    stop_all,
)
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.placing import targets_for
from qod_magics.spark.cluster.state import Heir, assign_state
from qod_magics.spark.plans.job import feeds_of
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import shared
from qod_magics.spark.servers.connection import begin, gather, reason
from qod_magics.spark.servers.task_manager import TaskManager

#: Interval of looking whether a task runs, seconds.
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class _Carried:
    """State that new instances have been given."""

    generation: int  #: of their checkpoints
    begun: frozenset[str]  #: the instances that have some


class Scaler:
    """Rescales one task at a time; rescalings that a plan asks for take turns. Any thread may call it."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle, deployer: Deployer) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self.deployer = deployer
        self.admission = deployer.admission

    def __repr__(self) -> str:
        return f"scaler: {'; '.join(each.doing for each in self.admission.under_way) or 'nothing under way'}"

    def begin(self, action: Scale) -> None:
        """Begin a rescaling that a plan asks for, unless it is under way or done. A refused rescaling becomes an event.
        While another task is rescaled, it waits, in the place of what waits for the same task."""
        with self.cluster.lock:
            if self.admission.ask(_asked(action.task, action.parallelism, action)) is not Answer.BEGINS:
                return
        begin_change(self.cluster, action, partial(self.scale, action.task, action.parallelism, action.to, action.why))

    def _next(self) -> None:
        """Begin the first waiting rescaling that is not refused, once the instances of its task run: a rescaling
        restarts the tasks that send to the rescaled one."""
        while True:
            with self.cluster.lock:
                waits = self.admission.next
            if waits is None:  # the end of what is under way looks again
                return
            end = time.monotonic() + self.cluster.patience.step_s
            while time.monotonic() < end and self._starts(waits.name):
                time.sleep(LOOK_S)
            with self.cluster.lock:
                asked = self.admission.take(waits.name)
            if asked is not None and isinstance(asked.action, Scale):
                self.begin(asked.action)

    def _starts(self, task: str) -> bool:
        return any(instance.state is not State.RUNNING for instance in self.cluster.instances_of(task))

    def scale(self, task: str, parallelism: int, to: Sequence[str] = (), why: str = "") -> Future[None]:
        """Begin to rescale a task. The future raises TaskManagerError or KafkaError if it runs as before.

        Args:
            task: its id.
            parallelism: the new number of instances.
            to: task managers of the instances added, in their order; the others start where the policy places them.
            why: the reason, for the event.

        Raises:
            TaskManagerError: there is no such task or task manager; the task keeps state that can't be assigned, can't
                have as many instances or does not run; or it, or another one, is being moved, rescaled or deployed.

        """
        with self.cluster.lock:
            spec, instances = self._scalable(task, parallelism)
            for name in to:
                if not self.cluster.is_up(self.cluster.manager(name)):
                    raise TaskManagerError(
                        f"{name} is being removed: name another task manager.", name=name, rule="stays"
                    )
            if len(instances) == parallelism:
                return ended(None)
            if not self.deployer.deploying.acquire(blocking=False):
                raise TaskManagerError(
                    f"Tasks are being deployed, fused or rescaled: scale {task} after.",
                    name=task,
                    rule="one change at a time",
                )
            asked = _asked(task, parallelism)
            self.admission.begins(asked)
        run = in_one_line(partial(self._scale, spec, asked, tuple(to), why), f"{task} was not scaled")
        return begin(run, f"scale-{task}")

    def _scalable(self, task: str, parallelism: int) -> tuple[TaskSpec, list[Instance]]:
        """Return the task and its instances. Raises TaskManagerError, one line, where it can't be rescaled now."""
        deployment = self.cluster.deployment
        if (hindered := self.admission.why_not(_asked(task, None))) is not None:
            raise hindered.error()
        spec = deployment.specs.get(task)
        if spec is None:
            within = ", ".join(other.id for other in deployment.specs_with(task))
            hint = f" It runs within {within}: scale that." if within else nearest(task, deployment.specs)
            raise TaskManagerError(f"There is no task {task!r}.{hint}")
        most = deployment.max_parallelism(spec)
        refusal = why_not_scaled(facts_of(self.cluster, task), parallelism, most, _bound(spec, most))
        if refusal is not None:
            raise refusal.error()
        return spec, self.cluster.instances_of(task)

    def _scale(self, spec: TaskSpec, asked: Asked, to: tuple[str, ...], why: str) -> None:
        try:
            self._check_order(spec)
            assert asked.parallelism is not None
            self._change(spec, asked.parallelism, to, why)
        finally:
            with self.cluster.lock:
                self.admission.ends(asked)
                self.deployer.deploying.release()
                waits = bool(self.admission.waiting)
            if waits:
                begin(self._next, "scale-next")

    def _change(self, spec: TaskSpec, parallelism: int, to: tuple[str, ...], why: str) -> None:
        """Carry out a rescaling. Raises what made it fail, once all was put back."""
        before = self.cluster.instances_of(spec.id)
        keyed = [pipe for pipe in self._short(spec, parallelism) if pipe.key is not None]
        senders = [i for pipe in keyed for i in self.cluster.instances_of(pipe.source)]
        added = {f"{spec.id}.{len(before) + at + 1}": name for at, name in enumerate(to)}
        detail = {"task": spec.id, "from": len(before), "to": parallelism}
        drain_s, drains = self.cluster.patience.drain_s, bool(keyed)
        carries = any(i.facts is not None and i.facts.keeps_state for i in before)
        life = TaskChange(Kind.SCALE, spec.id, spec.id, drains=drains, carries=carries, detail=detail, drain_s=drain_s)
        concerned: list[Instance] = []
        made: list[Instance] = []
        carried: _Carried | None = None
        draining: Draining | None = None

        def do(step: Instruction) -> int | None:
            nonlocal concerned, made, carried, draining
            match step:
                case StopAll(Group.SENDERS):
                    self._stop(senders)
                case Drain():
                    accounts = [self.cluster.deployment.accounts[pipe.name] for pipe in keyed]
                    draining = draining or Draining(self.cluster, spec.id, accounts)
                    return draining.rows_left()
                case GrowTopics():
                    self._make_room(spec, parallelism)
                case StopAll():
                    # with more partitions every key may change its partition, so all instances stop
                    concerned = before if carries and drains else self._concerned(spec, before, parallelism)
                    self._stop(concerned)
                case CopyCheckpoints():
                    carried = self._carry_state(spec, parallelism, before, concerned)
                case SwitchOver():
                    made = self._adopt(spec, parallelism, before, concerned, carried)
                case Resume(Group.SENDERS):
                    self._resume(senders)
                case Resume():
                    for instance in concerned:
                        instance.reinstate(why=f"{spec.id} was not scaled, for {life.refusal}")
                case StartAll():
                    self._start(made, added)
                case Tell(kind, told):
                    self.cluster.event(kind, **told, why=why or None)
            return None

        carry_out(life, do)

    def _check_order(self, spec: TaskSpec) -> None:
        """Raise TaskManagerError if rows of the task replace earlier ones, as the counts of an aggregation before it
        do: instances do not keep the order of rows of different partitions."""
        deployment = self.cluster.deployment
        before = graph.ancestors({id: each.upstream for id, each in deployment.specs.items()}, (spec.id,))
        facts = [i.facts for i in self.cluster.all_instances if i.job.task in before]
        if not any(fact is not None and fact.keeps_state for fact in facts):
            return
        keys = deployment.result_keys(spec.id, self.cluster.workshop())
        if keys is not None and spec.key not in keys:
            raise TaskManagerError(
                f"{spec.id} reads groups whose newest row counts, and only with --key do several instances keep the "
                f"order of a group's rows: declare it with --key {next(iter(keys), 'COLUMN')}.",
                name=spec.id,
                rule="key",
            )

    def _resume(self, senders: Sequence[Instance]) -> None:
        """Start stopped instances where they ran, with the jobs that they have by now. The watcher restarts those whose
        task manager leaves, as all do when the session ends."""
        for sender in senders:
            sender.reinstate(why="it stood still while rows of its stream were assigned to other partitions")
        up = [each for each in senders if self.cluster.is_up(each.task_manager)]
        self._start([each for each in up if each.retry()], {})

    def _short(self, spec: TaskSpec, parallelism: int) -> list[Pipe]:
        """Return the streams to a task that have fewer partitions than the task is to have instances."""
        pipes = self.cluster.deployment.pipes
        return [pipes[name] for name in feeds_of(spec) if name in pipes and pipes[name].partitions < parallelism]

    def _make_room(self, spec: TaskSpec, parallelism: int) -> None:
        """Add partitions to the topics that have too few: of the streams to the task, and of its results."""
        deployment = self.cluster.deployment
        short = {pipe.topic: deployment.grown_to(spec) for pipe in self._short(spec, parallelism)}
        results = deployment.results.get(spec.id)
        grow_topics(deployment.kafka, short | ({} if results is None else {results: parallelism}))

    def _concerned(self, spec: TaskSpec, before: Sequence[Instance], parallelism: int) -> list[Instance]:
        """Return the instances that stop: the last ones if there will be fewer, and those that will read other
        partitions."""
        assignments = self.cluster.deployment.assignments_for(spec, parallelism)
        return [
            instance
            for instance in before
            if instance.job.index >= parallelism
            or _reads(instance) != {n: own for n, each in assignments.items() if (own := each[instance.job.index])}
        ]

    def _stop(self, instances: Sequence[Instance]) -> None:
        stop_all(self.cluster, self.lifecycle, instances, "a task is scaled", "its task was not scaled", "scale-waits")

    def _carry_state(
        self, spec: TaskSpec, parallelism: int, before: Sequence[Instance], concerned: Sequence[Instance]
    ) -> _Carried:
        """Give the instances that will be new the state of the keys that they will read. Raises what made it fail,
        once nothing of it is left."""
        generation = self.deployer.new_generation(spec)
        ((_, assignment),) = self.cluster.deployment.assignments_for(spec, parallelism).items()
        stay = [i for i in before if i not in concerned]
        had = {i.id: i for i in before}
        heirs = []
        for index, partitions in enumerate(assignment):
            id = f"{spec.id}.{index + 1}"
            if id in {i.id for i in stay}:
                continue
            home = had[id].task_manager if id in had else None
            heirs.append(Heir(id, self.deployer.checkpoint(spec.id, generation, index), partitions, home))
        begun = assign_state(self.cluster, spec, concerned, heirs, sum(map(len, assignment)))
        return _Carried(generation, frozenset(begun))

    def _adopt(
        self,
        spec: TaskSpec,
        parallelism: int,
        before: Sequence[Instance],
        concerned: Sequence[Instance],
        carried: _Carried | None,
    ) -> list[Instance]:
        """Assign the partitions to the new instances, and return those to start. They are STARTING, not WAITING:
        the watcher would start the latter too."""
        deployment = self.cluster.deployment
        with self.cluster.lock:
            senders = deployment.reassign(spec, parallelism)
            why = f"{spec.id} is scaled to {parallelism} instance{'s' * (parallelism > 1)}"
            had = {instance.id: instance for instance in before}
            made = []
            generation = self.deployer.new_generation(spec) if carried is None else carried.generation
            for id, (job, checkpoint) in self.deployer.jobs_of(deployment, spec, generation).items():
                last = had.get(id)
                if last is not None and last not in concerned:
                    continue
                instance = self.cluster.make(
                    job,
                    checkpoint,
                    spec.mode,
                    QueryLife(State.STARTING),
                    facts=before[0].facts,
                    no_realtime=before[0].no_realtime,
                )
                if last is not None:
                    home = last.task_manager if self.cluster.is_up(last.task_manager) else None
                    instance.follow(last, afresh=True, home=home, why=why)
                else:
                    instance.replaces((), why)
                if carried is not None and id in carried.begun:
                    instance.inherit_state(before[0], begun=True, same_files=False)
                made.append(instance)
            reading = shared((instance.last_reading for instance in concerned), len(made))
            for instance in made:
                instance.hold(reading)
            for instance in before[parallelism:]:
                self.cluster.drop(instance.id)
            self.cluster.put(made)
            for sender in senders:
                self.deployer.renew_jobs(deployment.specs[sender])
        return made

    def _start(self, instances: Sequence[Instance], to: dict[str, str]) -> None:
        """Start instances where they were, where `to` says, or where the policy places them. The watcher restarts those
        that can't start now."""
        managers = self.cluster.task_managers
        homes: dict[str, TaskManager] = {i.id: i.task_manager for i in instances if i.task_manager is not None}
        asked = {i.id: managers.get(to.get(i.id, "")) for i in instances if i.id not in homes}
        homes |= {id: home for id, home in asked.items() if home is not None and self.cluster.is_up(home)}
        with suppress(Exception):  # none is up, or the policy fails: the watcher asks again, and reports that
            placed = targets_for(self.cluster, {i.id: () for i in instances if i.id not in homes})
            homes |= {id: managers[target] for id, target in placed.items() if target in managers}

        def start(instance: Instance) -> None:
            home = homes[instance.id]
            try:
                self.lifecycle.start(instance, home)
                self.lifecycle.settle(instance)
            except Exception as error:
                self.lifecycle.fail_on(instance, home, reason(error))

        for instance in instances:
            if instance.id not in homes:
                instance.handle(NotPlaced())
        gather({i.id: partial(start, i) for i in instances if i.id in homes}, self.cluster.patience.step_s)


def _reads(instance: Instance) -> dict[str, tuple[int, ...]]:
    """Return the partitions that an instance reads, by feed."""
    return {feed.name: feed.partitions for feed in instance.job.feeds}


def _asked(task: str, parallelism: int | None, action: Scale | None = None) -> Asked:
    return Asked(Kind.SCALE, task, parallelism, frozenset({task}), action)


def _bound(spec: TaskSpec, most: int) -> str:
    """Return why a task can't have more instances."""
    if not feeds_of(spec):
        return "it reads a source of its own, which can't be split"
    if spec.topics and most != spec.stated_max_parallelism:
        topics = ", ".join(dict.fromkeys(topic.topic for topic in spec.topics.values()))
        return f"its topic {topics} has {most} partition{'s' if most > 1 else ''}; take {most} or less"
    return f"its maximum is {most}; declare it with a higher --max-parallelism, or take {most} or less"
