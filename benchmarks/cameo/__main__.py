"""Cameo's experiments, by the figure of its source: `python -m benchmarks.cameo EXPERIMENT...`, or `all`.

Calibrations are in benchmarks/cameo/calibrations: each says which numbers the source gives, and which are chosen and by
what.
"""

from __future__ import annotations

from benchmarks.cameo.table import EXPERIMENTS
from benchmarks.findings import command

if __name__ == "__main__":
    command("cameo", __doc__, EXPERIMENTS)
