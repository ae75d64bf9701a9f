"""Carry out moves and restarts of instances between two batches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from qod_magics.errors import TaskManagerError
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
from qod_magics.spark.changes.change import held
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import TaskManager


class Mover:
    """Carries out moves and restarts. Any thread may call it; each call takes as long as the move does."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"mover of {len(self.cluster.instances)} instances"

    def restart(self, instance: Instance) -> None:
        """Stop at a batch's end and restart on the same task manager."""
        manager = instance.task_manager
        if manager is None or not instance.handle(RestartAsked()):
            return
        try:
            with held(self.cluster, instance) as (wait_s, ended):
                self.lifecycle.stop(instance, wait_s, ended=ended)
            self.lifecycle.start(instance, manager)
        except Exception as error:
            self.lifecycle.fail_on(instance, manager, reason(error))

    def restart_outdated(self) -> None:
        """Begin to restart the instances whose job has changed since their run began."""
        for instance in self.cluster.all_instances:
            outdated = instance.running is not None and instance.running is not instance.job
            if outdated and instance.state is State.RUNNING:
                begin(partial(self.restart, instance), f"restart-{instance.id}")

    def move(self, instance: Instance, target: TaskManager, why: str) -> str:
        """Move an instance, and wait until it runs on `target` or not. Return why it was not started there; "" if it
        was. Raises TaskManagerError if the move is refused."""
        return self.carry_out(instance, self.ask(instance, target, why))

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
                with held(self.cluster, instance) as (wait_s, ended):
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
        would write rows twice. Returns as `move`."""
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
            other = self.cluster.targets({instance.id: tried}).get(instance.id)
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
