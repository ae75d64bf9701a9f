"""The section of EVALUATION.md that compares engines, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, median
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import ALONE, BATCHED, BOUNDED, DEFAULT, FIXED, FLINK, PAPERS, REACTIVE, REALTIME, Row

UNDROPPED = (ALONE, BOUNDED, FLINK)
READERS = 2  #: of each topic, whose backlogs are added up
PERIOD_S = 5.0


def engines_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table."""
    engines = list(dict.fromkeys(engine for run in runs for engine in run["engines"]))
    phases = list(next(iter(runs[0]["engines"].values())))
    lines = [
        "Scenario 4: other engines, and a fixed drop",
        "Taxi Drives on one core under 0.6, 1.5, 3 and again 0.6 times our task manager's capacity there; TDSnk2 "
        "(priority 2, minimum 0.2) is the more important query, TDSnk1 has priority 1 and minimum 0.1. All engines get "
        "the same rows at the same rates from the same broker, and each starts warm and without backlog:",
        "",
        *_bullets(engines, runs),
        "",
        *(f"{name} was not run: {why}.\n" for name, why in _left_out(runs).items()),
        "Backlog: rows in topics and streams at the end of a phase, once per reader. Plain Spark and Flink drop "
        "nothing: input beyond the core's capacity adds to the backlog. Latencies are ages of TDSnk2's rows "
        "when they are counted, end to end (since the broker received the trip) and inside (since the source read "
        "it): p50 is the median over windows of ten seconds, p95 and p99 are the worst window's."
        + (" Medians of the runs, with ranges." if len(runs) > 1 else ""),
        "",
        *_carrying(engines, runs),
        *_in_micro_batches(runs),
        *_standing_still(engines, runs),
        "| engine | phase | backlog | accuracy TDSnk2 | TDSnk1 | end to end p50, s | p95 | p99 | inside p50, s | p99 |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]

    def shown(engine: str, phase: str, *path: str, form: str = ".2f", by: float = 1.0) -> str:
        known = [value / by for value in _values(runs, engine, phase, *path) if value is not None]
        if not known:
            return ""
        ends = [f"{end:{form}}" for end in (min(known), max(known))]
        return f"{median(known):{form}}" + (f" ({'-'.join(ends)})" if ends[0] != ends[1] else "")

    for engine in engines:
        for phase in phases:
            cells = [shown(engine, phase, "waiting_rows", form=",.0f")]
            cells += [shown(engine, phase, "accuracy", query) for query in ("TDSnk2", "TDSnk1")]
            cells += [shown(engine, phase, "end_to_end_ms", "TDSnk2", p, by=1000.0) for p in ("p50", "p95", "p99")]
            cells += [shown(engine, phase, "inside_ms", "TDSnk2", p, by=1000.0) for p in ("p50", "p99")]
            lines.append(f"| {engine} | {phase} | {' | '.join(cells)} |")

    def by_ours(engine: str, *path: str) -> list[float | None]:
        pairs = zip(_values(runs, engine, "3x", *path), _values(runs, PAPERS, "3x", *path), strict=True)
        return [None if a is None or b is None else a / max(b, 1.0) for a, b in pairs]

    rows = [
        Row(
            "backlog at the end of 3x: Spark alone / ours",
            "grows, ours near 0",
            by_ours(ALONE, "waiting_rows"),
            at_least=5,
        )
    ]
    rows += _policy_rows(runs)
    for engine in (each for each in engines if each in (BOUNDED, FLINK)):
        rows.append(Row(f"backlog at the end of 3x: {engine} / ours", "", by_ours(engine, "waiting_rows")))
        age = by_ours(engine, "end_to_end_ms", "TDSnk2", "p50")
        rows.append(Row(f"median age of TDSnk2's rows at 3x: {engine} / ours", "", age))
    return "\n".join(lines), rows


def _values(runs: Sequence[Figures], engine: str, phase: str, *path: str) -> list[float | None]:
    """One figure of an engine in a phase, per run; None where a run lacks it."""
    found = []
    for run in runs:
        value: Any = run["engines"].get(engine, {}).get(phase)
        for key in path:
            value = (value or {}).get(key)
        found.append(None if value is None else float(value))
    return found


def _bullets(engines: Sequence[str], runs: Sequence[Figures]) -> list[str]:
    """A bullet per engine."""
    fused = all(run.get("fused") for run in runs)
    told = {
        PAPERS: "ours, with the paper's policy"
        + (" and with one that learns costs; " if REACTIVE in engines else "; ")
        + (
            "each query is fused with its sources, as by default;"
            if fused
            else "the two sources are tasks of their own (`--no-fuse`), with a stream to each query;"
        ),
        DEFAULT: "`default`: ours without an option: the policy that learns costs and, since these queries are "
        "stateful, back-to-back micro-batches: window state is updated once a batch;",
        REALTIME: "`real-time mode`: the same in Spark's real-time mode (`--mode realtime`): window state is updated "
        "with each row;",
        BATCHED: f"`{BATCHED}`: the policy that learns costs, in micro-batches instead of Spark's real-time mode: "
        "window state is updated once a batch, not with each row;",
        ALONE: "`spark alone`: the same queries, with the controller off;",
        FIXED: "`fixed drop`: a constant random drop at the sources, chosen in hindsight: it keeps the mean accuracy "
        "that the first policy reached at 3x;",
        BOUNDED: "`spark, bounded batches`: plain Spark, with a query for each sink that "
        "reads the topics itself, in micro-batches under the best `maxOffsetsPerTrigger`: "
        f"{_batches(runs)};",
        FLINK: "`flink`: Apache Flink in SQL, one job for both sinks, its TaskManager on that core. It finds the "
        "nearest stand by the same arithmetic in a Java function, where Spark interprets a lambda: a row costs it "
        f"less work. Its capacity is {_carried(runs)} rows/s here; `flink, own load` is "
        "the same job under 0.6, 1.5 and 3 times that.",
    }
    return [f"- {what}" for engine, what in told.items() if engine in engines]


def _policy_rows(runs: Sequence[Figures]) -> list[Row]:
    """The grounds for choosing a default policy: how soon each recovers from a step up, and how much it keeps."""

    def at_step(engine: str, what: str) -> list[Any]:
        return [run["engines"][engine]["3x"].get(what) for run in runs if engine in run["engines"]]

    ours = (PAPERS, REACTIVE, BATCHED, DEFAULT, REALTIME)
    policies = [engine for engine in runs[0]["engines"] if engine in ours]
    rows = []
    for engine in policies:
        if any("drained_s" in run["engines"].get(engine, {}).get("3x", {}) for run in runs):
            soon = at_step(engine, "drained_s")
            rows.append(Row("from the step to 3x until the backlog is below a period", "", soon, " s", of=engine))
    for engine in policies[1:]:
        both = zip(at_step(engine, "accuracy"), at_step(PAPERS, "accuracy"), strict=True)
        kept = [sum(each.values()) / sum(papers.values()) for each, papers in both]
        rows.append(Row(f"accuracy at 3x, sum over the queries / {PAPERS}", "", kept, of=engine))
    return rows


def _batches(runs: Sequence[Figures]) -> str:
    """The batch bound chosen in each run, and the mean backlog under each bound tried."""
    said = []
    for tried in (run["rows_per_batch"] for run in runs if run["rows_per_batch"]):
        waited = ", ".join(f"{rows:,.0f} under {int(limit):,}" for limit, rows in tried["waited"].items())
        said.append(f"{tried['best']:,} rows" + (f" (mean backlog: {waited})" if waited else ""))
    return "; ".join(said)


def _carried(runs: Sequence[Figures]) -> str:
    known = [run["flink_carries"] for run in runs if run["flink_carries"] is not None]
    return f"{median(known):,.0f}" if known else "an unknown number of"


def _carrying(engines: Sequence[str], runs: Sequence[Figures]) -> list[str]:
    """The engines that keep up at 3x without dropping rows."""
    found = []
    for engine in (each for each in engines if each in UNDROPPED):
        figures = [(run["engines"][engine]["3x"], run["rows_per_s"]["3x"]) for run in runs if engine in run["engines"]]
        waits = [
            phase["waiting_rows"] / (READERS * rate) for phase, rate in figures if phase["waiting_rows"] is not None
        ]
        if waits and median(waits) < PERIOD_S:
            found.append(engine)
    if not found:
        return []
    return [
        f"With {' and '.join(found)}, the backlog at 3x is below {PERIOD_S:g} s of input although nothing is dropped: "
        "a row costs less CPU there, so that this core carries what ours has to shed. What a row costs ours is under "
        "Costs.",
        "",
    ]


def _in_micro_batches(runs: Sequence[Figures]) -> list[str]:
    """The effect of Spark's mode on the same queries under the same policy."""
    engines = {engine for run in runs for engine in run["engines"]}
    batched, realtime = (DEFAULT, REALTIME) if {DEFAULT, REALTIME} <= engines else (BATCHED, REACTIVE)

    def at_3x(engine: str, *path: str) -> float:
        return median(value for value in _values(runs, engine, "3x", *path) if value is not None)

    def kept(engine: str) -> float:
        return min(at_3x(engine, "accuracy", query) for query in ("TDSnk1", "TDSnk2"))

    def age_s(engine: str) -> float:
        return at_3x(engine, "end_to_end_ms", "TDSnk2", "p50") / 1000

    restarts = ": whenever a larger batch proves possible, the query is started again"
    try:
        return [
            "The mode causes much of that difference. Under the same policy, the query that keeps least keeps "
            f"{kept(batched):.2f} of its rows at 3x in micro-batches and {kept(realtime):.2f} in real-time mode, which "
            "updates window state (here sketches of three percentiles) with each row; TDSnk2's rows then "
            f"are {age_s(batched):.1f} s and {age_s(realtime):.1f} s old in the median, and the backlog at the end is "
            f"{at_3x(batched, 'waiting_rows'):,.0f} and {at_3x(realtime, 'waiting_rows'):,.0f} rows"
            f"{restarts if batched == BATCHED else ''}.",
            "",
        ]
    except StatisticsError:  # no run has both, or no window of that phase was reported
        return []


def _standing_still(engines: Sequence[str], runs: Sequence[Figures]) -> list[str]:
    """The engines of which no batch ended in some runs, so that nothing was measured."""
    lines = []
    for engine in engines:
        phases = [list(run["engines"][engine].values()) for run in runs if engine in run["engines"]]
        still = sum(not any(phase["accuracy"] for phase in each) for each in phases)
        if still:
            lines += [
                f"In {still} of {len(phases)} runs the queries of {engine} stalled: from soon after their start no "
                "batch ended, though Spark reported them active.",
                "",
            ]
    return lines


def _left_out(runs: Sequence[Figures]) -> dict[str, str]:
    return {name: why for run in runs for name, why in run["left_out"].items()}
