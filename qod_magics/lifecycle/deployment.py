"""Deployments: what happens to each task when a cell is declared, replaced or stopped, step by step. Pure.

`compare` finds how the declared tasks differ from those that run. `decide` says of each task whether it runs on,
restarts from its checkpoints, starts on new ones, or ends. `Deploying` puts that into steps: a runtime carries out one
after the other, and reports each to `Deploying.handle`. Until the declared tasks run, a failure puts back what ran
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from qod_magics.lifecycle.changes import ChangeBegins, ChangeEvent, RollBack, StepEnded, StepFailed, SwitchOver
from qod_magics.lifecycle.events import Instruction, Instructions

# --- How declarations differ ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Declared:
    """A task as cells declare it. A field of type `object` is only compared, by ==."""

    id: str
    upstream: tuple[str, ...] = ()  #: the tasks that it reads
    inputs: frozenset[str] = frozenset()  #: its streams that read its inputs
    work: object = None  #: what its rows depend on: recipes, sink, settings
    edge: object = None  #: the form of the edges to it: instances, partitions, key
    timing: object = None  #: its trigger, and what selects its mode


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids of tasks, each in one group only; all but `stop` in the order of the declared tasks."""

    unchanged: tuple[str, ...]  #: keeps running; its restrictions may have changed
    start: tuple[str, ...]  #: new
    stop: tuple[str, ...]  #: gone
    restart: tuple[str, ...]  #: same recipe and inputs; other outputs, trigger, maximum parallelism, or hurried
    rebuild: tuple[str, ...]  #: itself unchanged, but a stream upstream was replaced: its input columns may differ
    replace: tuple[str, ...]  #: another recipe, other inputs, members or settings

    @property
    def is_empty(self) -> bool:
        """Return whether every task keeps running unchanged."""
        return self.only_restarts and not self.restart

    @property
    def only_restarts(self) -> bool:
        """Return whether every task keeps running, some of them after a restart."""
        return not (self.start or self.stop or self.rebuild or self.replace)


def compare(old: Iterable[Declared], new: Iterable[Declared]) -> Difference:
    """Return the changes from the old tasks to the new ones, which are listed inputs first."""
    before = {task.id: task for task in old}
    after = {task.id: task for task in new}
    old_readers, new_readers = _readers(before), _readers(after)
    groups: dict[str, list[str]] = {name: [] for name in ("unchanged", "start", "restart", "rebuild", "replace")}
    other: set[str] = set()  # the tasks whose rows may differ
    for id, task in after.items():
        known = before.get(id)
        if known is None:
            group = "start"
        elif known.work != task.work:
            group = "replace"
        elif not other.isdisjoint(task.upstream):
            group = "rebuild"
        elif old_readers[id] != new_readers[id] or known.timing != task.timing:
            group = "restart"
        else:
            group = "unchanged"
        groups[group].append(id)
        if group in ("start", "replace", "rebuild"):
            other.add(id)
    stop = tuple(id for id in before if id not in after)
    return Difference(stop=stop, **{name: tuple(ids) for name, ids in groups.items()})


def _readers(tasks: Mapping[str, Declared]) -> dict[str, dict[str, object]]:
    """Return who reads each task, and the form of the edge to each reader."""
    readers: dict[str, dict[str, object]] = {id: {} for id in tasks}
    for task in tasks.values():
        for upstream in task.upstream:
            readers[upstream][task.id] = task.edge
    return readers


# --- What happens to each task ----------------------------------------------------------------------------------------


class Fate(Enum):
    """What a deployment does with a task."""

    RUNS_ON = "runs on"
    STARTS = "starts"  #: it is new
    RETURNS = "returns"  #: it is new to this kernel, and goes on from the checkpoints that an earlier one left
    RESTARTS = "restarts"  #: from its checkpoints, as its recipe and its input columns are the same
    RESUMES = "resumes"  #: another recipe, from its checkpoints, as its state means the same
    REPLACED = "is replaced"  #: another recipe, on new checkpoints
    REBUILT = "is rebuilt"  #: the same recipe, on new checkpoints, as its input columns differ
    ENDS = "ends"

    @property
    def stops(self) -> bool:
        """Return whether the queries that run are stopped."""
        return self not in (Fate.RUNS_ON, Fate.STARTS, Fate.RETURNS)

    @property
    def starts(self) -> bool:
        """Return whether queries are started."""
        return self not in (Fate.RUNS_ON, Fate.ENDS)

    @property
    def new_checkpoints(self) -> bool:
        """Return whether these queries read their input without what the ones before them had read or kept."""
        return self in (Fate.STARTS, Fate.REPLACED, Fate.REBUILT)

    @property
    def other_recipe(self) -> bool:
        """Return whether it is declared for the first time, or with another recipe: unless it resumes, it gets the
        instances that it states."""
        return self in (Fate.STARTS, Fate.RESUMES, Fate.REPLACED)


#: Why queries with these fates begin again without the state that they had.
WHY_LOST: Mapping[Fate, str] = {
    Fate.REPLACED: "its recipe changed in what its state means",
    Fate.REBUILT: "the columns of its input changed",
}


@dataclass(frozen=True, slots=True)
class Queries:
    """What is known of a task's queries: of those that run, or of those that would. A field of type `object` is only
    compared, by ==."""

    instances: int = 1  #: as declared, whatever they were scaled to; 0: not all of them are there
    columns: object = None  #: of the task's rows; None: unknown
    meaning: object = None  #: of the state and all that a checkpoint depends on; None: unknown, or stateless
    plan: object = None  #: what of the plan does not follow from the declaration: where it differs, they restart
    keeps_state: bool = False  #: whether a run has begun that keeps state
    running: int = 0  #: instances as scaled; 0: none runs, or not all of them are there


@dataclass(frozen=True, slots=True)
class Decision:
    """What a deployment does."""

    fates: Mapping[str, Fate]  #: by task: the declared ones in their order, then those that end
    at_once: frozenset[str]  #: of the tasks that stop, those from whose checkpoints or inputs no declared task goes on
    losing_state: Mapping[str, str]  #: tasks whose queries begin again without the state that they had, and why
    #: tasks whose columns have changed: rows in transit don't fit the readers' new input
    other_columns: frozenset[str] = frozenset()

    @property
    def ending(self) -> tuple[str, ...]:
        """Return the tasks that end."""
        return tuple(id for id, fate in self.fates.items() if fate is Fate.ENDS)

    @property
    def stopping(self) -> frozenset[str]:
        """Return the tasks whose queries are stopped."""
        return frozenset(id for id, fate in self.fates.items() if fate.stops)

    @property
    def starting(self) -> frozenset[str]:
        """Return the tasks of which queries are started."""
        return frozenset(id for id, fate in self.fates.items() if fate.starts)

    @property
    def new(self) -> tuple[str, ...]:
        """Return the tasks that did not run before."""
        return tuple(id for id, fate in self.fates.items() if fate is Fate.STARTS)

    def returning(self, tasks: frozenset[str], other_columns: frozenset[str] = frozenset()) -> Decision:
        """Return the decision in which these new tasks go on from the checkpoints of an earlier kernel. The rows of
        `other_columns` differ from those that it left."""
        fates = {**self.fates, **dict.fromkeys(tasks, Fate.RETURNS)}
        return replace(self, fates=fates, other_columns=self.other_columns | other_columns)

    @property
    def resuming(self) -> frozenset[str]:
        """Return the tasks with another recipe that keep their state."""
        return frozenset(id for id, fate in self.fates.items() if fate is Fate.RESUMES)


def decide(
    old: Iterable[Declared], new: Iterable[Declared], running: Mapping[str, Queries], wanted: Mapping[str, Queries]
) -> Decision:
    """Return what happens to each task.

    Args:
        old: the tasks that run.
        new: those that are declared, inputs first.
        running: by task, its queries that run.
        wanted: by task, the queries that are declared.

    """
    before, after = {task.id: task for task in old}, {task.id: task for task in new}
    difference = compare(before.values(), after.values())
    fates = dict.fromkeys(after, Fate.RUNS_ON)
    fates |= dict.fromkeys(difference.start, Fate.STARTS)
    fates |= dict.fromkeys(difference.restart, Fate.RESTARTS)
    for id in difference.unchanged:
        if running[id].plan != wanted[id].plan:
            fates[id] = Fate.RESTARTS
    for id in difference.rebuild:
        same = all(_same_columns(name, running, wanted) for name in after[id].upstream)
        fates[id] = Fate.RESTARTS if same else Fate.REBUILT
    other = frozenset(id for id in after if _other_columns(id, running, wanted))
    for id in difference.replace:
        resumes = other.isdisjoint(after[id].upstream) and _resumes(running[id], wanted[id])
        fates[id] = Fate.RESUMES if resumes else Fate.REPLACED
    fates |= dict.fromkeys(difference.stop, Fate.ENDS)
    read_on = frozenset(name for task in after.values() for name in task.inputs)
    given_up = (id for id, fate in fates.items() if fate.stops and (fate is Fate.ENDS or fate.new_checkpoints))
    at_once = frozenset(id for id in given_up if read_on.isdisjoint(before[id].inputs))
    losing = {id: WHY_LOST[fate] for id, fate in fates.items() if fate in WHY_LOST and running[id].keeps_state}
    return Decision(fates, at_once, losing, other)


def _same_columns(task: str, running: Mapping[str, Queries], wanted: Mapping[str, Queries]) -> bool:
    before, after = running.get(task, Queries()).columns, wanted.get(task, Queries()).columns
    return before is not None and before == after


def _other_columns(task: str, running: Mapping[str, Queries], wanted: Mapping[str, Queries]) -> bool:
    before, after = running.get(task, Queries()).columns, wanted.get(task, Queries()).columns
    return before is not None and after is not None and before != after


def _resumes(before: Queries, after: Queries) -> bool:
    """Return whether a task with another recipe goes on with its state: only filters and projections have changed."""
    same = before.meaning is not None and before.meaning == after.meaning and before.plan == after.plan
    return same and after.instances in (before.instances, before.running)


# --- Step by step -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopTasks(Instruction):
    """Stop the queries of these tasks, and wait until they have ended. Those that can't be stopped are stopped later,
    which is no failure of the deployment."""

    tasks: frozenset[str]
    at_batch_end: bool  #: their inputs are read on from where they stop: no row is to be read twice


class CreateTopics(Instruction):
    """Create the topics that the declared tasks need, and find out from where they read."""


class StartTasks(Instruction):
    """Start the queries of `Decision.starting`: where the ones before them ran, else where the policy places
    them."""


@dataclass(frozen=True, slots=True)
class TellStateLost(Instruction):
    """Tell that results lack what a task had kept."""

    task: str
    why: str


class DeleteTopics(Instruction):
    """Delete the topics that no task uses any more."""


class DeleteTopicsLater(Instruction):
    """Delete them when the session ends."""


@dataclass(slots=True, repr=False)
class Deploying:
    """One deployment, which handles the events of `TaskChange`.

    What always holds (`check`): new queries start only after those of the same tasks were stopped; what ran before is
    put back unless the declared tasks run; and never after they do.
    """

    decision: Decision
    steps: tuple[Instruction, ...] = field(init=False)
    at: int = -1  #: the present step; -1: it has not begun
    runs: bool = False  #: whether the declared tasks run: this can't be undone
    undone: bool = False  #: whether what ran before is put back
    ended: bool = False

    def __post_init__(self) -> None:
        at_once = self.decision.at_once
        groups = (at_once, False), (self.decision.stopping - at_once, True)
        self.steps = (
            *(StopTasks(tasks, at_batch_end) for tasks, at_batch_end in groups if tasks),
            CreateTopics(),
            SwitchOver(),
            StartTasks(),
            *(TellStateLost(id, why) for id, why in self.decision.losing_state.items()),
            DeleteTopics(),
        )

    def __repr__(self) -> str:
        fates = ", ".join(f"{id} {fate.value}" for id, fate in self.decision.fates.items())
        return f"deployment ({fates or 'no task'}): {self.step if self.step is not None else 'ended'}"

    @property
    def step(self) -> Instruction | None:
        """Return the instruction that is carried out now."""
        return self.steps[self.at] if 0 <= self.at < len(self.steps) and not self.ended else None

    def handle(self, event: ChangeEvent, now: float = 0.0) -> Instructions:
        """Take note of an event and return what is to be done. What comes late or twice changes nothing."""
        if self.ended:
            return ()
        match event:
            case ChangeBegins() if self.at < 0:
                return self._next()
            case StepEnded(step) if step == self.step:
                self.runs = self.runs or isinstance(step, StartTasks)
                return self._next()
            case StepFailed(step) if step == self.step and isinstance(step, DeleteTopics):
                self.ended = True
                return (DeleteTopicsLater(),)
            case StepFailed(step) if step == self.step and self.runs:
                return self._next()
            case StepFailed(step) if step == self.step:
                self.undone = self.ended = True
                return (RollBack(),)
        return ()

    def check(self) -> None:
        """Raise AssertionError unless what always holds does."""
        assert not (self.runs and self.undone), self
        assert not self.ended or self.runs or self.undone, self

    def _next(self) -> Instructions:
        self.at += 1
        self.ended = self.at >= len(self.steps)
        return () if self.ended else (self.steps[self.at],)
