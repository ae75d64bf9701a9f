"""Charts of a recording as SVG, beside the figures that were read from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from qod_magics.recordings.reading import load
from qod_magics.reports import charts
from qod_widgets.colours import GREY, INK, MUTED, task_colours

#: What the thesis' figures 5.2 to 5.4 show.
SHOWN = {"accuracy": charts.accuracy_chart, "cpu": charts.cpu_chart, "lag": charts.lag_chart}

#: A logarithmic axis with a line for each power of ten.
POWERS = alt.Axis(values=[10.0**power for power in range(-3, 8)], format=",~g")


def draw(recording: Path, where: Path, name: str) -> None:
    """Write `name`-accuracy.svg and the like into a directory; nothing where there is no recording."""
    if not recording.exists():
        return
    records = load(recording)
    for what, chart in SHOWN.items():
        (where / f"{name}-{what}.svg").write_text(charts.svg(chart(records)), "utf-8")


def draw_goodput(figures: Mapping[str, Any], path: Path) -> None:
    """Rows/s processed by each query over the offered load, a panel per policy."""
    rows = [
        {"times": float(times), "query": query, "rows": rate, "policy": policy}
        for policy, by_times in figures["policies"].items()
        for times, rates in by_times.items()
        for query, rate in rates.items()
    ]
    queries = list(dict.fromkeys(row["query"] for row in rows))
    colours = {**task_colours(queries), "alone": GREY}
    line = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("times:Q", title="offered load / capacity of the core", scale=alt.Scale(type="log")),
            y=alt.Y("rows:Q", title="processed, rows/s"),
            color=alt.Color(
                "query:N",
                title="query",
                sort=queries,
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            ),
        )
        .properties(width=210, height=180)
        .facet(alt.Facet("policy:N", title=None, sort=list(figures["policies"])), columns=3)
    )
    path.write_text(charts.svg(line), "utf-8")


def draw_goodput_live(figures: Mapping[str, Any], path: Path) -> None:
    """Rows/s processed by each of the two queries, and by the higher one alone, over the offered load."""
    told = {"higher": "priority 2", "lower": "priority 1", "alone": "priority 2, alone"}
    rows = [
        {"times": each["times"], "query": name, "rows": each[key]}
        for each in figures["loads"].values()
        for key, name in told.items()
    ]
    colours = {**task_colours([told["higher"], told["lower"]]), told["alone"]: GREY}
    line = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "times:Q",
                title="offered load / capacity of the core for both",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(values=sorted({row["times"] for row in rows})),
            ),
            y=alt.Y("rows:Q", title="processed, rows/s"),
            color=alt.Color(
                "query:N",
                title=None,
                sort=list(colours),
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            ),
        )
        .properties(width=charts.WIDTH, height=220)
    )
    path.write_text(charts.svg(line), "utf-8")


def draw_engines(figures: Mapping[str, Any], path: Path) -> None:
    """All engines over the course of the load: backlog, and age of TDSnk2's rows when they are counted."""
    courses = figures["courses"]
    colours = task_colours(list(courses))
    begins = next(iter(courses.values()))["phases"]
    names = pd.DataFrame([{"t": t, "phase": name} for name, t in begins.items()])
    panels = {
        "backlog (rows)": [(name, t, max(rows, 1)) for name, each in courses.items() for t, rows in each["waiting"]],
        "age of TDSnk2's rows (s), median": [
            (name, t, age / 1000) for name, each in courses.items() for t, age in each["age_ms"]["TDSnk2"]
        ],
    }
    end = max(t for rows in panels.values() for _, t, _ in rows)
    charts_of = []
    for title, rows in panels.items():
        scale = alt.Scale(domain=[0, end], nice=False)
        x = alt.X("t:Q", title="time since the first phase began (s)", axis=alt.Axis(grid=False), scale=scale)
        line = (
            alt.Chart(pd.DataFrame(rows, columns=["engine", "t", "value"]))
            .mark_line(point=alt.OverlayMarkDef(size=12))
            .encode(
                x=x,
                y=alt.Y("value:Q", title=title, scale=alt.Scale(type="log"), axis=POWERS),
                color=alt.Color(
                    "engine:N",
                    title=None,
                    sort=list(colours),
                    scale=alt.Scale(domain=list(colours), range=list(colours.values())),
                    legend=alt.Legend(orient="top", columns=4),
                ),
            )
        )
        rule = alt.Chart(names).mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x="t:Q")
        label = (
            alt.Chart(names)
            .mark_text(color=INK, align="left", baseline="bottom", dx=2, dy=-3)
            .encode(x="t:Q", y=alt.value(0), text="phase:N")
        )
        charts_of.append((rule + line + label).properties(width=charts.WIDTH, height=220))
    path.write_text(charts.svg(alt.vconcat(*charts_of)), "utf-8")


def draw_growth(figures: Mapping[str, Any], path: Path) -> None:
    """CPU time of a decision and of a cycle over the number of tasks, both on logarithmic axes."""
    told = {"policy_ms": "policy", "cycle_ms": "cycle, policy included", "observing_ms": "observing (simulator)"}
    rows = [
        {"tasks": int(size), "what": name, "ms": value}
        for size, times in figures["by_tasks"].items()
        for key, name in told.items()
        for value in times[key]
    ]
    names = list(told.values())
    colours = task_colours(names)
    line = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("tasks:Q", title="tasks", scale=alt.Scale(type="log"), axis=POWERS),
            y=alt.Y("median(ms):Q", title="CPU time, ms", scale=alt.Scale(type="log"), axis=POWERS),
            color=alt.Color(
                "what:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
            ),
        )
        .properties(width=charts.WIDTH, height=220)
    )
    path.write_text(charts.svg(line), "utf-8")
