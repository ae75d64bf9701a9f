"""The task managers of a simulation, and how their JSON form is read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qod_magics.data.fields import Fields, is_number
from qod_magics.errors import ScenarioError
from qod_magics.kafka.rates import PiecewiseLinear

LOCAL = "local"

_MACHINE = (
    *("id", "cores", "planned_cores", "background", "cost"),
    *("kind", "memory_mb", "price", "off", "start_s", "standby"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A task manager."""

    id: str
    cores: float = 1.0
    planned_cores: float | None = None  #: what the policy may plan with; None: 90 % of the cores
    background: PiecewiseLinear = field(default_factory=lambda: PiecewiseLinear.constant(0.0))  #: cores of others

    cost: float = 1.0  #: factor on the costs of tasks here
    kind: str = LOCAL  #: as `AddNode` names it
    memory_mb: float | None = None  #: for its instances; None: unknown
    price: float | None = None  #: per hour that it is up; None: unknown
    off: bool = False  #: not up at the start: an `AddNode` starts it
    start_s: float = 0.0  #: from an `AddNode` until it is up
    standby: bool = False  #: up at the start, but without instances until an `AddNode`, with which it joins at once

    @property
    def planned(self) -> float:
        """Its cores in a snapshot."""
        return 0.9 * self.cores if self.planned_cores is None else self.planned_cores

    @property
    def waits(self) -> bool:
        """Whether it joins with an `AddNode` only."""
        return self.off or self.standby

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in a simulation file."""
        points = [list(point) for point in self.background.points]
        usual = Machine("")
        more = (name for name in _MACHINE[5:] if getattr(self, name) != getattr(usual, name))
        return {
            "id": self.id,
            "cores": self.cores,
            "planned_cores": self.planned_cores,
            "background": points,
            "cost": self.cost,
            **{name: getattr(self, name) for name in more},
        }


def read_machine(value: Any, where: str) -> Machine:
    """The task manager of a JSON value; `where` names it in errors. Raises ScenarioError."""
    fields = Fields(value, where, _MACHINE)
    planned = value.get("planned_cores")
    machine = Machine(
        fields.text("id"),
        fields.number("cores", above=0) if "cores" in fields else 1.0,
        None if planned is None else fields.number("planned_cores", above=0),
        _curve(fields, "background"),
        fields.number("cost", above=0) if "cost" in fields else 1.0,
        fields.text("kind") if "kind" in fields else LOCAL,
        fields.number("memory_mb", above=0) if value.get("memory_mb") is not None else None,
        fields.number("price") if value.get("price") is not None else None,
        fields.flag("off", False),
        fields.number("start_s") if "start_s" in fields else 0.0,
        fields.flag("standby", False),
    )
    if machine.off and machine.standby:
        fields.refuse("standby", "be false for a task manager that is off: one that stands by is up")
    return machine


def check_kinds(machines: Iterable[Machine]) -> None:
    """Refuse a kind whose task managers differ, so that `AddNode` would not say what it starts. Raises
    ScenarioError."""
    first: dict[str, Machine] = {}
    for machine in machines:
        if not machine.waits:
            continue
        like = first.setdefault(machine.kind, machine)
        for name in ("cores", "planned", "memory_mb", "price"):
            if getattr(machine, name) != getattr(like, name):
                raise ScenarioError(
                    f"task managers {like.id!r} and {machine.id!r} of kind {machine.kind!r} differ in their "
                    f"{'planned_cores' if name == 'planned' else name}: give them different kinds"
                )


def _curve(fields: Fields, name: str) -> PiecewiseLinear:
    if name not in fields:
        return PiecewiseLinear.constant(0.0)
    value = fields.any(name)
    try:
        return PiecewiseLinear.constant(value) if is_number(value) else PiecewiseLinear.through(value)
    except (TypeError, ValueError, OverflowError):
        fields.refuse(name, "be a number or a list of [second, number]")
