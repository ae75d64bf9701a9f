"""Changes of the parallelism of tasks in a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qod_magics.core.plan import Scale
from qod_magics.errors import TaskManagerError, nearest
from qod_magics.simulator.rates.agenda import Agenda, Events
from qod_magics.simulator.rates.engine import NOWHERE, Engine
from qod_magics.simulator.rates.instances import Instances
from qod_magics.simulator.rates.nodes import Nodes


@dataclass(slots=True)
class _Rescale:
    """One under way: its instances stop, each at the end of its batch, then start again as `after` instances."""

    before: int
    after: int
    to: tuple[int, ...]  #: task managers of the instances added
    why: str
    stopped_at: float  #: of the first instance
    starting: set[int] = field(default_factory=set)  #: instances that have not started since


class Rescaling:
    """Carries out `Scale`: no row is lost or counted twice, since partitions change hands between two batches."""

    def __init__(self, engine: Engine, agenda: Agenda, events: Events, instances: Instances, nodes: Nodes) -> None:
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
        partitions = self._engine.wiring.tasks[task].partitions
        if after > partitions:
            raise TaskManagerError(
                f"{action.task} has {partitions} partition{'s' if partitions > 1 else ''}: "
                f"it can't run as {after} instances."
            )
        to = tuple(self._nodes.up(name) for name in action.to)
        if task in self._under_way:
            raise TaskManagerError(f"{action.task} is being rescaled already.")
        before = int(self._instances.parallelism[task])
        if after == before:
            return
        ends = {i: self._instances.batch_left_s(i) for i in self._running(task)}
        last_s = max(ends.values(), default=0.0)
        now = self._engine.now
        rescale = _Rescale(before, after, to, action.why, now + max(0.0, min(ends.values(), default=0.0)))
        self._under_way[task] = rescale
        if last_s <= 0.0:
            self._assign(task, rescale)
            return
        for instance, left_s in ends.items():
            if left_s < last_s:
                self._agenda.at(now + max(left_s, 0.0), self._stopping(task, rescale, instance))
        self._agenda.at(now + last_s, lambda: self._assign(task, rescale))

    @property
    def under_way(self) -> frozenset[int]:
        """The tasks that are being rescaled."""
        return frozenset(self._under_way)

    def forget(self, task: int) -> None:
        """Forget what is under way for a task that is stopped; it ends without an event."""
        self._under_way.pop(task, None)

    def _task(self, name: str) -> int:
        active = self._instances.active
        task = self._number.get(name)
        if task is None or not active[task]:
            known = [known for known, t in self._number.items() if active[t]]
            raise TaskManagerError(f"There is no task {name!r}.{nearest(name, known)}")
        return task

    def _running(self, task: int) -> list[int]:
        return [i for i in self._instances.of(task) if self._engine.running[i]]

    def _stopping(self, task: int, rescale: _Rescale, instance: int) -> Callable[[], None]:
        run = int(self._instances.run[instance])

        def stop() -> None:
            if self._under_way.get(task) is rescale and self._instances.run[instance] == run:
                self._instances.halt(instance)

        return stop

    def _assign(self, task: int, rescale: _Rescale) -> None:
        """Assign the partitions once all instances are stopped, and start the instances."""
        if self._under_way.get(task) is not rescale:
            return
        instances, engine = self._instances, self._engine
        mine = instances.of(task)
        for i in mine[: rescale.before]:
            instances.halt(i)
        homes = self._homes(mine, rescale)
        instances.assign_partitions(task, rescale.after)
        rescale.starting = set(mine[: rescale.after])
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
        if rescale.starting or self._instances.parallelism[task] != rescale.after:
            return
        del self._under_way[task]
        took_s = round(self._engine.now - rescale.stopped_at, 3)
        name = self._engine.wiring.tasks[task].id
        detail = {"task": name, "from": rescale.before, "to": rescale.after, "took_s": took_s, "why": rescale.why}
        self._events.tell("scale", **detail)
