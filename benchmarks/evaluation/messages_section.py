"""The section of EVALUATION.md on Cameo, Dirigo, Nephele Streaming and Getafix, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.findings import HEAD, counted
from benchmarks.findings import Row as Finding
from benchmarks.simulator import exponent

#: What an hour of Cameo's 4 LS and 20 BA jobs may take, CPU seconds.
HOUR_S, GOAL_S = 3600.0, 60.0
#: What was chosen by a figure of the source, before each table.
CALIBRATED: Mapping[str, str] = {
    "Cameo": (
        "Calibrated: costs of messages and rows, so that four workers are busy at the load at which the source calls "
        "them saturated (5.8), and the rows of the skewed sources by Cameo's share of type 1 (5.10)."
    ),
    "Dirigo": (
        "Calibrated: load, skew and time of a read by two latency ratios (6.12), the length of the runs that compare "
        "capacities by one ratio of fetches (6.14a), and the central scheduler's CPU per decision by one latency gap "
        "(6.21a)."
    ),
    "Nephele Streaming": (
        "Calibrated: cost of a buffer, transport time and bytes that serialization adds by three figures of the buffer "
        "experiment, frame rate and bit rates by the latencies of scenarios 1 and 2."
    ),
    "Getafix": (
        "Calibrated: the number of live segments by Getafix' replication factor with 20 clients, queries/s of a client "
        "by Scarlett's, and the CPU time of a pair by one of the knees."
    ),
}


def messages_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and tables of the last run; rows of all."""
    last = runs[-1]
    tables = {system: [Finding(**row) for row in rows] for system, rows in last["systems"].items()}
    lines = [
        "Cameo, Dirigo, Nephele Streaming and Getafix (simulated)",
        "These four decide about single messages, buffers and segments: which message a worker executes next, and "
        "where; how large an output buffer is, and which tasks share a thread; on which nodes copies of a segment are. "
        "Spark Structured Streaming offers no such choice, and a model of rates cannot show what one of them is worth. "
        "So an event engine executes every message, buffer and query one by one, in virtual time and on no cluster, "
        "under the policies as implemented here and under those that the sources compare them with. Its books are "
        "checked in every run: each message, item and query is accounted for. CPU is measured only in the "
        "rows *5.12* and *6.21b* and in the last table; all other figures are of virtual time, and the same "
        "on any machine.",
        "",
        "*Reproduced*: a factor whose gain (factor - 1) is 0.5 to 1.5 times the source's; another number that is 0.5 "
        "to 1.5 times the source's; a statement that holds. Where a source gives a largest factor without its load "
        "(*up to*), one load of a sweep must reach it. *Not decidable*: the source does not say enough for a model. "
        "*Calibrated*: a parameter of the model was fitted to this figure, so that its agreement proves nothing.",
        "",
        *_short(last),
        f"In all {counted([row for rows in tables.values() for row in rows])}.",
        "",
    ]
    for system, rows in tables.items():
        lines += _table(system, rows, [run["systems"].get(system, []) for run in runs])
    lines += _costs(last)
    return "\n".join(lines), [*_rows(runs)]


def _short(run: Figures) -> Iterator[str]:
    if _longest(run)["seconds"] < HOUR_S:
        yield "**These are short runs, which show that all parts work: their figures say nothing about the systems.**"
        yield ""


def _longest(run: Figures) -> Mapping[str, float]:
    longest: Mapping[str, float] = max(run["speed"], key=lambda each: each["seconds"])
    return longest


def _table(system: str, rows: Sequence[Finding], of_runs: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    yield f"### {system}"
    yield ""
    yield f"{CALIBRATED[system]} {counted(rows)}."
    changed = [row for row in rows if len(_verdicts(row, of_runs)) > 1]
    if changed:
        words = "; ".join(f"{row.experiment}, {row.figure}" for row in changed)
        yield f"The verdict differs between runs of: {words}."
    yield ""
    yield HEAD
    yield from (row.line() for row in rows)
    yield ""


def _verdicts(row: Finding, of_runs: Sequence[Sequence[Mapping[str, Any]]]) -> set[str]:
    """Of the same figure, over the runs."""
    key = (row.experiment, row.figure)
    return {each["verdict"] for rows in of_runs for each in rows if (each["experiment"], each["figure"]) == key}


def _costs(run: Figures) -> Iterator[str]:
    yield "### What virtual time costs"
    yield ""
    yield (
        "*Jobs of Cameo*: 4 with a strict target and 20 without, 64 sources each, under Cameo. *Engine*: 24 jobs of 64 "
        "clients in order of arrival, with next to no work in the operators."
    )
    yield ""
    yield "| run | virtual time | messages | CPU, s | CPU a message, us |"
    yield "|---|---:|---:|---:|---:|"
    for name, label in (("speed", "jobs of Cameo"), ("growth", "engine")):
        for each in run[name]:
            us = 1e6 * each["cpu_s"] / each["messages"]
            yield f"| {label} | {each['seconds']:g} s | {each['messages']:,} | {each['cpu_s']:.1f} | {us:.1f} |"
    yield ""
    yield f"All tables: {', '.join(f'{system} {s:.0f} s' for system, s in run['cpu_s'].items())} of CPU."


def _rows(runs: Sequence[Figures]) -> Iterator[Row]:
    hours: list[float | None] = []
    for run in runs:
        longest = _longest(run)
        hours.append(longest["cpu_s"] * HOUR_S / longest["seconds"])
    yield Row("CPU of an hour of Cameo's 4 LS and 20 BA jobs", "", hours, " s", at_most=GOAL_S)
    for name, label in (("speed", "Cameo's jobs"), ("growth", "the engine")):
        if all(len(run[name]) > 1 for run in runs):
            yield Row(f"{label}: k of CPU ~ messages ** k", "", [_exponent(run[name]) for run in runs])


def _exponent(found: Sequence[Mapping[str, Any]]) -> float:
    return exponent([each["messages"] for each in found], [each["cpu_s"] for each in found])
