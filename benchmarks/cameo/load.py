"""Load, jobs, threads and bursts: figures 5.7 to 5.9."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isnan
from typing import Any

from benchmarks.cameo.rows import CAMEO, ratio, up_to
from benchmarks.cameo.runs import BASELINES, COMPARED, Finished, run
from benchmarks.cameo.workload import calibration, jobs
from benchmarks.findings import Row
from qod_magics.core.engines import S

ALIKE = 0.1  #: relative difference up to which latencies count as alike
Sweep = dict[str, dict[str, Finished]]  #: by load and dispatcher


def sweep(found: dict[str, Any], loads: Iterable[Any], change: Callable[[Any], Any]) -> Sweep:
    """Run every load under every dispatcher. `change`: jobs, cluster and label at a load."""
    given = found["run"]
    runs: Sweep = {}
    for load in loads:
        of, cluster, label = change(load)
        runs[label] = {
            each: run(of, each, cluster, given["seconds"], warm_up_s=given["warm_up_s"], seed=given["seed"])
            for each in COMPARED
        }
    return runs


def factors(runs: Sweep, name: str, kind: str, of: str) -> dict[str, float]:
    """A baseline's latency by Cameo's, by load."""
    return {
        label: ratio(getattr(by[name].group(kind), of), getattr(by["cameo"].group(kind), of))
        for label, by in runs.items()
    }


def _run(found: dict[str, Any]) -> str:
    return f"runs of {found['run']['seconds']} s"


# --- 5.7: one job -----------------------------------------------------------------------------------------------------


def single(quick: bool = False) -> list[Row]:
    """One query alone on a server (5.7)."""
    found = calibration("single", quick)
    kinds = ("IPQ1",) if quick else ("IPQ1", "IPQ2", "IPQ3", "IPQ4")
    loads = found["loads"][-1:] if quick else found["loads"]
    swept: dict[str, Sweep] = {}
    for kind in kinds:
        spec = found["jobs"][kind]
        swept[kind] = sweep(
            found,
            loads,
            lambda load, kind=kind, spec=spec: (
                jobs(found["jobs"], {kind: 1}, rows=round(spec["rows"] * load)),
                found["cluster"],
                f"{load:.0%} of the rate",
            ),
        )
    rows = []
    for source, of, word in ((2.7, "median", "median"), (3.2, "p99", "p99")):
        most = {
            f"{kind} at {label}, {name}": factor
            for kind, runs in swept.items()
            for name in BASELINES
            for label, factor in factors(runs, name, kind, of).items()
        }
        best = dict(sorted(most.items(), key=lambda each: each[1])[-6:])
        rows.append(up_to("5.7", f"one query alone, {word}: a baseline by Cameo", source, best, _run(found)))
    last = next(reversed(swept["IPQ1"]))
    by = swept["IPQ1"][last]
    orleans = factors(swept["IPQ1"], "orleans", "IPQ1", "median")[last]
    rows.append(CAMEO.factor("5.7", "IPQ1, median: Orleans by Cameo (5.7b)", 3.0, orleans, f"at {last}"))
    tails = by["fifo"].group("IPQ1").p99 / by["orleans"].group("IPQ1").p99
    rows.append(
        CAMEO.held(
            "5.7",
            "IPQ1: tail of FIFO by that of Orleans (5.7b)",
            "as high",
            f"{tails:.2f}x",
            tails >= 1 - ALIKE,
            f"p99 at {last}",
        )
    )
    if "IPQ4" in swept:
        by = swept["IPQ4"][last]
        factor = by["orleans"].group("IPQ4").median / by["cameo"].group("IPQ4").median
        rows.append(
            CAMEO.held(
                "5.7",
                "IPQ4 (join), median: Orleans by Cameo",
                "about equal",
                f"{factor:.2f}x",
                abs(factor - 1) <= 2 * ALIKE,
                f"within 20 % at {last}",
            )
        )
    return rows


# --- 5.8: volume, jobs, threads ---------------------------------------------------------------------------------------


def _beyond(
    experiment: str, runs: Sweep, wanted: dict[str, tuple[float, float]], words: str, run_length: str
) -> list[Row]:
    rows = []
    for name, by in wanted.items():
        for of, source in zip(("median", "p99"), by, strict=True):
            title = f"{words}, LS {of}: {name} by Cameo"
            rows.append(up_to(experiment, title, source, factors(runs, name, "LS", of), run_length))
    return rows


def _alike(experiment: str, runs: Sweep, until: str, source: str) -> Row:
    """Whether the three are alike at the loads below the anchor."""
    low = {}
    for label in runs:
        low[label] = max(abs(factors({label: runs[label]}, name, "LS", "median")[label] - 1) for name in BASELINES)
        if label == until:
            break
    return CAMEO.held(
        experiment,
        "LS median below that: largest difference from Cameo",
        source,
        f"{max(low.values()):.0%}",
        max(low.values()) <= ALIKE,
        "alike: within 10 %; " + ", ".join(f"{label} {each:.0%}" for label, each in low.items()),
        calibrated=True,  # the load at which the workers are busy is the anchor of these runs
    )


def volume(quick: bool = False) -> list[Row]:
    """More tuples a second from each source (5.8a)."""
    found = calibration("volume", quick)
    spec = found["jobs"]["BA"]
    runs = sweep(
        found,
        found["tuples_per_s"][-1:] if quick else found["tuples_per_s"],
        lambda rate: (
            jobs({**found["jobs"], "BA": {**spec, "rows": round(rate / spec["per_s"])}}, found["counts"]),
            found["cluster"],
            f"{rate // 1000}K tuples/s",
        ),
    )
    rows = _beyond("5.8a", runs, {"orleans": (1.6, 1.5), "fifo": (2.0, 1.8)}, "rising volume", _run(found))
    return rows if quick else [*rows, _alike("5.8a", runs, "30K tuples/s", "alike up to 30K tuples/s")]


def tenants(quick: bool = False) -> list[Row]:
    """More BA jobs beside 4 LS jobs (5.8b)."""
    found = calibration("tenants", quick)
    runs = sweep(
        found,
        found["ba_jobs"][-1:] if quick else found["ba_jobs"],
        lambda count: (jobs(found["jobs"], {"LS": 4, "BA": count}), found["cluster"], f"{count} BA jobs"),
    )
    rows = _beyond("5.8b", runs, {"orleans": (2.2, 2.8), "fifo": (4.6, 13.6)}, "rising tenants", _run(found))
    if quick:
        return rows
    rows.append(_alike("5.8b", runs, "12 BA jobs", "alike up to 12 BA jobs"))
    medians = {
        label: min(by[name].group("BA").median for name in BASELINES) / by["cameo"].group("BA").median
        for label, by in runs.items()
    }
    worst = min(medians.values())
    rows.append(
        CAMEO.held(
            "5.8b",
            "BA latency: the better baseline by Cameo, least over the loads",
            "at least 1",
            f"{worst:.2f}x",
            worst >= 1 - ALIKE,
            "10 % allowed; " + ", ".join(f"{label} {each:.2f}" for label, each in medians.items()),
        )
    )
    last = runs[next(reversed(runs))]
    executed = {name: _first_stages(by, "BA") for name, by in last.items()}
    lost = 1 - executed["cameo"] / max(executed[name] for name in BASELINES)
    rows.append(
        CAMEO.held(
            "5.8b",
            "BA throughput of Cameo below the baselines'",
            "2.5 %",
            f"{lost:.1%}",
            0 <= lost <= 0.05,
            f"messages run by first stages with {next(reversed(runs))}; up to 5 % counts",
        )
    )
    return rows


def _first_stages(by: Finished, kind: str) -> int:
    infos = by.engine.topology.operators
    return sum(
        count
        for info, count in zip(infos, by.engine.executed, strict=True)
        if info.name.startswith(kind) and "/stage0/" in info.name
    )


def threads(quick: bool = False) -> list[Row]:
    """Fewer workers for the same jobs (5.8c)."""
    found = calibration("threads", quick)
    runs = sweep(
        found,
        found["workers"][-1:] if quick else found["workers"],
        lambda workers: (
            jobs(found["jobs"], found["counts"]),
            {**found["cluster"], "workers": workers},
            f"{workers} thread{'s' * (workers > 1)}",
        ),
    )
    met = {label: {name: due_in_time(each, "LS") for name, each in by.items()} for label, by in runs.items()}
    one = met[next(reversed(met))]
    rows = [
        CAMEO.held(
            "5.8c",
            "LS results in time at 1 thread, Cameo",
            "90 %",
            f"{one['cameo']:.0%}",
            one["cameo"] >= 0.9,
            "at least that share counts",
        ),
        CAMEO.held(
            "5.8c",
            "LS results in time at 1 thread: Orleans, FIFO",
            "heavy losses, Orleans more",
            f"{one['orleans']:.0%}, {one['fifo']:.0%}",
            max(one["orleans"], one["fifo"]) < 0.5 and one["orleans"] <= one["fifo"],
            "below half, and Orleans not above FIFO; no result counts as late",
        ),
    ]
    more = {label: each["cameo"] for label, each in met.items() if label != "1 thread"}
    if more:
        rows.append(
            CAMEO.held(
                "5.8c",
                "LS results in time at more threads, Cameo",
                "holds",
                f"{min(more.values()):.0%}",
                min(more.values()) >= 0.99,
                ", ".join(f"{label} {each:.0%}" for label, each in more.items()),
            )
        )
        by = runs["1 thread"]
        counts = {name: _first_stages(each, "BA") for name, each in by.items()}
        lost = 1 - counts["cameo"] / max(counts[name] for name in BASELINES)
        rows.append(
            CAMEO.held("5.8c", "BA throughput of Cameo at 1 thread", "lower", f"{-lost:+.1%}", lost > 0, "messages run")
        )
    return rows


def due_in_time(by: Finished, kind: str) -> float:
    """Share in time, of the results that were due: an operator that is starved has none."""
    due = 0
    for job in by.engine.dataflow.jobs:
        if job.name.startswith(kind):
            slide = job.stages[0].slide_ms / 1000
            last = by.engine.now / S - job.max_latency_ms / 1000
            due += max(0, int(last / slide) - int(by.warm_up_s / slide))
    group = by.group(kind)
    met = sum(each <= group.target_ms for each in group.latency_ms)
    return min(1.0, met / due) if due else float("nan")


# --- 5.9: bursts ------------------------------------------------------------------------------------------------------


def bursts(quick: bool = False) -> list[Row]:
    """4 LS and 8 BA jobs whose rates are Pareto, at less than half of the CPU (5.9)."""
    found = calibration("bursts", quick)
    runs = sweep(found, [8], lambda count: (jobs(found["jobs"], {"LS": 4, "BA": count}), found["cluster"], "8"))
    by = runs["8"]
    load = f"mean load {by['cameo'].load:.0%}"
    rows = []
    for name, wanted in {"orleans": (3.9, 29.7, 23.2), "fifo": (1.3, 21.1, 12.7)}.items():
        for of, source in zip(("median", "p99", "deviation"), wanted, strict=True):
            factor = ratio(getattr(by[name].group("LS"), of), getattr(by["cameo"].group("LS"), of))
            rows.append(CAMEO.factor("5.9", f"bursts, LS {of}: {name} by Cameo", source, factor, load))
    means = {name: by[name].group("BA").mean for name in COMPARED}
    least = min(means[name] for name in BASELINES)
    rows.append(
        CAMEO.held(
            "5.9",
            "BA mean latency: Cameo, Orleans, FIFO",
            "lower with Cameo",
            ", ".join(f"{means[name]:.0f} ms" for name in COMPARED),
            not isnan(means["cameo"]) and means["cameo"] <= least,
            load,
        )
    )
    return rows
