"""Observations from the engine's state: a snapshot and further measurements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from qod_magics.core.runtime import Count, Event, Measured, Observation
from qod_magics.core.snapshot import NOTHING, SUSPENDED, Instance, Keys, Snapshot, Spare, Stream, Task, TaskManager
from qod_magics.simulator.rates.engine import Engine
from qod_magics.simulator.rates.reports import Reports, Timed, Timing
from qod_magics.simulator.rates.simulation import SimulatedTask, Simulation
from qod_magics.simulator.rates.wiring import Array, Wiring

MISSING = {"missing": ("in_rate", "cpu")}
#: A report whose window had less than this share of the present input rate is not representative of it.
TELLING = 0.1
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Look:
    """The counters at the last observation."""

    at: float
    came: Array
    busy: Array


@dataclass(frozen=True, slots=True)
class _Layout:
    """What all observations of the same tasks share: positions, and columns of the tables."""

    active: Array  #: by task
    there: Array  #: by instance: the task is active, and runs with it
    task_keys: Keys[str]
    upstream: tuple[tuple[str, ...], ...]
    priorities: tuple[int | None, ...]
    minimums: tuple[float | None, ...]
    external: Array  #: positions of the tasks that read from outside
    external_edges: Array
    edges: Array
    edge_keys: Keys[str]
    streams: Array  #: edges between tasks
    stream_ends: tuple[tuple[str, ...], tuple[str, ...]]
    instances: Array
    instance_keys: Keys[str]
    instance_tasks: tuple[str, ...]

    @classmethod
    def of(cls, wiring: Wiring, active: Array, listed: Array) -> _Layout:
        """Return the layout of the `active` tasks and their `listed` instances."""
        there = np.flatnonzero(active)
        edges = np.flatnonzero(active[wiring.edge_target])
        streams = edges[edges >= wiring.sources]
        outer = edges[edges < wiring.sources]
        instances = np.flatnonzero(listed)
        specs = [wiring.tasks[t] for t in there.tolist()]
        ends = [wiring.edges[e] for e in streams.tolist()]
        return cls(
            active=active.copy(),
            there=listed.copy(),
            task_keys=Keys(task.id for task in specs),
            upstream=tuple(task.upstream for task in specs),
            priorities=tuple(task.priority for task in specs),
            minimums=tuple(task.min_accuracy for task in specs),
            external=np.searchsorted(there, wiring.edge_target[outer]),
            external_edges=outer,
            edges=edges,
            edge_keys=Keys(wiring.edge_names[e] for e in edges.tolist()),
            streams=streams,
            stream_ends=(tuple(source or "" for source, _ in ends), tuple(target for _, target in ends)),
            instances=instances,
            instance_keys=Keys(wiring.instances[i] for i in instances.tolist()),
            instance_tasks=tuple(wiring.tasks[t].id for t in wiring.instance_task[instances].tolist()),
        )


class _Lazy(Mapping[str, _Value]):
    """A mapping that is made on first access: in most cycles there is none."""

    def __init__(self, make: Callable[[], dict[str, _Value]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> dict[str, _Value]:
        return self._make()

    def __getitem__(self, key: str) -> _Value:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return repr(self._made)


@dataclass(frozen=True, slots=True)
class _Quality:
    """How far the readings of each instance can be relied on."""

    since: Array  #: the window of its report, seconds since 1970
    until: Array
    age: Array  #: of its report, seconds
    fresh: Array
    ever: Array  #: whether it ever reported
    lost: Array  #: instances whose CPU is lost
    unread: Array  #: instances that reported, but not on the present input

    def of(self, instances: Array) -> list[Any]:
        """Return the fields of these instances' rows that say so."""
        found: list[Any] = [{"window": each} for each in zip(self.since.tolist(), self.until.tolist(), strict=True)]
        for i in np.flatnonzero(~self.fresh).tolist():
            found[i] = {"stale": True, "age_s": round(float(self.age[i]), 1)} if self.ever[i] else MISSING
        for i in self.lost.tolist():
            found[i] = {**found[i], "missing": ("cpu",)}
        for i in self.unread.tolist():
            found[i] = {**found[i], "missing": ("in_rate", *found[i].get("missing", ()))}
        return [found[i] for i in instances.tolist()]


class Observer:
    """Makes observations; each covers the time since the one before."""

    def __init__(self, simulation: Simulation, engine: Engine, reports: Reports, epoch: float = 0.0) -> None:
        self._epoch = epoch  #: time of second 0
        self._simulation, self._engine, self._reports = simulation, engine, reports
        self._noise = np.random.default_rng([simulation.scenario.seed, 1])
        self._last = _Look(0.0, engine.came.copy(), engine.busy.copy())
        self._busy = np.zeros(len(engine.machines))  #: % of one core, since the observation before
        self._others: deque[Array] = deque(maxlen=max(round(simulation.metrics.others_periods), 1))
        self._layout: _Layout | None = None
        self._where: Array | None = None
        self._names: tuple[str, ...] = ()
        self._rates = np.zeros(len(engine.wiring.edges))
        self._number = {task.id: t for t, task in enumerate(simulation.tasks)}
        self._tasks: tuple[SimulatedTask, ...] = ()
        self._task_fields: list[Mapping[str, Any]] = []
        self._timing = Timing(engine) if engine.cohorts is not None else None

    def observe(
        self,
        active: Array,
        listed: Array,
        events: Sequence[Event],
        spare_nodes: tuple[Spare, ...] | None = None,
        suspended: Sequence[int] = (),
    ) -> Observation:
        """Return the observation of the `active` tasks and the instances `listed`, of which plans have stopped the
        `suspended`; `spare_nodes` as in a snapshot."""
        engine, wiring = self._engine, self._engine.wiring
        elapsed = engine.now - self._last.at
        if elapsed > 0:
            self._rates = (engine.came - self._last.came) / elapsed
            busy = 100.0 * (engine.busy - self._last.busy) / elapsed
            self._last = _Look(engine.now, engine.came.copy(), engine.busy.copy())
            self._busy = np.minimum(busy, 100.0 * engine.cores)
        timed = None if self._timing is None else self._timing.look(elapsed)
        in_rate, out_rate, cpu, quality, fresh = self._readings(listed)
        cpu[list(suspended)] = 0.0
        manager_cpu = self._manager_cpu(cpu, elapsed > 0)
        if wiring.tasks is not self._tasks:  # some were fused or unfused
            self._tasks, self._layout = wiring.tasks, None
            self._task_fields = [_task_fields(wiring, t) for t in range(len(wiring.tasks))]
        layout = self._layout
        if layout is None or not (np.array_equal(layout.active, active) and np.array_equal(layout.there, listed)):
            layout = self._layout = _Layout.of(wiring, active, listed)
        there = layout.instances
        first_up = int(np.argmax(engine.up))
        where = np.where(engine.up[engine.where] & (engine.where >= 0), engine.where, first_up)[there]
        task_out = np.bincount(wiring.instance_task, out_rate, len(wiring.tasks))
        snapshot = Snapshot(
            task_managers=tuple(
                TaskManager(machine.id, machine.planned, used, memory_mb=machine.memory_mb, price=machine.price)
                for machine, used, up in zip(engine.machines, manager_cpu.tolist(), engine.up, strict=True)
                if up
            ),
            tasks=self._snapshot_tasks(layout, timed),
            streams=tuple(map(Stream, *layout.stream_ends, task_out[wiring.edge_source[layout.streams]].tolist())),
            instances=tuple(
                [
                    Instance(id, task, manager, rate, used, False, **fields)
                    for id, task, manager, rate, used, fields in zip(
                        layout.instance_keys.all,
                        layout.instance_tasks,
                        self._managers(where),
                        in_rate[there].tolist(),
                        cpu[there].tolist(),
                        _marked(
                            _merged(quality(there), None if timed is None else timed.instances(cpu), there),
                            there,
                            suspended,
                        ),
                        strict=True,
                    )
                ]
            ),
            spare_nodes=spare_nodes,
        )
        return Observation(
            snapshot,
            self._measured(layout, timed),
            tuple(events),
            layout.instance_keys.mapping(fresh[there].tolist()),
        )

    def _managers(self, where: Array) -> tuple[str, ...]:
        """Return names of the task managers of instances; the same object while none moves."""
        if self._where is None or not np.array_equal(self._where, where):
            machines = self._engine.machines
            self._where, self._names = where, tuple([machines[w].id for w in where.tolist()])
        return self._names

    def _snapshot_tasks(self, layout: _Layout, timed: Timed | None) -> tuple[Task, ...]:
        rates: Array = np.full(len(layout.task_keys.all), None)
        if self._last.at > 0:  # a rate takes two observations
            rates[layout.external] = self._rates[layout.external_edges]
        found = {} if timed is None else timed.tasks()
        there = np.flatnonzero(layout.active).tolist()
        return tuple(
            [
                Task(id, upstream, rate, priority, minimum, **self._task_fields[t], **found.get(t, NOTHING))
                for id, upstream, rate, priority, minimum, t in zip(
                    layout.task_keys.all,
                    layout.upstream,
                    rates.tolist(),
                    layout.priorities,
                    layout.minimums,
                    there,
                    strict=True,
                )
            ]
        )

    def _manager_cpu(self, cpu: Array, looked: bool) -> Array:
        """Return the CPU of each task manager, % of one core: what its tasks report, and the mean of the rest, as
        live."""
        engine = self._engine
        mine = np.where(self._reports.seen, cpu, 0.0)
        tasks = np.bincount(np.maximum(engine.where, 0), mine, len(engine.machines))
        if looked or not self._others:
            self._others.append(np.where(engine.up, np.maximum(self._busy - tasks, 0.0), np.nan))
        rest = np.array(self._others)
        known = np.maximum((~np.isnan(rest)).sum(axis=0), 1)
        found: Array = np.minimum(tasks + np.nansum(rest, axis=0) / known, 100.0 * engine.cores)
        return found

    def _readings(self, listed: Array) -> tuple[Array, Array, Array, Callable[[Array], list[Any]], Array]:
        """Return by instance: in and out rate, rows/s; CPU, % of one core; a function for further fields; whether it is
        fresh."""
        engine, wiring, reports = self._engine, self._engine.wiring, self._reports
        metrics = self._simulation.metrics
        start, end = reports.window_from, reports.window_to
        seconds = np.maximum(end.at - start.at, 1e-9)
        kept = wiring.by_instance((end.kept - start.kept).astype(float))
        in_rate = np.maximum(kept, 0.0) / seconds
        out_rate = np.maximum(end.out - start.out, 0) / seconds
        cpu = 100.0 * np.maximum(end.cpu - start.cpu, 0.0) / seconds
        if metrics.cpu_noise:
            cpu = cpu * np.maximum(1.0 + metrics.cpu_noise * self._noise.standard_normal(len(cpu)), 0.0)
        if metrics.rate_noise:
            in_rate = in_rate * np.maximum(1.0 + metrics.rate_noise * self._noise.standard_normal(len(cpu)), 0.0)
        age = engine.now - end.at
        old = age > 2.5 * max(self._simulation.period_s, metrics.report_s)
        width = np.bincount(wiring.instance_task[listed], minlength=len(wiring.tasks))
        telling = self._telling(seconds, width)
        fresh = reports.seen & ~old & telling
        missing = np.flatnonzero(listed & ~telling)
        lost = np.flatnonzero(reports.ever & ~reports.seen) if metrics.lost_cpu else missing[:0]
        if lost.size:
            cpu[lost] = 0.0
        if missing.size:
            in_rate, out_rate, cpu = in_rate.copy(), out_rate.copy(), cpu.copy()
            self._expect(in_rate, out_rate, missing, width)
            cpu[~reports.ever] = 0.0
        unread = missing[reports.ever[missing]]
        quality = _Quality(self._epoch + start.at, self._epoch + end.at, age, fresh, reports.ever.copy(), lost, unread)
        return in_rate, out_rate, cpu, quality.of, fresh

    def _telling(self, seconds: Array, width: Array) -> Array:
        """Return instances whose last report is representative of the present input: not one from before that arrived,
        nor one without rows while the output of upstream tasks is unknown."""
        wiring, reports = self._engine.wiring, self._reports
        start, end = reports.window_from, reports.window_to
        comes = np.bincount(wiring.edge_target, self._rates, len(wiring.tasks))[wiring.instance_task]
        read = np.maximum(wiring.by_instance((end.read - start.read).astype(float)), 0.0)
        came = np.maximum(end.came - start.came, read * width[wiring.instance_task]) / seconds
        telling: Array = reports.ever & (came >= TELLING * comes)
        unknown = np.zeros(len(wiring.tasks), bool)
        unknown[wiring.instance_task[~telling]] = True
        for level in wiring.levels:
            if not unknown.any():
                break
            below = np.zeros(len(wiring.tasks), bool)
            below[wiring.edge_target[level][unknown[wiring.edge_source[level]]]] = True
            silent = below[wiring.instance_task] & (read == 0.0)
            telling &= ~silent
            unknown[wiring.instance_task[silent]] = True
        return telling

    def _expect(self, in_rate: Array, out_rate: Array, missing: Array, width: Array) -> None:
        """Assume that these instances each read an even share of their inputs' output, and send all of it."""
        wiring = self._engine.wiring
        outer = {int(t): e for e, t in enumerate(wiring.edge_target[: wiring.sources].tolist())}
        for i in missing.tolist():  # inputs come before their readers
            t = int(wiring.instance_task[i])
            task = wiring.tasks[t]
            if task.upstream:
                brings = sum(
                    float(out_rate[wiring.first_instance[s] : wiring.first_instance[s] + width[s]].sum())
                    for s in (self._number[name] for name in task.upstream)
                )
            else:
                brings = float(self._rates[outer[t]])
            in_rate[i] = out_rate[i] = brings / float(width[t])

    def _measured(self, layout: _Layout, timed: Timed | None) -> Measured:
        engine, wiring, edges = self._engine, self._engine.wiring, layout.edges
        names = layout.edge_keys.all
        done = self._reports.committed
        read, kept = wiring.by_edge(done.read), wiring.by_edge(done.kept)
        dropped = read - kept
        unsent = np.bincount(wiring.outlet_edge, done.unsent, len(wiring.edges)).astype(np.int64)
        columns = [column[edges] for column in (engine.came, kept, dropped, engine.came - read)]

        def counts() -> dict[str, Count]:
            found = zip(names, *(column.tolist() for column in columns), strict=True)
            return {name: Count(*row) for name, *row in found}

        return Measured(
            lag=layout.edge_keys.mapping(engine.waiting[edges].tolist()),
            input_rate=layout.edge_keys.mapping(self._rates[edges].tolist()) if self._last.at > 0 else {},
            accuracy=layout.task_keys.mapping(self._accuracy(layout.active)),
            dropped=_Lazy(lambda: dict(zip(names, (dropped + unsent)[edges].tolist(), strict=True))),
            counts=_Lazy(counts),
            latency_s={} if timed is None else timed.latency_s(layout.active),
        )

    def _accuracy(self, active: Array) -> list[float | None]:
        """Return by task the share of the application's input that reached it, from the row counts of the last
        windows."""
        wiring, reports = self._engine.wiring, self._reports
        start, end = reports.window_from, reports.window_to
        count, tasks = len(wiring.edges), len(wiring.tasks)
        read = np.bincount(wiring.channel_edge, end.read - start.read, count)
        kept = np.bincount(wiring.channel_edge, end.kept - start.kept, count)
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = np.where(read > 0, kept / read, np.nan)
            out = np.bincount(wiring.instance_task, end.out - start.out, tasks)
            if wiring.outlet_edge.size:
                sent = np.bincount(wiring.outlet_edge, end.sent - start.sent, count)
                offered = np.where(wiring.edge_source >= 0, out[wiring.edge_source], 0.0)
                sent_share = np.where(offered > 0, sent / offered, 1.0)
        found = np.full(tasks, np.nan)
        found[wiring.edge_target[: wiring.sources]] = passed[: wiring.sources]
        for level in wiring.levels:
            reach = found[wiring.edge_source[level]] * sent_share[level] * passed[level]
            rows = np.where(np.isnan(reach), 0.0, out[wiring.edge_source[level]])
            total = np.bincount(wiring.edge_target[level], rows, tasks)
            summed = np.bincount(wiring.edge_target[level], np.where(rows > 0, reach * rows, 0.0), tasks)
            there = total > 0
            found[there] = summed[there] / total[there]
        shares: list[float | None] = found[active].tolist()
        for t in np.flatnonzero(np.isnan(found[active])).tolist():
            shares[t] = None  # no input
        return shares


def _merged(rows: list[Any], more: list[dict[str, Any]] | None, there: Array) -> list[Any]:
    """Return the fields of instances, with what is known of those `there` besides."""
    return rows if more is None else [{**row, **more[i]} for row, i in zip(rows, there.tolist(), strict=True)]


def _marked(rows: list[Any], there: Array, suspended: Sequence[int]) -> list[Any]:
    """Return the fields of instances, with the state of those that plans have stopped."""
    if not suspended:
        return rows
    return [{**row, "state": SUSPENDED} if i in suspended else row for row, i in zip(rows, there.tolist(), strict=True)]


def _task_fields(wiring: Wiring, number: int) -> Mapping[str, Any]:
    """Return the optional fields of a task that do not change."""
    task, within = wiring.tasks[number], wiring.within.get(number)
    sole = task.fusable and len(task.upstream) == 1 and [s for s, _ in wiring.edges].count(task.upstream[0]) == 1
    most, told = task.max_parallelism, task.stateful or task.max_parallelism is not None
    return {
        "max_parallelism": most,
        "stateful": int(task.stateful) if told else None,
        "divisible": int(task.divisible) if task.stateful else None,
        "max_latency_s": task.max_latency_s,
        "utility": task.utility,
        "fusable": int(sole) if task.fusable else None,
        "fused": tuple(within) if within else (),
    }
