"""The part of EVALUATION.md that sets ours beside plain Spark, written from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.staircase import BACK

FITS = 0.9  #: of what plain Spark carries: nothing is to be shed up to that
AGE, CPU, BACKLOG, BACK_S = 1.2, 1.05, 2.0, 15.0  #: goals: by plain Spark's, by plain Spark's, periods, seconds
DOES: Mapping[str, str] = {
    "light": "a filter and three columns",
    "heavy": "the nearest of 263 stands",
    "totals": "count and two sums by ten seconds and zone",
    "percentiles": "count, sum and a percentile by ten seconds and 60 names",
    "dedup": "duplicates dropped within a watermark",
    "join": "two topics, equal keys within five seconds",
}


def against_plain_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table, of the recipes that there are figures of."""
    names = list(dict.fromkeys(name for run in runs for name in run["recipes"]))
    lines = [
        "Ours by default beside plain Spark",
        "One query by ours without any option (priority 1, minimum accuracy 0.05) and by plain Spark, which reads and "
        "parses the topic itself, in micro-batches one after the other under the `maxOffsetsPerTrigger` (none, 2 s or "
        "5 s of what it carries) under which its rows are youngest at 0.9x. Both run the same recipe on the same task "
        "manager of one core, in turns; 1x is what plain Spark carries under a saturating load, measured first. Ours "
        "is under that load for as long beforehand, so that the JVM has compiled the code of both. Each load lasts six "
        "periods at full length; what is told is from its fourth period on. Ours goes through all of them in one go, "
        "and back to 0.6x after the highest. Plain Spark drops nothing and would not recover: after each load above "
        "1x it starts anew from the newest rows.",
        "",
        "*Accuracy* is rows kept by rows read, and that of the worst cycle; *work* rows/s kept by what plain Spark "
        "carries; *age* the median age of rows: of recipes without state when the result of a row is written, of the "
        "others when the batch that read it ends. Plain Spark's *backlog* is at the end of the load, ours the worst of "
        "any cycle, both in periods of input; *CPU* that of the task manager's processes, ours by plain Spark's.",
        "",
        *_bullets(names, runs),
        "",
        *(f"{name} was not measured: {why}.\n" for run in runs for name, why in run["left_out"].items()),
        "| recipe | load | accuracy | worst | work | age, s | plain's | backlog | plain's | CPU, % | by plain's |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        for load in dict.fromkeys(load for each in _of(runs, name) for load in each["ours"]["loads"]):
            lines.append(f"| {name} | {load} | {' | '.join(_cells(runs, name, load))} |")
    return "\n".join(lines), [row for name in names for row in _rows(runs, name)]


def _of(runs: Sequence[Figures], name: str) -> list[Figures]:
    return [run["recipes"][name] for run in runs if name in run["recipes"]]


def _bullets(names: Sequence[str], runs: Sequence[Figures]) -> list[str]:
    """What each recipe is, what plain Spark carries of it, and how."""
    said = []
    for name in names:
        each = _of(runs, name)
        carries = median(figures["plain"]["rows_s"] for figures in each)
        bounds = ", ".join(
            dict.fromkeys(
                "without a bound" if figures["plain"]["bound"] is None else f"under {figures['plain']['bound']:,} rows"
                for figures in each
            )
        )
        modes = " or ".join(dict.fromkeys(str(figures["ours"]["mode"]) for figures in each))
        said.append(
            f"- *{name}*: {DOES.get(name, name)}. Plain Spark carries {carries:,.0f} rows/s, best {bounds}; ours runs "
            f"in {modes} mode."
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
    """The goals."""
    loads = dict.fromkeys((load, f["times"]) for each in _of(runs, name) for load, f in each["ours"]["loads"].items())
    fit = [load for load, times in loads if load != BACK and times <= FITS]
    beyond = [load for load, times in loads if load != BACK and times > 1]
    rows = []
    if fit:
        up_to = f"up to {FITS:g}x"
        kept = _over(fit, lambda load: _values(runs, name, "ours", load, "accuracy"), min)
        worst = _over(fit, lambda load: _values(runs, name, "ours", load, "worst_accuracy"), min)
        age = _over(fit, lambda load: _by_plain(runs, name, load, "age_s"), max)
        cpu = _over(fit, lambda load: _by_plain(runs, name, load, "cpu"), max)
        rows += [
            Row(f"least accuracy {up_to}", "1", kept, at_least=1.0, of=name),
            Row(f"least accuracy of any cycle {up_to}", "1", worst, at_least=1.0, of=name),
            Row(f"median age of rows {up_to}, by plain Spark's", "1", age, at_most=AGE, of=name),
            Row(f"CPU {up_to}, by plain Spark's", "1", cpu, at_most=CPU, of=name),
        ]
    if beyond:
        backlog = _over(beyond, lambda load: _values(runs, name, "ours", load, "backlog_periods"), max)
        what = f"backlog from {BACK_S:g} s after a step beyond 1x, periods"
        rows.append(Row(what, "grows", backlog, at_most=BACKLOG, of=name))
    if any(load == BACK for load, _ in loads):
        back: list[float | None] = [each["ours"]["back_s"] for each in _of(runs, name)]
        rows.append(Row("back from the highest load until accuracy is 1", "", back, " s", at_most=BACK_S, of=name))
    return rows


def _values(runs: Sequence[Figures], name: str, engine: str, load: str, key: str) -> list[float | None]:
    """One figure of an engine under a load, of each run of the recipe; None where a run has it not."""
    return [
        (each[engine]["loads"] if engine == "ours" else each["plain"]["loads"]).get(load, {}).get(key)
        for each in _of(runs, name)
    ]


def _each(
    runs: Sequence[Figures], name: str, load: str, of: Callable[[Figures, Any, Any], float | None]
) -> list[float | None]:
    """Of each run, from its figures and those of both engines under a load; None where an engine has none."""
    return [
        of(each, ours, each["plain"]["loads"].get(load, {})) if (ours := each["ours"]["loads"].get(load)) else None
        for each in _of(runs, name)
    ]


def _by_plain(runs: Sequence[Figures], name: str, load: str, key: str) -> list[float | None]:
    """Ours by plain Spark's."""

    def ratio(_: Figures, ours: Any, plain: Any) -> float | None:
        return ours[key] / plain[key] if ours.get(key) is not None and plain.get(key) else None

    return _each(runs, name, load, ratio)


def _over(
    loads: Sequence[str], values: Callable[[str], list[float | None]], pick: Callable[[list[float]], float]
) -> list[float | None]:
    """Of each run, the least or the most over the loads; None where a load has no value: nothing hides it."""
    return [
        None if any(value is None for value in each) else pick(_known(each))
        for each in zip(*(values(load) for load in loads), strict=True)
    ]


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
