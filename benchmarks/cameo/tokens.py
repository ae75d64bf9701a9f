"""Shares by tokens: figure 5.6."""

from __future__ import annotations

from typing import Any

from benchmarks.cameo.rows import CAMEO
from benchmarks.cameo.runs import run
from benchmarks.cameo.workload import calibration, jobs
from benchmarks.findings import Row
from qod_magics.core.engines import S
from qod_magics.policies.cameo import TokenRates, with_tokens

NAMES = ("first", "second", "third")
QUICK_START_S = 0.5  #: between the starts of two dataflows
CLOSE = 0.03  #: of a share, up to which it counts as the source's


def tokens(quick: bool = False) -> list[Row]:
    """Three dataflows that start one after another, each with more work than its share (5.6)."""
    found = calibration("tokens")
    total = sum(found["tokens"])
    wanted = [each / total for each in found["tokens"]]
    rows = []
    for overtake in (False, True):
        how = "messages with tokens overtake" if overtake else "order within operators by interval, as printed"
        shares, load = _shares(found, overtake, quick)
        words = [", ".join(f"{each:.0%}" for each in phase) for phase in shares]
        rows += [
            CAMEO.held(
                "5.6", f"throughput of the first dataflow alone; {how}", "all", words[0], shares[0][0] == 1.0, ""
            ),
            CAMEO.held(
                "5.6",
                f"throughput of the three together; {how}",
                ", ".join(f"{each:.0%}" for each in wanted),
                words[-1],
                all(abs(ours - each) <= CLOSE for ours, each in zip(shares[-1], wanted, strict=True)),
                f"within {CLOSE:.0%}, in the last fifth; load {load:.0%}",
            ),
        ]
    return rows


def _shares(found: dict[str, Any], overtake: bool, quick: bool) -> tuple[list[list[float]], float]:
    """Each dataflow's share of the results, by fifths of the run; and the load."""
    step = QUICK_START_S if quick else found["start_s"]
    spec = found["jobs"]["flow"]
    of = []
    for number, name in enumerate(NAMES):
        of += jobs({name: {**spec, "begin_s": number * step}}, {name: 1})
    rates = TokenRates(rates=dict(enumerate(found["tokens"])), overtake=overtake)
    by = run(of, lambda: with_tokens(rates), found["cluster"], 5 * step, seed=found["run"]["seed"])
    shares = []
    for phase in range(5):
        counts = [
            sum(phase * step <= at / S < (phase + 1) * step for at in by.engine.results.of(name).produced)
            for name in NAMES
        ]
        shares.append([each / max(sum(counts), 1) for each in counts])
    return shares, by.load
