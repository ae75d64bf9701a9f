"""Fits a simulation to a recording: everything that `simulate` needs, estimated from the measurements. Pure.

Parameters that a recording can't determine keep their defaults: the trigger of micro-batches, how losses are detected,
and whether rows keep their weight. Rates and background CPU vary over time; costs are constant over the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from qod_magics.controller.record import Record, Records
from qod_magics.core.snapshot import Task, replace
from qod_magics.data.spec import data_from_json
from qod_magics.kafka.scenario import Feed, Phase, PiecewiseLinear, Scenario, ScenarioEvent
from qod_magics.policies import PAPER_POLICY
from qod_magics.recordings.reading import phases, settled
from qod_magics.simulator.rates.fitting.cost_fit import (
    STEADY_S,
    Costs,
    Starts,
    all_costs,
    begun,
    overhead,
    shares,
    start_overhead,
    starts,
    task_costs,
)
from qod_magics.simulator.rates.fitting.readings import (
    Load,
    load_curve,
    loads,
    lost_cpu,
    move_times,
    rate_curve,
    readings,
    times,
    unaveraged,
)
from qod_magics.simulator.rates.simulation import (
    MICRO_BATCH,
    REALTIME,
    Fault,
    Machine,
    Metrics,
    Moves,
    SimulatedTask,
    Simulation,
)

#: Tolerance of the simplified background curve, cores.
_BACKGROUND_TOLERANCE = 0.015
_UNTOLD_PERIODS = 3  #: `others_periods` of a recording that does not state it
#: Lag in periods of input above which it is a backlog, not rows in transit.
_BACKLOG_PERIODS = 2.0
#: Steps of the simulation, seconds: the short one if the latency of a stream is below the long one.
SHORT_STEP_S, STEP_S = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class Finding:
    """One estimate, for a reader."""

    what: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit."""

    simulation: Simulation
    findings: tuple[Finding, ...]


def fit(records: Records, policy: str | None = None) -> Fit:
    """Return the simulation like the recording. Raises ValueError for one without records or tasks."""
    if not any(record.snapshot.tasks for record in records):
        raise ValueError("the recording has no line with a task: nothing to fit")
    return _Fitting(records).result(policy)


class _Fitting:
    """The parts of a fit, each estimated from the recording by itself."""

    def __init__(self, records: Records) -> None:
        self.records = [record for record in records if not record.repeated]
        self.at = times(self.records)
        self.period_s = self.records[0].period_s
        self.readings = tuple(readings(records))
        self.loads = tuple(loads(records))
        self.found: list[Finding] = []
        named = [part for part in phases(self.records) if part.name]
        self.last = named[-1].last if named else len(self.records) - 1
        self.duration_s = self.at[self.last]
        parts = named or list(phases(self.records))
        self.settled = [i for part in parts for i in settled(self.records, part)]

    def result(self, policy: str | None) -> Fit:
        recorded = self._tasks()
        costs, factors = all_costs(self.readings)
        self._say_costs(costs, factors)
        applications = self._applications(recorded)
        beside = overhead(self._settled_loads())
        self._say("overhead", f"{beside.cores:.4f} +- {beside.error:.4f} cores an instance", beside.note)
        tasks = tuple(
            self._task(task, costs.get(name) or task_costs(()), applications, beside.cores)
            for name, task in recorded.items()
        )
        backgrounds, start_s = self._backgrounds(beside.cores)
        streams = [task.latency_s for task in tasks if task.upstream]
        metrics = self._metrics(costs.values())
        simulation = Simulation(
            scenario=self._scenario([task for task in tasks if task.topic], applications),
            machines=tuple(self._machine(name, points, factors.get(name, 1.0)) for name, points in backgrounds.items()),
            tasks=tasks,
            metrics=metrics,
            moves=replace(self._moves(costs, factors, metrics.report_s), start_overhead_s=round(start_s, 3)),
            faults=tuple(self._faults()),
            period_s=self.period_s,
            step_s=SHORT_STEP_S if streams and min(streams) < STEP_S else STEP_S,
            policy=policy or self.records[0].policy or PAPER_POLICY,
            controlled=any(record.applied for record in self.records),
        )
        return Fit(Simulation.from_json(simulation.to_json()), tuple(self.found))

    def _say(self, what: str, value: str, note: str = "") -> None:
        self.found.append(Finding(what, value, note))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _tasks(self) -> dict[str, Task]:
        """Return the last form of each task, in order of appearance."""
        found: dict[str, Task] = {}
        for record in self.records[: self.last + 1]:
            for task in record.snapshot.tasks:
                before = found.get(task.id)
                if before is not None and before.priority is not None:
                    now = (task.priority, task.min_accuracy)
                    if now != (before.priority, before.min_accuracy):
                        self._say(task.id, f"priority {now[0]}, minimum {now[1]}", "changed: the last ones hold")
                found[task.id] = task
        return found

    def _say_costs(self, costs: Mapping[str, Costs], factors: Mapping[str, float]) -> None:
        for name, each in costs.items():
            line = each.line
            work, fixed, read = line.errors
            self._say(
                name,
                f"fixed {each.fixed:.4f} +- {fixed:.4f} cores, read {each.read_us:.1f} +- {read:.1f} us, "
                f"work {each.work_us:.1f} +- {work:.1f} us; {line.count} reports, "
                f"residual {100 * line.spread:.2f} % of a core ({100 * line.relative:.0f} %)",
                each.note,
            )
        for name, factor in factors.items():
            if factor != 1.0:
                self._say(name, f"a task costs {factor:.2f} times what it costs elsewhere")

    def _task(self, task: Task, costs: Costs, applications: dict[str, tuple[int, int]], beside: float) -> SimulatedTask:
        name, source = task.id, not task.upstream
        seen = [each for record in self.records for each in record.snapshot.instances if each.task == name]
        instances = sorted({each.id for each in seen}, key=_number)
        mine = [reading for reading in self.readings if reading.task == name]
        modes = [each.mode for each in seen if each.mode]
        latency_s = self._latency_s(name)
        selectivity = self._selectivity(name)
        split = shares(mine, instances)
        if split:
            self._say(name, "shares of its input " + ", ".join(f"{share:.3f}" for share in split))
        self._say(name, f"{len(instances)} instances, selectivity {selectivity:.3g}, latency {latency_s:.2f} s")
        return SimulatedTask(
            id=name,
            upstream=task.upstream,
            topic=name if source else None,
            priority=task.priority,
            min_accuracy=task.min_accuracy,
            parallelism=max(len(instances), 1),
            shares=split,
            application=next((a for a in applications if name in a.split("+")), None),
            fixed=round(costs.fixed, 6),
            overhead=round(beside, 6),
            read_us=round(costs.read_us, 3),
            work_us=round(costs.work_us, 3),
            selectivity=selectivity,
            mode=MICRO_BATCH if modes and modes[-1] == MICRO_BATCH else REALTIME,
            latency_s=round(latency_s, 3),
        )

    def _selectivity(self, name: str) -> float:
        ratios = []
        for record in self.records:
            took = sum(each.in_rate for each in record.snapshot.instances if each.task == name)
            gave = [stream.out_rate for stream in record.snapshot.streams if stream.source == name]
            if gave and took > 0:
                ratios.append(gave[0] / took)
        return round(median(ratios), 6) if ratios else 1.0

    def _latency_s(self, name: str) -> float:
        """Return the mean time of rows in transit: settled lag over input rate, where the lag is not a backlog."""
        waiting = coming = 0.0
        for i in self.settled:
            measured = self.records[i].measured
            for edge, lag in measured.lag.items():
                rate = measured.input_rate.get(edge)
                if edge.rpartition(">")[2] == name and rate and lag <= _BACKLOG_PERIODS * self.period_s * rate:
                    waiting += lag
                    coming += rate
        return waiting / coming if coming else 0.0

    # -- time ----------------------------------------------------------------------------------------------------------

    def _applications(self, tasks: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the tasks that started late or ended early, grouped by when: "a+b" -> first and last record."""
        there = {name: [i for i, record in enumerate(self.records) if _has(record, name)] for name in tasks}
        groups: dict[tuple[int, int], list[str]] = {}
        for name, indices in there.items():
            groups.setdefault((indices[0], indices[-1]), []).append(name)
        whole = (0, len(self.records) - 1)
        return {"+".join(names): span for span, names in groups.items() if span != whole}

    def _between(self, index: int) -> float:
        """Return an instant between a record and the one before it."""
        return round(max(self.at[index] - self.period_s / 2, 0.0), 3)

    def _scenario(self, sources: Sequence[SimulatedTask], applications: dict[str, tuple[int, int]]) -> Scenario:
        events = []
        for name, (first, last) in applications.items():
            if first:
                events.append(ScenarioEvent(self._between(first), "start_application", name))
            if last < self.last:
                events.append(ScenarioEvent(self._between(last + 1), "stop_application", name))
        lost = {fault.target for fault in self._faults()}
        for name, indices in self._managers().items():
            if indices[0]:
                events.append(ScenarioEvent(self._between(indices[0]), "add_task_manager", name))
            if indices[-1] < self.last and name not in lost:
                events.append(ScenarioEvent(self._between(indices[-1] + 1), "remove_task_manager", name))
        feeds = [
            Feed(task.id, 1, data_from_json({"generator": "points"}, "data"), None, self._rate(task.id))
            for task in sources
        ]
        for event in events:
            self._say(event.target, f"{event.action.replace('_', ' ')} at {event.at_s:g} s")
        inside = tuple(sorted((e for e in events if e.at_s <= self.duration_s), key=lambda event: event.at_s))
        return Scenario(1, round(self.duration_s, 3), tuple(self._phases()), tuple(feeds), inside)

    def _phases(self) -> Iterable[Phase]:
        seen: dict[str, int] = {}
        for part in phases(self.records):
            if part.name:
                seen[part.name] = seen.get(part.name, 0) + 1
                name = part.name if seen[part.name] == 1 else f"{part.name} ({seen[part.name]})"
                yield Phase(name, round(self.at[part.first - 1] if part.first else 0.0, 3))

    def _rate(self, source: str) -> PiecewiseLinear:
        points = [
            (at, float(rate))
            for at, record in zip(self.at, self.records, strict=True)
            if (rate := record.measured.input_rate.get(source)) is not None
        ]
        curve = rate_curve([at for at, _ in points], [rate for _, rate in points])
        worst = [
            abs(curve.rows(at - self.period_s, at) / self.period_s - rate) for at, rate in points if at >= self.period_s
        ]
        mean = fmean(rate for _, rate in points) if points else 0.0
        off = 100.0 * fmean(worst) / mean if worst and mean else 0.0
        self._say(source, f"rate of {len(curve.points)} points, mean {mean:.0f} rows/s, off by {off:.1f} % of that")
        return curve

    # -- task managers -------------------------------------------------------------------------------------------------

    def _managers(self) -> dict[str, list[int]]:
        """Return by task manager the indices of the records that have it."""
        there: dict[str, list[int]] = {}
        for i, record in enumerate(self.records[: self.last + 1]):
            for manager in record.snapshot.task_managers:
                there.setdefault(manager.id, []).append(i)
        return there

    def _settled_loads(self) -> list[Load]:
        quiet = {self.at[i] for i in self.settled}
        return [load for load in self.loads if load.at_s in quiet]

    @property
    def others_periods(self) -> int:
        """Return the number of periods over which the recording's runtime averaged the CPU of all but the tasks."""
        told = (m.others_periods for record in self.records for m in record.snapshot.task_managers)
        return next((int(periods) for periods in told if periods), _UNTOLD_PERIODS)

    def _backgrounds(self, beside: float) -> tuple[dict[str, list[tuple[float, float]]], float]:
        """Return (second, cores) of the background of each task manager, and its CPU seconds for a start."""
        points = {}
        for name in self._managers():
            mine = [load for load in self.loads if load.manager == name]
            others = unaveraged([load.others for load in mine], self.others_periods)
            points[name] = [
                (max(load.at_s - self.period_s / 2, 0.0), max(value / 100.0 - beside * load.instances, 0.0))
                for load, value in zip(mine, others, strict=True)
            ]
        quiet, seconds, count = start_overhead(points, begun(self.readings), STEADY_S)
        self._say("starts", f"{seconds:.2f} s of CPU outside the instance; {count} of them", "" if count else "none: 0")
        return quiet, seconds

    def _machine(self, name: str, points: Sequence[tuple[float, float]], cost: float) -> Machine:
        mine = [load for load in self.loads if load.manager == name]
        planned = next(
            float(manager.cores)
            for record in reversed(self.records)
            for manager in record.snapshot.task_managers
            if manager.id == name
        )
        most = max(load.cpu for load in mine)
        full = [load for load in mine if load.cpu >= 0.999 * most]
        cores = most / 100.0 if len(full) > 2 and most >= 100.0 * planned else max(planned / 0.9, most / 100.0)
        curve = load_curve(points, _BACKGROUND_TOLERANCE)
        level = median(value for _, value in points)
        self._say(
            name, f"{cores:.3g} cores, {planned:g} planned, background {level:.3f} cores ({len(curve.points)} points)"
        )
        return Machine(name, round(cores, 6), planned, curve, round(cost, 4))

    # -- metrics, moves and faults -------------------------------------------------------------------------------------

    def _metrics(self, costs: Iterable[Costs]) -> Metrics:
        ends: dict[tuple[str, float], list[float]] = {}
        for reading in self.readings:
            ends.setdefault((reading.instance, reading.started_s), []).append(reading.at_s)
        gaps = [b - a for run in ends.values() for a, b in pairwise(run)]
        report_s = median(gaps) if gaps else self.period_s
        delays = sorted(reading.seen_s - reading.at_s for reading in self.readings)
        delay_s = max(delays[len(delays) // 50], 0.0) if delays else Metrics().delay_s
        known = [each.line.relative for each in costs if each.line.count]
        noise = median(known) if known else 0.0
        lost = float(lost_cpu(self.records))
        if lost:
            self._say("reports", "the CPU of an instance that moved reads 0 until it reports again")
        self._say("reports", f"every {report_s:.2f} s, seen after {delay_s:.2f} s, CPU noise {100 * noise:.1f} %")
        return replace(
            Metrics(),
            report_s=round(report_s, 3),
            delay_s=round(delay_s, 3),
            cpu_noise=round(noise, 4),
            lost_cpu=lost,
            others_periods=float(self.others_periods),
        )

    def _moves(self, costs: Mapping[str, Costs], factors: Mapping[str, float], report_s: float) -> Moves:
        usual, moved = Moves(), move_times(self.records, self.readings)
        down_s, spread, wait_s = usual.down_s, usual.spread, usual.wait_s
        if moved is not None:
            down_s, wait_s = moved.down_s, report_s if moved.waits else 0.0
            spread = spread if moved.spread is None else moved.spread
        default = Starts(usual.start_cpu_s, usual.slowdown, usual.warm_up_s, 0, "no start under load: the default")
        start = starts(self.readings, costs, factors, default)
        self._say(
            "moves",
            f"{moved.count if moved else 0}, {down_s:.2f} s of downtime, up to {wait_s:.2f} s after the plan",
            "" if moved else "none: the default",
        )
        self._say(
            "starts",
            f"{start.start_cpu_s:.2f} s of CPU, rows cost {start.slowdown:.2f} times as much, fading within "
            f"{start.warm_up_s:g} s; {start.count} of them under load",
            start.note,
        )
        return replace(
            usual,
            wait_s=round(wait_s, 3),
            down_s=round(down_s, 3),
            spread=round(min(spread, 1.0), 3),
            start_cpu_s=round(start.start_cpu_s, 3),
            slowdown=round(start.slowdown, 3),
            warm_up_s=start.warm_up_s,
        )

    def _faults(self) -> Iterable[Fault]:
        for i, record in enumerate(self.records[: self.last + 1]):
            for event in record.events:
                if event.kind == "task-manager-lost":
                    yield Fault(self._between(i), "task-manager-lost", str(event.detail["task_manager"]))
                elif event.kind == "query-failed" and event.detail.get("instance"):
                    yield Fault(self._between(i), "query-failure", str(event.detail["instance"]))


def _has(record: Record, task: str) -> bool:
    return any(each.id == task for each in record.snapshot.tasks)


def _number(instance: str) -> tuple[str, int]:
    task, _, number = instance.rpartition(".")
    return task, int(number) if number.isdigit() else 0
