"""Nephele Streaming beside its source: `python -m benchmarks.nephele EXPERIMENT`.

- `buffers`: the buffer experiment of Fig. 2
- `video`: the video job in scenarios 1 to 3, 8 pipelines of 800; a minute or two on two idle cores
- `placement`: managers of the job with 800 tasks of each type
- `ablations`: what each choice is worth, on a small job
- `rows`: every figure of the source beside ours, as JSON

Each prints the source's figure, ours, and the verdict: "reproduced" is within half of the source's figure or factor.
Numbers that were chosen, and by what, are in benchmarks/nephele/calibrations.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from benchmarks.nephele import ablations, fig2, table, video
from benchmarks.nephele.rows import ClaimRow

EXPERIMENTS = ("buffers", "video", "placement", "ablations", "rows")


def print_rows(rows: Iterable[ClaimRow]) -> None:
    print("| figure | source | ours | verdict | why |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.figure} | {row.source} | {row.ours} | {row.verdict} | {row.why} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nephele", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true", help="a small variant, whose figures are not the source's")
    words = parser.parse_args()
    if words.experiment == "buffers":
        print_rows(fig2.rows(words.quick))
        print(*fig2.tables(words.quick), sep="\n")
    elif words.experiment == "video":
        found = video.runs(words.quick)
        print_rows(video.rows(found))
        print(*video.tables(found), sep="\n")
    elif words.experiment == "placement":
        print_rows(table.placement_rows(80 if words.quick else 800))
    elif words.experiment == "ablations":
        for line in ablations.tables():
            print(line, flush=True)
    else:
        print(json.dumps(table.all_rows(words.quick), indent=1))


if __name__ == "__main__":
    main()
