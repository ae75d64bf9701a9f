"""Which changes of tasks are under way, which wait for their turn, and which are refused for the others. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from qod_magics.lifecycle.changes import Kind
from qod_magics.lifecycle.refusals import Objection


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
