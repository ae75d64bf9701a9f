"""A runtime that follows a script, and workers whose calls take virtual time. Nothing here sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from qod_magics.controller import Controller, ManualClock
from qod_magics.controller.runtime_calls import Outcome, PendingCall, attempt
from qod_magics.core.plan import Action, Move, Plan
from qod_magics.core.runtime import Dials, Event, Measured, Observation
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.policies.stream_economics import StreamEconomics

T = TypeVar("T")


@dataclass(frozen=True)
class Takes:
    """A step of a script that ends with `then` after `seconds` of virtual time."""

    seconds: float
    then: Observation | BaseException | None = None


Step = Observation | BaseException | Takes


@dataclass
class VirtualWorkers:
    """Makes workers; a call lasts as long as it says by `take` while it is made."""

    clock: ManualClock
    pending_s: float = 0.0
    overlaps: list[str] = field(default_factory=list)  #: names of workers that were given a second call at a time

    def take(self, seconds: float) -> None:
        self.pending_s = seconds

    def __call__(self, name: str) -> VirtualWorker:
        return VirtualWorker(self, name)


@dataclass
class VirtualWorker:
    makers: VirtualWorkers
    name: str
    busy_until: float = 0.0

    def begin(self, function: Callable[[], T]) -> PendingCall[T]:
        clock = self.makers.clock
        if clock.monotonic() < self.busy_until:
            self.makers.overlaps.append(self.name)
        outcome = attempt(function)
        seconds, self.makers.pending_s = self.makers.pending_s, 0.0
        self.busy_until = clock.monotonic() + seconds
        return VirtualJob(clock, self.busy_until, replace(outcome, took_s=seconds))

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class VirtualJob(Generic[T]):
    clock: ManualClock
    ready_at: float
    outcome: Outcome[T]

    def wait(self, timeout_s: float) -> Outcome[T] | None:
        rest = self.ready_at - self.clock.monotonic()
        self.clock.advance(max(min(rest, timeout_s), 0.0))
        return self.outcome if rest <= timeout_s else None


class ScriptedRuntime:
    """Observes what its script says, the last step again and again, and notes what it is told to apply."""

    supports: frozenset[type[Action]] = frozenset({Move})

    def __init__(
        self, script: Iterable[Step], workers: VirtualWorkers, applying: Iterable[Takes | BaseException | None] = ()
    ) -> None:
        self.script = list(script)
        self.applying = list(applying)
        self.applied: list[tuple[Plan, Dials]] = []
        self.observed = 0
        self._workers = workers

    def observe(self) -> Observation:
        self.observed += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        result = self._play(step)
        assert isinstance(result, Observation)
        return result

    def apply(self, plan: Plan, dials: Dials) -> None:
        self._play(self.applying.pop(0) if self.applying else None)
        self.applied.append((plan, dials))

    def _play(self, step: Step | None) -> Observation | None:
        if isinstance(step, Takes):
            self._workers.take(step.seconds)
            step = step.then
        if isinstance(step, BaseException):
            raise step
        return step


class FixedPolicy:
    """Asks for `desired` of every query."""

    name = "fixed"

    def __init__(self, desired: float = 1.0, **more: Any) -> None:
        self.desired, self.more = desired, more
        self.seen: list[Snapshot] = []
        self.error: Exception | None = None

    def decide(self, snapshot: Snapshot, state: Any) -> tuple[Plan, Any]:
        self.seen.append(snapshot)
        if self.error is not None:
            raise self.error
        sources = {(None, task.id): self.desired for task in snapshot.tasks if not task.upstream}
        streams = {(stream.source, stream.target): 1.0 for stream in snapshot.streams}
        plan = Plan(
            {task.id: self.desired for task in snapshot.tasks},
            {**sources, **streams},
            **self.more,
        )
        return plan, (state or 0) + 1


def chain(
    *,
    rate: float = 1000.0,
    read: float = 1000.0,
    cpu: float = 40.0,
    minimum: float = 0.4,
    managers: int = 2,
    where: str = "tm1",
    **extra: Any,
) -> Snapshot:
    """Src -> Snk on tm1, of which the sink takes `cpu` % of a core; other task managers idle."""
    return Snapshot(
        tuple(TaskManager(f"tm{i + 1}", 1.0, cpu + 10.0 if f"tm{i + 1}" == where else 0.0) for i in range(managers)),
        (Task("Src", (), rate, None, None), Task("Snk", ("Src",), None, 1, minimum)),
        (Stream("Src", "Snk", read),),
        (
            Instance("Src.1", "Src", where, read, 10.0, False),
            Instance("Snk.1", "Snk", where, read, cpu, False),
        ),
        **extra,
    )


def seen(
    snapshot: Snapshot | None = None,
    *events: Event,
    fresh: Mapping[str, bool] | None = None,
    lag: Mapping[str, int] | None = None,
    input_rate: Mapping[str, float] | None = None,
) -> Observation:
    return Observation(
        chain() if snapshot is None else snapshot,
        Measured(lag=lag or {}, input_rate=input_rate or {}),
        events,
        fresh or {},
    )


def place(snapshot: Snapshot, instance: str, manager: str) -> Snapshot:
    """`snapshot` with one instance on another task manager."""
    moved = (replace(i, task_manager=manager) if i.id == instance else i for i in snapshot.instances)
    return replace(snapshot, instances=tuple(moved))


@dataclass
class Bench:
    """A controller over a script, on a manual clock."""

    controller: Controller
    runtime: ScriptedRuntime
    clock: ManualClock
    workers: VirtualWorkers

    def cycles(self, count: int) -> list[Any]:
        """So many cycles, a period apart where they take less."""
        found = []
        for _ in range(count):
            begun = self.clock.monotonic()
            found.append(self.controller.step())
            self.clock.advance(max(begun + self.controller.period_s - self.clock.monotonic(), 0.0))
        return found

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.controller.log.entries()]


def bench(
    *script: Step, policy: Any = None, applying: Iterable[Takes | BaseException | None] = (), **options: Any
) -> Bench:
    clock = ManualClock()
    workers = VirtualWorkers(clock)
    runtime = ScriptedRuntime(script or [seen()], workers, applying)
    controller = Controller(runtime, policy or StreamEconomics(), clock=clock, worker=workers, **options)
    return Bench(controller, runtime, clock, workers)
