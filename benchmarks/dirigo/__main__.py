"""Dirigo's experiments, by the figure of its source: `python -m benchmarks.dirigo EXPERIMENT...`, or `all`.

Figure 6.13 comes with 6.12a. Calibrations are in benchmarks/dirigo/calibrations: each says which
numbers the source gives, and which are chosen and by what.
"""

from __future__ import annotations

from benchmarks.dirigo.table import EXPERIMENTS
from benchmarks.findings import command

if __name__ == "__main__":
    command("dirigo", __doc__, EXPERIMENTS)
