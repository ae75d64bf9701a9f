"""The experiments of Nephele Streaming's table, by name, and the tables beside their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.findings import Experiment, Row, decided
from benchmarks.nephele import fig2, video
from benchmarks.nephele.calibrations import calibration
from qod_magics.policies.nephele.latency import anchor, paths, setup
from qod_magics.simulator.buffers import BufferScenario


def all_rows(quick: bool = False) -> list[Row]:
    """The source's figures beside ours. Quick: in under three seconds, on a small job, to see that it works: its
    figures and verdicts are not those of the source's job."""
    return [row for experiment in EXPERIMENTS.values() for row in experiment(quick)]


def placement_rows(parallelism: int = 800) -> Iterator[Row]:
    """Managers and constraints of the source's job (Algorithms 1 to 3)."""
    value = calibration("video")
    for vertex in value["vertices"]:
        vertex["parallelism"] = parallelism
    value["workers"] = parallelism // 4
    scenario = BufferScenario.from_json(value)
    constrained = paths(scenario.graph, scenario.constraints)
    managers = setup(scenario.graph, constrained)
    total = sum(each.constraints for each in managers.values())
    yield fig2.NEPHELE.row(
        "placement",
        f"video job with {parallelism} tasks of each type: runtime constraints",
        "512 million",
        f"{total / 1e6:.4g} million, of {len(managers)} managers anchored at {anchor(scenario.graph, constrained[0])}",
        decided(total == 512_000_000),
        "counted by the placement of managers, each constraint at one of them",
    )


EXPERIMENTS: Mapping[str, Experiment] = {
    "buffers": fig2.rows,
    "video": lambda quick: video.rows(video.runs(quick)),
    "placement": lambda quick: placement_rows(80 if quick else 800),
}
