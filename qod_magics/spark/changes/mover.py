"""Move, stop and restart instances between two batches, as plans, users and removals of task managers ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from math import inf

from qod_magics.core.plan import Move, Refusal, Stop
from qod_magics.core.runtime import refused
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.lifecycle.events import (
    FindOther,
    Instructions,
    MoveAsked,
    MoveStopped,
    NoOther,
    OtherFound,
    PutBack,
    Refuse,
    RestartAsked,
    StartOn,
    State,
    StopForMove,
    SuspendAsked,
    SuspendFailed,
    Tell,
)
from qod_magics.spark.changes.change import LONGEST_S, between_batches, ended
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.placing import targets_for
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import TaskManager

#: Rounds of moving instances off a task manager being removed: more may arrive meanwhile.
REMOVAL_ROUNDS = 5


class Mover:
    """Moves, stops and restarts instances. Any thread may call it. What begins with `begin` returns at once, and the
    change goes on in the background; any other call takes as long as the change does."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self._moves: dict[str, tuple[TaskManager, Future[str]]] = {}  #: by instance: its target, and the move

    def __repr__(self) -> str:
        return f"mover of {len(self.cluster.instances)} instances"

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def begin(self, action: Move | Stop) -> None:
        """Begin a move or a stop of a plan, unless it is under way or done; a refused one is an event."""
        try:
            if isinstance(action, Move):
                self.begin_move(action.instance, action.to, action.why, only_running=True)
            else:
                self._begin_stop(action)
        except TaskManagerError as error:
            self.cluster.add(refused(Refusal(action, str(error))))

    def begin_move(self, id: str, target: str, why: str, *, only_running: bool = False) -> Future[str]:
        """Begin to move an instance: stop at a batch's end, start from the same checkpoint on `target`. The result
        says why it was not started there; "" if it was. `only_running`: as plans ask, see `MoveAsked`.

        Raises:
            TaskManagerError: there is no such instance or task manager, the task manager is being removed, or the
                instance is being moved already or was stopped by a deployment.

        """
        with self.cluster.lock:
            instance, manager = self._instance(id), self.cluster.manager(target)
            if target in self.cluster.leaving:
                raise TaskManagerError(
                    f"{target} is being removed: name another task manager.", name=target, rule="staying"
                )
            asked = self.ask(instance, manager, why, only_running=only_running)
            if not asked:
                return ended("")
            moved = begin(partial(self.carry_out, instance, asked), f"move-{id}")
            under_way = {i: each for i, each in self._moves.items() if not each[1].done()}
            self._moves = {**under_way, id: (manager, moved)}
            return moved

    def _begin_stop(self, action: Stop) -> None:
        """Begin to stop an instance where it runs; its state and its rows wait. Raises TaskManagerError."""
        with self.cluster.lock:
            stop = self.suspend(self._instance(action.instance), action.why)
        if stop is not None:
            begin(stop, f"suspend-{action.instance}")

    def _instance(self, id: str) -> Instance:
        if (instance := self.cluster.instances.get(id)) is None:
            raise TaskManagerError(f"There is no instance {id!r}.{nearest(id, self.cluster.instances)}")
        return instance

    def evacuate(self, manager: TaskManager, deadline: float) -> None:
        """Move its instances to the others. Raises TimeoutError after `deadline` (monotonic)."""
        for _ in range(REMOVAL_ROUNDS):
            here = [i for i in self.cluster.all_instances if i.task_manager is manager]
            leaving = {i.id for i in here if i.state is State.MOVING}
            for id, (target, moved) in list(self._moves.items()):
                if target is manager or id in leaving:  # begun before the removal
                    moved.exception(max(deadline - time.monotonic(), 0.0))
            here = [i for i in self.cluster.all_instances if i.task_manager is manager]
            if not here:
                return
            targets, why = targets_for(self.cluster, {i.id: {manager.id} for i in here}), f"{manager.id} is removed"
            moves = [self.begin_move(i.id, targets[i.id], why) for i in here if i.id in targets]
            for moved in moves:
                moved.result(max(deadline - time.monotonic(), 0.0))

    def restart(self, instance: Instance, why: str = "its job has changed", longest_s: float = LONGEST_S) -> None:
        """Stop at a batch's end and restart on the same task manager, unless the instance is moved, stopped or lost
        meanwhile. See `between_batches` for `longest_s`."""
        manager, run = instance.task_manager, instance.life.run
        if manager is None or not instance.handle(RestartAsked(why)):
            return

        def is_due() -> bool:
            life = instance.life
            return instance.task_manager is manager and life.state is State.STARTING and life.run == run

        try:
            with between_batches(self.cluster, instance, longest_s) as (wait_s, ended):
                if is_due():
                    self.lifecycle.stop(instance, wait_s, ended=ended)
        except Exception as error:
            if is_due():
                self.lifecycle.fail_on(instance, manager, reason(error))
            return
        if not is_due():
            return
        try:
            self.lifecycle.start(instance, manager)
        except Exception as error:
            self.lifecycle.fail_on(instance, manager, reason(error))

    def restart_outdated(self) -> None:
        """Begin to restart the instances whose job has changed since their run began."""
        for instance in self.cluster.all_instances:
            outdated = instance.running is not None and instance.running is not instance.job
            if outdated and instance.state is State.RUNNING:
                begin(partial(self.restart, instance), f"restart-{instance.id}")

    def refresh_tables(self, is_idle: Callable[[Instance], bool] = lambda _: False) -> None:
        """Begin to restart the instances whose tables are to be read again. Spark lists the files of a table when a
        plan is made, and a run keeps its plan. Nothing else waits for this: it waits longer for the end of a batch.
        `is_idle`: tells which have no rows to read, and so end no batch."""
        now = time.monotonic()
        for instance in self.cluster.all_instances:
            spec = self.cluster.deployment.specs.get(instance.job.task)
            every_s = None if spec is None else spec.refresh_s
            if every_s is not None and instance.life.refresh_due(every_s, now, idle=is_idle(instance)):
                restart = partial(self.restart, instance, "its tables are read again", inf)
                begin(restart, f"refresh-{instance.id}")

    @staticmethod
    def ask(instance: Instance, target: TaskManager, why: str, *, only_running: bool = False) -> Instructions:
        """Ask for a move; return what is to be done, nothing if the instance is there. Raises TaskManagerError if it is
        refused. `only_running`: as plans ask, see `MoveAsked`."""
        home = instance.task_manager
        source = None if home is None else home.id
        instructions = instance.handle(MoveAsked(target.id, source, why, only_running))
        refusal = next((each for each in instructions if isinstance(each, Refuse)), None)
        if refusal is not None:
            why = f"{instance.id} {refusal.why}{'' if only_running else '.'}"
            raise TaskManagerError(why, name=instance.id, rule=refusal.rule)
        return instructions

    def suspend(self, instance: Instance, why: str) -> Callable[[], None] | None:
        """Ask for its stop, as it has no place. Return what carries that out, None if it is stopped. Raises
        TaskManagerError if it is refused."""
        instructions = instance.handle(SuspendAsked(why))
        refusal = next((each for each in instructions if isinstance(each, Refuse)), None)
        if refusal is not None:
            raise TaskManagerError(f"{instance.id} {refusal.why}", name=instance.id, rule=refusal.rule)
        return partial(self._suspend, instance) if instructions else None

    def _suspend(self, instance: Instance) -> None:
        """Stop its run at a batch's end; its checkpoint and its rows wait. What can't be stopped is tried again."""
        home = instance.task_manager
        try:
            if home is not None:
                with between_batches(self.cluster, instance) as (wait_s, ended):
                    self.lifecycle.end(instance, home, wait_s, "stop-waits", ended=ended)
        except Exception as error:
            instructions = instance.handle(SuspendFailed(reason(error)))
            lost = any(isinstance(each, Tell) for each in instructions)  # its run has ended with its task manager
            if instance.state is not State.SUSPENDED and not lost:
                why = reason(error)
                self.cluster.event("action-refused", action="Stop", instance=instance.id, why=why)
                return
        else:
            instructions = instance.let_go()
        for each in instructions:
            if isinstance(each, Tell):
                self.cluster.event(
                    each.kind, instance=instance.id, task_manager=None if home is None else home.id, **each.detail
                )

    def carry_out(self, instance: Instance, instructions: Instructions) -> str:
        """Carry out the instructions of a move, each as the one before has ended: stop at a batch's end, start from the
        same checkpoint elsewhere; if that fails, on any other. It starts only after its old run has ended: two at once
        would write rows twice. Return why it was not started on its target; "" if it was."""
        left, failed = list(instructions), ""
        while left:
            each = left.pop(0)
            match each:
                case StopForMove():
                    followed, why = self._stop(instance)
                case StartOn(target):
                    followed, why = self._start(instance, target)
                case FindOther(tried):
                    followed, why = self._find(instance, tried), ""
                case PutBack(target):
                    self._put_back(instance, target, failed)
                    followed, why = (), ""
                case Tell(kind, detail):
                    home = instance.move.target if instance.move is not None else None
                    self.cluster.event(kind, instance=instance.id, task_manager=home, **detail)
                    continue
                case _:
                    continue  # `Instance` has done it
            left += followed
            failed = failed or why
        return failed

    def _stop(self, instance: Instance) -> tuple[Instructions, str]:
        source, move = instance.task_manager, instance.move
        if source is None or move is None:
            return (), "its task manager was lost or removed meanwhile"
        if source.alive():
            try:
                if not self.lifecycle.end(instance, source):
                    return (), f"{source.id} was lost or removed meanwhile"
            except Exception as error:  # it restarts where it is, once it can be stopped
                why = reason(error)
                if instance.task_manager is source:
                    self.lifecycle.fail(instance, why, stopping=True)
                return (), f"it could not be stopped: {why}"
        return instance.handle(MoveStopped()), ""

    def _start(self, instance: Instance, target: str) -> tuple[Instructions, str]:
        manager = self.cluster.task_managers.get(target)
        try:
            if manager is None:
                raise TaskManagerError(f"{target} was lost or removed meanwhile.")
            self.lifecycle.start(instance, manager)
        except Exception as error:
            why = reason(error)
            return instance.not_started(why, target), why
        return (), ""

    def _find(self, instance: Instance, tried: Collection[str]) -> Instructions:
        with suppress(TaskManagerError):  # none is up
            other = targets_for(self.cluster, {instance.id: tried}).get(instance.id)
            if other is not None and other in self.cluster.task_managers:
                return instance.handle(OtherFound(other))
        return instance.handle(NoOther())

    def _put_back(self, instance: Instance, target: str, why: str) -> None:
        """Have an instance that can start nowhere else restart where it was, or wait for a task manager."""
        manager = self.cluster.task_managers.get(target)
        if manager is None:
            instance.detach(why)
        else:
            self.lifecycle.fail(instance, why, manager)
