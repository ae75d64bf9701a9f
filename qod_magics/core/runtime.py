"""The protocol between the controller and a cluster: live Spark or simulator. The controller can't tell them apart.

A runtime asks a policy where instances without a task manager go (`Placer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from operator import add
from typing import Any, Protocol, runtime_checkable

from qod_magics.core.plan import Action, Edge, Fuse, Plan, Refusal, Unfuse
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager, nothing


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the cluster, for the recording and the decision log.

    `kind`: move, task-manager-up, task-manager-lost, query-failed, query-restarted, metrics-missing, starved ...
    """

    kind: str
    detail: Mapping[str, Any] = field(default_factory=nothing)  #: JSON values: instance, from, to, took_s, why ...

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a recording."""
        return {"kind": self.kind, **self.detail}


#: Counts of rows that were read and processed, but have no values, or not those that the schema asks for.
MISFITS = ("malformed", "tombstones", "implausible")
#: Counts of rows that were read, or sent, more than once.
REPEATED = ("read_again", "sent_again")


@dataclass(frozen=True, slots=True)
class Count:
    """Rows of one source or stream since the start; `arrived = processed + dropped + waiting + unreported`, exactly."""

    arrived: int = 0
    processed: int = 0
    dropped: int = 0
    waiting: int = 0
    unreported: int = 0  #: read in a batch whose counts were lost with a killed task manager
    malformed: int = 0  #: of those processed: rows that could not be parsed
    tombstones: int = 0  #: of those processed: records without a value
    implausible: int = 0  #: of those processed: rows with a time outside of the years 1 to 9999
    read_again: int = 0  #: rows that were read a second time: the batch that had read them did not end
    #: of those arrived in a stream between tasks: rows that a batch had sent which did not end, and was run again
    sent_again: int = 0

    def __add__(self, other: Count) -> Count:
        """Return the sum, as over two topics."""
        return Count(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class FeedRows:
    """The row accounting of one input of a task at one instant."""

    feed: str  #: the task's name for a source, "from>to" for a stream
    task: str  #: the task that reads it
    topic: str  #: "" for a recipe that makes its own rows
    count: Count
    waiting: Mapping[int, int] = field(default_factory=dict)  #: rows not yet read, by partition; empty: not known yet
    dropped_sending: int = 0  #: rows that the sender's shedder dropped: they never reached the topic
    deleted: int = 0  #: of those unreported: rows that the topic's retention deleted before they were read


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements beyond the snapshot; sources are named by task, streams by "from>to"."""

    lag: Mapping[str, int] = field(default_factory=dict)  #: rows not yet read, by source and by stream
    input_rate: Mapping[str, float] = field(default_factory=dict)  #: rows/s reaching the broker, by source and stream
    accuracy: Mapping[str, float | None] = field(default_factory=dict)  #: by task, from row counts; None: no input
    dropped: Mapping[str, int] = field(default_factory=dict)  #: rows dropped since the start, by source and by stream
    counts: Mapping[str, Count] = field(default_factory=dict)  #: by source and by stream
    latency_s: Mapping[str, float] = field(default_factory=dict)  #: by task
    #: by task, rows that came behind a watermark and are in no result, since the start; see `Batch.late`
    late: Mapping[str, int] = field(default_factory=nothing)
    unknown: Mapping[str, Any] = field(default_factory=nothing)  #: other keys of its JSON object

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as in a recording."""
        return {
            "lag": dict(self.lag),
            "input_rate": dict(self.input_rate),
            "accuracy": dict(self.accuracy),
            "dropped": dict(self.dropped),
            "counts": {
                name: {
                    "arrived": c.arrived,
                    "processed": c.processed,
                    "dropped": c.dropped,
                    "waiting": c.waiting,
                    "unreported": c.unreported,
                    **{kind: rows for kind in (*MISFITS, *REPEATED) if (rows := getattr(c, kind))},
                }
                for name, c in self.counts.items()
            },
            "latency_s": dict(self.latency_s),
            **({"late": dict(self.late)} if self.late else {}),
            **self.unknown,
        }


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at the cluster. `fresh[instance]` is False while its metrics are missing or stale."""

    snapshot: Snapshot
    measured: Measured
    events: tuple[Event, ...] = ()
    fresh: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dials:
    """The settings of all shedders, which `apply` sets. Probabilities in 0..1."""

    #: by edge: a source's shedder (from None), and the sending end of each stream
    keep: Mapping[Edge, float]
    #: by task: the accuracy to which a backlog is thinned at the reading end of its input streams
    accept: Mapping[str, float]


class Runtime(Protocol):
    """A cluster that can be observed, and that carries out plans."""

    #: the actions that it carries out; `apply` is called with no others
    supports: frozenset[type[Action]]

    def observe(self) -> Observation:
        """Measure the cluster. Events are those since the last call. May raise QodError; the controller goes on."""
        ...

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Set the dials and start the actions. Actions run in the background and report events with the plan's reason;
        one that can't start is an event "action-refused". May raise QodError; the controller goes on."""
        ...


@runtime_checkable
class InputRateRuntime(Runtime, Protocol):
    """A runtime that measures its input rates between observations."""

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        """Return rows/s that reached each source in the last `over_s` seconds or so, where known. Cheap; changes
        nothing."""
        ...


@runtime_checkable
class PlacingRuntime(Runtime, Protocol):
    """A runtime that asks where to start instances."""

    def place_by(self, placer: Placer) -> None:
        """Ask `placer` from now on."""
        ...


def refused(refusal: Refusal) -> Event:
    """Return the event of an action that is not carried out."""
    action = refusal.action
    named = {key: getattr(action, key) for key in ("instance", "task", "to", "id") if hasattr(action, key)}
    if isinstance(action, Fuse | Unfuse):
        named["stream"] = ">".join(action.edge)
    return Event("action-refused", {"action": type(action).__name__, **named, "why": refusal.why})


@dataclass(frozen=True, slots=True)
class Unplaced:
    """An instance that needs a task manager."""

    instance: str
    task: str
    estimate: float | None  #: its last CPU, % of one core
    forbidden: frozenset[str]  #: task managers that it must not go to
    preferred: frozenset[str] = frozenset()  #: task managers that it is to go to, if they have the CPU


#: The unplaced, the task managers and the instances that run -> task manager by instance.
Placer = Callable[[Sequence[Unplaced], Sequence[TaskManager], Sequence[Instance]], Mapping[str, str]]


def takes_instances(manager: TaskManager) -> bool:
    """Return whether instances may be placed there: it does not stand by.

    Raises a one-line SnapshotError if `standby` is no number >= 0.
    """
    return not manager.standby


def fewest_first(
    unplaced: Sequence[Unplaced], managers: Sequence[TaskManager], running: Sequence[Instance]
) -> Mapping[str, str]:
    """Return a Placer for policies without one: each goes where the fewest instances run per core."""
    hosted = {manager.id: 0 for manager in managers}
    for instance in running:
        if instance.task_manager in hosted:
            hosted[instance.task_manager] += 1
    placed = {}
    for one in unplaced:
        open_to_it = [manager for manager in managers if manager.id not in one.forbidden]
        if open_to_it:
            near = [manager for manager in open_to_it if manager.id in one.preferred]
            chosen = min(near or open_to_it, key=lambda manager: hosted[manager.id] / manager.cores).id
            placed[one.instance] = chosen
            hosted[chosen] += 1
    return placed
