"""One function that many sources send to: parameters of the offloading policies (figures 6.4 to 6.6)."""

from __future__ import annotations

from functools import cache

from benchmarks.dirigo.setup import ACCEPT, DIRIGO, PARALLEL, REJECT, Measured, calibration, measured
from benchmarks.findings import Row, is_near, shown
from qod_magics.policies.dirigo import Options
from qod_magics.simulator.messages import Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Arrivals

NAMES = {REJECT: "RejectSend", ACCEPT: "AcceptAndCheck"}


@cache
def run(
    policy: str, target_ms: float, *, force: bool = True, random: bool = True, search_range: int = 2, scale: float = 1.0
) -> Measured:
    """All workers may run the function."""
    with_ = calibration("forwarding")
    per_s = with_["load"] * with_["workers"] * 1000 / with_["task_ms"]
    job = Job(
        "one",
        (Stage("run", ("sources",), fixed_us=with_["task_ms"] * 1000),),
        (
            Source(
                "sources",
                clients=with_["sources"],
                arrivals=Arrivals(per_s=per_s / with_["sources"], rows=1, poisson=True),
            ),
        ),
        max_latency_ms=target_ms,
    )
    return measured(
        [job],
        policy,
        workers=with_["workers"],
        delay_ms=with_["delay_ms"],
        seconds=with_["seconds"] * scale,
        options=Options(force_migrate=force, random_lessee=random, search_range=search_range),
    )


def parameters(scale: float = 1.0) -> list[Row]:
    """Figure 6.4."""
    target = calibration("forwarding")["strict_target_ms"]
    rows = []
    found = {
        (policy, force, random): run(policy, target, force=force, random=random, scale=scale)
        for policy in (REJECT, ACCEPT)
        for force in (True, False)
        for random in (True, False)
    }
    for policy in (REJECT, ACCEPT):
        ratio = found[policy, False, False].median_ms / found[policy, False, True].median_ms
        rows.append(
            DIRIGO.held(
                "6.4",
                f"median, shortest known queue over a random lessee, {NAMES[policy]}",
                "no better",
                shown(ratio),
                ratio >= 0.9,
                "with FORCE_MIGRATE off, as lengths are known from refusals alone",
            )
        )
    for policy, source in ((REJECT, 1.0), (ACCEPT, 1.4)):
        ratio = found[policy, False, True].mean_ms / found[policy, True, True].mean_ms
        rows.append(DIRIGO.factor("6.4", f"mean latency, FORCE_MIGRATE off over on, {NAMES[policy]}", source, ratio))
    success = [each.success for each in found.values()]
    rows.append(
        DIRIGO.held(
            "6.4",
            "success rates",
            "alike",
            f"{min(success):.2f} to {max(success):.2f}",
            max(success) - min(success) <= 0.1,
            "in an overload, what lessees refuse is late with the lessor, and all else is on time",
        )
    )
    return rows


def targets(scale: float = 1.0) -> list[Row]:
    """Figure 6.5."""
    with_ = calibration("forwarding")
    on = {policy: [run(policy, t, scale=scale).median_ms for t in with_["targets_ms"]] for policy in (REJECT, ACCEPT)}
    words = "; ".join(f"{NAMES[p]} {', '.join(f'{each:,.0f}' for each in medians)} ms" for p, medians in on.items())
    falls = all(medians == sorted(medians, reverse=True) for medians in on.values())
    alike = all(abs(a / b - 1) <= 0.1 for a, b in zip(on[REJECT], on[ACCEPT], strict=True))
    label = ", ".join(f"{t / 1000:g}" for t in with_["targets_ms"])
    rows = [
        DIRIGO.held("6.5", f"FORCE_MIGRATE on: medians fall with the target ({label} s)", "fall", words, falls),
        DIRIGO.held("6.5", "FORCE_MIGRATE on: both policies", "alike", words, alike),
    ]
    strict = with_["strict_target_ms"]
    for policy, middle, tail in ((REJECT, 1.1, 8.0), (ACCEPT, 1.04, 15.0)):
        with_force, without = run(policy, strict, scale=scale), run(policy, strict, force=False, scale=scale)
        label = f"at 5000 ms, FORCE_MIGRATE off over on, {NAMES[policy]}"
        rows.append(DIRIGO.factor("6.5", f"median {label}", middle, without.median_ms / with_force.median_ms))
        rows.append(
            DIRIGO.factor(
                "6.5",
                f"tail {label}",
                tail,
                without.tail_ms / with_force.tail_ms,
                "in an overload the tail grows with the length of the run, which isn't given",
            )
        )
    return rows


def search(scale: float = 1.0) -> list[Row]:
    """Figure 6.6."""
    with_ = calibration("forwarding")
    target = with_["search_target_ms"]
    found = [run(PARALLEL, target, search_range=number, scale=scale) for number in with_["search_ranges"]]
    first, second, more = found
    one_rtt = [run(policy, target, scale=scale) for policy in (REJECT, ACCEPT)]
    gains = (second.success - first.success, more.success - second.success)
    return [
        DIRIGO.factor("6.6", "median, SEARCH_RANGE 1 over 2", 16.0, first.median_ms / second.median_ms),
        DIRIGO.held("6.6", "success, SEARCH_RANGE 2 minus 1", "+0.09", f"{gains[0]:+.2f}", is_near(0.09, gains[0])),
        DIRIGO.held("6.6", "beyond 2, success gains less", "less", f"{gains[1]:+.2f}", gains[1] < gains[0]),
        DIRIGO.held(
            "6.6",
            "the policies of one round trip are better than those of two",
            "better",
            f"medians {', '.join(f'{each.median_ms:,.0f}' for each in one_rtt)} against {second.median_ms:,.0f} ms",
            max(each.median_ms for each in one_rtt) < second.median_ms,
        ),
    ]
