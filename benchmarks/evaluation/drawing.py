"""Charts of the evaluation as SVG: from stored figures, and of a recording's accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.spark_rows import SECTIONS
from qod_magics.recordings.reading import load
from qod_magics.reports import charts
from qod_widgets.charts import GREY, INK, MUTED, task_colours

#: A logarithmic axis with a line for each power of ten.
POWERS = alt.Axis(values=[10.0**power for power in range(-3, 8)], format=",~g")


def draw_recording(recording: Path, path: Path) -> None:
    """Draw the accuracies of a recording."""
    path.write_text(charts.svg(charts.accuracy_chart(load(recording))), "utf-8")


def draw(found: Mapping[str, Figures], results: Path) -> None:
    """Draw the charts that the stored figures suffice for."""
    if "against-plain" in found:
        _save(against_plain(found["against-plain"]["runs"]), results / "against-plain-age.svg")
    if "goodput-live" in found:
        _save(goodput(found["goodput-live"]["runs"][-1]), results / "goodput-live-rows.svg")
    if "engines" in found:
        _save(engines(found["engines"]["runs"][-1]), results / "engines-compared.svg")


def _save(chart: Any, path: Path) -> None:
    path.write_text(charts.svg(chart), "utf-8")


def _coloured(field: str, colours: Mapping[str, str], **options: Any) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N", title=None, sort=list(colours), scale=scale, **options)


def against_plain(runs: Sequence[Figures]) -> Any:
    """Age of rows of ours and of plain Spark over the load, a panel per recipe."""
    named = {"age, s": "ours", "plain Spark's age, s": "plain Spark"}
    rows = [
        {"recipe": line["recipe"], "times": line["times"], "engine": engine, "age": max(line[key], 0.001)}
        for line in SECTIONS["against-plain"].table(runs)
        for key, engine in named.items()
        if line["load"] != "back" and line[key] is not None
    ]
    colours = {**task_colours(["ours"]), "plain Spark": GREY}
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("times:Q", title="load / plain Spark's capacity", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("age:Q", title="age of rows, s", scale=alt.Scale(type="log"), axis=POWERS),
            color=_coloured("engine", colours, legend=alt.Legend(orient="top")),
        )
        .properties(width=190, height=120)
        .facet(alt.Facet("recipe:N", title=None, sort=list(dict.fromkeys(row["recipe"] for row in rows))), columns=3)
    )


def goodput(figures: Figures) -> Any:
    """Rows/s processed by each of the two queries, and by the higher one alone, over the offered load."""
    named = {"higher": "priority 2", "lower": "priority 1", "alone": "priority 2, alone"}
    rows = [
        {"times": each["times"], "query": name, "rows": each[key]}
        for each in figures["loads"].values()
        for key, name in named.items()
    ]
    colours = {**task_colours([named["higher"], named["lower"]]), named["alone"]: GREY}
    x = alt.X(
        "times:Q",
        title="offered load / capacity of the core for both",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=sorted({row["times"] for row in rows})),
    )
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(x=x, y=alt.Y("rows:Q", title="processed, rows/s"), color=_coloured("query", colours))
        .properties(width=charts.WIDTH, height=180)
    )


def engines(figures: Figures) -> Any:
    """Backlog, and age of TDSnk2's rows when they are counted, of all engines over the course of the load."""
    courses = figures["courses"]
    colours = task_colours(list(courses))
    names = pd.DataFrame([{"t": t, "phase": name} for name, t in next(iter(courses.values()))["phases"].items()])
    panels = {
        "backlog, rows": [(name, t, max(rows, 1)) for name, each in courses.items() for t, rows in each["waiting"]],
        "age of TDSnk2's rows, s": [
            (name, t, age / 1000) for name, each in courses.items() for t, age in each["age_ms"]["TDSnk2"]
        ],
    }
    end = max(t for rows in panels.values() for _, t, _ in rows)
    x = alt.X(
        "t:Q",
        title="time since the first phase began, s",
        axis=alt.Axis(grid=False),
        scale=alt.Scale(domain=[0, end], nice=False),
    )
    rule = alt.Chart(names).mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x="t:Q")
    label = (
        alt.Chart(names)
        .mark_text(color=INK, align="left", baseline="bottom", dx=2, dy=-3)
        .encode(x="t:Q", y=alt.value(0), text="phase:N")
    )
    lines = [
        alt.Chart(pd.DataFrame(rows, columns=["engine", "t", "value"]))
        .mark_line(point=alt.OverlayMarkDef(size=12))
        .encode(
            x=x,
            y=alt.Y("value:Q", title=title, scale=alt.Scale(type="log"), axis=POWERS),
            color=_coloured("engine", colours, legend=alt.Legend(orient="top", columns=4)),
        )
        for title, rows in panels.items()
    ]
    return alt.vconcat(*((rule + line + label).properties(width=charts.WIDTH, height=180) for line in lines))
