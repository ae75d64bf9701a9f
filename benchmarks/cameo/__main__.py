"""Cameo's experiments: `python -m benchmarks.cameo EXPERIMENT`, or `all`."""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.cameo.table import EXPERIMENTS, all_rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cameo", description=__doc__)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"])
    parser.add_argument("--quick", action="store_true", help="short runs, for tests: the figures mean nothing")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    chosen = parser.parse_args()
    began = time.process_time()
    names = [*EXPERIMENTS] if chosen.experiment == "all" else [chosen.experiment]
    rows = all_rows(names, quick=chosen.quick)
    if chosen.json:
        print(json.dumps([row.to_json() for row in rows], indent=1))
        return
    print("| figure | what | source | ours | verdict | why |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.experiment} | {row.figure} | {row.source} | {row.ours} | {row.verdict} | {row.why} |")
    count = sum(row.verdict == "reproduced" for row in rows)
    print(f"\n{count} of {len(rows)} reproduced; {time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
