"""Jobs of the experiments, from a calibration: which of its numbers the source gives, it says itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from qod_magics.core.engines import S
from qod_magics.core.snapshot import replace
from qod_magics.simulator.messages import Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Arrivals, Exchange, Sent

QUICK_RUN = {"seconds": 5, "warm_up_s": 1}
WIDTHS = (8, 4, 2, 1)
FOLDER = Path(__file__).parent / "calibrations"


def calibration(name: str, quick: bool = False) -> dict[str, Any]:
    """The calibration of an experiment: `jobs`, `cluster`, `run`, and what was `chosen` by which `anchor`.

    `quick`: of few sources, messages and short windows, for a test: its figures mean nothing.
    """
    found = _read(name)
    if quick:
        found["run"] = {**found["run"], **QUICK_RUN}
        for job in found["jobs"].values():
            per_s = min(job["per_s"], 8)
            job["rows"] = round(job["rows"] * job.get("sources", 64) / 8 * job["per_s"] / per_s)  # the same load
            job["sources"], job["per_s"], job["batch"] = 8, per_s, 0
            job["window_s"] = min(job["window_s"], 2) if "window_s" in job else 1.0
    return found


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    if "like" in found:
        base = _read(found["like"])
        for key in ("cluster", "run"):
            found[key] = {**base.get(key, {}), **found.get(key, {})}
        jobs = base.get("jobs", {})
        found["jobs"] = {
            **jobs,
            **{name: {**jobs.get(name, {}), **job} for name, job in found.get("jobs", {}).items()},
        }
    return found


@dataclass(frozen=True, slots=True)
class Bursts:
    """How one source of a job sends whose sources all change their rate together; its mean is `per_s`."""

    job: str
    per_s: float
    rows: int
    delay_s: float
    shape: float  #: of the Pareto distribution of rates
    length_s: float  #: for which a rate holds
    has_keys = False

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """All messages before `until`, in order: rates by the run and the job, the first moment by the source."""
        rates = Random(f"{seed.partition('/')[0]}/{self.job}")
        at = Random(seed).random() / self.per_s
        end, rate = 0.0, self.per_s
        while True:
            while at >= end:
                rate = self.per_s * rates.paretovariate(self.shape) * (self.shape - 1) / self.shape
                end += self.length_s
            moment = round(at * S)
            if moment >= until:
                return
            yield Sent(moment, max(0, moment - round(self.delay_s * S)), self.rows)
            at += 1 / rate


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One kind of job: sources that send to parallel windowed aggregations, one stage after another."""

    per_s: float = 1.0  #: messages/s of a source
    rows: int = 1_000  #: a message
    window_s: float = 1.0
    slide_s: float = 0.0  #: 0: tumbling windows
    latency_ms: float = 800.0  #: target
    sources: int = 64
    widths: tuple[int, ...] = WIDTHS  #: operators of each stage
    row_us: float = 1.0  #: CPU of the first stage
    later_row_us: float = 1.0  #: of the others
    fixed_us: float = 100.0  #: CPU of each message
    selectivity: float = 0.01  #: rows that the first stage emits, a row read
    delay_ms: float = 50.0  #: from event time to arrival
    aligned: bool = False  #: all sources send at the same moments
    origin_s: float = 0.0  #: of the windows
    pareto: float | None = None  #: shape of the distribution of rows, or of rates if `bursts_s` is above 0
    bursts_s: float = 0.0  #: length of the intervals that draw a rate each, for all sources of the job
    streams: int = 1  #: 2: a join of two streams of `sources` each
    windowed: bool = True
    begin_s: float = 0.0
    end_s: float | None = None
    skew: float = 1.0  #: rate of the largest sources by that of the smallest: a group for each first operator
    batch: int = 0  #: rows of a message at most: more of them are sent as more messages; 0: any number
    exchange: Exchange = "one"  #: between stages

    def job(self, name: str) -> Job:
        """A job of this kind."""
        phase = self.delay_ms / 1000 * self.per_s if self.aligned else None
        arrivals = Arrivals(
            self.per_s,
            self.rows,
            self.delay_ms / 1000,
            phase=phase,
            pareto=self.pareto,
            begin_s=self.begin_s,
            end_s=self.end_s,
        )
        inputs = tuple(f"rows{i}" for i in range(self.streams))
        if self.skew == 1.0:
            sources = tuple(Source(each, self.sources, self._sized(name, arrivals, self.rows)) for each in inputs)
            first = [("stage0", inputs, self.widths[0])]
        else:
            groups = self.widths[0]
            shares = [self.skew ** (i / (groups - 1)) for i in range(groups)]
            unit = self.rows * groups / sum(shares)
            sources = tuple(
                Source(f"rows{i}", self.sources // groups, self._sized(name, arrivals, max(1, round(unit * share))))
                for i, share in enumerate(shares)
            )
            first = [(f"stage0.{i}", (source.name,), 1) for i, source in enumerate(sources)]
        window = self.window_s * 1000 if self.windowed else 0.0
        slide = (self.slide_s or self.window_s) * 1000 if self.windowed else 0.0
        origin = self.origin_s * 1000
        # the first stage makes sliding windows, the others combine their parts
        stages = [
            Stage(
                each, read, width, self.fixed_us, self.row_us, self.selectivity, slide, window, origin, exchange="one"
            )
            for each, read, width in first
        ]
        read = tuple(stage.name for stage in stages)
        for number, width in enumerate(self.widths[1:], 1):
            each = f"stage{number}"
            stages.append(
                Stage(
                    each,
                    read,
                    width,
                    self.fixed_us,
                    self.later_row_us,
                    1.0,
                    slide,
                    slide,
                    origin,
                    exchange=self.exchange,
                )
            )
            read = (each,)
        return Job(name, tuple(stages), sources, self.latency_ms)

    def _sized(self, name: str, arrivals: Arrivals, rows: int) -> Arrivals | Bursts:
        """`rows` a message; in several messages where a batch holds fewer."""
        if self.bursts_s and self.pareto is not None:
            return Bursts(name, self.per_s, rows, self.delay_ms / 1000, self.pareto, self.bursts_s)
        if not self.batch or rows <= self.batch:
            return replace(arrivals, rows=rows)
        parts = -(-rows // self.batch)
        phase = None if arrivals.phase is None else arrivals.phase * parts
        return replace(arrivals, rows=rows // parts, per_s=arrivals.per_s * parts, phase=phase)


def jobs(specs: Mapping[str, Mapping[str, Any]], counts: Mapping[str, int], **changed: Any) -> list[Job]:
    """`counts` jobs of each kind; `changed` holds for all."""
    found = []
    for kind, count in counts.items():
        spec = {**specs[kind], **changed}
        spec["widths"] = tuple(spec.get("widths", WIDTHS))
        stagger_s = spec.pop("stagger_s", 0.0)  # between the windows of one job and the next
        for number in range(count):
            made = JobSpec(**spec)
            found.append(replace(made, origin_s=made.origin_s + number * stagger_s).job(f"{kind}{number}"))
    return found
