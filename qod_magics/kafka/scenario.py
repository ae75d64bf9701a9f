"""What the injector sends and when: a scenario, read from a JSON file. Pure, but for `Scenario.read`.

    {"seed": 1,
     "duration_s": 300,
     "phases": [{"name": "calm", "from_s": 0}, {"name": "overload", "from_s": 45}],
     "topics": [{"topic": "trips1",
                 "partitions": 1,
                 "data": {"generator": "taxi-trips"},
                 "key": null,
                 "rate": [[0, 500], [45, 500], [46, 2000]]}],
     "events": [{"at_s": 120, "add_task_manager": "tm2"},
                {"at_s": 60, "start_application": "knn"}]}

- `seed`: for everything random; default 0. `duration_s`: when sending ends. Seconds count from the start.
- `phases`: named intervals, each up to the next one; default none.
- `topics`: at least one. `partitions`: default 1. `data`: {"generator": "taxi-trips"}, {"generator": "points"},
  {"parquet": "PATH"} or {"jsonl": "PATH"}; their options are in `qod_magics.data.spec`. `key`: the column whose
  text is the record key, which determines the partition; null (default): no key, partitions in round robin.
  `rate`: rows/s, piecewise linear through [second, rate]; two points at one second are a jump; a number is constant.
- `events`: actions for the code that runs the scenario; the injector ignores them. One of `add_task_manager`,
  `remove_task_manager`, `start_application`, `stop_application`, with the name of its target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, isfinite
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from qod_magics.data.forms import (
    Count,
    Form,
    Name,
    NotNegative,
    Positive,
    Whole,
    is_number,
    plain,
    read,
    read_json,
    refuse,
)
from qod_magics.data.spec import Data, at_folder, data_columns, data_from_json
from qod_magics.errors import ScenarioError, nearest

# --- Piecewise linear rates -------------------------------------------------------------------------------------------

#: float rounding error, in rows, that must not make a count one row short
ROUNDING = 1e-6


class PiecewiseLinear:
    """A rate, rows/s, over time, seconds.

    `points` are (second, rate) in order of time, at least one. Between two points the rate is linear; before the
    first it is the first rate, after the last the last one. Two points at the same second are a jump: from that
    second on the later one holds.

    Raises ValueError when there are no points, or they are out of order, negative, not finite, or three at one second.
    """

    def __init__(self, points: tuple[tuple[float, float], ...]) -> None:
        self.points = points
        if not self.points:
            raise ValueError("a rate needs at least one point [second, rows/s]")
        for second, rate in self.points:
            if not (isfinite(second) and isfinite(rate)) or second < 0 or rate < 0:
                raise ValueError(
                    f"point [{second:g}, {rate:g}] must have a second and a rate of 0 or more, both finite"
                )
        for (before, _), (after, _) in pairwise(self.points):
            if after < before:
                raise ValueError(f"second {after:g} comes after second {before:g}: put the points in order of time")
        for (first, _), (third, _) in zip(self.points, self.points[2:], strict=False):
            if first == third:
                raise ValueError(f"more than two points at second {first:g}: a jump has two")

    def __repr__(self) -> str:
        return f"PiecewiseLinear({self.points})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PiecewiseLinear) and self.points == other.points

    def __hash__(self) -> int:
        return hash(self.points)

    @classmethod
    def from_json(cls, value: Any) -> PiecewiseLinear:
        """Return the rate of a number, or of a list of [second, rows/s]. Raises ValueError for other values."""
        if is_number(value):
            return cls.constant(value)
        if not isinstance(value, list | tuple):
            raise ValueError(f"{value!r} is neither a number nor a list of [second, number]; give one of them")
        for point in value:
            if not isinstance(point, list | tuple) or len(point) != 2 or not all(map(is_number, point)):
                raise ValueError(f"{point!r} is not a pair [second, number]; give pairs")
        return cls.through(value)

    def to_json(self) -> list[list[float]]:
        """Return the points as lists."""
        return [list(point) for point in self.points]

    @classmethod
    def constant(cls, rate: float) -> PiecewiseLinear:
        """Return the same rate, rows/s, at all times."""
        return cls(((0.0, float(rate)),))

    @classmethod
    def through(cls, points: Iterable[Iterable[float]]) -> PiecewiseLinear:
        """Return the rate through these (second, rows/s) pairs."""
        return cls(tuple((float(second), float(rate)) for second, rate in points))

    def rate(self, t: float) -> float:
        """Return the rate at second `t`, rows/s; at a jump the later of the two."""
        index = bisect_right(self._seconds, t)
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (t0, r0), (t1, r1) = self.points[index - 1], self.points[index]
        return r0 + (r1 - r0) * ((t - t0) / (t1 - t0))

    def rows(self, t0: float, t1: float) -> float:
        """Return the integral of the rate from second `t0` to second `t1`: rows, fractional.

        Negative when `t1` lies before `t0`.
        """
        return self._from_first(t1) - self._from_first(t0)

    def due(self, t: float) -> int:
        """Return whole rows due from second 0 up to second `t`: the integral, rounded down. 0 before the start."""
        return floor(self.rows(0.0, t) + ROUNDING) if t > 0 else 0

    @cached_property
    def _seconds(self) -> tuple[float, ...]:
        return tuple(second for second, _ in self.points)

    @cached_property
    def _areas(self) -> tuple[float, ...]:
        """Return rows from the first point up to each point."""
        trapezes = ((t1 - t0) * (r0 + r1) / 2 for (t0, r0), (t1, r1) in pairwise(self.points))
        return tuple(accumulate(trapezes, initial=0.0))

    def _from_first(self, t: float) -> float:
        """Return rows from the first point up to second `t`; negative before it."""
        index = bisect_right(self._seconds, t)
        if index == 0:
            return (t - self.points[0][0]) * self.points[0][1]
        second, rate = self.points[index - 1]
        return self._areas[index - 1] + (t - second) * (rate + self.rate(t)) / 2


ACTIONS = ("add_task_manager", "remove_task_manager", "start_application", "stop_application")


class Phase(Form, frozen=True):
    """A named interval of a scenario, up to the next phase."""

    name: Name
    from_s: NotNegative


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """Something that happens at an instant of a scenario."""

    at_s: float
    action: str  #: one of ACTIONS
    target: str  #: name of the task manager or of the application

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form in a scenario file."""
        return {"at_s": self.at_s, self.action: self.target}


class EventForm(Form, frozen=True):
    """An event as a scenario file has it: with one of ACTIONS."""

    at_s: NotNegative
    add_task_manager: Name | None = None
    remove_task_manager: Name | None = None
    start_application: Name | None = None
    stop_application: Name | None = None


class FeedForm(Form, frozen=True):
    """The rows of a topic as a scenario file has them."""

    topic: Annotated[str, Meta(pattern=r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$")]
    rate: PiecewiseLinear
    data: Any
    partitions: Count = 1
    key: Name | None = None


class ScenarioForm(Form, frozen=True, kw_only=True):
    """A scenario file."""

    duration_s: Positive
    topics: Annotated[tuple[FeedForm, ...], Meta(min_length=1)]
    seed: Whole = 0
    phases: tuple[Phase, ...] = ()
    events: tuple[EventForm, ...] = ()


@dataclass(frozen=True, slots=True)
class Feed:
    """The rows sent to one topic."""

    topic: str
    partitions: int
    data: Data
    key: str | None  #: column whose text is the record key
    rate: PiecewiseLinear  #: rows/s over seconds since the start

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form in a scenario file."""
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "data": self.data.to_json(),
            "key": self.key,
            "rate": self.rate.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """Feeds and events of a run. Validated by `from_json` and `read`, not by the class."""

    seed: int
    duration_s: float
    phases: tuple[Phase, ...]
    topics: tuple[Feed, ...]
    events: tuple[ScenarioEvent, ...]  #: in order of time

    @classmethod
    def read(cls, path: str | Path) -> Scenario:
        """Return the scenario of a JSON file; relative paths in it are taken from the file's folder. Raises
        ScenarioError."""
        path = Path(path)
        return cls.from_json(read_json(path)).within(path.resolve().parent)

    @classmethod
    def from_json(cls, value: Any) -> Scenario:
        """Return the scenario of a JSON value. Raises ScenarioError, which names the field."""
        return cls.of(read(ScenarioForm, value, "scenario"))

    @classmethod
    def of(cls, form: ScenarioForm) -> Scenario:
        """Return the scenario of a file's form. Raises ScenarioError."""
        topics = tuple(_feed(feed, f"topics[{i}]") for i, feed in enumerate(form.topics))
        _different([feed.topic for feed in topics], "scenario.topics", "topic")
        events = [_event(event, f"events[{i}]", form.duration_s) for i, event in enumerate(form.events)]
        return cls(
            seed=form.seed,
            duration_s=form.duration_s,
            phases=_phases(form),
            topics=topics,
            events=tuple(sorted(events, key=lambda event: event.at_s)),
        )

    def within(self, folder: Path) -> Scenario:
        """Return the same, with relative paths of data taken from this folder."""
        topics = tuple(replace(feed, data=at_folder(feed.data, folder)) for feed in self.topics)
        return replace(self, topics=topics)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `from_json` of it is the same scenario."""
        return {
            "seed": self.seed,
            "duration_s": self.duration_s,
            "phases": [plain(phase) for phase in self.phases],
            "topics": [feed.to_json() for feed in self.topics],
            "events": [event.to_json() for event in self.events],
        }

    def phase(self, t: float) -> str | None:
        """Return the name of the phase at second `t`; None before the first."""
        names = [phase.name for phase in self.phases if phase.from_s <= t]
        return names[-1] if names else None

    def due(self, t: float) -> Mapping[str, int]:
        """Return whole rows due by second `t`, by topic; no more after the end."""
        return {feed.topic: feed.rate.due(min(t, self.duration_s)) for feed in self.topics}


def _feed(form: FeedForm, where: str) -> Feed:
    data = data_from_json(form.data, f"{where}.data")
    columns = data_columns(data)
    if form.key is not None and columns is not None and form.key not in columns:
        raise refuse(form, where, "key", "be one of the columns sent, or null", nearest(form.key, columns))
    return Feed(form.topic, form.partitions, data, form.key, form.rate)


def _phases(form: ScenarioForm) -> tuple[Phase, ...]:
    for index, phase in enumerate(form.phases):
        if phase.from_s >= form.duration_s:
            raise refuse(phase, f"phases[{index}]", "from_s", f"lie before the end, second {form.duration_s:g}")
    _different([phase.name for phase in form.phases], "scenario.phases", "name")
    for before, after in pairwise(form.phases):
        if after.from_s <= before.from_s:
            raise ScenarioError(
                f"scenario.phases: {after.name!r} from second {after.from_s:g} follows {before.name!r} from second "
                f"{before.from_s:g}: put them in order of time",
                name="scenario.phases",
                rule="in order",
            )
    return form.phases


def _event(form: EventForm, where: str, duration_s: float) -> ScenarioEvent:
    targets = {action: target for action in ACTIONS if (target := getattr(form, action)) is not None}
    if len(targets) != 1:
        have = " and ".join(targets) or "none"
        raise ScenarioError(
            f"{where} must have one of {', '.join(ACTIONS)}, it has {have}: one event, one action",
            name=where,
            rule="one action",
        )
    if form.at_s > duration_s:
        raise refuse(form, where, "at_s", f"not lie after the end, second {duration_s:g}")
    return ScenarioEvent(form.at_s, *next(iter(targets.items())))


def _different(names: list[str], where: str, what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(
                f"{where} has the {what} {name!r} {names.count(name)} times: give each its own",
                name=name,
                rule="unique",
            )
