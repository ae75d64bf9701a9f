"""Goals and tables of the comparisons with plain Spark and other engines, and of costs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import ALONE, BATCHED, BOUNDED, DEFAULT, FLINK, PAPERS, REACTIVE, REALTIME, Row
from benchmarks.evaluation.section import Runs, Section, Table, Values, at, each, middle, names, ratio
from benchmarks.evaluation.staircase import BACK

FITS = 0.9  #: of plain Spark's capacity: up to there, nothing should be shed
AGE, CPU, BACKLOG, BACK_S = 1.2, 1.05, 2.0, 15.0  #: goals: / plain Spark's (age, CPU), periods, seconds
REACH = 0.8  #: goal: of plain Spark's throughput
ENOUGH = 0.95  #: goal: of what the higher query gets alone
LEAST = 0.05  #: minimum accuracy of each query under overload, in runs that do not tell it

SHORTER = "Shorter batches give younger results, and pay their fixed cost more often."
READS_ALL = "The lower query reads all of its input, too; batches of two queries have fixed costs."
DEARER = {
    BOUNDED: "Ours ran in real-time mode, where a row of a window costs more CPU.",
    FLINK: "Compiled Java finds the nearest stand with far less CPU.",
}
OBSERVED = "Without input, many instances leave little CPU for observing."

# -- beside plain Spark, recipe by recipe ------------------------------------------------------------------------------


def _of(runs: Runs, name: str) -> list[Figures]:
    return [run["recipes"][name] for run in runs if name in run["recipes"]]


def _loads(of_recipe: Runs) -> list[tuple[str, float]]:
    """Return the loads of a recipe and their multiples, the load to which they come back last."""
    found = {load: f["times"] for one in of_recipe for load, f in one["ours"]["loads"].items()}
    return sorted(found.items(), key=lambda item: (item[0] == BACK, item[1]))


def _against_plain(runs: Runs) -> list[Row]:
    return [row for name in names(runs, "recipes") for row in _recipe(_of(runs, name), name)]


def _recipe(of_recipe: Runs, name: str) -> list[Row]:
    loads = _loads(of_recipe)
    fit = [load for load, times in loads if load != BACK and times <= FITS]
    beyond = [load for load, times in loads if load != BACK and times > 1]

    def over(which: Sequence[str], pick: Callable[..., float], what: str, beside: bool = False) -> Values:
        """Return the least or the most over the loads that a run had; None where one of them has no value."""
        found: Values = []
        for run in of_recipe:
            own = [load for load in which if load in run["ours"]["loads"]]
            values = [_ours(run, load, what, beside) for load in own]
            found.append(None if not values or None in values else pick(values))
        return found

    return [
        Row(f"least accuracy up to {FITS:g}x", "1", over(fit, min, "accuracy"), at_least=1.0, of=name),
        Row(f"least of any cycle up to {FITS:g}x", "1", over(fit, min, "worst_accuracy"), at_least=1.0, of=name),
        Row(f"age of rows / plain Spark's, up to {FITS:g}x", "1", over(fit, max, "age_s", True), at_most=AGE, of=name),
        Row(
            f"CPU / plain Spark's, up to {FITS:g}x",
            "1",
            over(fit, max, "cpu", True),
            at_most=CPU,
            of=name,
            why=SHORTER,
        ),
        Row("backlog beyond 1x, periods", "grows", over(beyond, max, "backlog_periods"), at_most=BACKLOG, of=name),
        Row("recovery to accuracy 1", "never", at(of_recipe, "ours", "back_s"), " s", at_most=BACK_S, of=name),
    ]


def _ours(run: Figures, load: str, what: str, beside: bool = False) -> float | None:
    """Return a figure of ours under a load; `beside`: over plain Spark's. None where one of them is unknown."""
    value = run["ours"]["loads"][load].get(what)
    if not beside:
        return None if value is None else float(value)
    plain = run["plain"]["loads"].get(load, {}).get(what)
    return value / plain if value is not None and plain else None


def _staircases(runs: Runs) -> Table:
    found = []
    for name in names(runs, "recipes"):
        of_recipe = _of(runs, name)
        for load, times in _loads(of_recipe):
            ours = [run["ours"]["loads"].get(load, {}) for run in of_recipe]
            plain = [run["plain"]["loads"].get(load, {}) for run in of_recipe]
            carries = [float(run["plain"]["rows_s"]) for run in of_recipe]
            found.append(
                {
                    "recipe": name,
                    "load": load,
                    "times": times,
                    "accuracy": middle(at(ours, "accuracy")),
                    "worst cycle": middle(at(ours, "worst_accuracy")),
                    "kept / plain Spark's capacity": middle(each(ratio, at(ours, "kept_rows_s"), [*carries])),
                    "age, s": middle(at(ours, "age_s")),
                    "plain Spark's age, s": middle(at(plain, "age_s")),
                    "backlog, periods": middle(at(ours, "backlog_periods")),
                    "plain Spark's backlog": middle(at(plain, "backlog_periods")),
                    "CPU, %": middle(at(ours, "cpu")),
                    "plain Spark's CPU, %": middle(at(plain, "cpu")),
                }
            )
    return found


# -- engines under one load --------------------------------------------------------------------------------------------


def _engines(runs: Runs) -> list[Row]:
    def beside(engine: str, of: str, *path: str) -> Values:
        """Return a figure at 3x / that of another engine, which counts as 1 at least."""
        pair = (at(runs, "engines", name, "3x", *path) for name in (engine, of))
        return each(lambda a, b: a / max(b, 1.0), *pair)

    there = names(runs, "engines")
    waits = beside(ALONE, PAPERS, "waiting_rows")
    rows = [Row("backlog at 3x: Spark alone / the paper's policy", "grows", waits, at_least=5)]
    for engine in (one for one in (REACTIVE, BATCHED, DEFAULT, REALTIME) if one in there):
        kept = [
            sum(run["engines"][engine]["3x"]["accuracy"].values())
            / sum(run["engines"][PAPERS]["3x"]["accuracy"].values())
            if engine in run["engines"] and PAPERS in run["engines"]
            else None
            for run in runs
        ]
        rows.append(Row(f"accuracy at 3x / {PAPERS}", "", kept, of=engine))
    for engine in (one for one in (BOUNDED, FLINK) if one in there):
        backlog = beside(engine, PAPERS, "waiting_rows")
        rows.append(Row(f"backlog at 3x: {engine} / ours", "", backlog, at_least=1.0, why=DEARER[engine]))
        age = beside(engine, PAPERS, "end_to_end_ms", "TDSnk2", "p50")
        rows.append(Row(f"age of rows at 3x: {engine} / ours", "", age))
    return rows


def _phases(runs: Runs) -> Table:
    def of(engine: str, phase: str) -> dict[str, Any]:
        def one(*path: str, by: float = 1.0) -> float | None:
            values = [v / by for v in at(runs, "engines", engine, phase, *path) if v is not None]
            return middle(values)

        ages = {f"age {p}, s": one("end_to_end_ms", "TDSnk2", p, by=1000.0) for p in ("p50", "p95", "p99")}
        kept = {f"accuracy {query}": one("accuracy", query) for query in ("TDSnk2", "TDSnk1")}
        return {"engine": engine, "phase": phase, "backlog, rows": one("waiting_rows"), **kept, **ages}

    phases = list(next(iter(runs[0]["engines"].values())))
    return [of(engine, phase) for engine in names(runs, "engines") for phase in phases]


# -- goodput of two queries --------------------------------------------------------------------------------------------


def most_possible(times: float, least: float = LEAST) -> float:
    """Return the most rows/s possible for the higher of two queries / alone, if only work on rows costs CPU: each needs
    half a core at 1x, and the lower one keeps its minimum accuracy, `least`."""
    alone = min(1.0, 2 / times)
    return min(1.0, max(2 / times - least, least)) / alone


def _goodput(runs: Runs) -> list[Row]:
    rows = []
    for load, times in dict.fromkeys((load, f["times"]) for run in runs for load, f in run["loads"].items()):
        share = each(ratio, *(at(runs, "loads", load, key) for key in ("higher", "alone")))
        known: Values = [one for one in share if one is not None]
        least = max(run.get("least", LEAST) for run in runs)
        most = f"at most {most_possible(times, least):.2f}"
        rows.append(Row("higher query / alone", most, known, at_least=ENOUGH, of=load, why=READS_ALL))
    return rows


def _goodputs(runs: Runs) -> Table:
    keys = ("times", "rows_s", "higher", "lower", "alone")
    return [
        {"load": load, **{key: middle(at(runs, "loads", load, key)) for key in keys}} for load in names(runs, "loads")
    ]


# -- costs -------------------------------------------------------------------------------------------------------------


def spent(drain: Figures) -> tuple[float, float, float] | None:
    """Return the CPU of a drained backlog, microseconds per input row: the sources' tasks, the queries' tasks, the rest
    of the process. None if the CPU of its tasks was not recorded."""
    tasks = drain["task_cpu_s"]
    if not tasks:
        return None
    per_row = {name: 1e6 * cpu / drain["rows"] for name, cpu in tasks.items()}
    sources = sum(us for name, us in per_row.items() if name.startswith("TDSrc"))
    queries = sum(per_row.values()) - sources
    return sources, queries, 1e6 * drain["jvm_cpu_s"] / drain["rows"] - sources - queries


def idle_each(observed: Figures) -> float:
    """Return the CPU of one more idle instance, % of one core: the slope between the fewest and the most."""
    few, *_, many = sorted(observed, key=int)
    return float(observed[many]["idle_cpu"] - observed[few]["idle_cpu"]) / (int(many) - int(few))


def _costs(runs: Runs) -> list[Row]:
    def every(*path: str) -> Values:
        found: Values = []
        for run in runs:
            value: Any = run
            for key in path:
                value = value[key]
            found += value if isinstance(value, list) else [value]
        return found

    rows = []
    for name in runs[0]["capacity"]:
        turns = [
            pair for run in runs for pair in zip(*(run["capacity"][name][e] for e in ("ours", "plain")), strict=True)
        ]
        rates: Values = [ours["rate"] / plain["rate"] for ours, plain in turns]
        rows.append(Row(f"rows/s / plain Spark's, queries *{name}*", "1", rates, at_least=REACH))
    rows += [
        Row("turn of a shedder to the first row under it", "at once", every("dial", "dial_ms"), " ms", at_most=250),
        Row("cycle's start to the first row under its plan", "", every("dial", "cycle_ms"), " ms", at_most=1000),
        Row("gap in the output at a move", "", every("move", "without_a_row_s"), " s", at_most=3),
        Row("start of a task manager until it is warm", "", every("start_s"), " s", at_most=60),
    ]
    for count in runs[0]["observe"]:
        values = every("observe", count, "observe_ms")
        rows.append(Row("observing instances", "", values, " ms", at_most=1000.0, of=count, why=OBSERVED))
    idle: Values = [idle_each(run["observe"]) for run in runs]
    rows.append(Row("CPU of an instance without input", "", idle, " % of a core"))
    rows += [Row(f"memory: {part}", "", every("memory_mib", part), " MiB") for part in runs[0]["memory_mib"]]
    return rows


def _capacities(runs: Runs) -> Table:
    found: Table = []
    for name, engines in runs[0]["capacity"].items():
        for engine in engines:
            drains = [drain for run in runs for drain in run["capacity"][name][engine]]
            costs = [cost for cost in map(spent, drains) if cost is not None]
            parts = [round(median(part), 1) for part in zip(*costs, strict=True)] or [None] * 3
            keys = ("sources' tasks", "queries' tasks", "outside tasks")
            told = {f"{key}, us/row": part for key, part in zip(keys, parts, strict=True)}
            rate = middle([drain["rate"] for drain in drains], 0)
            found.append({"queries": name, "engine": engine, "rows/s": rate, **told})
    return found


SECTIONS = {
    "against-plain": Section(
        "Beside plain Spark",
        "six recipes on one core, ours without options, loads up to 12 times plain Spark's capacity",
        _against_plain,
        _staircases,
        ("least accuracy", "age of rows", "CPU /", "recovery"),
    ),
    "engines": Section(
        "Scenario 4: other engines",
        "the same rows at 0.6, 1.5, 3 and 0.6 times what one core carries",
        _engines,
        _phases,
        ("backlog at 3x: Spark alone",),
    ),
    "goodput-live": Section(
        "Goodput by priority",
        "two equal queries of priority 2 and 1, from half to ten times what the core carries",
        _goodput,
        _goodputs,
        ("higher query",),
    ),
    "costs": Section(
        "Costs",
        "throughput when nothing is shed, delays, idle CPU and memory",
        _costs,
        _capacities,
        ("rows/s /", "gap in", "CPU of an instance"),
    ),
}
