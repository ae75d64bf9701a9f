"""The section of EVALUATION.md on costs, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.evaluation.parts import PLAIN
from benchmarks.evaluation.row import Row

Figures = Mapping[str, Any]
REACH = 0.8  #: of plain Spark's capacity


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU of one engine, microseconds per input row."""

    sources: float  #: tasks of the sources; 0 where there are none
    queries: float  #: tasks of the queries
    beside: float  #: the rest of the process: planning, commits, Kafka's threads, collection, compilation

    @property
    def total(self) -> float:
        """The task manager's whole process."""
        return self.sources + self.queries + self.beside


def spent(drain: Figures) -> Spent | None:
    """Of one drained backlog; None if the CPU of its tasks was not recorded."""
    tasks = drain["task_cpu_s"]
    if not tasks:
        return None
    per_row = {name: 1e6 * cpu / drain["rows"] for name, cpu in tasks.items()}
    sources = sum(us for name, us in per_row.items() if name.startswith("TDSrc"))
    queries = sum(per_row.values()) - sources
    return Spent(sources, queries, 1e6 * drain["jvm_cpu_s"] / drain["rows"] - sources - queries)


def ratios(turns: Figures) -> list[float | None]:
    """Rows/s of ours / plain Spark's, turn by turn."""
    return [a["rate"] / b["rate"] for a, b in zip(turns["ours"], turns["plain"], strict=True)]


def idle_each(observed: Mapping[str, Figures]) -> float:
    """CPU of one more idle instance, % of one core: the slope between the fewest and the most."""
    counts = sorted(map(int, observed))
    few, many = observed[str(counts[0])], observed[str(counts[-1])]
    return float(many["idle_cpu"] - few["idle_cpu"]) / (counts[-1] - counts[0])


def costs_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table."""
    rows: list[Row] = []
    capacity = [
        "| queries | engine | rows/s | CPU, us/row | sources' tasks | queries' tasks | outside tasks |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    told = []
    for name in runs[0]["capacity"]:
        turns = [run["capacity"][name] for run in runs]
        every = [ratio for each in turns for ratio in ratios(each)]
        by_engine = {engine: _middle([d for each in turns for d in each[engine]]) for engine in turns[0]}
        for engine, cost in by_engine.items():
            rate = median(d["rate"] for each in turns for d in each[engine])
            capacity.append(
                f"| {name} | {engine} | {rate:,.0f} | {cost.total:.1f} | {cost.sources:.1f} | {cost.queries:.1f} "
                f"| {cost.beside:.1f} |"
            )
        told.append(_difference(name, by_engine["ours"], by_engine["plain"]))
        what = f"rows/s of one core at accuracy 1, *{name}*: ours / plain Spark"
        rows.append(Row(what, "1", every, at_least=REACH, why=told[-1]))
    rows += _delays(runs)
    text = "\n".join(
        [
            "Costs",
            "Throughput of Taxi Drives on one core when nothing is shed: the rows of a backlog in both topics / the "
            "time from the first row into the topics to the last row out of the last query, in turns on the same task "
            "manager. Ours is two queries (three instances) fused with their sources, shedders open and the "
            "controller observing; *ours, sources apart* (`--no-fuse`) has the two sources as tasks of their own, with "
            "four streams; plain Spark is two queries, each of which reads, parses and cleans both topics, without "
            "shedders and weights, in the same mode and with the same settings of readers and writers. "
            "*as it is*: the queries of the scenarios, which find the nearest stands and keep totals; *light*: a "
            "filter instead, so that costs outside the queries show. CPU is that of the task manager's process per "
            "input row, both queries together.",
            "",
            *capacity,
            "",
            *told,
            "",
            *_parts(runs),
        ]
    )
    return text, rows


def _middle(drains: Sequence[Figures]) -> Spent:
    known = [cost for cost in map(spent, drains) if cost is not None]
    return Spent(
        median(cost.sources for cost in known),
        median(cost.queries for cost in known),
        median(cost.beside for cost in known),
    )


def _difference(name: str, ours: Spent, plain: Spent) -> str:
    """Where the difference goes, in words."""
    more = ours.total - plain.total
    queries, beside = ours.queries - plain.queries, ours.beside - plain.beside
    said = [f"the sources' tasks take {ours.sources:.1f} us, which plain Spark does not have"] if ours.sources else []
    said.append(f"the queries' tasks {abs(queries):.1f} us {'more' if queries > 0 else 'less'}")
    said.append(f"the process outside its tasks {abs(beside):.1f} us {'more' if beside > 0 else 'less'}")
    return (
        f"Queries *{name}*: a row costs ours {abs(more):.1f} us {'more' if more > 0 else 'less'} than plain Spark: "
        f"{', '.join(said[:-1])}, and {said[-1]}."
    )


def _parts(runs: Sequence[Figures]) -> list[str]:
    """A table of the parts, and their sums for each engine before any query's work."""
    us = {part: median(run["parts"]["parts_us"][part] for run in runs) for part in runs[0]["parts"]["parts_us"]}
    twice = 2 * (us["read the topic"] + us[PLAIN])
    reading = us["read the stream"] + us["decode"] + us["shed what waited"]
    sending = us["encode for a stream"] + us["write to a stream"] + us["write to a second stream"]
    made = us["read the topic"] + us["shed at the source"] + us["parse and clean"]
    source = made + sending
    return [
        "Costs of the parts of an instance, from micro-batches that differ by one part each (CPU of the tasks, without "
        "Kafka's own threads):",
        "",
        "| part | us/row |",
        "|---|---:|",
        *(f"| {part} | {value:.1f} |" for part, value in us.items()),
        "",
        f"So a row read by two queries costs ours {2 * made:.1f} us "
        f"before any query's work, with the sources apart {source + 2 * reading:.1f} ({source:.1f} at the source, "
        f"{reading:.1f} at each reading end), and plain Spark {twice:.1f}. "
        "Spark pushes the filter that cleans trips below the parse, and so parses for it again; ours "
        f"parses each row once, which saves {us[PLAIN] - us['parse and clean']:.1f} us per parse.",
    ]


def _delays(runs: Sequence[Figures]) -> list[Row]:
    def every(*path: str) -> list[float | None]:
        found: list[float | None] = []
        for run in runs:
            value: Any = run
            for key in path:
                value = value[key]
            found += value if isinstance(value, list) else [value]
        return found

    rows = [
        Row("dial's turn to the first row under it", "at once", every("dial", "dial_ms"), " ms", at_most=250),
        Row("cycle's start to the first row under its dials", "", every("dial", "cycle_ms"), " ms", at_most=1000),
        Row("override to the first row under it (waits for a cycle)", "", every("dial", "override_ms"), " ms"),
        Row("move between warm task managers: output gap", "", every("move", "without_a_row_s"), " s", at_most=3),
        Row("move: from the call to the first row there", "", every("move", "call_to_first_row_s"), " s", at_most=60),
        Row("start of a task manager until it is up and warm", "", every("start_s"), " s", at_most=60),
    ]
    longest: list[float | None] = [run["step"]["longest_batch_s"] / run["step"]["period_s"] for run in runs]
    rows.append(Row("longest micro-batch after a step to 3x, in periods", "", longest, at_most=2))
    idle: list[float | None] = [idle_each(run["observe"]) for run in runs]
    for count in runs[0]["observe"]:
        needed = median(each["idle_cpu"] for each in (run["observe"][count] for run in runs))
        why = f"Without input, {count} instances use {needed:.0f} % of a core: little is left for observing."
        values = every("observe", count, "observe_ms")
        rows.append(Row(f"observing {count} instances", "", values, " ms", at_most=1000.0, why=why))
    rows.append(Row("CPU of one more instance without input", "", idle, " % of a core"))
    for part in runs[0]["memory_mib"]:
        rows.append(Row(f"resident memory: {part}", "", every("memory_mib", part), " MiB"))
    return rows
