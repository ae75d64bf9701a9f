"""The section of EVALUATION.md that compares ours with plain Spark, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.staircase import BACK

FITS = 0.9  #: of plain Spark's capacity: up to there, nothing should be shed
AGE, CPU, BACKLOG, BACK_S = 1.2, 1.05, 2.0, 15.0  #: goals: / plain Spark's (age, CPU), periods, seconds
WHY_CPU = (
    "Both run one batch after the other. Where ours are shorter, results are younger (see their age under the same "
    "load), and the fixed cost of a batch counts more often."
)
DOES: Mapping[str, str] = {
    "light": "a filter and three columns",
    "heavy": "the nearest of 263 stands",
    "totals": "count and two sums per ten seconds and zone",
    "percentiles": "count, sum and a percentile per ten seconds and 60 names",
    "dedup": "duplicates dropped within a watermark",
    "join": "two topics, equal keys within five seconds",
}


def against_plain_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table of the recipes measured."""
    names = list(dict.fromkeys(name for run in runs for name in run["recipes"]))
    lines = [
        "Ours by default beside plain Spark",
        "The same recipe, in turns, on the same task manager of one core: ours without options (priority 1, minimum "
        "accuracy 0.05), and plain Spark, which reads and parses the topic itself in back-to-back micro-batches, with "
        "the defaults of Spark's Kafka source but for the `maxOffsetsPerTrigger` (none, or 2 s or 5 s of its capacity) "
        "that gives the lowest age of rows at 0.9x. 1x is plain Spark's capacity under a saturating load, measured "
        "until it rises no more; ours is then warmed up under that load for as long, so that the JVM has compiled the "
        "code of both. Each load lasts six periods at full length, the last one at any; figures are from its fourth "
        "period on. Ours runs through all loads without a restart, then back to 0.6x. Plain Spark drops nothing and "
        "would not recover: "
        "after each load above 1x it restarts from the newest rows.",
        "",
        "*Accuracy*: rows kept / rows read, and *worst* that of the worst cycle; *work*: rows/s kept / plain Spark's "
        "capacity; *age*: median age of rows, when a row's result is written (stateless recipes) or when its batch "
        "ends (stateful ones); *backlog*, in periods of input: plain Spark's at the end of the load, ours in the worst "
        "cycle; *CPU*: that of the task manager's processes, and ours / plain Spark's.",
        "",
        *_bullets(names, runs),
        "",
        *(f"{name} was not measured: {why}.\n" for run in runs for name, why in run["left_out"].items()),
        "| recipe | load | accuracy | worst | work | age, s | plain | backlog | plain | CPU, % | / plain |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        for load, _ in _loads(runs, name):
            lines.append(f"| {name} | {load} | {' | '.join(_cells(runs, name, load))} |")
    return "\n".join(lines), [row for name in names for row in _rows(runs, name)]


def _of(runs: Sequence[Figures], name: str) -> list[Figures]:
    return [run["recipes"][name] for run in runs if name in run["recipes"]]


def _loads(runs: Sequence[Figures], name: str) -> list[tuple[str, float]]:
    """The loads of all runs of a recipe, the load to which they come back last, and their multiples."""
    found = {load: f["times"] for each in _of(runs, name) for load, f in each["ours"]["loads"].items()}
    return sorted(found.items(), key=lambda item: (item[0] == BACK, item[1]))


def _bullets(names: Sequence[str], runs: Sequence[Figures]) -> list[str]:
    """The recipes, plain Spark's capacity and bound with each, and the mode of ours."""
    said = []
    for name in names:
        each = _of(runs, name)
        carries = median(figures["plain"]["rows_s"] for figures in each)
        bounds = " or ".join(
            dict.fromkeys(
                "without a bound" if figures["plain"]["bound"] is None else f"up to {figures['plain']['bound']:,} rows"
                for figures in each
            )
        )
        modes = " or ".join(dict.fromkeys(str(figures["ours"]["mode"]) for figures in each))
        said.append(
            f"- *{name}*: {DOES.get(name, name)}. Plain Spark's capacity is {carries:,.0f} rows/s, best in "
            f"batches {bounds}; ours runs in {modes} mode."
        )
    return said


def _cells(runs: Sequence[Figures], name: str, load: str) -> list[str]:
    def shown(engine: str, key: str, form: str = ".2f") -> str:
        known = [value for value in _values(runs, name, engine, load, key) if value is not None]
        return f"{median(known):{form}}" if known else ""

    work = _known(_each(runs, name, load, lambda figures, ours, _: ours["kept_rows_s"] / figures["plain"]["rows_s"]))
    cpu = _known(_by_plain(runs, name, load, "cpu"))
    return [
        shown("ours", "accuracy", ".3f"),
        shown("ours", "worst_accuracy", ".3f"),
        f"{median(work):.2f}" if work else "",
        shown("ours", "age_s"),
        shown("plain", "age_s"),
        shown("ours", "backlog_periods"),
        shown("plain", "backlog_periods"),
        shown("ours", "cpu", ".0f"),
        f"{median(cpu):.2f}" if cpu else "",
    ]


def _rows(runs: Sequence[Figures], name: str) -> list[Row]:
    """The rows with a goal."""
    loads = _loads(runs, name)
    fit = [load for load, times in loads if load != BACK and times <= FITS]
    beyond = [load for load, times in loads if load != BACK and times > 1]
    rows = []
    if fit:
        up_to = f"up to {FITS:g}x"
        kept = _over(runs, name, fit, lambda load: _values(runs, name, "ours", load, "accuracy"), min)
        worst = _over(runs, name, fit, lambda load: _values(runs, name, "ours", load, "worst_accuracy"), min)
        age = _over(runs, name, fit, lambda load: _by_plain(runs, name, load, "age_s"), max)
        cpu = _over(runs, name, fit, lambda load: _by_plain(runs, name, load, "cpu"), max)
        rows += [
            Row(f"least accuracy {up_to}", "1", kept, at_least=1.0, of=name),
            Row(f"least accuracy of any cycle {up_to}", "1", worst, at_least=1.0, of=name),
            Row(f"median age of rows / plain Spark's, {up_to}", "1", age, at_most=AGE, of=name),
            Row(f"CPU / plain Spark's, {up_to}", "1", cpu, at_most=CPU, of=name, why=WHY_CPU),
        ]
    if beyond:
        backlog = _over(runs, name, beyond, lambda load: _values(runs, name, "ours", load, "backlog_periods"), max)
        what = f"backlog from {BACK_S:g} s after a step beyond 1x, periods"
        rows.append(Row(what, "grows", backlog, at_most=BACKLOG, of=name))
    if any(load == BACK for load, _ in loads):
        back: list[float | None] = [each["ours"]["back_s"] for each in _of(runs, name)]
        rows.append(Row("recovery from the highest load to accuracy 1", "", back, " s", at_most=BACK_S, of=name))
    return rows


def _values(runs: Sequence[Figures], name: str, engine: str, load: str, key: str) -> list[float | None]:
    """One figure of an engine under a load, per run of the recipe; None where a run lacks it."""
    return [
        (each[engine]["loads"] if engine == "ours" else each["plain"]["loads"]).get(load, {}).get(key)
        for each in _of(runs, name)
    ]


def _each(
    runs: Sequence[Figures], name: str, load: str, of: Callable[[Figures, Any, Any], float | None]
) -> list[float | None]:
    """`of` of each run: its figures, and those of ours and of plain Spark under a load; None without those of ours."""
    return [
        of(each, ours, each["plain"]["loads"].get(load, {})) if (ours := each["ours"]["loads"].get(load)) else None
        for each in _of(runs, name)
    ]


def _by_plain(runs: Sequence[Figures], name: str, load: str, key: str) -> list[float | None]:
    """Ours / plain Spark's."""

    def ratio(_: Figures, ours: Any, plain: Any) -> float | None:
        return ours[key] / plain[key] if ours.get(key) is not None and plain.get(key) else None

    return _each(runs, name, load, ratio)


def _over(
    runs: Sequence[Figures],
    name: str,
    loads: Sequence[str],
    values: Callable[[str], list[float | None]],
    pick: Callable[[list[float]], float],
) -> list[float | None]:
    """The least or the most over the loads that a run had, per run; None where one of them has no value, so that no gap
    is hidden. The highest loads differ by run: they are what the injector can send."""
    found: list[float | None] = []
    for each, of_run in zip(_of(runs, name), zip(*(values(load) for load in loads), strict=True), strict=True):
        own = [value for load, value in zip(loads, of_run, strict=True) if load in each["ours"]["loads"]]
        known = _known(own)
        found.append(pick(known) if known and len(known) == len(own) else None)
    return found


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
