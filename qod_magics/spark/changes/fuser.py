"""Fuse neighbouring tasks into one query while rows flow, and unfuse them.

The first task stops at the end of a batch, as in a rescaling: the next offset of each of its partitions is then in the
row accounting. The second reads its topic to the end, and stops, too. Their query starts at the first task's offsets,
and writes no row to Kafka between them. To unfuse them, the one query stops at the end of a batch, and both start
again, the first at the query's offsets, with a new topic between them. A checkpoint with state is copied for the query
that keeps the state from then on. Until the new query runs, any failure puts back what ran before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from qod_magics.application.tasks import Edge, TaskSpec, fused, fused_edges, unfused, why_not_fused, why_not_unfused
from qod_magics.core.plan import Fuse, Unfuse
from qod_magics.errors import QodError, TaskManagerError, listed, nearest
from qod_magics.lifecycle.admission import Answer, Asked, why_busy, why_not_joined
from qod_magics.lifecycle.changes import (
    CopyCheckpoints,
    Drain,
    Group,
    Kind,
    Resume,
    RollBack,
    StartAll,
    StopAll,
    SwitchOver,
    TaskChange,
)
from qod_magics.lifecycle.events import Instruction, State, Tell
from qod_magics.lifecycle.query import QueryLife
from qod_magics.spark.changes.change import (
    LOOK_S,
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
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.preparing import refit
from qod_magics.spark.plans.job import Feed, PlanFacts
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.queries.checkpoints import Offsets, transplant, why_not_transplanted
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import in_a_row
from qod_magics.spark.servers.connection import begin, gather, reason

#: For how long the first batch of a query with another's state is waited for, seconds.
FIRST_S = 30.0


@dataclass(slots=True)
class _Change:
    """Tasks that replace others with the same streams."""

    kind: Kind
    edge: Edge  #: the stream that becomes part of a query, or a topic
    gone: tuple[TaskSpec, ...]  #: inputs first, as the next
    made: tuple[TaskSpec, ...]
    facts: dict[str, PlanFacts] = field(default_factory=dict)  #: of the tasks made
    generations: dict[str, int] = field(default_factory=dict)  #: of their checkpoints
    stateful: TaskSpec | None = None  #: of those gone, the one that keeps state
    heir: TaskSpec | None = None  #: of those made, the one that keeps it from then on
    begun: dict[str, list[Instance]] = field(default_factory=dict)  #: the new instances, by task

    @property
    def name(self) -> str:
        """Return the stream, "from>to"."""
        return ">".join(self.edge)

    @property
    def told(self) -> str:
        return f"{self.name} is {self.kind.done}"

    @property
    def undone(self) -> str:
        return f"{self.name} was not {self.kind.done}"


class Fuser:
    """Fuses or unfuses one pair of tasks at a time. Any thread may call it."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle, deployer: Deployer) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self.deployer = deployer
        self.admission = deployer.admission

    def __repr__(self) -> str:
        return f"fuser: {'; '.join(each.doing for each in self.admission.under_way) or 'nothing under way'}"

    def begin(self, action: Fuse | Unfuse) -> None:
        """Begin what a plan asks for, unless it is under way or done. A refused change becomes an event."""
        kind, change = (Kind.FUSE, self.fuse) if isinstance(action, Fuse) else (Kind.UNFUSE, self.unfuse)
        with self.cluster.lock:
            if self.admission.ask(Asked(kind, ">".join(action.edge))) is not Answer.BEGINS:
                return
        begin_change(self.cluster, action, partial(change, action.edge, action.why))

    def fuse(self, edge: Edge, why: str = "") -> Future[None]:
        """Begin to run two neighbouring tasks as one query. The future raises QodError, one line, if both run as
        before.

        Args:
            edge: the tasks, or the last stream of the first and the first stream of the second.
            why: the reason, for the event.

        Raises:
            TaskManagerError: there are no such tasks, they can't be one query or do not run on one task manager, or
                an application is being deployed, or another task fused, unfused or rescaled.

        """
        with self.cluster.lock:
            specs = self.cluster.deployment.specs
            if any(self._same(edge, inner, spec) for spec in specs.values() for inner in fused_edges(spec)):
                return ended(None)
            first, second = (self._task(name, "fuse") for name in edge)
            at = f"{first.id} and {second.id} can't be fused"
            there = len(self.cluster.instances_of(second.id))
            refusal = why_not_fused(first, second, specs.values(), there) or self._why_apart(first, second)
            if refusal:
                raise TaskManagerError(f"{at}: {refusal}.")
            head = next(each.name for each in second.heads)
            return self._begin(
                _Change(Kind.FUSE, (first.id, head), (first, second), (fused(first, second),)), edge, why
            )

    def unfuse(self, edge: Edge, why: str = "") -> Future[None]:
        """Begin to run a task as two queries, with a topic for this stream. The future raises QodError, one line, if it
        runs as before.

        Args:
            edge: two streams, or the stream and the task within which it is.
            why: the reason, for the event.

        Raises:
            TaskManagerError: there is no such stream within a task, the task can't be unfused there, or an application
                is being deployed, or another task fused, unfused or rescaled.

        """
        with self.cluster.lock:
            deployment = self.cluster.deployment
            specs = deployment.specs
            if edge in deployment.edges or ">".join(edge) in deployment.pipes:
                return ended(None)
            found = [
                (spec, inner) for spec in specs.values() for inner in fused_edges(spec) if self._same(edge, inner, spec)
            ]
            if not found:
                known = [">".join(inner) for spec in specs.values() for inner in fused_edges(spec)]
                there = f" It can be unfused at {listed(known)}." if known else " No task can be unfused."
                raise TaskManagerError(f"{edge[0]}>{edge[1]} is no stream within a task.{there}", rule="within a task")
            if len(found) > 1:
                within = listed([spec.id for spec, _ in found])
                raise TaskManagerError(f"{edge[0]} runs within {within}, which each compute it: they can't be unfused.")
            spec, inner = found[0]
            mine = self.cluster.instances_of(spec.id)
            refusal = why_not_unfused(spec, inner, specs.values(), len(mine), self._keeps_state(mine))
            if refusal:
                raise TaskManagerError(f"{spec.id} can't be unfused at {'>'.join(inner)}: {refusal}.")
            if (busy := why_busy(facts_of(self.cluster, spec.id).instances, "unfuse it")) is not None:
                raise busy.error()
            return self._begin(_Change(Kind.UNFUSE, inner, (spec,), unfused(spec, inner)), edge, why)

    def _same(self, edge: Edge, inner: Edge, spec: TaskSpec) -> bool:
        return edge in (inner, (inner[0], spec.id))

    def _begin(self, change: _Change, edge: Edge, why: str) -> Future[None]:
        asked = Asked(change.kind, ">".join(edge), tasks=frozenset(spec.id for spec in (*change.gone, *change.made)))
        if (hindered := self.admission.why_not(asked)) is not None:
            raise hindered.error()
        if not self.deployer.deploying.acquire(blocking=False):
            raise TaskManagerError(
                f"Tasks are being deployed, fused or rescaled: {change.kind.value} {change.name} after.",
                rule="one change at a time",
            )
        self.admission.begins(asked)
        run = in_one_line(partial(self._run, change, asked, why), change.undone)
        return begin(run, f"{change.kind.value}-{change.name}")

    # -- what can be done --------------------------------------------------------------------------------------------

    def _task(self, name: str, verb: str) -> TaskSpec:
        deployment = self.cluster.deployment
        spec = deployment.specs.get(name)
        within = deployment.specs_with(name)
        if spec is None and len(within) == 1 and within[0].streams[0].name == name:
            return within[0]
        if spec is None:
            hint = f" It runs within {listed([each.id for each in within])}." if within else ""
            raise TaskManagerError(f"There is no task {name!r} to {verb}.{hint or nearest(name, deployment.specs)}")
        return spec

    def _why_apart(self, first: TaskSpec, second: TaskSpec) -> str:
        """Return why the instances of two tasks can't become one query each, as one clause; "" if they can."""
        one, other = facts_of(self.cluster, first.id), facts_of(self.cluster, second.id)
        if refusal := why_not_joined(one, other):
            return refusal
        if (busy := why_busy((*one.instances, *other.instances), "fuse it")) is not None:
            raise busy.error()
        return why_not_transplanted(self.deployer.checkpoints) if one.keeps_state or other.keeps_state else ""

    def _keeps_state(self, instances: Sequence[Instance]) -> bool:
        return any(i.facts is not None and i.facts.keeps_state for i in instances)

    # -- how it is done ----------------------------------------------------------------------------------------------

    def _run(self, change: _Change, asked: Asked, why: str) -> None:
        try:
            after = self._prepared(change)
            try:
                self._change(change, after, why)
            except BaseException:
                with self.cluster.lock:
                    unneeded = after.own_topics() - self.cluster.deployment.own_topics()
                self.deployer.delete(unneeded)
                raise
        finally:
            with self.cluster.lock:
                self.admission.ends(asked)
                self.deployer.deploying.release()

    def _prepared(self, change: _Change) -> Deployment:
        """Return the deployment after the change. Recipes, plans and state are checked while the tasks still run."""
        deployment, workshop = self.cluster.deployment, self.cluster.workshop()
        left = {spec.id for spec in change.gone}
        specs = [spec for spec in deployment.specs.values() if spec.id not in left]
        at = next(at for at, spec in enumerate(deployment.specs.values()) if spec.id in left)
        specs[at:at] = change.made
        checked = deployment.check(specs, workshop)
        after = refit(deployment, change.gone, change.made, specs, checked)
        try:
            self._check(change, after, workshop)
        except BaseException:
            self.deployer.delete(after.own_topics() - deployment.own_topics())
            raise
        return after

    def _check(self, change: _Change, after: Deployment, workshop: Workshop) -> None:
        """Find the facts of the new tasks, and who keeps the state. Raises TaskManagerError if they can't go on from
        what the old ones leave."""
        results = self.cluster.deployment.results
        anew = [task for task, topic in results.items() if after.results.get(task) != topic]
        if anew:
            raise TaskManagerError(
                f"{change.undone}: {listed(anew)} would get other columns, and new results.", rule="same columns"
            )
        for spec in change.made:
            generation = change.generations[spec.id] = self.deployer.new_generation(spec)
            job, _ = next(iter(self.deployer.jobs_of(after, spec, generation).values()))
            change.facts[spec.id] = workshop.plan_facts(job)
        keeping = [spec for spec in change.gone if self._keeps_state(self.cluster.instances_of(spec.id))]
        heirs = [spec for spec in change.made if change.facts[spec.id].keeps_state]
        if len(keeping) != len(heirs):
            names = listed([spec.id for spec in heirs])
            raise TaskManagerError(
                f"{change.name} stays in one query: {names} would both keep state, in one checkpoint.",
                rule="one state",
            )
        if keeping:
            change.stateful, change.heir = keeping[0], heirs[0]
            refusal = why_not_transplanted(self.deployer.checkpoints)
            if refusal:
                raise TaskManagerError(f"{change.undone}: {refusal}.")
            files = [spec.id for spec in (keeping[0], heirs[0]) if spec.sink is not None and spec.sink.appends]
            if len(files) == 1:
                raise TaskManagerError(
                    f"{change.undone}: {files[0]} writes files or a table, where each group stands once, when it is "
                    "complete; in two queries a group is written whenever it changes.",
                    rule="whole groups",
                )
            if len(self.cluster.instances_of(keeping[0].id)[0].job.feeds) > 1 and heirs[0] is not change.made[0]:
                raise TaskManagerError(f"{change.undone}: {heirs[0].id} keeps state, and reads the inputs of others.")

    def _change(self, change: _Change, after: Deployment, why: str) -> None:
        """Carry out a change. Raises what made it fail, once all was put back."""
        cluster, before = self.cluster, self.cluster.before()
        senders = [(i, i.job) for i in cluster.all_instances if i.job.task in change.gone[0].upstream]
        stopped: list[Instance] = []
        last = change.gone[-1].id
        detail = {"task": change.made[-1].id, "from": change.edge[0], "to": change.edge[1]}
        drain_s = cluster.patience.drain_s
        life = TaskChange(change.kind, change.name, last, detail=detail, drain_s=drain_s)
        draining: Draining | None = None
        gone: set[str] = set()

        def do(step: Instruction) -> int | None:
            nonlocal draining, gone
            match step:
                case StopAll(group):
                    mine = cluster.instances_of(last if group is Group.SECOND else change.gone[0].id)
                    stop_all(cluster, self.lifecycle, mine, change.told, change.undone, f"{change.kind.value}-waits")
                    stopped.extend(mine)
                case Drain():
                    draining = draining or Draining(cluster, last, cluster.deployment.accounts_of(last).values())
                    return draining.rows_left()
                case CopyCheckpoints():
                    change.begun = self._made(change, after)
                    self._carry_state(change, change.begun, after)
                case SwitchOver():
                    with cluster.lock:
                        gone = self._adopt(change, after, change.begun)
                case StartAll(group):
                    self._start(change, group)
                case Resume(group):
                    for instance in stopped:
                        if (instance.job.task == last and len(change.gone) > 1) == (group is Group.SECOND):
                            instance.reinstate(why=f"{change.undone}, for {life.refusal}")
                case RollBack():
                    with cluster.lock:
                        for sender, job in senders:
                            sender.assign(job)
                    self.deployer.roll_back(before, stopped, f"{change.undone}, for {life.refusal}")
                case Tell(kind, told):
                    self.deployer.delete(gone)
                    cluster.event(kind, **told, why=why or None)
            return None

        carry_out(life, do)

    def _made(self, change: _Change, after: Deployment) -> dict[str, list[Instance]]:
        """Return the new instances, by task, on the task managers of those that they replace."""
        made = {}
        held = [self.cluster.instances_of(spec.id) for spec in change.gone]
        for spec in change.made:
            jobs = self.deployer.jobs_of(after, spec, change.generations[spec.id])
            made[spec.id] = [
                self.cluster.make(
                    job,
                    checkpoint,
                    spec.mode,
                    QueryLife(State.STARTING),
                    replaced[0].task_manager,
                    facts=change.facts[spec.id],
                    last_reading=in_a_row(replaced[0].last_reading, replaced[1].last_reading)
                    if change.kind is Kind.FUSE
                    else None,
                )
                for (job, checkpoint), replaced in zip(jobs.values(), zip(*held, strict=True), strict=True)
            ]
            for instance, replaced in zip(made[spec.id], zip(*held, strict=True), strict=True):
                instance.replaces(replaced, change.told)
        return made

    def _carry_state(self, change: _Change, made: Mapping[str, list[Instance]], after: Deployment) -> None:
        """Copy the checkpoints that hold state for the instances that will keep it. Raises TaskManagerError.

        Such an instance has begun: it stays on that checkpoint also where Spark refuses real-time mode. Its files stay
        in their directory, whose log has the numbers of its batches.
        """
        if change.stateful is None or change.heir is None:
            return
        now = self.cluster.deployment
        for old, new in zip(self.cluster.instances_of(change.stateful.id), made[change.heir.id], strict=True):
            at, to = _offsets(old.job.feeds, now), _offsets(new.job.feeds, after)
            begun = transplant(old.checkpoint, new.checkpoint, at, None if at == to else to)
            if old.begun and not begun:
                raise TaskManagerError(
                    f"The state of {old.id} is not at {old.checkpoint} on this machine.",
                    name=old.id,
                    rule="local state",
                )
            sink = change.heir.sink
            new.inherit_state(old, begun=begun, same_files=sink is not None and sink.appends)

    def _adopt(self, change: _Change, after: Deployment, made: Mapping[str, list[Instance]]) -> set[str]:
        """Make the new tasks the current ones; returns unneeded topics. A task and its instances appear together."""
        cluster, board = self.cluster, self.cluster.board
        first, then = change.gone[0].id, change.made[0].id
        same = {key(first): key(then) for key in (board.source, board.accept)}
        same |= {board.send(f"{name}>{first}"): board.send(f"{name}>{then}") for name in change.gone[0].upstream}
        cluster.want({new: cluster.dials[was] for was, new in same.items() if was in cluster.dials})
        for spec in change.gone:
            for instance in self.cluster.instances_of(spec.id):
                cluster.drop(instance.id)
        gone = cluster.deployment.restore(after)
        for task in {spec.id for spec in change.gone} - {spec.id for spec in change.made}:
            cluster.forget_dials((board.source(task), board.accept(task), board.accuracy(task)))
        cluster.put(instance for mine in made.values() for instance in mine)
        for sender in change.gone[0].upstream:
            self.deployer.renew_jobs(cluster.deployment.specs[sender])
        return gone

    def _start(self, change: _Change, group: Group) -> None:
        """Start some of the new instances. Raises QodError if one can't start, unless the watcher is to restart it."""
        first, *later = change.begun.values()
        groups = {Group.READERS: [i for mine in later for i in mine], Group.ONE: first[:1], Group.OTHERS: first[1:]}

        def start(instance: Instance) -> None:
            home = instance.task_manager
            assert home is not None
            try:
                self._start_one(instance, change)
            except Exception as error:
                if group is not Group.OTHERS:
                    raise
                self.lifecycle.fail_on(instance, home, reason(error))

        for error in gather({i.id: partial(start, i) for i in groups[group]}, self.cluster.patience.step_s).values():
            if isinstance(error, BaseException) and group is not Group.OTHERS:
                raise error if isinstance(error, QodError) else TaskManagerError(reason(error))

    def _start_one(self, instance: Instance, change: _Change) -> None:
        """Start one, and see that it goes on from the state that it was given. Raises QodError if it does not run."""
        home = instance.task_manager
        if home is None or not self.cluster.is_up(home):
            raise TaskManagerError(f"{instance.id} can't start: its task manager was lost.")
        self.lifecycle.start(instance, home)
        self.lifecycle.settle(instance)
        if change.heir is None or instance.job.task != change.heir.id:
            return
        deadline = time.monotonic() + FIRST_S
        while time.monotonic() < deadline and not self._goes_on(instance):
            time.sleep(LOOK_S)

    def _goes_on(self, instance: Instance) -> bool:
        """Return whether an instance has ended a batch, or has no row to read. Raises TaskManagerError if it has
        failed."""
        with instance.lock:
            why, query = instance.failed(), instance.query
            instance.poll()
        if instance.meter.last:
            return True
        failed = instance.state in (State.BACKING_OFF, State.STALLED, State.GAVE_UP)
        if query is None and failed:  # the watcher has found it first
            why = instance.failure
        if why is not None:
            raise TaskManagerError(
                f"{instance.id} can't go on from the state that it was given: {why}.", name=instance.id, rule="state"
            )
        if query is None:
            return True
        return instance.mode != "real-time" and "Waiting for data" in query.status["message"]


def _offsets(feeds: Sequence[Feed], deployment: Deployment) -> Offsets:
    """Return the next offsets of what an instance reads, by topic."""
    return {feed.topic: {p: deployment.accounts[feed.name].position[p] for p in feed.partitions} for feed in feeds}
