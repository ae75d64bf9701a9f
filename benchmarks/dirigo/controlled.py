"""Tasks of a set length: skew and granularity (figures 6.9, 6.10), and a central scheduler (6.21a)."""

from __future__ import annotations

from benchmarks.dirigo.setup import ACCEPT, DIRIGO, FIVE, LAXITY, QUEUE, REJECT, Measured, calibration, measured
from benchmarks.findings import Row
from qod_magics.core.engines import MS
from qod_magics.policies.dirigo import CentralRandom, Options, QueueBasedDirect
from qod_magics.simulator.messages import Job, Source, Stage, Store
from qod_magics.simulator.messages.dataflow import Arrivals

DYNAMIC, OFFLOADING = (QUEUE, LAXITY), (REJECT, ACCEPT)


def run(
    policy: str,
    exponent: float,
    *,
    fine: bool = False,
    state: bool = True,
    scale: float = 1.0,
    workers: int | None = None,
) -> Measured:
    """Two stages, the second over one object per worker with a Zipf popularity; tasks of one length."""
    with_ = calibration("controlled")
    number = workers or with_["workers"]
    task = with_["fine_task_ms"] if fine else with_["task_ms"]
    flows = with_["dataflows"]
    load = with_["fine_load"] if fine else with_["skewed_load"]
    per_s = load * number * 1000 / task / 2 / flows  # two stages
    jobs = [
        Job(
            f"flow{k}",
            (
                Stage("first", ("clients",), width=number, exchange="turns", fixed_us=task * 1000),
                Stage("second", ("first",), width=number, exchange="key", fixed_us=task * 1000, stateful=state),
            ),
            (Source("clients", arrivals=Arrivals(per_s=per_s, rows=1, keys=number, zipf=exponent, poisson=True)),),
            max_latency_ms=with_["fine_target_ms"] if fine else with_["target_ms"],
        )
        for k in range(flows)
    ]
    store = Store(
        round(with_["read_ms"] * MS),
        bytes_per_s=with_["bytes_per_s"],
        object_bytes=with_["object_bytes"],
        capacity=flows,
        workers=number,
    )
    seconds = (with_["fine_seconds"] if fine else with_["seconds"]) * scale
    return measured(jobs, policy, workers=number, delay_ms=with_["delay_ms"], seconds=seconds, store=store)


def skew(scale: float = 1.0, workers: int | None = None) -> list[Row]:
    """Figure 6.9."""
    exponents = [float(each) for each in calibration("controlled")["exponents"]]
    found = {
        (policy, exponent): run(policy, exponent, scale=scale, workers=workers)
        for policy in FIVE[1:]
        for exponent in exponents
    }
    why = "at one utilisation, of 6 %, as static binding can take 4 % at skew 1, and 1 % if it is infinite"
    rises = {policy: [found[policy, e].tail_ms for e in exponents] for policy in FIVE[1:]}
    ours = "; ".join(f"{policy} {', '.join(f'{tail:.0f}' for tail in tails)} ms" for policy, tails in rises.items())
    held = all(tails[0] < tails[1] < tails[2] for tails in rises.values())
    rows = [DIRIGO.held("6.9", "tails rise with skew (0.1, 1, infinite), all policies", "rise", ours, held, why)]
    hot = exponents[1]
    dynamic = max(found[policy, hot].tail_ms for policy in DYNAMIC)
    offloading = min(found[policy, hot].tail_ms for policy in OFFLOADING)
    rows.append(
        DIRIGO.held(
            "6.9",
            "at skew 1, dynamic binding's tail is below offloading's",
            "lower",
            f"{dynamic:.0f} against {offloading:.0f} ms",
            dynamic < offloading,
        )
    )
    by_skew = [
        (min(found[p, e].fetches for p in DYNAMIC), max(found[p, e].fetches for p in OFFLOADING)) for e in exponents[:2]
    ]
    words = ", ".join(f"{a:,} against {b:,}" for a, b in by_skew)
    rows.append(DIRIGO.held("6.9", "dynamic binding fetches more", "more", words, all(a > b for a, b in by_skew)))
    return rows


def granularity(scale: float = 1.0, workers: int | None = None) -> list[Row]:
    """Figure 6.10."""
    fine = {policy: run(policy, 0.1, fine=True, scale=scale, workers=workers) for policy in FIVE[1:]}
    without = {policy: run(policy, 0.1, fine=True, state=False, scale=scale, workers=workers) for policy in FIVE[1:]}
    dynamic, offloading = (
        min(fine[p].median_ms for p in DYNAMIC),
        max(fine[p].median_ms for p in OFFLOADING),
    )
    added = {policy: fine[policy].median_ms - without[policy].median_ms for policy in FIVE[1:]}
    return [
        DIRIGO.held(
            "6.10",
            "with tasks of 1 ms, offloading's median is below dynamic binding's",
            "lower",
            f"{offloading:.2f} against {dynamic:.2f} ms",
            offloading < dynamic,
        ),
        DIRIGO.held(
            "6.10",
            "state adds to every policy's median, a little",
            "a little",
            ", ".join(f"{policy} {more:+.2f} ms" for policy, more in added.items()),
            all(more >= 0 for more in added.values()),
        ),
    ]


def central(scale: float = 1.0) -> list[Row]:
    """Figure 6.21a."""
    with_ = calibration("controlled")
    workers, gaps = with_["workers"], []
    for flows in with_["dataflows_central"]:
        job = Job(
            "flows",
            (Stage("run", ("clients",), width=workers, exchange="turns", fixed_us=with_["fine_task_ms"] * 1000),),
            (
                Source(
                    "clients",
                    clients=flows,
                    arrivals=Arrivals(per_s=with_["central_messages_per_dataflow_s"], rows=1, poisson=True),
                ),
            ),
            max_latency_ms=5000,
        )
        latencies = [
            measured(
                [job],
                "",
                workers=workers,
                delay_ms=with_["delay_ms"],
                seconds=with_["central_seconds"] * scale,
                dispatcher=dispatcher,
            )
            for dispatcher in (
                CentralRandom(decision=round(with_["decision_ms"] * MS)),
                QueueBasedDirect(Options()),
            )
        ]
        gaps.append(max(latencies[0].engine.results.jobs[0].latency) / MS - latencies[1].tail_ms)
    why = "clients send at a set rate here, with which no CPU per decision gives less than 2.50x"
    return [
        DIRIGO.factor(
            "6.21a", "the largest latency gap at 32 dataflows over 2124 ms", 1.0, gaps[0] / 2124, calibrated=True
        ),
        DIRIGO.factor("6.21a", "the largest latency gap, 80 dataflows over 32", 3632 / 2124, gaps[1] / gaps[0], why),
    ]
