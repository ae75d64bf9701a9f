"""Fusing of neighbouring tasks in a simulated cluster, and the reverse."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from qod_magics.core.plan import Fuse, Refusal, Unfuse
from qod_magics.core.runtime import refused
from qod_magics.errors import TaskManagerError, listed, nearest
from qod_magics.lifecycle.admission import (
    Admission,
    Answer,
    Asked,
    InstanceFacts,
    Objection,
    TaskFacts,
    why_busy,
    why_not_joined,
)
from qod_magics.lifecycle.changes import (
    ChangeBegins,
    ChangeEvent,
    Drain,
    GiveUp,
    Group,
    Kind,
    Overtaken,
    Resume,
    RowsLeft,
    StandsStill,
    StartAll,
    StepEnded,
    StepFailed,
    StopAll,
    SwitchOver,
    TaskChange,
)
from qod_magics.lifecycle.events import Instruction, Tell
from qod_magics.simulator.rates.engine import NOWHERE, Engine
from qod_magics.simulator.rates.instances import Agenda, Events, Instances
from qod_magics.simulator.rates.rescaling import STATE
from qod_magics.simulator.rates.wiring import Array, Wiring


@dataclass(slots=True)
class _Change:
    """One under way. Tasks and the edge by index; of several fused tasks, the last one stands for all."""

    action: Fuse | Unfuse
    edge: int
    first: int
    second: int
    life: TaskChange
    runs: dict[int, int] = field(default_factory=dict)  #: runs that have been stopped for it, by instance
    homes: dict[int, int] = field(default_factory=dict)  #: task managers of the instances that take over
    starting: set[int] = field(default_factory=set)  #: instances that have not started since
    stays_stopped: Collection[int] = ()  #: tasks that are stopped with their application
    asked: Asked = field(init=False)

    @property
    def kind(self) -> Kind:
        return self.life.kind


class Fusing:
    """Carries out `Fuse` and `Unfuse` as a live cluster does, one at a time: no row is lost or counted twice, since the
    first task stops at the end of a batch, and the second reads all that it was sent."""

    def __init__(
        self, engine: Engine, agenda: Agenda, events: Events, instances: Instances, admission: Admission
    ) -> None:
        self._admission = admission
        self._engine, self._agenda, self._events, self._instances = engine, agenda, events, instances
        self._plain: Wiring = engine.wiring  #: with nothing fused or scaled
        self._number = {task.id: t for t, task in enumerate(engine.wiring.tasks)}
        self._change: _Change | None = None
        self.fused: tuple[int, ...] = ()  #: streams within tasks, edges in their order
        instances.started.append(self._started)

    def __repr__(self) -> str:
        return f"{len(self.fused)} streams within tasks"

    def begin(self, action: Fuse | Unfuse) -> None:
        """Begin, unless it is so already, or under way. Raises TaskManagerError, one line."""
        kind = Kind.FUSE if isinstance(action, Fuse) else Kind.UNFUSE
        asked = Asked(kind, ">".join(action.edge))
        if self._admission.ask(asked) is Answer.NOTHING:
            return
        _raise(self._admission.why_not(asked))  # by another fusion
        made = self._fuse(action) if isinstance(action, Fuse) else self._unfuse(action)
        if made is None:
            return
        made.asked = replace(asked, tasks=frozenset({self._name(made.first), self._name(made.second)}))
        _raise(self._admission.why_not(made.asked))
        self._admission.begins(made.asked)
        self._change = made
        self._report(made, ChangeBegins())

    def separate(self, tasks: Iterable[int]) -> None:
        """Unfuse tasks, by index, that stop: they are separate when they start again. Give up a change of them that is
        under way; the other tasks of it run on."""
        chosen, wiring = set(tasks), self._plain
        change = self._change
        if change is not None and {change.first, change.second} & chosen:
            change.stays_stopped = chosen
            self._report(change, Overtaken())
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
        if why:
            raise TaskManagerError(f"{source} and {target} can't be fused: {why}.")
        return self._made(action, wiring.edges.index((source, target)), first, second)

    def _why_not(self, first: int, second: int) -> str:
        one, other = self._facts(first), self._facts(second)
        most = [self._engine.wiring.tasks[task].partitions for task in (first, second)]
        if most[0] != most[1]:
            has = [
                f"{each.id} has {len(each.instances)} of {n} instances"
                for each, n in zip((one, other), most, strict=True)
            ]
            return ", ".join(has)
        busy = why_busy((*one.instances, *other.instances), "fuse it")
        return why_not_joined(one, other) or ("" if busy is None else busy.why)

    def _facts(self, task: int) -> TaskFacts:
        names, instances = self._engine.wiring.instances, self._instances
        there = [InstanceFacts(names[i], self._home(i), instances.state(i)) for i in self._there(task)]
        model = self._engine.wiring.tasks[task]
        return TaskFacts(self._name(task), tuple(there), bool(model.stateful), STATE[model.divisible])

    def _home(self, instance: int) -> str | None:
        return None if self._engine.where[instance] == NOWHERE else self._instances.home(instance)

    def _made(self, action: Fuse | Unfuse, edge: int, first: int, second: int) -> _Change:
        kind, (source, target) = Kind.FUSE if isinstance(action, Fuse) else Kind.UNFUSE, self._plain.edges[edge]
        name = self._name(second)
        detail = {"task": name, "from": source, "to": target}
        return _Change(action, edge, first, second, TaskChange(kind, ">".join(action.edge), name, detail=detail))

    def _unfuse(self, action: Unfuse) -> _Change | None:
        source, target = action.edge
        edge = self._within(source, target)
        wiring = self._plain
        if edge is None:
            if action.edge in self._engine.wiring.edges and self._active(self._number[target]):
                return None
            known = listed([wiring.edge_names[e] for e in self.fused])
            there = f" It can be unfused at {known}." if known else " No task can be unfused."
            raise TaskManagerError(f"{source}>{target} is no stream within a task.{there}")
        last = self._last(int(wiring.edge_target[edge]))
        _raise(why_busy(self._facts(last).instances, "unfuse it"))
        return self._made(action, edge, int(wiring.edge_source[edge]), last)

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

    def _report(self, change: _Change, event: ChangeEvent) -> None:
        """Report an event of a change, and carry out what it asks for."""
        for each in change.life.handle(event, self._engine.now):
            self._carry_out(change, each)
        self._note_end(change)

    def _note_end(self, change: _Change) -> None:
        if change.life.ended and self._change is change:
            self._change = None
            self._admission.ends(change.asked)

    def _carry_out(self, change: _Change, step: Instruction) -> None:
        match step:
            case StopAll(Group.SECOND):
                self._stop_reader(change, step)
            case StopAll():
                self._stop_soon(change, step)
            case Drain():
                self._look(change, step)
            case SwitchOver():
                self._switch(change)
                self._report(change, StepEnded(step))
            case StartAll(Group.READERS):  # all of them: what starts here does not fail
                change.starting = set(change.homes)
                for instance, machine in change.homes.items():
                    self._instances.start_on(instance, machine)
            case Resume(group):
                self._restart(change, self._there(change.first if group is Group.FIRST else change.second))
            case GiveUp(why):
                at = ">".join(change.action.edge)
                self._events.add(refused(Refusal(change.action, f"{at} was not {change.kind.done}: {why}.")))
            case Tell(kind, detail):
                self._events.tell(kind, **detail, why=change.action.why)
            case _:
                self._report(change, StepEnded(step))

    def _stop_soon(self, change: _Change, step: StopAll) -> None:
        """Stop the instances of the task that reads the input, all of which must run, at the ends of their batches."""
        mine = self._there(change.first if step.group is Group.FIRST else change.second)

        def stop() -> None:
            if change.life.step != step:
                return
            down = [i for i in mine if not self._engine.running[i]]
            if down:
                self._report(
                    change, StepFailed(step, f"{self._engine.wiring.instances[down[0]]} does not run any more")
                )
                return
            self._report(change, StandsStill(self._engine.now))
            for i in mine:
                self._instances.halt(i)
                change.runs[i] = int(self._instances.run[i])
            self._report(change, StepEnded(step))

        after_s = max((self._instances.batch_left_s(i) for i in mine), default=0.0)
        if after_s > 0.0:
            self._agenda.at(self._engine.now + after_s, stop)
        else:
            stop()

    def _look(self, change: _Change, step: Drain) -> None:
        """Look whether the second task has read all, and ended its batch."""
        engine, lower = self._engine, self._there(change.second)
        if change.life.step != step:
            return
        if any(self._instances.run[i] != run for i, run in change.runs.items()):
            self._report(change, StepFailed(step, f"{self._name(change.first)} was restarted meanwhile"))
            return
        idle = bool(engine.running[lower].all()) and not engine.in_batch[lower].any()
        for each in change.life.handle(RowsLeft(step, int(engine.waiting[change.edge]), idle), engine.now):
            if each == step:
                self._agenda.at(engine.now + engine.step_s, lambda: self._look(change, step))
            else:
                self._carry_out(change, each)
        self._note_end(change)

    def _stop_reader(self, change: _Change, step: StopAll) -> None:
        engine, lower = self._engine, self._there(change.second)
        if [engine.where[i] for i in lower] != [engine.where[i] for i in change.runs]:
            self._report(change, StepFailed(step, "they are on two task managers by now"))
            return
        for i in lower:
            self._instances.halt(i)
        self._report(change, StepEnded(step))

    def _switch(self, change: _Change) -> None:
        """Fuse both tasks, or unfuse them: the instances of the second one say where all of them start."""
        instances, engine = self._instances, self._engine
        change.homes = {i: int(engine.where[i]) for i in self._there(change.second)}
        accept = engine.accept.copy()
        if change.kind is Kind.FUSE:
            accept[change.second] = accept[change.first]
            instances.replace(gone=(change.first,), made=(change.second,))
            self._rewire(tuple(sorted({*self.fused, change.edge})), accept)
            return
        accept[change.first] = accept[change.second]
        instances.parallelism[change.first] = instances.parallelism[change.second]
        change.homes |= dict(zip(self._there(change.first), list(change.homes.values()), strict=True))
        instances.replace(gone=(), made=(change.first, change.second))
        self._rewire(tuple(e for e in self.fused if e != change.edge), accept)

    def _rewire(self, fused: tuple[int, ...], accept: Array | None = None) -> None:
        self.fused = fused
        for edge in reversed(fused):  # a task that was rescaled meanwhile stands for those fused with it
            first, last = int(self._plain.edge_source[edge]), self._last(int(self._plain.edge_target[edge]))
            self._instances.parallelism[first] = self._instances.parallelism[last]
        parallelism = dict(enumerate(self._instances.parallelism.tolist()))
        self._engine.rewire(self._plain.refitted(fused, parallelism), accept)
        self._instances.relist()

    def _started(self, instance: int) -> None:
        change = self._change
        if change is None or instance not in change.starting:
            return
        change.starting.discard(instance)
        if not change.starting:
            self._report(change, StepEnded(StartAll(Group.READERS)))

    def _restart(self, change: _Change, instances: Iterable[int]) -> None:
        """Start again what was stopped, where it was, unless it was restarted meanwhile."""
        for i in instances:
            ours = self._instances.run[i] == change.runs.get(i)
            if ours and int(self._plain.instance_task[i]) not in change.stays_stopped:
                self._instances.restart(i)


def _raise(objection: Objection | None) -> None:
    if objection is not None:
        raise objection.error()
