"""Deploys tasks: stops, starts and restarts queries, as `lifecycle.deployment` decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from qod_magics.application.application import Application
from qod_magics.application.shed_keys import Ask
from qod_magics.application.tasks import Edges, TaskSpec, declared, settings_of
from qod_magics.errors import KafkaError, QodError, TaskManagerError
from qod_magics.kafka.topics import delete_topics
from qod_magics.lifecycle.admission import Admission
from qod_magics.lifecycle.changes import ChangeBegins, RollBack, StepEnded, StepFailed, SwitchOver
from qod_magics.lifecycle.deployment import (
    CreateTopics,
    Decision,
    DeleteTopics,
    DeleteTopicsLater,
    Deploying,
    Queries,
    StartTasks,
    StopTasks,
    TellStateLost,
    decide,
)
from qod_magics.lifecycle.events import Instruction, State, StopAsked
from qod_magics.lifecycle.query import QueryLife
from qod_magics.named.manifest import KeptTask
from qod_magics.spark.changes.change import between_batches
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.changes.resuming import Resuming, Returning
from qod_magics.spark.cluster.books import left_text
from qod_magics.spark.cluster.cluster import Before, Cluster
from qod_magics.spark.cluster.deployment import Deployment, Prepared
from qod_magics.spark.cluster.placing import targets_for
from qod_magics.spark.cluster.preparing import instance_jobs, prepare
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import Job, names_and_types
from qod_magics.spark.plans.labels import Labels
from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import gather, reason


class Deployer:
    """Runs exactly the tasks that it is given. Any thread may call it: deployments run one at a time. It changes the
    cluster under the cluster's lock only.

    Args:
        cluster: the state to change.
        lifecycle: starts and stops the instances.
        metrics: with the history of offsets.
        checkpoints: a location that every task manager reaches.
        resuming: what an earlier kernel left; None: nothing.

    """

    def __init__(
        self,
        cluster: Cluster,
        lifecycle: Lifecycle,
        metrics: Metrics,
        checkpoints: str,
        resuming: Resuming | None = None,
    ) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self.metrics = metrics
        self.checkpoints = checkpoints
        self.resuming = resuming or Resuming(cluster)
        #: by task, how often it has started on new checkpoints
        self._generation = self.resuming.generations
        self.deploying = threading.Lock()  #: held while instances are replaced
        self.admission = Admission()  #: changed while the cluster's lock is held
        self.resumed: frozenset[str] = (
            frozenset()
        )  #: tasks that kept their state in the last deployment with a new recipe
        self.lost_state: frozenset[str] = frozenset()  #: tasks that lost their state in the last deployment
        self.returned: tuple[str, ...] = ()  #: tasks of an earlier kernel that the last deployment started

    def __repr__(self) -> str:
        return f"deployer of tasks {', '.join(self.cluster.deployment.specs) or 'none'}"

    def inlinable(self, application: Application) -> dict[str, int]:
        """Return the streams that each reader may compute itself (see `tasks`); none while no task manager is up."""
        if not self._alive():
            return {}
        return self.cluster.deployment.inlinable(application, self.cluster.workshop())

    def asks(self, application: Application) -> dict[str, tuple[Ask, ...] | None]:
        """Return the keys by which queries need streams shed (see `shed_keys`); none while no task manager is up."""
        return self.cluster.deployment.asks(application, self.cluster.workshop()) if self._alive() else {}

    def _alive(self) -> bool:
        return any(manager.alive() for manager in list(self.cluster.task_managers.values()))

    def restrict(self, specs: Sequence[TaskSpec], labels: Mapping[str, Labels] = MappingProxyType({})) -> None:
        """Adopt the restrictions of these tasks, whose streams otherwise equal the running ones. They may have been
        fused or unfused meanwhile.

        Args:
            specs: the tasks.
            labels: by task, what shedding does to its columns, where that was found out with these restrictions.

        """
        streams = {stream.name: stream for spec in specs for stream in spec.streams}
        with self.deploying, self.cluster.lock:
            self.cluster.deployment.restrict(streams, labels)

    def held_modes(self, tasks: Collection[str]) -> str:
        """Return which instances of these tasks keep their mode although their maximum latency asks for another; "" if
        none does.

        An instance that keeps state can't change its mode: Spark refuses to continue a checkpoint of micro-batches with
        state in real-time mode (CHECKPOINT_FORMAT_V1_NOT_SUPPORTED).
        """
        notes = []
        for instance in self.cluster.all_instances:
            facts, spec = instance.facts, self.cluster.deployment.specs.get(instance.job.task)
            if spec is None or spec.id not in tasks or facts is None or not facts.keeps_state:
                continue
            wanted = "real-time" if spec.is_hurried else "micro-batch"
            if instance.mode not in (None, wanted) and not (instance.job.only_microbatch or instance.no_realtime):
                notes.append(
                    f"{instance.id} stays in {instance.mode} mode, as its state can't change modes: stop it and "
                    f"declare it again for {wanted} mode"
                )
        return "; ".join(notes)

    def deploy(self, specs: Sequence[TaskSpec], edges: Edges | None = None) -> bool:
        """Run exactly these tasks: start, stop and restart those that differ from the running ones.

        Recipes are checked first: if one fails, nothing changes.

        Args:
            specs: the tasks.
            edges: the streams between tasks for which they were made; where tasks have been fused or unfused since,
                or a pattern has more topics, nothing changes, and the result is False.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self.deploying:
            deployment = self.cluster.deployment
            if edges is not None and (edges != deployment.edges or _other_topics(specs, deployment)):
                return False
            checked = deployment.check(specs, self.cluster.workshop()) if specs else Checked()
            decision = decide(
                map(declared, deployment.specs.values()), map(declared, specs), self._running(), _wanted(specs, checked)
            )
            returning = self.resuming.returning(decision.new, specs, checked)
            decision = decision.returning(returning.going_on, returning.other_columns)
            for spec in specs:
                if spec.sink is not None and decision.fates[spec.id].new_checkpoints:
                    spec.sink.check_new()
            checked = replace(checked, resumed=decision.resuming, kept=returning.going_on)
            self._deploy(decision, specs, checked, returning)
            self.resumed, self.lost_state = decision.resuming, frozenset(decision.losing_state)
            self.returned = tuple(returning.known)
        return True

    def _running(self) -> dict[str, Queries]:
        """Return what is known of the queries that run, by task."""
        deployment, found = self.cluster.deployment, {}
        for spec in deployment.specs.values():
            mine = self.cluster.instances_of(spec.id)
            complete = len(mine) == deployment.instances(spec)
            keeps_state = any(i.begun and i.facts is not None and i.facts.keeps_state for i in mine)
            there = _queries(spec, deployment.checked, spec.parallelism if complete else 0, keeps_state)
            found[spec.id] = replace(there, running=len(mine) if complete else 0)
        return found

    def _deploy(self, decision: Decision, specs: Sequence[TaskSpec], checked: Checked, returning: Returning) -> None:
        """Carry out a deployment. Raises what made it fail, once what ran before is put back."""
        before, life = self.cluster.before(), Deploying(decision)
        prepared: Prepared | None = None
        gone: set[str] = set()
        new: list[Instance] = []

        def do(step: Instruction) -> None:
            nonlocal prepared, gone, new
            match step:
                case StopTasks(tasks, at_batch_end):
                    batch_s = self.cluster.patience.batch_s + 1.0 if at_batch_end else 0.0
                    self._stop(_of(before, tasks), batch_s, read_on=at_batch_end)
                case CreateTopics():
                    self.resuming.seed(returning, self.cluster.deployment)
                    prepared = prepare(self.cluster.deployment, specs, checked, decision.other_columns)
                case SwitchOver():
                    assert prepared is not None
                    gone, new = self._adopt(prepared, decision)
                    self._tell_left(prepared.left)
                case StartTasks():
                    self._start(new)
                    gone |= self.resuming.done(returning)
                case TellStateLost(task, why):
                    self._tell_state_lost(task, why)
                case DeleteTopics():
                    self.delete(gone)
                case DeleteTopicsLater():
                    self.cluster.leave_topics(gone)
                case RollBack():
                    self.roll_back(before, _of(before, decision.stopping))

        try:
            steps = life.handle(ChangeBegins())
            while steps:
                do(steps[0])
                steps = life.handle(StepEnded(steps[0]))
        except BaseException as error:
            if life.step is not None:
                for step in life.handle(StepFailed(life.step, reason(error))):
                    do(step)
            if not (life.runs and isinstance(error, KeyboardInterrupt)):  # else it is too late: the declared tasks run
                raise

    def _tell_left(self, left: Mapping[str, int]) -> None:
        for stream, rows in left.items():
            sender, _, task = stream.rpartition(">")
            self.cluster.event("rows-left", task=task, stream=stream, rows=rows, why=left_text(rows, sender))

    def _tell_state_lost(self, task: str, why: str) -> None:
        with self.cluster.lock:
            self.cluster.incomplete.lose_state(task, time.time())
        why = f"{why}: groups and windows that were open lack the rows so far"
        self.cluster.event("state-begins-anew", task=task, why=why)

    def renew_jobs(self, spec: TaskSpec) -> None:
        """Give a task's instances the jobs that they should have now, on their checkpoints. `Mover.restart_outdated`
        restarts them."""
        jobs = {job.instance: job for job in instance_jobs(self.cluster.deployment, spec, self._generation[spec.id])}
        for instance in self.cluster.all_instances:
            if instance.id in jobs:
                instance.assign(replace(jobs[instance.id], run=instance.job.run))  # its checkpoint stays

    def kept(self) -> dict[str, KeptTask]:
        """Return what a later kernel needs: of the tasks that run, and of those of an earlier one that have not
        started."""
        with self.cluster.lock:
            running, left = self.resuming.running(self._generation), self.resuming.left
            # one that goes on has its late rows and the time of its lost state only once it has started
            started = {n: t for n, t in running.items() if n not in left or t.generation != left[n].generation}
            return left | started

    def new_generation(self, spec: TaskSpec) -> int:
        """Return the number of a task's next checkpoints."""
        generation = self._generation.get(spec.id, 0) + 1
        root = local_path(str(self.checkpoints))
        while root is not None and (root / spec.id / str(generation)).exists():  # of an earlier kernel
            generation += 1
        self._generation[spec.id] = generation
        return generation

    def jobs_of(self, deployment: Deployment, spec: TaskSpec, generation: int) -> dict[str, tuple[Job, str]]:
        """Return a task's jobs in a deployment and their checkpoints, by instance."""
        jobs = instance_jobs(deployment, spec, generation)
        return {job.instance: (job, self.checkpoint(job.task, generation, job.index)) for job in jobs}

    def checkpoint(self, task: str, generation: int, index: int) -> str:
        """Return the location of the checkpoint of a task's instance, the first of which has index 0."""
        return f"{self.checkpoints}/{task}/{generation}/{index + 1}"

    def _stop(self, instances: Sequence[Instance], at_batch_end_s: float = 0.0, *, read_on: bool) -> None:
        for instance in instances:
            instance.handle(StopAsked())
        stops = {i.id: partial(self._end, i, at_batch_end_s, read_on) for i in instances}
        stopped = gather(stops, self.cluster.patience.step_s)
        for instance in instances:
            error = stopped[instance.id]
            if isinstance(error, BaseException):
                self._not_stopped(instance, error)

    def _end(self, instance: Instance, at_batch_end_s: float, read_on: bool) -> None:
        """Stop a run, after a batch that ends within `at_batch_end_s` seconds; the next batch is held where it can be.
        It is stopped in any case."""
        with ExitStack() as holding:
            wait_s, ended = at_batch_end_s, False
            if at_batch_end_s and instance.is_paced:
                with suppress(Exception):  # what Spark raises here, stopping raises, too
                    wait_s, ended = holding.enter_context(between_batches(self.cluster, instance, at_batch_end_s))
            self.lifecycle.stop(instance, wait_s, ended=ended, read_on=read_on)

    def _not_stopped(self, instance: Instance, error: BaseException) -> None:
        """Report once that a run could not be stopped, and have the watcher try again."""
        with self.cluster.lock:
            if not isinstance(error, TaskManagerError):  # which says that it is still being stopped
                known = any(each.unended is instance.unended for each in self.cluster.lingering)
                if instance.unended is None or known:
                    return
            self.cluster.linger(instance)
        home = instance.task_manager
        why = f"it may run on, and is asked again every second to stop: {reason(error)}"
        self.cluster.event(
            "query-not-stopped", instance=instance.id, task_manager=home.id if home is not None else None, why=why
        )

    def _adopt(self, prepared: Prepared, decision: Decision) -> tuple[set[str], list[Instance]]:
        """Make these tasks the current ones; return unneeded topics, and instances to start. A task and its instances
        appear together, so that a snapshot is valid at any instant."""
        deployment = self.cluster.deployment
        with self.cluster.lock:
            for task in decision.ending:
                self._forget(task)
            deployment.declared({id for id, fate in decision.fates.items() if fate.other_recipe}, decision.resuming)
            known = set(deployment.pipes)
            gone = deployment.adopt(prepared)
            for name, pipe in deployment.pipes.items():
                if name not in known:  # rows of an earlier stream of this name don't count
                    self.metrics.history.forget(pipe.topic)
            new = [
                instance
                for spec in prepared.specs
                if spec.id in decision.starting
                for instance in self._instances(spec, decision.fates[spec.id].new_checkpoints)
            ]
        return gone, new

    def _forget(self, task: str) -> None:
        """Remove a task's instances, its row counts, and the dials of the task and of the edges from and to it."""
        board = self.cluster.board
        self.cluster.forget_task(task)
        pipes = [pipe.name for pipe in self.cluster.deployment.pipes.values() if task in (pipe.source, pipe.target)]
        self.cluster.forget_dials(
            (board.source(task), board.accept(task), board.accuracy(task), *map(board.send, pipes))
        )

    def _instances(self, spec: TaskSpec, afresh: bool) -> list[Instance]:
        """Return new instances of a task, placed where its previous ones were. They are STARTING, not WAITING: the
        watcher would start the latter, too."""
        if afresh:
            self.new_generation(spec)
        had = {instance.id: instance for instance in self.cluster.instances_of(spec.id)}
        self.cluster.drop_instances(spec.id)
        generation = self._generation[spec.id]
        made = []
        for job in instance_jobs(self.cluster.deployment, spec, generation):
            checkpoint = self.checkpoint(job.task, generation, job.index)
            instance = self.cluster.make(job, checkpoint, spec.mode, QueryLife(State.STARTING))
            if not afresh:
                self.resuming.take_over(instance)
            before = had.get(instance.id)
            if before is not None:
                home = before.task_manager if self.cluster.is_up(before.task_manager) else None
                instance.follow(before, afresh, home, "its task was deployed again")
            made.append(instance)
        self.cluster.put(made)
        return made

    def _start(self, instances: Sequence[Instance]) -> None:
        """Start them where they were, or where the policy places them. Raises the first error."""
        with suppress(KafkaError):  # a new topic may have no leader yet; the watcher retries
            self.metrics.sample()
        targets = targets_for(self.cluster, {i.id: () for i in instances if i.task_manager is None})

        def start(instance: Instance) -> None:
            home = instance.task_manager or self.cluster.manager(targets[instance.id])
            self.lifecycle.start(instance, home)

        step_s = self.cluster.patience.step_s
        _all({i.id: partial(start, i) for i in instances}, step_s)
        _all({i.id: partial(self.lifecycle.settle, i) for i in instances}, step_s)

    def roll_back(self, before: Before, stopped: Sequence[Instance], why: str | None = None) -> None:
        """Undo a failed change: run exactly the instances that ran before it, with the dials that they had. Those that
        were stopped for it report `why` as their failure."""
        with self.cluster.lock:
            begun = [i for i in self.cluster.all_instances if before.instances.get(i.id) is not i]
        try:
            self._stop(begun, read_on=False)
        finally:  # also if the user interrupts this, too
            with self.cluster.lock:
                gone = self.cluster.restore(before)
            interrupted = {i.checkpoint for i in begun if i.interrupted}
            for instance in stopped:
                instance.reinstate(why=why, differs=True, interrupted=instance.checkpoint in interrupted)
        self.delete(gone)

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics that nothing uses any more; if the broker fails now, when the session ends."""
        topics = set(topics) - self.resuming.topics
        try:
            delete_topics(self.cluster.deployment.kafka, topics)
        except KafkaError:
            self.cluster.leave_topics(topics)


def _other_topics(specs: Iterable[TaskSpec], deployment: Deployment) -> bool:
    """Return whether the running tasks have adopted topics that these specs lack, or read some no more that these
    have."""
    heads = [head for spec in specs for head in spec.heads]
    return any(
        bool(now := deployment.topics_of_pattern(head.name, head.topic.pattern)) and {*head.topic.topics} != {*now}
        for head in heads
        if head.topic is not None and head.topic.pattern is not None
    )


def _queries(spec: TaskSpec, checked: Checked, instances: int, keeps_state: bool = False) -> Queries:
    """Return what is known of a task's queries. `checked` has facts about their plans."""
    schema, state = checked.schemas.get(spec.id), checked.signatures.get(spec.id)
    return Queries(
        instances,
        None if schema is None else names_and_types(schema),
        None if state is None else (state, settings_of(spec)),
        spec.id in checked.chained,
        keeps_state,
    )


def _wanted(specs: Iterable[TaskSpec], checked: Checked) -> dict[str, Queries]:
    """Return what is known of the queries of declared tasks, by task."""
    return {spec.id: _queries(spec, checked, spec.parallelism) for spec in specs}


def _of(before: Before, tasks: Collection[str]) -> list[Instance]:
    """Return the instances of these tasks that ran before a change."""
    return [instance for instance in before.instances.values() if instance.job.task in tasks]


def _all(calls: Mapping[str, Callable[[], None]], timeout_s: float) -> None:
    """Make all these calls concurrently; when all have ended, raise the first error."""
    for error in gather(calls, timeout_s).values():
        if isinstance(error, QodError):
            raise error
        if isinstance(error, BaseException):
            raise TaskManagerError(reason(error))
