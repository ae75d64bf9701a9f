"""`python -m benchmarks.evaluation`: run the evaluation, keep its figures as JSON, and write EVALUATION.md from them.

Parts that are not given keep their earlier figures, and so does one that fails: the others run nevertheless.
`live-systems` stands for the live parts of the systems of the literature.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.evaluation import document, kept, literature, scenarios, turns_live
from benchmarks.evaluation.against_plain import against_plain
from benchmarks.evaluation.costs import costs
from benchmarks.evaluation.coverage_live import coverage_live
from benchmarks.evaluation.d_storm_live import d_storm_live
from benchmarks.evaluation.drawing import draw, draw_recording
from benchmarks.evaluation.engines import engines
from benchmarks.evaluation.goodput_live import goodput_live
from benchmarks.evaluation.henge_live import henge_live
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.messages import messages
from benchmarks.evaluation.recipes import RECIPES
from benchmarks.evaluation.stela_live import stela_live
from benchmarks.evaluation.systems import systems
from benchmarks.simulator import growth

RESULTS = Path("benchmarks/results")
BUILD = Path("build/evaluation")

#: (directory of recordings, share of the full length, earlier runs) -> figures
Part = Callable[[Path, float, Sequence[Figures]], dict[str, Any]]


def _by_itself(part: Callable[[Path, float], dict[str, Any]]) -> Part:
    return lambda out, scale, _runs: part(out, scale)


def _engines(out: Path, scale: float, runs: Sequence[Figures]) -> dict[str, Any]:
    """The first run finds plain Spark's best batch bound; later runs reuse it."""
    best = next((run["rows_per_batch"].get("seconds") for run in runs if run["rows_per_batch"]), None)
    return engines(out, scale, batch_s=best)


PARTS: Mapping[str, Part] = {
    "scenario1": _by_itself(scenarios.same_priority),
    "scenario2": _by_itself(scenarios.two_priorities),
    "scenario3": _by_itself(scenarios.kafka_lag),
    "engines": _engines,
    "against-plain": _by_itself(against_plain),
    "goodput-live": _by_itself(goodput_live),
    "scenario5": _by_itself(growth),
    "costs": _by_itself(costs),
    "coverage-live": _by_itself(coverage_live),
    "systems": _by_itself(systems),
    "henge-live": _by_itself(henge_live),
    "stela-live": _by_itself(stela_live),
    "d-storm-live": _by_itself(d_storm_live),
    "cameo-live": _by_itself(turns_live.cameo_live),
    "dirigo-live": _by_itself(turns_live.dirigo_live),
    "nephele-live": _by_itself(turns_live.nephele_live),
    "getafix-live": _by_itself(turns_live.getafix_live),
    "messages": _by_itself(messages),
}
#: Names for several parts.
GROUPS: Mapping[str, Sequence[str]] = {
    "live-systems": tuple(part for part in PARTS if part in literature.PARTS),
}


def main(words: Sequence[str] | None = None, available: Mapping[str, Part] = PARTS, build: Path = BUILD) -> int:
    """Run the parts that the command line names, of those available; 0 if all ran, 1 if one failed, 2 if nothing was
    begun. Recordings go to `build`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join([*PARTS, *GROUPS])}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full length of loads")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each part, interleaved")
    parser.add_argument(
        "--recipes", nargs="+", choices=RECIPES, default=[*RECIPES], help="for against-plain; default: all"
    )
    parser.add_argument("--more", action="store_true", help="add to the stored runs; default: replace them")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the figures")
    parser.add_argument("--document", type=Path, default=Path("EVALUATION.md"), help="the document to write")
    parser.add_argument("--only-write", action="store_true", help="run nothing, only write the document")
    given = parser.parse_args(words)
    named = [*dict.fromkeys(part for name in given.parts for part in GROUPS.get(name, (name,)))]
    unknown = [part for part in named if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; the parts are {', '.join([*PARTS, *GROUPS])}")
    failed: list[str] = []
    if not given.only_write:
        parts = named or list(PARTS)
        try:
            runs = {part: _kept(given, part) if given.more else [] for part in parts}
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        given.results.mkdir(parents=True, exist_ok=True)
        commit = kept.commit_of_tree()
        for repeat in range(given.repeats):
            for part in parts:
                print(f"--- {part}, run {repeat + 1} of {given.repeats}", flush=True)
                run = available[part]
                if part == "against-plain":
                    run = _by_itself(partial(against_plain, which=given.recipes))
                try:
                    _run(part, run, build / f"run{repeat + 1}", given, runs[part], commit)
                except Exception as error:
                    traceback.print_exc()
                    failed.append(f"{part}, run {repeat + 1}: {type(error).__name__}: {error}".splitlines()[0])
    draw(document.stored(given.results), given.results)
    document.write(given.results, given.document)
    print(f"written: {given.document}")
    for each in failed:
        print(f"failed: {each}", file=sys.stderr)
    return 1 if failed else 0


def _kept(given: argparse.Namespace, part: str) -> list[Figures]:
    return kept.earlier(given.results / f"{part}.json", given.scale)


def _run(part: str, run: Part, out: Path, given: argparse.Namespace, runs: list[Figures], commit: str) -> None:
    """Run a part once more and store its figures; the chart of its recording shows the last run."""
    begun = time.monotonic()
    figures = run(out, given.scale, runs)
    runs.append({**kept.provenance(commit, time.monotonic() - begun), **figures})
    kept.keep(given.results / f"{part}.json", part, given.scale, runs)
    if f"{part}-accuracy" in document.CHARTS:
        draw_recording(out / f"{part}.jsonl", given.results / f"{part}-accuracy.svg")


if __name__ == "__main__":
    sys.exit(main())
