"""Skew, orders, batches, quanta, no knowledge of windows, wrong costs: figures 5.10, 5.11, 5.13 to 5.16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from benchmarks.cameo.load import ALIKE, due_in_time
from benchmarks.cameo.rows import CAMEO
from benchmarks.cameo.runs import BASELINES, COMPARED, Finished, run
from benchmarks.cameo.workload import calibration, jobs
from benchmarks.findings import Row, decided, is_near
from qod_magics.core.engines import MS, Dispatcher
from qod_magics.policies.cameo import Parameters, with_deadlines
from qod_magics.simulator.messages import Job, Overheads


def _run(found: Mapping[str, Any], of: list[Job], by: str | Callable[[], Dispatcher], **more: Any) -> Finished:
    given = found["run"]
    return run(of, by, found["cluster"], given["seconds"], warm_up_s=given["warm_up_s"], seed=given["seed"], **more)


# --- 5.10: skew -------------------------------------------------------------------------------------------------------


def skew(quick: bool = False) -> list[Row]:
    """Jobs of two types whose sources differ in size (5.10)."""
    found = calibration("skew", quick)
    by = {name: _run(found, jobs(found["jobs"], found["counts"]), name) for name in COMPARED}
    wanted = {"orleans": (0.2, 1.5), "fifo": (7.9, 9.5), "cameo": (21.3, 45.5)}
    rows = []
    shares: dict[str, list[float]] = {}
    for name, sources in wanted.items():
        shares[name] = [100 * due_in_time(by[name], kind) for kind in ("type1_", "type2_")]
        for number, (source, ours) in enumerate(zip(sources, shares[name], strict=True), 1):
            rows.append(
                CAMEO.row(
                    "5.10",
                    f"type {number}, results in time: {name}",
                    f"{source:g} %",
                    f"{ours:.1f} %",
                    decided(is_near(source, ours)),
                    "the load is chosen by it" if (name, number) == ("cameo", 1) else "",
                    calibrated=(name, number) == ("cameo", 1),
                )
            )
    order = all(shares["cameo"][i] > max(shares[name][i] for name in BASELINES) for i in range(2))
    rows.append(
        CAMEO.held(
            "5.10",
            "order of the shares, both types",
            "Cameo above FIFO above Orleans",
            "; ".join(f"{name} {one:.0f} %, {two:.0f} %" for name, (one, two) in shares.items()),
            order and all(shares["fifo"][i] >= shares["orleans"][i] for i in range(2)),
            "Cameo above both holds" if order else "Cameo is not above both",
        )
    )
    return rows


# --- 5.11: orders -----------------------------------------------------------------------------------------------------


def orders(quick: bool = False) -> list[Row]:
    """Least laxity, earliest deadline and shortest job first (5.11)."""
    found = calibration("orders", quick)
    single = calibration("single", quick)
    workloads = {"LS of many queries": jobs(found["jobs"], found["counts"])}
    if not quick:
        workloads |= {kind: jobs(single["jobs"], {kind: 1}) for kind in ("IPQ1", "IPQ2", "IPQ3", "IPQ4")}
    edf, sjf = {}, {}
    for name, of in workloads.items():
        kind = "LS" if name.startswith("LS") else name
        llf = _run(found, of, "cameo").group(kind).median
        edf[name] = _run(found, of, "cameo-edf").group(kind).median / llf
        sjf[name] = _run(found, of, "cameo-sjf").group(kind).median / llf
    others = [factor for name, factor in sjf.items() if name != "IPQ4"]
    rows = [
        CAMEO.held(
            "5.11",
            "median: EDF by LLF",
            "about 1",
            ", ".join(f"{name} {factor:.2f}x" for name, factor in edf.items()),
            all(abs(factor - 1) <= ALIKE for factor in edf.values()),
            "within 10 %",
        ),
        CAMEO.held(
            "5.11",
            "median: SJF by LLF, all but IPQ4",
            "above 1",
            ", ".join(f"{name} {factor:.2f}x" for name, factor in sjf.items() if name != "IPQ4"),
            all(factor > 1 for factor in others),
            "every workload",
        ),
    ]
    if "IPQ4" in sjf:
        rows.append(
            CAMEO.held(
                "5.11", "median: SJF by LLF, IPQ4", "not above 1", f"{sjf['IPQ4']:.2f}x", sjf["IPQ4"] <= 1 + ALIKE, ""
            )
        )
    return rows


# --- 5.13: batches ----------------------------------------------------------------------------------------------------


def batches(quick: bool = False) -> list[Row]:
    """The BA jobs' tuples in fewer, larger messages (5.13)."""
    found = calibration("batches", quick)
    spec = found["jobs"]["BA"]
    sizes = found["tuples"][:1] + found["tuples"][-1:] if quick else found["tuples"]
    p99 = {}
    for size in sizes:
        of = jobs(
            {**found["jobs"], "BA": {**spec, "rows": size, "per_s": found["tuples_per_s"] / size}}, found["counts"]
        )
        p99[size] = _run(found, of, "cameo").group("LS").p99
    first = p99[sizes[0]]
    alike = {size: each / first for size, each in p99.items() if size <= 20_000}
    words = ", ".join(f"{size // 1000}K {each:.1f} ms" for size, each in p99.items())
    return [
        CAMEO.held(
            "5.13",
            "LS p99 with batches of up to 20K tuples, by that with the smallest",
            "unaffected",
            f"{max(alike.values()):.2f}x",
            max(alike.values()) <= 1 + 2 * ALIKE,
            f"unaffected: within 20 %; {words}",
        ),
        CAMEO.held(
            "5.13",
            "the same with 40K",
            "degraded",
            f"{p99[40_000] / first:.2f}x",
            p99[40_000] / first > 1 + 2 * ALIKE,
            "degraded: by more than 20 %",
        ),
    ]


# --- 5.14: quanta -----------------------------------------------------------------------------------------------------


def quanta(quick: bool = False) -> list[Row]:
    """How long an operator keeps its worker (5.14), with a cost of switching."""
    found = calibration("quanta", quick)
    overheads = Overheads(switch=round(found["switch_us"] * 1000))
    p99: dict[str, dict[float, float]] = {}
    for layout in ("same progress", "interleaved"):
        specs = found["jobs"]
        of: list[Job] = []
        for number in range(found["counts"]["type1_"] + found["counts"]["type2_"]):
            kind = "type1_" if number < found["counts"]["type1_"] else "type2_"
            offset = 2.0 * number if layout == "interleaved" else 0.0
            (job,) = jobs({f"{kind}{number}_": specs[kind]}, {f"{kind}{number}_": 1}, origin_s=offset)
            of.append(job)
        p99[layout] = {}
        for quantum in found["quanta_ms"][:: 3 if quick else 1]:
            by = _run(found, of, _with(Parameters(quantum=round(quantum * MS))), overheads=overheads)
            p99[layout][quantum] = by.group("type").p99
    same = p99["same progress"]
    finest, coarsest = min(same), max(same)
    words = {
        layout: ", ".join(f"{quantum:g} ms {each:.0f} ms" for quantum, each in found_.items())
        for layout, found_ in p99.items()
    }
    middle = min((each for quantum, each in same.items() if finest < quantum < coarsest), default=same[coarsest])
    rows = [
        CAMEO.held(
            "5.14",
            "p99, all jobs at the same progress: the finest quantum by the best coarser one",
            "above 1",
            f"{same[finest] / middle:.2f}x",
            same[finest] > middle * (1 + ALIKE / 2),
            f"5 % is noise; {words['same progress']}",
        )
    ]
    for layout, by_quantum in p99.items():
        rows.append(
            CAMEO.held(
                "5.14",
                f"p99, {layout}: 100 ms by the best finer one",
                "above 1",
                f"{by_quantum[coarsest] / min(by_quantum.values()):.2f}x",
                by_quantum[coarsest] > min(by_quantum.values()) * (1 + ALIKE / 2),
                f"5 % is noise; {words[layout]}",
            )
        )
    return rows


def _with(parameters: Parameters) -> Callable[[], Dispatcher]:
    return lambda: with_deadlines(parameters)


# --- 5.15, 5.16: no knowledge of windows, wrong costs -----------------------------------------------------------------


def semantics(quick: bool = False) -> list[Row]:
    """Cameo without knowledge of windows (5.15)."""
    found = calibration("semantics", quick)
    of = jobs(found["jobs"], found["counts"])
    by = {name: _run(found, of, name) for name in (*COMPARED, "cameo-topology-only")}
    where = f"load {by['cameo'].load:.0%}"
    plain = by["cameo-topology-only"]
    more = plain.group("BA").median / by["cameo"].group("BA").median - 1
    rows = [
        CAMEO.held(
            "5.15",
            "BA median without knowledge of windows, by that with it",
            "+19 %",
            f"{more:+.0%}",
            is_near(0.19, more),
            where,
        )
    ]
    for kind, source in (("LS", 0.38), ("BA", 0.22)):
        best = max(1 - plain.group(kind).median / by[name].group(kind).median for name in BASELINES)
        rows.append(
            CAMEO.held(
                "5.15",
                f"{kind} median without knowledge of windows, below a baseline's",
                f"up to {source:.0%}",
                f"{best:.0%}",
                best >= source / 2,
                f"half of it counts; {where}",
            )
        )
    return rows


def costs(quick: bool = False) -> list[Row]:
    """Costs that are reported with normal errors (5.16)."""
    found = calibration("costs", quick)
    of = jobs(found["jobs"], found["counts"])
    sigmas = found["sigmas_ms"][:: len(found["sigmas_ms"]) - 1] if quick else found["sigmas_ms"]
    median, p90 = {}, {}
    for sigma in sigmas:
        random = Random(found["run"]["seed"])
        error = None if not sigma else lambda random=random, sigma=sigma: round(random.gauss(0, sigma * MS))
        group = _run(found, of, _with(Parameters(cost_error=error))).group("LS")
        median[sigma], p90[sigma] = group.median, group.percentile(90)
    first, last = sigmas[0], sigmas[-1]
    little = {sigma: p90[sigma] / p90[first] for sigma in sigmas if sigma <= 100}
    words = "sigma: median, p90: " + ", ".join(
        f"{sigma:g} ms: {median[sigma]:.1f}, {p90[sigma]:.1f} ms" for sigma in sigmas
    )
    return [
        CAMEO.held(
            "5.16",
            "LS median with errors of 1 s, by that without",
            "stable",
            f"{median[last] / median[first]:.2f}x",
            abs(median[last] / median[first] - 1) <= ALIKE,
            "within 10 %",
        ),
        CAMEO.factor("5.16", "LS p90 with errors of 1 s, by that without", 1.555, p90[last] / p90[first], words),
        CAMEO.held(
            "5.16",
            "LS p90 with errors of up to 100 ms, by that without",
            "no effect",
            f"{max(little.values()):.2f}x",
            max(little.values()) <= 1 + ALIKE,
            "within 10 %",
        ),
    ]
