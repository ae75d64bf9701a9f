"""Which changes of tasks are under way, which wait for their turn, and which are refused for the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.changes import Kind
from qod_magics.lifecycle.events import State

# --- Refusals: what a runtime checks before it begins a change --------------------------------------------------------

#: What an instance needs whose checkpoint may be ahead of the row accounting, as a predicate.
ACCOUNTING_DIFFERS = "has to end a batch first, which reports its offsets"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a change can't be made now."""

    why: str  #: a sentence without its period
    rule: str  #: that is broken, a short word for programs
    name: str | None = None  #: the task or instance that it is about

    def error(self) -> TaskManagerError:
        """Return the error that says so."""
        return TaskManagerError(f"{self.why}.", name=self.name, rule=self.rule)


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """An instance of a task that is to be changed."""

    id: str
    home: str | None  #: its task manager
    state: State
    differs: bool = False  #: whether the row accounting may be elsewhere than its checkpoint


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The state of a task that is to be rescaled."""

    columns: frozenset[str] = frozenset()  #: of its only input, in the keys of all its state
    key: str | None = None  #: the column by which the session chooses the partition of each of its rows
    sent: bool = False  #: whether all its rows come on one stream of the session
    obstacle: str = ""  #: why the runtime can't assign any state of this task, as a clause
    lends: bool = False  #: whether parts of a group may be in the state of several instances


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task that is to be changed, and its instances in their order."""

    id: str
    instances: tuple[InstanceFacts, ...]
    keeps_state: bool = False
    state: StateFacts = StateFacts()
    inputs: int = 1  #: topics that it reads; 0: a source of its own, which has no offsets


def why_busy(instances: Iterable[InstanceFacts], change: str) -> Objection | None:
    """Return why one of these can't be stopped at a known offset; None if all can. `change` is what to do once they
    run, as a clause."""
    there = tuple(instances)
    busy = next((each for each in there if each.state is not State.RUNNING), None)
    if busy is not None:
        doing = "being moved" if busy.state is State.MOVING else busy.state.value
        return Objection(f"{busy.id} is {doing}: {change} once it runs", "running", busy.id)
    elsewhere = next((each for each in there if each.differs), None)
    if elsewhere is None:
        return None
    return Objection(f"{elsewhere.id} {ACCOUNTING_DIFFERS}: {change} then", "reported", elsewhere.id)


def why_not_scaled(task: TaskFacts, parallelism: object, most: int, bound: str) -> Objection | None:
    """Return why a task can't have this many instances; None if it can.

    Args:
        task: its instances may be left out where what does not run can be rescaled, too.
        parallelism: the number that is asked for.
        most: the largest one.
        bound: why there are not more, as a clause.

    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        return Objection(f"{task.id} can't have {parallelism!r} instances: it needs 1 or more", "at least 1", task.id)
    if parallelism > most:
        return Objection(f"{task.id} can't have {parallelism} instances: {bound}", "maximum", task.id)
    busy = why_busy(task.instances, f"scale {task.id}")
    if busy is not None:
        return busy
    stays = why_state_stays(task)
    if not stays:
        return None
    why = (
        f"{task.id} keeps state, which can't be assigned to other instances: {stays}. Or declare it again with "
        f"--parallelism {parallelism} (its state begins empty)"
    )
    return Objection(why, "assignable state", task.id)


def why_state_stays(task: TaskFacts) -> str:
    """Return why the state of a task can't be assigned to other instances, as a clause; "" if it can, or there is none.

    An instance gets the state of the keys whose rows it reads. So the session has to know which rows these are, and all
    state has to belong to one key.
    """
    state = task.state
    if not task.keeps_state:
        return ""
    if state.obstacle:
        return state.obstacle
    if state.lends:
        return "it was declared with --lend, so parts of a group may be in the state of several instances"
    if not state.sent:
        return "its rows don't come on one stream of the session, which would choose their partitions by a key"
    if state.key is None:
        return "its rows are sent without a key: declare it with --key COLUMN, a column that it groups by"
    if state.key not in state.columns:
        kept = ", ".join(sorted(state.columns)) or "no column of its input alone"
        return f"its rows are sent by {state.key}, but its state is kept by {kept}: group by {state.key}, unchanged"
    return ""


def why_not_lent(task: TaskFacts, lessor: str, lessee: str, settable: bool) -> Objection | None:
    """Return why rows of one instance can't be lent to another now; None if they can.

    Args:
        task: the task that both are of.
        lessor: the instance that the keys belong to.
        lessee: the one that is to count some of their rows.
        settable: whether the plans that send the rows read at once which share is lent.

    """
    if not task.state.lends:
        return Objection(f"rows of {task.id} stay together: declare it with --lend", "lends", task.id)
    of = {each.id: each for each in task.instances}
    both = [of.get(id) for id in (lessor, lessee)]
    if None in both or lessor == lessee:
        return Objection(f"{lessor} and {lessee} must be two instances of {task.id}", "instances", task.id)
    if not settable:
        why = "only plans on task managers that this session has started read at once which share is lent"
        return Objection(f"rows of {task.id} stay together: {why}", "settable", task.id)
    away = next((each for each in both if each is not None and each.state is not State.RUNNING), None)
    return None if away is None else Objection(f"{away.id} is {away.state.value}", "running", away.id)


def why_not_joined(first: TaskFacts, second: TaskFacts) -> str:
    """Return why the instances of two tasks can't become one query each, as a clause; "" if they can."""
    upper, lower = first.instances, second.instances
    if len(upper) != len(lower):
        return f"{first.id} has {len(upper)} instances, {second.id} {len(lower)}"
    for one, other in zip(upper, lower, strict=True):
        if one.home is None or one.home != other.home:
            where = "no task manager" if one.home is None else one.home
            return f"{one.id} is on {where}, {other.id} on {other.home or 'none'}: move one to the other"
    if not first.inputs:
        return f"{first.id} reads a source of its own, which has no offsets to go on from"
    if first.keeps_state and second.keeps_state:
        return f"{first.id} and {second.id} both keep state, and a checkpoint holds that of one of them"
    if second.keeps_state and first.inputs > 1:
        return f"{first.id} has several inputs, and the checkpoint of {second.id}, which keeps state, one"
    if second.keeps_state and second.state.key is not None and len(lower) > 1:
        return (
            f"the state of {second.id} is divided by {second.state.key}, the rows of {first.id} are not: scale both to "
            "1 before"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A change of tasks that is asked for. Two that ask for the same are equal."""

    kind: Kind
    name: str  #: the task, or the stream "from>to"
    parallelism: int | None = None  #: of a task that is scaled
    tasks: frozenset[str] = field(default=frozenset(), compare=False)  #: that it concerns
    action: object = field(default=None, compare=False)  #: the plan's

    @property
    def doing(self) -> str:
        """Return a clause that says that it is under way."""
        to = "" if self.parallelism is None else f" to {self.parallelism} instance{'s' * (self.parallelism != 1)}"
        return f"{self.name} is being {self.kind.done}{to}"


class Answer(Enum):
    """What happens with a change that a plan asks for."""

    BEGINS = "begins"  #: unless it is refused
    WAITS = "waits"  #: in the place of what waited for the same task
    NOTHING = "nothing"  #: it is under way


@dataclass(slots=True)
class Admission:
    """Changes of tasks that are under way, or wait. Only its methods change it.

    What always holds: no two that are under way concern the same task, nor are two of them fusions; with
    `one_at_a_time`, there is at most one.
    """

    one_at_a_time: bool = True
    under_way: list[Asked] = field(default_factory=list)
    waiting: dict[str, Asked] = field(default_factory=dict)  #: by task, in the order in which they came

    def ask(self, asked: Asked) -> Answer:
        """Return what happens with a change that a plan asks for. Rescaling takes turns: plans scale several tasks."""
        if asked in self.under_way:
            return Answer.NOTHING
        turns = self.one_at_a_time and asked.kind is Kind.SCALE
        others = [each for each in self.under_way if each.kind is Kind.SCALE and each.name != asked.name]
        if turns and (asked.name in self.waiting or others):
            self.waiting[asked.name] = asked
            return Answer.WAITS
        return Answer.BEGINS

    def why_not(self, asked: Asked) -> Objection | None:
        """Return why it can't begin beside what is under way; None if it can."""
        hinders = next((each for each in self.under_way if self._hinders(each, asked)), None)
        if hinders is None:
            return None
        why = f"{hinders.doing}: {asked.kind.value} {asked.name} once that is done"
        return Objection(why, "one change at a time", hinders.name)

    def _hinders(self, other: Asked, asked: Asked) -> bool:
        fusions = Kind.SCALE not in (other.kind, asked.kind)
        return self.one_at_a_time or fusions or not other.tasks.isdisjoint(asked.tasks)

    def begins(self, asked: Asked) -> None:
        """Take note that a change is under way, for which `why_not` has no reason."""
        assert self.why_not(asked) is None, asked
        self.under_way.append(asked)

    def ends(self, asked: Asked) -> None:
        """Take note that it has ended."""
        if asked in self.under_way:
            self.under_way.remove(asked)

    @property
    def next(self) -> Asked | None:
        """Return what waits longest, once no task is being scaled."""
        scales = any(each.kind is Kind.SCALE for each in self.under_way)
        return None if scales else next(iter(self.waiting.values()), None)

    def take(self, task: str) -> Asked | None:
        """Return what waits for a task, and forget it."""
        return self.waiting.pop(task, None)
