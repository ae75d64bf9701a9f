"""Nephele Streaming beside its source: `python -m benchmarks.nephele EXPERIMENT...`, or `all`.

    buffers      the buffer experiment of Fig. 2
    video        the video job in scenarios 1 to 3, 8 pipelines of 800; a minute or two on two idle cores
    placement    managers of the job with 800 tasks of each type

Numbers that were chosen, and by what, are in benchmarks/nephele/calibrations.
"""

from __future__ import annotations

from benchmarks.findings import command
from benchmarks.nephele.table import EXPERIMENTS

if __name__ == "__main__":
    command("nephele", __doc__, EXPERIMENTS)
