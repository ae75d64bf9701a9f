"""`python -m benchmarks.evaluation`: run the evaluation, keep its figures as JSON, and write EVALUATION.md from them.

Parts that are not asked for keep the figures that they had.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.evaluation import document, scenarios
from benchmarks.evaluation.costs import costs
from benchmarks.evaluation.drawing import draw, draw_engines, draw_goodput
from benchmarks.evaluation.engines import engines
from benchmarks.evaluation.goodput import goodput

RESULTS = Path("benchmarks/results")
BUILD = Path("build/evaluation")

#: (recordings go here, share of the full length) -> figures
PARTS: Mapping[str, Callable[[Path, float], dict[str, Any]]] = {
    "scenario1": scenarios.same_priority,
    "scenario2": scenarios.two_priorities,
    "scenario3": scenarios.kafka_lag,
    "engines": engines,
    "goodput": goodput,
    "costs": costs,
}


def main() -> int:
    """Run the parts; 0 if all ran."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full length of what is held")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each part, in turns")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures are kept")
    parser.add_argument("--document", type=Path, default=Path("EVALUATION.md"), help="what is written from them")
    parser.add_argument("--only-write", action="store_true", help="run nothing, write the document")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    if not given.only_write:
        given.results.mkdir(parents=True, exist_ok=True)
        runs: dict[str, list[dict[str, Any]]] = {}
        for repeat in range(given.repeats):
            for part in given.parts or PARTS:
                print(f"--- {part}, run {repeat + 1} of {given.repeats}", flush=True)
                begun = time.monotonic()
                out = BUILD / f"run{repeat + 1}"
                figures = PARTS[part](out, given.scale)
                runs.setdefault(part, []).append({"took_s": round(time.monotonic() - begun, 1), **figures})
                kept = {"part": part, "scale": given.scale, **_machine(), "runs": runs[part]}
                draw(out / f"{part}.jsonl", given.results, part)
                if part == "goodput":
                    draw_goodput(figures, given.results / "goodput-rows.svg")
                if part == "engines":
                    draw_engines(figures, given.results / "engines-compared.svg")
                (given.results / f"{part}.json").write_text(json.dumps(_rounded(kept), indent=1) + "\n", "utf-8")
    document.write(given.results, given.document)
    print(f"written: {given.document}")
    return 0


def _machine() -> dict[str, Any]:
    """Where and of what the figures are."""
    processor = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{psutil.cpu_count()} virtual cores of {processor}, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}, Python {platform.python_version()}",
        "load_average": psutil.getloadavg()[0],
        "commit": commit.stdout.strip(),
    }


def _rounded(value: Any) -> Any:
    """Four digits after the point are more than was measured."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
