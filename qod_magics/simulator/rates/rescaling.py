"""Changes of the parallelism of tasks in a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qod_magics.core.plan import Scale
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.lifecycle.admission import (
    Admission,
    Answer,
    Asked,
    InstanceFacts,
    StateFacts,
    TaskFacts,
    why_not_scaled,
)
from qod_magics.lifecycle.changes import (
    ChangeBegins,
    ChangeEvent,
    Group,
    Kind,
    Overtaken,
    StandsStill,
    StartAll,
    StepEnded,
    StopAll,
    SwitchOver,
    TaskChange,
)
from qod_magics.lifecycle.events import Instruction, State, Tell
from qod_magics.simulator.rates.engine import NOWHERE, Engine
from qod_magics.simulator.rates.instances import Agenda, Events, Instances
from qod_magics.simulator.rates.nodes import Nodes

#: The state of a task, by whether it is divisible.
STATE = (
    StateFacts(obstacle="it belongs to no key by which its rows are sent"),
    StateFacts(frozenset({"key"}), "key", sent=True),
)


@dataclass(slots=True)
class _Rescale:
    """One under way: its instances stop, each at the end of its batch, then start again as `after` instances."""

    task: int
    before: int
    asked: Asked
    to: tuple[int, ...]  #: task managers of the instances added
    why: str
    life: TaskChange
    starting: set[int] = field(default_factory=set)  #: instances that have not started since

    @property
    def after(self) -> int:
        assert self.asked.parallelism is not None
        return self.asked.parallelism


class Rescaling:
    """Carries out `Scale`: no row is lost or counted twice, since partitions change hands between two batches."""

    def __init__(
        self,
        engine: Engine,
        agenda: Agenda,
        events: Events,
        instances: Instances,
        nodes: Nodes,
        admission: Admission,
    ) -> None:
        self._admission = admission
        self._engine, self._agenda, self._events = engine, agenda, events
        self._instances, self._nodes = instances, nodes
        self._number = {task.id: t for t, task in enumerate(engine.wiring.tasks)}
        self._under_way: dict[int, _Rescale] = {}  #: by task
        instances.started.append(self._started)

    def __repr__(self) -> str:
        return f"{len(self._under_way)} tasks are being rescaled"

    def begin(self, action: Scale) -> None:
        """Begin to rescale a task, unless it runs with that parallelism. Raises TaskManagerError, one line."""
        task, after = self._task(action.task), action.parallelism
        model = self._engine.wiring.tasks[task]
        partitions = model.partitions
        bound = f"it has {partitions} partition{'s' if partitions > 1 else ''}"
        stopped = tuple(
            InstanceFacts(self._engine.wiring.instances[i], None, State.SUSPENDED)
            for i in self._instances.of(task)
            if self._instances.state(i) is State.SUSPENDED
        )
        refusal = why_not_scaled(
            TaskFacts(action.task, stopped, model.stateful, STATE[model.divisible]), after, partitions, bound
        )
        if refusal is not None:
            raise refusal.error()
        to = tuple(self._nodes.up(name) for name in action.to)
        asked = Asked(Kind.SCALE, action.task, after, frozenset({action.task}))
        if self._admission.ask(asked) is Answer.NOTHING:
            return
        hindered = self._admission.why_not(asked)
        if hindered is not None:
            raise hindered.error()
        before = int(self._instances.parallelism[task])
        if after == before:
            return
        detail = {"task": action.task, "from": before, "to": after}
        life = TaskChange(Kind.SCALE, action.task, detail=detail)
        self._under_way[task] = rescale = _Rescale(task, before, asked, to, action.why, life)
        self._admission.begins(asked)
        self._report(rescale, ChangeBegins())

    def is_under_way(self, instance: int) -> bool:
        """Return whether the task of an instance is being rescaled."""
        return int(self._engine.wiring.instance_task[instance]) in self._under_way

    def forget(self, task: int) -> None:
        """Forget what is under way for a task that is stopped; it ends without an event."""
        rescale = self._under_way.get(task)
        if rescale is not None:
            self._report(rescale, Overtaken())

    def _task(self, name: str) -> int:
        active = self._instances.active
        task = self._number.get(name)
        if task is None or not active[task]:
            known = [known for known, t in self._number.items() if active[t]]
            raise TaskManagerError(f"There is no task {name!r}.{nearest(name, known)}")
        return task

    def _running(self, task: int) -> list[int]:
        return [i for i in self._instances.of(task) if self._engine.running[i]]

    def _report(self, rescale: _Rescale, event: ChangeEvent) -> None:
        """Report an event of a rescaling, and carry out what it asks for."""
        for each in rescale.life.handle(event, self._engine.now):
            self._carry_out(rescale, each)
        if rescale.life.ended and self._under_way.get(rescale.task) is rescale:
            del self._under_way[rescale.task]
            self._admission.ends(rescale.asked)

    def _carry_out(self, rescale: _Rescale, step: Instruction) -> None:
        match step:
            case StopAll():
                self._stop(rescale, step)
            case SwitchOver():
                rescale.starting = set(self._instances.of(rescale.task)[: rescale.after])
                self._assign(rescale)
                self._report(rescale, StepEnded(step))
            case StartAll():
                pass  # each has been asked to start on its task manager, or waits for one
            case Tell(kind, detail):
                self._events.tell(kind, **detail, why=rescale.why)
            case _:
                self._report(rescale, StepEnded(step))

    def _stop(self, rescale: _Rescale, step: StopAll) -> None:
        """Stop the instances, each at the end of its batch."""
        now = self._engine.now
        ends = {i: self._instances.batch_left_s(i) for i in self._running(rescale.task)}
        last_s = max(ends.values(), default=0.0)
        self._report(rescale, StandsStill(now + max(0.0, min(ends.values(), default=0.0))))

        def stop() -> None:
            if rescale.life.step == step:
                for i in self._instances.of(rescale.task)[: rescale.before]:
                    self._instances.halt(i)
                self._report(rescale, StepEnded(step))

        if last_s <= 0.0:
            stop()
            return
        for instance, left_s in ends.items():
            if left_s < last_s:
                self._agenda.at(now + max(left_s, 0.0), self._stopping(rescale, step, instance))
        self._agenda.at(now + last_s, stop)

    def _stopping(self, rescale: _Rescale, step: StopAll, instance: int) -> Callable[[], None]:
        run = int(self._instances.run[instance])

        def stop() -> None:
            if rescale.life.step == step and self._instances.run[instance] == run:
                self._instances.halt(instance)

        return stop

    def _assign(self, rescale: _Rescale) -> None:
        """Assign the partitions, now that all instances are stopped, and ask for the starts of the instances."""
        instances, engine = self._instances, self._engine
        mine = instances.of(rescale.task)
        homes = self._homes(mine, rescale)
        instances.assign_partitions(rescale.task, rescale.after)
        for i in mine[: rescale.after]:
            if i in homes:
                instances.start_on(i, homes[i])
            else:
                engine.where[i] = NOWHERE  # it waits until a task manager joins

    def _homes(self, mine: list[int], rescale: _Rescale) -> Mapping[int, int]:
        """Return task managers of the instances: those that stay, stay where they are; `to` and the policy place the
        rest."""
        engine = self._engine
        homes = {i: int(engine.where[i]) for i in mine[: min(rescale.before, rescale.after)]}
        homes |= dict(zip(mine[rescale.before : rescale.after], rescale.to, strict=False))
        homes = {i: machine for i, machine in homes.items() if machine != NOWHERE and engine.up[machine]}
        for i, machine in homes.items():
            engine.where[i] = machine
        missing = [i for i in mine[: rescale.after] if i not in homes]
        return {**homes, **(self._instances.targets(dict.fromkeys(missing, ())) if missing else {})}

    def _started(self, instance: int) -> None:
        task = int(self._engine.wiring.instance_task[instance])
        rescale = self._under_way.get(task)
        if rescale is None:
            return
        rescale.starting.discard(instance)
        if not rescale.starting:
            self._report(rescale, StepEnded(StartAll(Group.NEW)))
