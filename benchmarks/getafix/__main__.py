"""The evaluation of Getafix: `python -m benchmarks.getafix EXPERIMENT...`.

    examples     the examples of the text: 5 copies instead of 7, 2 loads instead of 3
    optimum      the packing beside the least number of copies
    memory       total and largest memory, replication factors, makespan and latency beside Scarlett; and all figures
    knee         with how many copies of every segment latency stops improving
    money        the estimate of what is saved
    skew         the skew of accesses
    all          all of these that have rows

Calibrations are in benchmarks/getafix/calibrations: each says which numbers the source gives, and which are chosen and
by what.
"""

from __future__ import annotations

from benchmarks.findings import command
from benchmarks.getafix.rows import EXPERIMENTS

if __name__ == "__main__":
    command("getafix", __doc__, EXPERIMENTS)
