"""Deployment: stops, starts and restarts tasks so that the declared ones run, and rolls back if that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from qod_magics.application.application import Application
from qod_magics.application.shed_keys import Ask
from qod_magics.application.tasks import Difference, Edges, TaskSpec, difference
from qod_magics.errors import KafkaError, QodError, TaskManagerError
from qod_magics.kafka.topics import delete_topics
from qod_magics.lifecycle.admission import Admission
from qod_magics.lifecycle.events import State, StopAsked
from qod_magics.lifecycle.query import QueryLife
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Before, Cluster
from qod_magics.spark.cluster.deployment import Deployment, Prepared
from qod_magics.spark.cluster.jobs import instance_jobs
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.plans.inspection import Checked
from qod_magics.spark.plans.labels import Labels
from qod_magics.spark.plans.pipeline import Job, feed_of, same_columns
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

    """

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle, metrics: Metrics, checkpoints: str) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self.metrics = metrics
        self.checkpoints = checkpoints
        self._generation: dict[str, int] = {}  #: by task, how often it has started on new checkpoints
        self.deploying = threading.Lock()  #: held while instances are replaced
        self.admission = Admission()  #: changed while the cluster's lock is held
        #: of the tasks that the last deployment replaced: those that went on with their state, and those that lost it
        self.resumed: frozenset[str] = frozenset()
        self.anew: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"deployer of tasks {', '.join(self.cluster.deployment.specs) or 'none'}"

    def inlinable(self, application: Application) -> dict[str, int]:
        """The streams that each reader may compute itself: see `tasks`. Empty while no task manager is up."""
        if not self._alive():
            return {}
        return self.cluster.deployment.inlinable(application, self.cluster.workshop())

    def asks(self, application: Application) -> dict[str, tuple[Ask, ...] | None]:
        """By what its queries ask that streams be shed: see `shed_keys`. Empty while no task manager is up."""
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
        """What these tasks, whose maximum latencies now ask for other modes, do instead; "" if nothing is to be said.

        Only those that keep state would change their modes. A checkpoint of micro-batches with state can't go on in
        real-time mode (Spark: CHECKPOINT_FORMAT_V1_NOT_SUPPORTED), so they keep their modes.
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
                    f"declare it anew for {wanted} mode"
                )
        return "; ".join(notes)

    def deploy(self, specs: Sequence[TaskSpec], edges: Edges | None = None) -> bool:
        """Run exactly these tasks: start, stop and restart those that differ from the running ones.

        Recipes are checked first: if one fails, nothing changes.

        Args:
            specs: the tasks.
            edges: the streams between tasks for which they were made; where tasks have been fused or unfused since,
                nothing changes, and the result is False.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self.deploying:
            deployment = self.cluster.deployment
            if edges is not None and edges != deployment.edges:
                return False
            change = difference(deployment.specs.values(), specs)
            checked = deployment.check(specs, self.cluster.workshop()) if specs else Checked()
            change = change.restarting(set(checked.chained) ^ set(deployment.checked.chained))
            checked = replace(checked, resumed=frozenset(self._resumed(change, specs, checked)))
            afresh = self._afresh(change, specs, checked.schemas) - checked.resumed
            anew = [task for task in change.replace if task in afresh and self._keeps_state(task)]
            before = self.before()
            ends = {*change.stop, *change.restart, *change.rebuild, *change.replace}
            stopping = [instance for instance in before.instances.values() if instance.job.task in ends]
            try:
                self._stop_for(specs, stopping)
                gone, new = self._adopt(deployment.prepare(specs, checked), change, afresh)
                self._start(new)
            except BaseException:
                self.roll_back(before, stopping)
                raise
            self.resumed, self.anew = checked.resumed, frozenset(anew)
            self._note_anew(anew)
            try:
                self.delete(gone)
            except KeyboardInterrupt:  # too late: these tasks run, and are the declared ones
                self.cluster.leave_topics(gone)
        return True

    def _keeps_state(self, task: str) -> bool:
        return any(i.begun and i.facts is not None and i.facts.keeps_state for i in self.cluster.instances_of(task))

    def _note_anew(self, tasks: Sequence[str]) -> None:
        """Tasks whose state was lost since they were replaced."""
        for task in tasks:
            with self.cluster.lock:
                self.cluster.incomplete.begins_anew(task, time.time())
            why = "its recipe changed in what its state means: groups and windows that were open lack the rows so far"
            self.cluster.event("state-begins-anew", task=task, why=why)

    def _resumed(self, change: Difference, specs: Sequence[TaskSpec], checked: Checked) -> set[str]:
        """The replaced tasks that go on with their state: only their filters and projections have changed."""
        deployment, found = self.cluster.deployment, set()
        for spec in specs:
            before, meaning = deployment.specs.get(spec.id), checked.signatures.get(spec.id)
            if spec.id not in change.replace or before is None or meaning is None:
                continue
            settings, known = _settings(spec), self.cluster.instances_of(spec.id)
            chained = (spec.id in checked.chained) == (spec.id in deployment.checked.chained)
            same = meaning == deployment.checked.signatures.get(spec.id) and settings == _settings(before) and chained
            if same and len(known) == deployment.instances(before) == spec.parallelism:
                found.add(spec.id)
        return found

    def adopt_partitions(self) -> None:
        """Have partitions added to a topic read, from their first row, by the tasks that read the topic. Their
        instances get new jobs, with which `Mover.restart_outdated` restarts them. Does nothing while a deployment is
        under way."""
        with self.cluster.lock:  # first: who holds it may ask for `deploying`, and must not find it held for this
            if not self.deploying.acquire(blocking=False):
                return
            try:
                deployment, now = self.cluster.deployment, time.monotonic()
                for spec in list(deployment.specs.values()):
                    grown = {}
                    for head in spec.topics:
                        name = feed_of(spec, head)
                        there = len(self.metrics.history.at(deployment.accounts[name].topic, now))
                        if there > deployment.source_partitions[name]:
                            grown[name] = there
                    if grown:
                        self._read_partitions(spec, grown)
            finally:
                self.deploying.release()

    def _read_partitions(self, spec: TaskSpec, grown: Mapping[str, int]) -> None:
        deployment = self.cluster.deployment
        deployment.read_more(grown)
        self.renew_jobs(spec)
        for name, count in grown.items():
            account = deployment.accounts[name]
            self.cluster.event("partitions-added", task=spec.id, topic=account.topic, partitions=count)

    def renew_jobs(self, spec: TaskSpec) -> None:
        """Give a task's instances the jobs that they should have now, on their checkpoints. `Mover.restart_outdated`
        restarts them."""
        jobs = {job.instance: job for job in instance_jobs(self.cluster.deployment, spec, self._generation[spec.id])}
        for instance in self.cluster.all_instances:
            if instance.id in jobs:
                instance.assign(replace(jobs[instance.id], run=instance.job.run))  # its checkpoint stays

    def new_jobs(self, spec: TaskSpec) -> dict[str, tuple[Job, str]]:
        """By instance: a task's jobs, and new checkpoints for them."""
        return self.jobs_of(self.cluster.deployment, spec, self.new_generation(spec))

    def new_generation(self, spec: TaskSpec) -> int:
        """The number of a task's next checkpoints."""
        generation = self._generation[spec.id] = self._generation.get(spec.id, 0) + 1
        return generation

    def jobs_of(self, deployment: Deployment, spec: TaskSpec, generation: int) -> dict[str, tuple[Job, str]]:
        """By instance: a task's jobs in a deployment, and their checkpoints."""
        jobs = instance_jobs(deployment, spec, generation)
        return {job.instance: (job, self._checkpoint(job, generation)) for job in jobs}

    def _checkpoint(self, job: Job, generation: int) -> str:
        return f"{self.checkpoints}/{job.task}/{generation}/{job.index + 1}"

    def _afresh(self, change: Difference, specs: Sequence[TaskSpec], schemas: Mapping[str, Any]) -> set[str]:
        """The tasks that start on new checkpoints: new and replaced ones, and those whose input columns changed."""
        upstreams, present = {spec.id: spec.upstream for spec in specs}, self.cluster.deployment.checked.schemas
        return {*change.start, *change.replace} | {
            task
            for task in change.rebuild
            if not all(same_columns(schemas.get(name), present.get(name)) for name in upstreams[task])
        }

    def _stop_for(self, specs: Sequence[TaskSpec], instances: Sequence[Instance]) -> None:
        """Stop instances at once, but at a batch's end if these tasks resume their input: no row is read twice."""
        goes_on = {head.name for spec in specs for head in spec.heads}
        present = self.cluster.deployment.specs
        over = {id for id, spec in present.items() if goes_on.isdisjoint(head.name for head in spec.heads)}
        self._stop([i for i in instances if i.job.task in over])
        self._stop([i for i in instances if i.job.task not in over], self.cluster.patience.batch_s + 1.0)

    def _stop(self, instances: Sequence[Instance], at_batch_end_s: float = 0.0) -> None:
        for instance in instances:
            instance.handle(StopAsked())
        stops = {i.id: partial(self.lifecycle.stop, i, at_batch_end_s) for i in instances}
        stopped = gather(stops, self.cluster.patience.step_s)
        for instance in instances:
            error = stopped[instance.id]
            if isinstance(error, BaseException):
                self._not_stopped(instance, error)

    def _not_stopped(self, instance: Instance, error: BaseException) -> None:
        """Leave an instance whose run may go on to the watcher, and report it once for each run."""
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

    def _adopt(self, prepared: Prepared, change: Difference, afresh: set[str]) -> tuple[set[str], list[Instance]]:
        """Make these tasks the current ones; returns unneeded topics, and instances to start. A task and its instances
        appear together: a snapshot is valid at any instant."""
        deployment = self.cluster.deployment
        with self.cluster.lock:
            for task in change.stop:
                self._forget(task)
            deployment.declared({*change.start, *change.replace})
            known = set(deployment.pipes)
            gone = deployment.adopt(prepared)
            for name, pipe in deployment.pipes.items():
                if name not in known:  # rows of an earlier stream of this name don't count
                    self.metrics.history.forget(pipe.topic)
            new = [
                instance
                for spec in prepared.specs
                if spec.id not in change.unchanged
                for instance in self._instances(spec, spec.id in afresh)
            ]
        return gone, new

    def _forget(self, task: str) -> None:
        """Remove a task's instances, its row counts, and all dials of the task and of the streams from and to it."""
        board = self.cluster.board
        paced = [board.pace(instance.id) for instance in self.cluster.instances_of(task)]
        self.cluster.forget_task(task)
        pipes = [pipe.name for pipe in self.cluster.deployment.pipes.values() if task in (pipe.source, pipe.target)]
        self.cluster.forget_dials(
            (board.source(task), board.accept(task), board.accuracy(task), *map(board.send, pipes), *paced)
        )

    def _instances(self, spec: TaskSpec, afresh: bool) -> list[Instance]:
        """New instances of a task, placed where its previous ones were. They are STARTING, not WAITING: the watcher
        would start the latter too."""
        if afresh:
            self.new_generation(spec)
        had = {instance.id: instance for instance in self.cluster.instances_of(spec.id)}
        self.cluster.forget(spec.id)
        generation = self._generation[spec.id]
        made = []
        for job in instance_jobs(self.cluster.deployment, spec, generation):
            checkpoint = self._checkpoint(job, generation)
            instance = self.cluster.make(job, checkpoint, spec.mode, QueryLife(State.STARTING))
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
        targets = self.cluster.targets({i.id: () for i in instances if i.task_manager is None})

        def start(instance: Instance) -> None:
            home = instance.task_manager or self.cluster.manager(targets[instance.id])
            self.lifecycle.start(instance, home)

        step_s = self.cluster.patience.step_s
        _all({i.id: partial(start, i) for i in instances}, step_s)
        _all({i.id: partial(self.lifecycle.settle, i) for i in instances}, step_s)

    def before(self) -> Before:
        """What runs now, before a change that may fail."""
        return self.cluster.before()

    def roll_back(self, before: Before, stopped: Sequence[Instance], why: str | None = None) -> None:
        """After a failed deployment: run exactly the instances that ran before it, with the dials that they had. `why`
        is what those that were stopped tell as their failure."""
        with self.cluster.lock:
            begun = [i for i in self.cluster.all_instances if before.instances.get(i.id) is not i]
        try:
            self._stop(begun)
        finally:  # also if the user interrupts this, too
            with self.cluster.lock:
                gone = self.cluster.restore(before)
            for instance in stopped:
                instance.reinstate(why=why, differs=True)
        self.delete(gone)

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics that nothing uses any more; if the broker fails now, when the session ends."""
        try:
            delete_topics(self.cluster.deployment.kafka, topics)
        except KafkaError:
            self.cluster.leave_topics(topics)


def _settings(spec: TaskSpec) -> object:
    """What a checkpoint depends on beside the recipes."""
    topics = [(head, topic.topic, topic.schema, topic.shed_by, topic.time_unit) for head, topic in spec.topics.items()]
    return topics, spec.upstream, spec.sink, spec.key, spec.mode, spec.is_hurried


def _all(calls: Mapping[str, Callable[[], None]], timeout_s: float) -> None:
    """Make all these calls concurrently; when all have ended, raise the first error."""
    for error in gather(calls, timeout_s).values():
        if isinstance(error, QodError):
            raise error
        if isinstance(error, BaseException):
            raise TaskManagerError(reason(error))
