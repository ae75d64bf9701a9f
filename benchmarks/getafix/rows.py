"""The experiments of Getafix' table, by name, and the tables beside their rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.findings import Experiment, Row
from benchmarks.getafix import cluster, knee, static
from benchmarks.getafix.cluster import Measured


@cache
def _runs(quick: bool) -> tuple[Measured, Measured, Measured]:
    """Of the cluster, with a popularity that shifts, and with a burst at the end."""
    if quick:
        return (
            cluster.measured(clients=(5, 20), seeds=(1,), seconds=30.0),
            cluster.measured("shifting", (20,), (1,), 30.0, ("scarlett", "getafix")),
            cluster.bursts((20,), (1,), 20.0, 500),
        )
    shifting = cluster.measured("shifting", cluster.FEW_AND_MANY, labels=("scarlett", "getafix"))
    return cluster.measured(), shifting, cluster.bursts()


@cache
def _knees(quick: bool) -> dict[tuple[int, int], knee.Knee]:
    return knee.knees(0.15 if quick else None)


def _memory(quick: bool) -> list[Row]:
    measured, shifting, ending = _runs(quick)
    return [*cluster.memory(measured), *cluster.speed(measured, shifting, ending), *cluster.traffic(measured)]


EXPERIMENTS: Mapping[str, Experiment] = {
    "examples": lambda _: static.examples(),
    "optimum": lambda quick: static.optimality(*((60, 2) if quick else (2000, 200))),
    "memory": _memory,
    "knee": lambda quick: knee.rows(_knees(quick)),
    "money": lambda _: static.money(),
    "skew": lambda quick: static.skew(cluster.calibration("cluster"), 200 if quick else 5000),
}


def rows(quick: bool = False) -> list[Row]:
    """The source's figures beside ours. `quick`: in three seconds, with runs too short to judge by."""
    return [row for experiment in EXPERIMENTS.values() for row in experiment(quick)]
