"""Henge on ten diurnal jobs: `python benchmarks/henge.py [--variant NAME]... [--seeds N] [--parts] [--overheads]`.

The evaluation of the source (HG3 to HG7 of its card), simulated: ten jobs shaped like PageLoad, half of them on each of
two daily courses of load, 48 hours of them in 8 (an hour in 10 minutes), utility 35 and a target latency of 60 ms each.
Compared: Henge with its prototype's parameters, Storm's default (one instance of each operator), a manual configuration
(the fewest instances that meet the target at the median load), and a tuned Henge.

The cluster is a fluid model with queues of its own, not the source's; what was calibrated is printed with the figures.
The policy is the real one, on snapshots every 10 s with row counts, latencies and busy fractions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.claims import Claim
from qod_magics.core.actions import Scale
from qod_magics.core.optional import BUSY, LATENCY_P95, MAX_LATENCY, MAX_PARALLELISM, UTILITY
from qod_magics.core.runtime import Count, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.policies.henge import TUNED, Henge, Parameters
from qod_magics.policies.henge.machine import Converged, Reconfiguration, Reversion

HOUR_S = 600.0  #: an hour of the trace, seconds of the run
HOURS = 48.0
RUN_S = HOURS * HOUR_S
OBSERVE_S, REPORT_S = 10, 60
JOBS, MOST_UTILITY, TARGET_S = 10, 35.0, 0.060
SEED = 20211201

Vector = Any  #: an array, by job or by job and operator


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything about the cluster and the load that the source does not say."""

    service_ms: tuple[float, ...] = (10.0, 5.0, 15.0, 10.0, 5.0)  #: of a row: parse, filter, join, aggregate, sink
    selectivity: float = 0.8  #: of the filter
    machines: int = 20
    cores: float = 4.0  #: of each machine
    overhead: float = 0.03  #: cores that an instance takes by existing: its threads poll and switch
    restart_s: float = 15.0  #: time for which a changed job processes nothing
    tasks: int = 32  #: the maximum of instances of an operator
    peak: float = 160.0  #: rows/s of a job at the peak of a day, before `spread`
    spread: float = 0.08  #: jobs differ by up to this ratio, either way
    lows: tuple[float, float] = (0.42, 0.48)  #: load at night / at the peak, of the two courses
    noise: float = 0.04  #: standard deviation of the load over its course, from minute to minute
    seed: int = SEED  #: of the noise

    def worded(self) -> str:
        """All of it, for the output."""
        return (
            f"service time of a row {'/'.join(f'{ms:g}' for ms in self.service_ms)} ms ({', '.join(OPERATORS)}), "
            f"selectivity of the filter {self.selectivity:g}; {self.machines} machines of {self.cores:g} cores, "
            f"{self.overhead:g} core taken by each instance; restart {self.restart_s:g} s; at most {self.tasks} "
            f"instances an operator; peak {self.peak:g} rows/s +-{self.spread:.0%} by job, at night "
            f"{self.lows[0]:.0%} and {self.lows[1]:.0%} of it, noise {self.noise:.0%} a minute"
        )


OPERATORS = ("parse", "filter", "join", "aggregate", "sink")


def loads(given: Calibration) -> Vector:
    """Rows/s by second of the run and job: two daily humps. Load rises from hour 7, peaks at 13 1/3, is low again at
    20 (HG3); on the other course the peak is flatter, from 5 to 22."""
    rng = np.random.default_rng(given.seed)
    seconds = np.arange(round(RUN_S))
    hour = seconds / HOUR_S % 24
    scale = given.peak * (1 + given.spread * np.linspace(-1, 1, JOBS))
    found = np.empty((len(seconds), JOBS))
    for job in range(JOBS):
        rise, fall = ((7.0, 20.0), (5.0, 22.0))[job % 2]
        peak, low = 13 + 1 / 3, given.lows[job % 2]
        up = np.clip((hour - rise) / (peak - rise), 0, 1)
        down = np.clip((fall - hour) / (fall - peak), 0, 1)
        hump = 0.5 - 0.5 * np.cos(np.pi * np.minimum(up, down))
        minutes = rng.normal(1.0, given.noise, round(RUN_S / 60) + 1)
        found[:, job] = scale[job] * (low + (1 - low) * hump) * minutes[seconds // 60]
    return np.maximum(found, 0.0)


def waiting_s(rate: Vector, instances: Vector, service_s: Vector) -> Vector:
    """Mean wait in an M/M/c queue, seconds (Sakasegawa's approximation); at a load of 98 % at most: beyond, the queue
    of the fluid model grows."""
    busy = np.minimum(rate * service_s / instances, 0.98)
    return busy ** (np.sqrt(2 * (instances + 1)) - 1) / (1 - busy) * service_s / instances


class Cluster:
    """Queues of all jobs' operators; steps of a second."""

    def __init__(self, given: Calibration, instances: Vector) -> None:
        self.given = given
        self.instances = instances.astype(float)  #: by job and operator
        self.service_s = np.array(given.service_ms) / 1000.0
        self.queue = np.zeros_like(self.instances)
        self.arrived = np.zeros_like(self.instances)
        self.processed = np.zeros_like(self.instances)
        self.paused_s = np.zeros(JOBS)  #: left
        self.stalled_s = np.zeros(JOBS)  #: since the restart began
        self.in_actions_s = np.zeros(JOBS)
        self.latency_s = np.zeros(JOBS)
        self.busy = np.zeros_like(self.instances)
        self.used = 0.0  #: cores
        self._share = 1.0  #: of the CPU that instances ask for

    def step(self, rates: Vector) -> None:
        """A second with these input rates, rows/s by job."""
        given, cores = self.given, self.given.machines * self.given.cores
        runs = self.paused_s <= 0
        fastest = self.instances / self.service_s * runs[:, None]
        flow, wait = rates.copy(), np.zeros(JOBS)
        wanted = 0.0
        for o in range(len(OPERATORS)):
            self.arrived[:, o] += flow
            offered = self.queue[:, o] + flow
            done = np.minimum(offered, fastest[:, o]) * self._share
            wanted += float((np.minimum(offered * self.service_s[o], self.instances[:, o]) * runs).sum())
            service_s = self.service_s[o] / self._share
            speed = self.instances[:, o] / service_s
            wait += service_s + waiting_s(flow, self.instances[:, o], service_s) + (offered - done) / speed
            self.queue[:, o] = offered - done
            self.processed[:, o] += done
            self.busy[:, o] = np.where(runs, np.minimum(offered / np.maximum(fastest[:, o], 1e-9), 1.0), 0.0)
            flow = done * (given.selectivity if OPERATORS[o] == "filter" else 1.0)
        overhead = given.overhead * float(self.instances.sum())
        available = max(cores - overhead, 0.05 * cores)
        self._share = min(1.0, available / max(wanted, 1e-9))
        self.used = min(cores, overhead + wanted)
        self.stalled_s = np.where(runs, 0.0, self.stalled_s + 1)
        self.latency_s = wait + self.stalled_s
        self.in_actions_s += ~runs
        self.paused_s = np.maximum(self.paused_s - 1, 0)

    def scale(self, changes: Mapping[tuple[int, int], int]) -> None:
        """Other numbers of instances by (job, operator); each changed job restarts."""
        for (job, operator), instances in changes.items():
            self.instances[job, operator] = instances
            self.paused_s[job] = self.given.restart_s


def names(job: int) -> list[str]:
    """The tasks of a job."""
    return [f"job{job}.{operator}" for operator in OPERATORS]


def observed(
    cluster: Cluster, at_s: float, rates: Vector, latency_s: Vector, busy: Vector
) -> tuple[Snapshot, Measured]:
    """What a runtime would measure; latency and busy fractions are means of the window."""
    given = cluster.given
    tasks, streams, instances, counts = [], [], [], {}
    for job in range(JOBS):
        before: str | None = None
        for o, name in enumerate(names(job)):
            extra: dict[str, Any] = {MAX_PARALLELISM.name: given.tasks}
            last = o == len(OPERATORS) - 1
            if last:
                extra |= {LATENCY_P95.name: latency_s[job], MAX_LATENCY.name: TARGET_S, UTILITY.name: MOST_UTILITY}
            rate = None if before else float(rates[job])
            tasks.append(
                Task(name, (before,) if before else (), rate, 1 if last else None, 0.0 if last else None, extra)
            )
            arrived, processed = round(cluster.arrived[job, o]), round(cluster.processed[job, o])
            counts[f"{before}>{name}" if before else name] = Count(arrived, processed, 0, arrived - processed)
            if before:
                streams.append(Stream(before, name, float(rates[job])))
            marks = {BUSY.name: float(busy[job, o])}
            for i in range(round(cluster.instances[job, o])):
                host = f"m{(job + o + i) % given.machines}"
                instances.append(Instance(f"{name}.{i}", name, host, 0.0, 0.0, bool(cluster.paused_s[job] > 0), marks))
            before = name
    cpu = 100.0 * cluster.used / given.machines
    managers = tuple(TaskManager(f"m{i}", given.cores, cpu) for i in range(given.machines))
    return Snapshot(managers, tuple(tasks), tuple(streams), tuple(instances), {}, at_s), Measured(counts=counts)


@dataclass
class Outcome:
    """A run."""

    satisfaction: list[float] = field(default_factory=list)  #: by minute, %
    in_actions: float = 0.0  #: of the run time, mean over the jobs
    most_in_actions_s: float = 0.0  #: of a job
    changed: int = 0  #: jobs that were ever reconfigured
    steps: dict[str, int] = field(default_factory=dict)
    searches_s: list[float] = field(default_factory=list)  #: from the first step of a search to its last
    log: list[str] = field(default_factory=list)
    runs: int = 1  #: pooled

    @property
    def by_run(self) -> Vector:
        """Satisfaction by run and minute, %."""
        return np.array(self.satisfaction).reshape(self.runs, -1)

    @property
    def mean(self) -> float:
        return float(np.mean(self.satisfaction))

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.satisfaction, share))

    def between(self, begin_h: float, end_h: float) -> float:
        """Mean satisfaction between two hours of the trace, %."""
        begin, end = (round(hour * HOUR_S / REPORT_S) for hour in (begin_h, end_h))
        return float(self.by_run[:, begin:end].mean())


def pooled(runs: Sequence[Outcome]) -> Outcome:
    """Runs of several seeds as one: satisfaction one after the other, means of the rest, the longest search."""
    found = Outcome(runs=len(runs))
    for one in runs:
        found.satisfaction += one.satisfaction
        found.searches_s += one.searches_s
        found.log += one.log
        for kind, count in one.steps.items():
            found.steps[kind] = found.steps.get(kind, 0) + count
    found.in_actions = float(np.mean([one.in_actions for one in runs]))
    found.most_in_actions_s = max(one.most_in_actions_s for one in runs)
    found.changed = min(one.changed for one in runs)
    return found


def run(given: Calibration, instances: Vector, parameters: Parameters | None) -> Outcome:
    """The run from this configuration; without parameters nothing ever changes."""
    course, cluster, found = loads(given), Cluster(given, instances), Outcome()
    henge = None if parameters is None else Henge(parameters)
    index = {name: (job, o) for job in range(JOBS) for o, name in enumerate(names(job))}
    memory, changed = None, set()
    began_s = last_s = None
    window, minute, busy = np.zeros(JOBS), np.zeros(JOBS), np.zeros_like(cluster.busy)
    for second, rates in enumerate(course, start=1):
        cluster.step(rates)
        window += cluster.latency_s
        minute += cluster.latency_s
        busy += cluster.busy
        if second % REPORT_S == 0:
            share = np.minimum(1.0, TARGET_S / (minute / REPORT_S))
            found.satisfaction.append(100.0 * float(share.mean()))
            minute[:] = 0
        if second % OBSERVE_S == 0:
            if henge is not None:
                snapshot, measured = observed(cluster, float(second), rates, window / OBSERVE_S, busy / OBSERVE_S)
                snapshot, memory = henge.learn(snapshot, measured, memory)
                plan, _ = henge.decide(snapshot)
                step = henge.turn(snapshot).step
                if plan.actions:
                    cluster.scale({index[a.task]: a.parallelism for a in plan.actions if isinstance(a, Scale)})
                    began_s, last_s = (second if began_s is None else began_s), second
                if isinstance(step, Reconfiguration):
                    changed |= step.changes.keys()
                if step is not None:
                    kind = type(step).__name__
                    found.steps[kind] = found.steps.get(kind, 0) + 1
                if plan.actions:
                    what = ", ".join(sorted({a.task.partition(".")[0] for a in plan.actions if isinstance(a, Scale)}))
                    found.log.append(f"{second / HOUR_S:6.2f} h {type(step).__name__}: {what}")
                if isinstance(step, Converged | Reversion) and began_s is not None and last_s is not None:
                    found.searches_s.append(last_s - began_s + given.restart_s)
                    began_s = None
            window[:] = 0
            busy[:] = 0
    found.in_actions = float(cluster.in_actions_s.mean() / RUN_S)
    found.most_in_actions_s = float(cluster.in_actions_s.max())
    found.changed = len(changed)
    return found


def by_hand(given: Calibration) -> Vector:
    """The fewest instances that meet the target at the median load, operator by operator where the wait is longest."""
    service_s = np.array(given.service_ms) / 1000.0
    passed = np.array([1.0, 1.0, given.selectivity, given.selectivity, given.selectivity])
    found = np.ones((JOBS, len(OPERATORS)))
    for job, rate in enumerate(np.median(loads(given), axis=0)):
        flow = rate * passed
        mine = np.ceil(flow * service_s + 1e-9)
        while float((service_s + waiting_s(flow, mine, service_s)).sum()) > TARGET_S:
            mine[np.argmax(waiting_s(flow, mine, service_s))] += 1
        found[job] = mine
    return found


#: percentiles of time, and the source's figures: (mean, 15th, 50th, 90th)
PERCENTILES = (15, 50, 90)
SOURCE: Mapping[str, tuple[float | None, ...]] = {
    "henge": (88.12, 74.9, 99.1, 100.0),
    "storm": (4.56, None, 0.0006, 30.9),
    "manual": (87.77, 66.5, 99.8, 100.0),
    "tuned": (None, None, None, None),
}
#: the parameters in which the tuned variant differs
TUNED_BY = {f.name: getattr(TUNED, f.name) for f in fields(Parameters) if getattr(TUNED, f.name) != f.default}
TOLERANCE = 5.0  #: percentage points within which a mean counts as reproduced


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Henge on ten diurnal jobs.")
    parser.add_argument("--variant", action="append", choices=sorted(SOURCE))
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant, with other noise of the load")
    parser.add_argument("--parts", action="store_true", help="what each change of the tuned variant is worth; minutes")
    parser.add_argument("--overheads", action="store_true", help="with other costs of an instance; minutes")
    parser.add_argument("--log", action="store_true", help="print each action")
    asked = parser.parse_args(words)
    given = Calibration()
    outcomes = evaluated(asked.seeds, asked.variant)
    report(given, outcomes)
    if asked.log:
        for name, outcome in outcomes.items():
            print(f"\n{name}:", *outcome.log, sep="\n  ")
    if asked.parts:
        parts(given)
    if asked.overheads:
        overheads(given)
    return 0


def evaluated(seeds: int, variants: Sequence[str] | None = None) -> dict[str, Outcome]:
    """The pooled runs of each variant, one for each of `seeds` seeds; all variants of `SOURCE` without `variants`."""
    given = Calibration()
    alone = np.ones((JOBS, len(OPERATORS)))
    setups: dict[str, tuple[Vector, Parameters | None]] = {
        "henge": (alone, Parameters()),
        "storm": (alone, None),
        "manual": (by_hand(given), None),
        "tuned": (alone, TUNED),
    }
    each = [replace(given, seed=SEED + number) for number in range(seeds)]
    return {name: pooled([run(one, *setups[name]) for one in each]) for name in variants or setups}


def claims(seeds: int) -> list[Claim]:
    """The source's figures beside ours."""
    outcomes = evaluated(seeds)
    found = []
    for name, outcome in outcomes.items():
        for what, source, ours in zip(
            ("mean", *(f"{p}th percentile" for p in PERCENTILES)),
            SOURCE[name],
            (outcome.mean, *(outcome.percentile(p) for p in PERCENTILES)),
            strict=True,
        ):
            if source is not None:
                why = f"{ours - source:+.1f} points" + (
                    "; the model was fitted to it, by one seed" if what == "mean" else ""
                )
                near = abs(ours - source) <= TOLERANCE
                found.append(Claim(f"satisfaction, {name}, {what}", f"{source:g} %", f"{ours:.4g} %", near, why))
    for claim, holds in verdicts(outcomes):
        if claim.startswith("HG") and "(fitted)" not in claim:
            found.append(Claim(claim.partition(" ")[2], "", "holds" if holds else "does not hold", holds))
    return found


def report(given: Calibration, outcomes: Mapping[str, Outcome]) -> None:
    """Print the figures beside the source's."""
    print(f"ten PageLoad-like jobs, 48 h of two daily courses in 8 h, utility {MOST_UTILITY:g}, target 60 ms")
    print(f"calibrated: {given.worded()}")
    print("of these, peak, nights, spread and the core that an instance takes were fitted to the three means of HG6,")
    print(f"with the first seed ({SEED})\n")
    print(
        f"{'satisfaction, % of W*':<24}{'mean':>8}{'source':>8}"
        + "".join(f"{f'{p}th':>8}{'source':>8}" for p in PERCENTILES)
    )
    for name, outcome in outcomes.items():
        ours = (outcome.mean, *(outcome.percentile(p) for p in PERCENTILES))
        cells = "".join(f"{_shown(o):>8}{_shown(s):>8}" for o, s in zip(ours, SOURCE[name], strict=True))
        print(f"{name:<24}{cells}")
    if "tuned" in outcomes:
        print("tuned:", ", ".join(f"{name} {TUNED_BY[name]}" for name in TUNED_BY))
    for name, outcome in outcomes.items():
        if outcome.steps:
            rounds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.steps.items()))
            longest = max(outcome.searches_s, default=0.0)
            means = ", ".join(f"{mean:.2f}" for mean in outcome.by_run.mean(axis=1))
            print(f"{name}: means by seed {means} %; {outcome.changed} of {JOBS} jobs reconfigured; rounds: {rounds}")
            print(
                f"  in actions {outcome.in_actions:.2%} of the run per job (source: 0.49 %), "
                f"{outcome.most_in_actions_s:.0f} s at most; longest search {longest:.0f} s (source: 161 s)"
            )
            print(
                f"  satisfaction in hour 15 {outcome.between(15, 16):.1f} %, in the first peak (hours 8-16) "
                f"{outcome.between(8, 16):.1f} %, in the second (32-40) {outcome.between(32, 40):.1f} %"
            )
    print()
    for claim, holds in verdicts(outcomes):
        print(f"{'holds' if holds else 'DOES NOT HOLD':<14} {claim}")


def verdicts(outcomes: Mapping[str, Outcome]) -> list[tuple[str, bool]]:
    """The claims of the source that the variants run allow to judge."""
    found = []
    for name, outcome in outcomes.items():
        source = SOURCE[name][0]
        if source is not None:
            claim = f"HG6 {name} (fitted): mean {outcome.mean:.2f} % within {TOLERANCE:g} points of {source} %"
            found.append((claim, abs(outcome.mean - source) <= TOLERANCE))
    henge, storm, manual, tuned = (outcomes.get(name) for name in ("henge", "storm", "manual", "tuned"))
    if henge and storm:
        ratio = henge.mean / storm.mean
        found.append((f"HG8 Henge / Storm's default: {ratio:.1f} (source: 19.3), at least 15", ratio >= 15.0))
        low = storm.percentile(50)
        found.append(
            (f"HG5 Storm's default never drains: median {low:.4f} % (source: 0.0006 %), below 0.01", low < 0.01)
        )
    if henge and manual:
        for p in (15, 45):
            ours, theirs = henge.percentile(p), manual.percentile(p)
            claim = f"HG5 Henge exceeds manual at the {p}th percentile: {ours:.1f} and {theirs:.1f} %"
            found.append((claim, ours > theirs))
    if henge:
        found.append((f"HG3 all jobs reconfigured: {henge.changed} of {JOBS}", henge.changed == JOBS))
        at_15 = henge.between(15, 16)
        found.append((f"HG3 89 % of the maximum utility by hour 15: {at_15:.1f} % in that hour", at_15 >= 89.0))
        first, second = henge.between(8, 16), henge.between(32, 40)
        found.append((f"HG4 better in the second peak: {second:.1f} % after {first:.1f} %", second > first))
        longest = max(henge.searches_s, default=0.0)
        found.append((f"HG7 longest search {longest:.0f} s, at most twice the source's 161 s", longest <= 322.0))
        found.append((f"HG7 less than 1 % of the time in actions: {henge.in_actions:.2%}", henge.in_actions < 0.01))
    if tuned:
        found.append((f"tuned: 95 % or more: {tuned.mean:.2f} %", tuned.mean >= 95.0))
    return found


def parts(given: Calibration) -> None:
    """Print what each change of the tuned variant is worth: alone, and taken back."""
    alone = np.ones((JOBS, len(OPERATORS)))
    default = Parameters()
    print(f"\n{'change':<24}{'alone':>8}{'without':>9}   mean satisfaction, %")
    for name, value in TUNED_BY.items():
        with_it = run(given, alone, replace(default, **{name: value})).mean
        without = run(given, alone, replace(TUNED, **{name: getattr(default, name)})).mean
        print(f"{f'{name} {value}':<24}{with_it:>8.2f}{without:>9.2f}", flush=True)


def overheads(given: Calibration) -> None:
    """Print how the figures depend on what an instance takes by existing: the least certain of what is fitted."""
    alone = np.ones((JOBS, len(OPERATORS)))
    print(f"\n{'core of an instance':<24}{'henge':>8}{'tuned':>8}   mean satisfaction, %")
    for overhead in (0.02, 0.026, 0.028, 0.03, 0.035):
        means = [run(replace(given, overhead=overhead), alone, each).mean for each in (Parameters(), TUNED)]
        print(f"{overhead:<24g}" + "".join(f"{mean:>8.2f}" for mean in means), flush=True)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if 0 < value < 0.1 else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
