"""Fusing of neighbouring tasks in a simulated cluster, and the reverse."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from qod_magics.core.plan import Fuse, Refusal, Unfuse
from qod_magics.core.runtime import refused
from qod_magics.errors import TaskManagerError, listed, nearest
from qod_magics.simulator.rates.agenda import Agenda, Events
from qod_magics.simulator.rates.engine import Engine
from qod_magics.simulator.rates.instances import Instances
from qod_magics.simulator.rates.wiring import Array, Wiring

#: For how long the second task may take to read its topic to the end, seconds, as live.
DRAIN_S = 60.0


@dataclass(slots=True)
class _Change:
    """One under way. Tasks and the edge by index; of several fused tasks, the last one stands for all."""

    action: Fuse | Unfuse
    edge: int
    first: int
    second: int
    runs: dict[int, int] = field(default_factory=dict)  #: runs that have been stopped for it, by instance
    stopped_at: float = 0.0
    starting: set[int] = field(default_factory=set)  #: instances that have not started since

    @property
    def kind(self) -> str:
        return "fuse" if isinstance(self.action, Fuse) else "unfuse"


class Fusing:
    """Carries out `Fuse` and `Unfuse` as a live cluster does, one at a time: no row is lost or counted twice, since the
    first task stops at the end of a batch, and the second reads all that it was sent."""

    def __init__(self, engine: Engine, agenda: Agenda, events: Events, instances: Instances) -> None:
        self._engine, self._agenda, self._events, self._instances = engine, agenda, events, instances
        self._plain: Wiring = engine.wiring  #: with nothing fused or scaled
        self._number = {task.id: t for t, task in enumerate(engine.wiring.tasks)}
        self._change: _Change | None = None
        self.fused: tuple[int, ...] = ()  #: streams within tasks, edges in their order
        instances.started.append(self._started)

    def __repr__(self) -> str:
        return f"{len(self.fused)} streams within tasks"

    def concerns(self, task: str) -> bool:
        """Return whether a task is being fused or unfused."""
        change = self._change
        return change is not None and self._number.get(task) in (change.first, change.second)

    def begin(self, action: Fuse | Unfuse, busy: Iterable[int] = ()) -> None:
        """Begin, unless it is so already. `busy`: tasks that are being rescaled. Raises TaskManagerError, one line."""
        change = self._change
        if change is not None:
            if change.action == action:
                return
            at = ">".join(change.action.edge)
            raise TaskManagerError(f"{at} is being {change.kind}d: {_kind(action)} {'>'.join(action.edge)} after.")
        made = self._fuse(action) if isinstance(action, Fuse) else self._unfuse(action)
        if made is None:
            return
        scaled = [task for task in (made.first, made.second) if task in set(busy)]
        if scaled:
            raise TaskManagerError(f"{self._name(scaled[0])} is being rescaled: {made.kind} it once that is done.")
        stops = made.first if made.kind == "fuse" else made.second
        self._change = made
        after_s = max((self._instances.batch_left_s(i) for i in self._there(stops)), default=0.0)
        if after_s > 0.0:
            self._agenda.at(self._engine.now + after_s, lambda: self._stop(made, stops))
        else:
            self._stop(made, stops)

    def separate(self, tasks: Iterable[int]) -> None:
        """Unfuse tasks, by index, that stop: they are separate when they start again. Give up a change of them that is
        under way; the other tasks of it run on."""
        chosen, wiring = set(tasks), self._plain
        change = self._change
        if change is not None and {change.first, change.second} & chosen:
            self._change = None
            self._restart(change, without=chosen)
        left = tuple(e for e in self.fused if not {int(wiring.edge_source[e]), int(wiring.edge_target[e])} & chosen)
        if left != self.fused:
            self._rewire(left)

    # -- what can be done ----------------------------------------------------------------------------------------------

    def _fuse(self, action: Fuse) -> _Change | None:
        source, target = action.edge
        if self._within(source, target) is not None:
            return None
        first, second = self._task(source), self._task(target)
        wiring = self._engine.wiring
        one, other = wiring.tasks[first], wiring.tasks[second]
        readers = [each.id for t, each in enumerate(wiring.tasks) if source in each.upstream and self._active(t)]
        why = self._why_not(first, second)
        if source not in other.upstream:
            why = f"{target} does not read {source}"
        elif len(readers) > 1:
            why = f"{listed(readers)} read {source}: each would need its rows"
        elif len(other.upstream) > 1:
            why = f"{target} has other inputs beside {source}"
        elif not other.fusable:
            why = f"{target} is to run as a query of its own"
        elif one.mode != other.mode or one.trigger_s != other.trigger_s:
            why = "their modes or triggers differ"
        elif one.stateful and other.stateful:
            why = f"{source} and {target} both keep state, and a checkpoint holds that of one of them"
        if why:
            raise TaskManagerError(f"{source} and {target} can't be fused: {why}.")
        edge = wiring.edges.index((source, target))
        return _Change(action, edge, first, second)

    def _why_not(self, first: int, second: int) -> str:
        instances, engine = self._instances, self._engine
        one, other = engine.wiring.tasks[first], engine.wiring.tasks[second]
        upper, lower = self._there(first), self._there(second)
        if len(upper) != len(lower) or one.partitions != other.partitions:
            has, most = (len(upper), len(lower)), (one.partitions, other.partitions)
            return f"{one.id} has {has[0]} of {most[0]} instances, {other.id} {has[1]} of {most[1]}"
        for i, j in zip(upper, lower, strict=True):
            names = engine.wiring.instances[i], engine.wiring.instances[j]
            if not (engine.running[i] and engine.running[j]):
                return f"{names[0] if not engine.running[i] else names[1]} does not run now"
            if engine.where[i] != engine.where[j]:
                homes = instances.home(i), instances.home(j)
                return f"{names[0]} is on {homes[0]}, {names[1]} on {homes[1]}: move one to the other"
        return ""

    def _unfuse(self, action: Unfuse) -> _Change | None:
        source, target = action.edge
        edge = self._within(source, target)
        wiring = self._plain
        if edge is None:
            if action.edge in self._engine.wiring.edges and self._active(self._number[target]):
                return None
            known = listed([wiring.edge_names[e] for e in self.fused])
            there = f" It can be parted at {known}." if known else " No task can be parted."
            raise TaskManagerError(f"{source}>{target} is no stream within a task.{there}")
        last = self._last(int(wiring.edge_target[edge]))
        if not all(self._engine.running[i] for i in self._there(last)):
            raise TaskManagerError(f"{self._name(last)} does not run now: unfuse it once it runs.")
        return _Change(action, edge, int(wiring.edge_source[edge]), last)

    def _within(self, source: str, target: str) -> int | None:
        """Return the stream within a task that these names mean; None if there is none."""
        wiring = self._plain
        for e in self.fused:
            head = int(wiring.edge_target[e])
            if wiring.edges[e][0] == source and target in (self._name(head), self._name(self._last(head))):
                return e
        return None

    def _last(self, task: int) -> int:
        """Return the last task of those that one is fused with."""
        for e in self.fused:
            if int(self._plain.edge_source[e]) == task:
                return self._last(int(self._plain.edge_target[e]))
        return task

    def _task(self, name: str) -> int:
        task = self._number.get(name)
        if task is None or not self._active(task):
            known = [known for known, t in self._number.items() if self._active(t)]
            raise TaskManagerError(f"There is no task {name!r}.{nearest(name, known)}")
        return task

    def _active(self, task: int) -> bool:
        return bool(self._instances.active[task])

    def _name(self, task: int) -> str:
        return self._plain.tasks[task].id

    def _there(self, task: int) -> list[int]:
        """Return the instances that a task runs with."""
        return self._instances.of(task)[: int(self._instances.parallelism[task])]

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _stop(self, change: _Change, task: int) -> None:
        """Stop the instances of the task that reads the input, all of which must run."""
        if self._change is not change:
            return
        mine = self._there(task)
        down = [i for i in mine if not self._engine.running[i]]
        if down:
            self._give_up(change, f"{self._engine.wiring.instances[down[0]]} does not run any more")
            return
        change.stopped_at = self._engine.now
        for i in mine:
            self._instances.halt(i)
            change.runs[i] = int(self._instances.run[i])
        if change.kind == "fuse":
            self._drain(change)
        else:
            self._part(change)

    def _drain(self, change: _Change) -> None:
        """Fuse both tasks once the second one has read all, and ended its batch."""
        if self._change is not change:
            return
        engine, lower = self._engine, self._there(change.second)
        if any(self._instances.run[i] != run for i, run in change.runs.items()):
            self._give_up(change, f"{self._name(change.first)} was restarted meanwhile")
        elif engine.now - change.stopped_at > DRAIN_S:
            waiting = int(engine.waiting[change.edge])
            why = f"{self._name(change.second)} still has {waiting} rows to read after {DRAIN_S:g} s: it is behind"
            self._give_up(change, why)
        elif engine.waiting[change.edge] or not engine.running[lower].all() or engine.in_batch[lower].any():
            self._agenda.at(engine.now + engine.step_s, lambda: self._drain(change))
        elif [engine.where[i] for i in lower] != [engine.where[i] for i in change.runs]:
            self._give_up(change, "they are on two task managers by now")
        else:
            self._join(change)

    def _join(self, change: _Change) -> None:
        instances, engine = self._instances, self._engine
        lower = self._there(change.second)
        homes = {i: int(engine.where[i]) for i in lower}
        for i in lower:
            instances.halt(i)
        accept = engine.accept.copy()
        accept[change.second] = accept[change.first]
        instances.replace(gone=(change.first,), made=(change.second,))
        self._rewire(tuple(sorted({*self.fused, change.edge})), accept)
        self._start(change, homes)

    def _part(self, change: _Change) -> None:
        instances, engine = self._instances, self._engine
        homes = {i: int(engine.where[i]) for i in self._there(change.second)}
        accept = engine.accept.copy()
        accept[change.first] = accept[change.second]
        instances.parallelism[change.first] = instances.parallelism[change.second]
        homes |= dict(zip(self._there(change.first), homes.values(), strict=True))
        instances.replace(gone=(), made=(change.first, change.second))
        self._rewire(tuple(e for e in self.fused if e != change.edge), accept)
        self._start(change, homes)

    def _rewire(self, fused: tuple[int, ...], accept: Array | None = None) -> None:
        self.fused = fused
        for edge in reversed(fused):  # a task that was rescaled meanwhile stands for those fused with it
            first, last = int(self._plain.edge_source[edge]), self._last(int(self._plain.edge_target[edge]))
            self._instances.parallelism[first] = self._instances.parallelism[last]
        parallelism = dict(enumerate(self._instances.parallelism.tolist()))
        self._engine.rewire(self._plain.refitted(fused, parallelism), accept)
        self._instances.relist()

    def _start(self, change: _Change, homes: dict[int, int]) -> None:
        change.starting = set(homes)
        for instance, machine in homes.items():
            self._instances.start_on(instance, machine)

    def _started(self, instance: int) -> None:
        change = self._change
        if change is None or instance not in change.starting:
            return
        change.starting.discard(instance)
        if change.starting:
            return
        self._change = None
        source, target = self._plain.edges[change.edge]
        took_s = round(self._engine.now - change.stopped_at, 3)
        detail = {"task": self._name(change.second), "from": source, "to": target, "took_s": took_s}
        self._events.tell(change.kind, **detail, why=change.action.why)

    def _give_up(self, change: _Change, why: str) -> None:
        """Start again what was stopped, where it was, unless it was restarted meanwhile."""
        self._change = None
        self._restart(change)
        self._events.add(
            refused(Refusal(change.action, f"{'>'.join(change.action.edge)} was not {change.kind}d: {why}."))
        )

    def _restart(self, change: _Change, without: Collection[int] = ()) -> None:
        for i, run in change.runs.items():
            if self._instances.run[i] == run and int(self._plain.instance_task[i]) not in without:
                self._instances.restart(i)


def _kind(action: Fuse | Unfuse) -> str:
    return "fuse" if isinstance(action, Fuse) else "unfuse"
