"""EVALUATION.md, written from the figures alone: tables of the source's figures beside ours, and what falls short."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.evaluation.costs_section import costs_section
from benchmarks.evaluation.goodput import NOBODY, QUERIES
from benchmarks.evaluation.row import Row

COMMAND = "python -m benchmarks.evaluation"
Figures = Mapping[str, Any]


def write(results: Path, path: Path) -> None:
    """Write the document from the JSON files in `results`; its charts lie beside them."""
    found = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(results.glob("*.json"))}
    parts = [_HEAD]
    rows: list[Row] = []
    for part, section in _SECTIONS.items():
        if part in found:
            text, table = section(found[part]["runs"])
            rows += table
            parts.append(_section(part, found[part], text, table, results, path.parent))
    parts.append(_shortfalls(rows, [part for part in _SECTIONS if part not in found]))
    path.write_text("\n\n".join(parts) + "\n", "utf-8")


_HEAD = f"""# Evaluation

The scenarios of *Stream Economics*, run on the machine that is named with each. `{COMMAND}` runs them
again and writes this file from the figures in `benchmarks/results/`. The source had four machines of one core each;
here, all runs on one machine, a core for each of two task managers, with broker and injector on the second one's. Loads
are therefore not the source's rows/s but multiples of what the first task manager can carry, which each run measures
first. Of several runs the median is told, with the range."""


def _section(part: str, kept: Figures, text: str, rows: Sequence[Row], results: Path, base: Path) -> str:
    title, _, told = text.partition("\n")
    lines = [f"## {title}", "", told.strip(), ""]
    if rows:
        lines += ["| figure | source | ours | ratio | to reach | |", "|---|---|---|---|---|---|"]
        lines += [row.line() for row in rows] + [""]
    for chart in sorted(results.glob(f"{part}-*.svg")):
        where = chart.relative_to(base) if chart.is_relative_to(base) else chart
        lines += [f"![{part}: {chart.stem.partition('-')[2].replace('-', ' ')}]({where})", ""]
    runs = len(kept["runs"])
    lines.append(
        f"`{COMMAND} {part} --scale {kept['scale']:g} --repeats {runs}`, {kept['at']}, commit {kept['commit']}: "
        f"{kept['machine']}; load average {kept['load_average']:.1f} afterwards."
    )
    return "\n".join(lines)


def _shortfalls(rows: Sequence[Row], missing: Sequence[str]) -> str:
    short = [row for row in rows if row.short]
    lines = ["## What falls short", ""]
    lines += [f"- {row.what}: {row.shown()}; to reach: {row.limit or 'a value'}." for row in short]
    lines += [f"- {part} was not run." for part in missing]
    return "\n".join(lines if len(lines) > 2 else [*lines, "Nothing of what was run."])


# -- the sections ------------------------------------------------------------------------------------------------------


def _criteria(runs: Sequence[Figures]) -> str:
    """What of the verdict holds, in words."""
    said = []
    for number, run in enumerate(runs, 1):
        failed = [c for c in run["criteria"] if not c["passed"]]
        passed = len(run["criteria"]) - len(failed)
        said.append(f"Run {number}: {passed} of {len(run['criteria'])} checks of the recording hold.")
        said += [f"Not: {c['name']} ({c['detail']})." for c in failed]
    return " ".join(said)


def _worst(runs: Sequence[Figures]) -> list[float | None]:
    return [min(run["worst_margin"].values(), default=None) for run in runs]


def _scenario1(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    ends = [sum(home != "tm1" for id, home in run["homes_heavier"].items() if id.startswith("TDSnk1.")) for run in runs]
    errors = [100 * max(run["accuracy_error"].values()) for run in runs]
    text = (
        "Scenario 1: same priority\n"
        "The load rises over what one task manager carries: both queries shed, TDSnk1 not below 0.4 and TDSnk2 not "
        "below 0.6. A second task manager joins, and as the load rises further instances move there. "
        + " ".join(
            f"Moves of run {n}: {_moves(run)}; under the heavier load {end} of 2 instances of TDSnk1 are on tm2."
            for n, (run, end) in enumerate(zip(runs, ends, strict=True), 1)
        )
        + " "
        + _criteria(runs)
    )
    return text, [
        Row("worst measured accuracy less the minimum", "0", _worst(runs), at_least=-0.05),
        Row("mean abs(curAc - ac) of the sources", "2.4 % [P], 0.6 % [T]", errors, " %", at_most=2.4, source_value=2.4),
        Row("instances of TDSnk1 on the second task manager", "2", ends, at_least=2, source_value=2),
        Row("reaction to the rising load", "fast", [run["reaction_up_s"] for run in runs], " s", at_most=60),
        Row("reaction to the end of the load", "fast", [run["reaction_down_s"] for run in runs], " s", at_most=60),
        Row("longest move", "warm-up < 60 s", [_longest(run) for run in runs], " s", at_most=60, source_value=60),
    ]


def _scenario2(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    text = (
        "Scenario 2: priorities\n"
        "KNN (priority 1), TDSnk1 (2) and TDSnk2 (3) share two task managers while the load rises three times. "
        + " ".join(
            f"Run {n}: {', then '.join(run['gives_way']) or 'nobody'} gave way; moves: {_moves(run)}; accuracy at the "
            f"last step: {_accuracies(run['accuracy'].get('rising-3', {}))}."
            for n, run in enumerate(runs, 1)
        )
        + " "
        + _criteria(runs)
    )
    first = [float((run["gives_way"] or [""])[0] == "KNN") for run in runs]
    return text, [
        Row("worst measured accuracy less the minimum", "0", _worst(runs), at_least=-0.05),
        Row("KNN gives way first (1: yes)", "yes", first, at_least=1),
        Row("longest move", "warm-up < 60 s", [_longest(run) for run in runs], " s", at_most=60, source_value=60),
    ]


def _scenario3(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    text = (
        "Scenario 3: a rate that changes\n"
        "KNN on two instances while its rate goes up and down in steps and ramps, between 0.75 and 2.5 times what the "
        "task manager carries. The input rate is estimated in two ways: from the broker's end offsets, by which cycles "
        "are decided here, and as the thesis does, from consumed rows and the change of the lag; the truth is what the "
        "injector had acknowledged. " + _criteria(runs)
    )

    def estimate(whose: str, what: str) -> list[float | None]:
        return [run["rate"][whose][what] for run in runs]

    return text, [
        Row("input rate, mean error", "0.4 %", [abs(v or 0) for v in estimate("ours", "mean")], " %", 0.2, None, 0.4),
        Row("input rate, spread", "6.2 %", estimate("ours", "spread"), " %", 2.0, None, 6.2),
        Row("input rate, P90", "2.8 %", estimate("ours", "p90"), " %", 1.0, None, 2.8),
        Row("the thesis' method here, mean error", "0.4 %", [abs(v or 0) for v in estimate("thesis", "mean")], " %"),
        Row("the thesis' method here, spread", "6.2 %", estimate("thesis", "spread"), " %"),
        Row("the thesis' method here, P90", "2.8 %", estimate("thesis", "p90"), " %"),
        Row("Pearson(accuracy, 1 / rate)", "0.95", [run["correlation_inverse"] for run in runs], "", None, 0.9, 0.95),
        Row(
            "longest lag of a source, in periods of input", "near 0, with spikes", [r["most_lag_periods"] for r in runs]
        ),
        Row("worst measured accuracy less the minimum", "0", _worst(runs), at_least=-0.05),
    ]


def _engines(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    engines = list(dict.fromkeys(engine for run in runs for engine in run["engines"]))
    phases = list(next(iter(runs[0]["engines"].values())))
    lines = [
        "Scenario 4: other engines, and a fixed drop",
        "Taxi Drives on one core under 0.6, 1.5, 3 and again 0.6 times what our task manager carries there; TDSnk2 "
        "(priority 2, minimum 0.2) is the more important query, TDSnk1 has priority 1 and minimum 0.1. All engines get "
        "the same rows/s in the same order from the same broker, and each begins warm with nothing waiting:",
        "",
        "- by the controller, with the paper's policy and with one that learns costs;",
        "- `spark alone`: the same recipes and streams, with the controller off;",
        "- `fixed drop`: a random drop at the sources that never changes, chosen with hindsight: the mean accuracy "
        "that the first policy reached at 3x;",
        "- `spark, bounded batches`: Spark as one would write it, a query for each sink that reads the topics itself, "
        f"in micro-batches under the `maxOffsetsPerTrigger` that did best: {_batches(runs)}. "
        "It pays for no hop between queries;",
        "- `flink`: Apache Flink in SQL, one job for both sinks, its TaskManager on that core. It finds the nearest "
        "stand by the same arithmetic in a function in Java, where Spark interprets its function with a lambda: at the "
        f"same rows/s it has less to do. It carries {_carried(runs)} rows/s here; `flink, own load` is the same job "
        "under 0.6, 1.5 and 3 times that.",
        "",
        *(f"{name} was not run: {why}.\n" for name, why in _left_out(runs).items()),
        "Rows wait in topics and streams at the end of a phase, once for each that has yet to read them. Plain "
        "Spark and Flink drop nothing: what comes beyond what the core carries waits. Ages are those of TDSnk2's rows "
        "when they are counted, end to end (since the broker took the trip in) and inside (since the source read it): "
        "the median over windows of ten seconds, and the worst window's 99th percentile. Medians of the runs.",
        "",
        "| engine | phase | rows waiting | TDSnk2 | TDSnk1 | end to end p50, s | p95 | p99 | inside p50, s | p99 |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]

    def values(engine: str, phase: str, *path: str) -> list[float | None]:
        found = []
        for run in runs:
            value: Any = run["engines"].get(engine, {}).get(phase)
            for key in path:
                value = (value or {}).get(key)
            found.append(None if value is None else float(value))
        return found

    def shown(engine: str, phase: str, *path: str, form: str = ".2f", by: float = 1.0) -> str:
        known = [value for value in values(engine, phase, *path) if value is not None]
        return f"{median(known) / by:{form}}" if known else ""

    for engine in engines:
        for phase in phases:
            cells = [shown(engine, phase, "waiting_rows", form=",.0f")]
            cells += [shown(engine, phase, "accuracy", query) for query in ("TDSnk2", "TDSnk1")]
            cells += [shown(engine, phase, "end_to_end_ms", "TDSnk2", p, by=1000.0) for p in ("p50", "p95", "p99")]
            cells += [shown(engine, phase, "inside_ms", "TDSnk2", p, by=1000.0) for p in ("p50", "p99")]
            lines.append(f"| {engine} | {phase} | {' | '.join(cells)} |")

    def by_ours(engine: str, *path: str) -> list[float | None]:
        pairs = zip(values(engine, "3x", *path), values("stream-economics", "3x", *path), strict=True)
        return [None if a is None or b is None else a / max(b, 1.0) for a, b in pairs]

    rows = [
        Row(
            "rows waiting at the end of 3x, Spark alone by ours",
            "grows, ours near 0",
            by_ours("spark alone", "waiting_rows"),
            at_least=5,
        )
    ]
    same = [engine for engine in engines if not engine.endswith("own load")]
    for engine in same[same.index("fixed drop") + 1 :]:
        rows.append(Row(f"rows waiting at the end of 3x, {engine} by ours", "", by_ours(engine, "waiting_rows")))
        age = by_ours(engine, "end_to_end_ms", "TDSnk2", "p50")
        rows.append(Row(f"median age of TDSnk2's rows at 3x, {engine} by ours", "", age))
    return "\n".join(lines), rows


def _batches(runs: Sequence[Figures]) -> str:
    """Which bound of a batch was taken in each run, and what each had come to."""
    said = []
    for run in runs:
        tried = run["rows_per_batch"]
        waited = ", ".join(f"{rows:,.0f} rows waited under {int(limit):,}" for limit, rows in tried["waited"].items())
        said.append(f"{tried['best']:,} rows (on average {waited})")
    return "; ".join(said)


def _carried(runs: Sequence[Figures]) -> str:
    known = [run["flink_carries"] for run in runs if run["flink_carries"] is not None]
    return f"{median(known):,.0f}" if known else "an unknown number of"


def _left_out(runs: Sequence[Figures]) -> dict[str, str]:
    return {name: why for run in runs for name, why in run["left_out"].items()}


def _goodput(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    run = runs[-1]
    loads = list(run["rows_per_s"])
    lines = [
        "Goodput against offered load (simulated)",
        "Three equal queries behind one source on one core, of priority 3, 2 and 1 with a minimum accuracy of 0.001, "
        "in virtual time. Rows/s that each processed (top / middle / least), and in brackets the top query's by what "
        "it gets on the same machine and load without the others. 1x is what may be planned with, nine tenths of the "
        "core; nobody deciding (`none`) uses all of it.",
        "",
        f"| policy | {' | '.join(f'{float(load):g}x' for load in loads)} |",
        "|---|" + "---|" * len(loads),
    ]
    rows = []
    for policy, by_load in run["policies"].items():
        cells = []
        for load in loads:
            got = by_load[load]
            share = got["top"] / max(got["alone"], 1e-9)
            cells.append(f"{got['top']:,.0f} / {got['middle']:,.0f} / {got['least']:,.0f} ({share:.0%})")
        lines.append(f"| {policy} | {' | '.join(cells)} |")
        if policy != NOBODY:
            last, first = by_load[loads[-1]], by_load["1"]
            alone = [last["top"] / max(last["alone"], 1e-9)]
            work = [sum(last[q] for q in QUERIES) / sum(first[q] for q in QUERIES)]
            rows.append(Row(f"{policy}: top query at 10x, by what it gets alone", "", alone, at_least=0.95))
            rows.append(Row(f"{policy}: work at 10x, by that at 1x", "", work, at_least=0.9))
    return "\n".join(lines), rows


def _moves(run: Figures) -> str:
    said = [f"{m['instance']} to {m['to']} in {m['took_s']:.1f} s" for m in run["moves"]]
    return ", ".join(said) or "none"


def _longest(run: Figures) -> float | None:
    return max((float(m["took_s"]) for m in run["moves"]), default=None)


def _accuracies(found: Mapping[str, float]) -> str:
    return ", ".join(f"{query} {value:.2f}" for query, value in found.items()) or "unknown"


_SECTIONS: Mapping[str, Callable[[Sequence[Figures]], tuple[str, list[Row]]]] = {
    "scenario1": _scenario1,
    "scenario2": _scenario2,
    "scenario3": _scenario3,
    "engines": _engines,
    "goodput": _goodput,
    "costs": costs_section,
}
