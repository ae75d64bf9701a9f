"""All rows of the table on Getafix, as data."""

from __future__ import annotations

from benchmarks.getafix import cluster, knee, static
from benchmarks.getafix.row import Row


def rows(quick: bool = False) -> list[Row]:
    """The source's figures beside ours. `quick`: in three seconds, with runs too short to judge by."""
    if quick:
        measured = cluster.measured(clients=(5, 20), seeds=(1,), seconds=30.0)
        shifting = cluster.measured("shifting", (20,), (1,), 30.0, ("scarlett", "getafix"))
        ending = cluster.bursts((20,), (1,), 20.0, 500)
        found = knee.knees(0.15)
    else:
        measured = cluster.measured()
        shifting = cluster.measured("shifting", cluster.FEW_AND_MANY, labels=("scarlett", "getafix"))
        ending = cluster.bursts()
        found = knee.knees()
    return [
        *static.examples(),
        *static.optimality(*((60, 2) if quick else (2000, 200))),
        *cluster.memory(measured),
        *cluster.speed(measured, shifting, ending),
        *cluster.traffic(measured),
        *knee.rows(found),
        *static.money(),
        *static.skew(cluster.calibration("cluster"), 200 if quick else 5000),
    ]
