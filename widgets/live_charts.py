"""The charts of the dashboard: Vega-Lite specifications over named data that the browser fills as cycles come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from qod_widgets.colours import GREY, edge_colours, task_colours
from qod_widgets.state import OTHER

WIDTH = 400  #: of a plotting area, px; the browser sets what there is room for
DASHES = {"measured": [1, 0], "planned": [6, 3], "minimum": [2, 2]}

Spec = dict[str, Any]


def specs(tasks: Sequence[str], edges: Sequence[str]) -> dict[str, Spec]:
    """By name: cpu, accuracy, throughput, lag, dropped. Each has one data set of its own name."""
    colours = {**task_colours(tasks), OTHER: GREY}
    lines = edge_colours(edges, tasks)
    arrows = {edge.replace(">", " → "): colour for edge, colour in lines.items()}
    made = {
        "cpu": _cpu(colours),
        "accuracy": _accuracy(colours),
        "throughput": _throughput(colours),
        "lag": _over_time("lag", "rows waiting", arrows, stacked=False),
        "dropped": _over_time("dropped", "rows dropped since the start", arrows, stacked=True),
    }
    return {name: _themeless(chart) for name, chart in made.items()}


def _cpu(colours: dict[str, str]) -> alt.FacetChart:
    base = alt.Chart().encode(x=_time())
    area = base.mark_area(interpolate="step-before").encode(
        y=alt.Y("cpu:Q", title="CPU, % of one core", stack="zero", axis=alt.Axis(tickCount=4)),
        color=_colour("task", colours),
        order="order:Q",
        tooltip=["manager:N", "task:N", alt.Tooltip("cpu:Q", format=".1f", title="CPU, %")],
    )
    limit = base.mark_line(strokeDash=[6, 3], strokeWidth=1.5).encode(
        y=alt.Y("max(capacity):Q"), color=alt.value("#d62728")
    )
    made: alt.FacetChart = (
        alt.layer(area, limit)
        .properties(width=WIDTH, height=110)
        .facet(row=alt.Row("manager:N", title=None, header=_header()), data=alt.NamedData("cpu"))
    )
    return made


def _accuracy(colours: dict[str, str]) -> alt.FacetChart:
    line = (
        alt.Chart()
        .mark_line(interpolate="step-before", strokeWidth=2, clip=True)
        .encode(
            x=_time(),
            y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1.02]), axis=alt.Axis(tickCount=5)),
            strokeDash=alt.StrokeDash(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=list(DASHES), range=list(DASHES.values())),
                legend=alt.Legend(orient="top", symbolSize=300),
            ),
            color=_colour("query", colours, legend=False),
            tooltip=["query:N", "kind:N", alt.Tooltip("accuracy:Q", format=".3f")],
        )
    )
    made: alt.FacetChart = line.properties(width=WIDTH, height=110).facet(
        row=alt.Row("query:N", title=None, header=_header()), data=alt.NamedData("accuracy")
    )
    return made


def _throughput(colours: dict[str, str]) -> alt.FacetChart:
    base = alt.Chart().encode(x=_time())
    y = alt.Y("rate:Q", title="rows/s", axis=alt.Axis(tickCount=4, format=",~s"))
    kind = alt.StrokeDash(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["arriving", "processed"], range=[[6, 3], [1, 0]]),
        legend=alt.Legend(orient="top", symbolSize=300),
    )
    line = base.mark_line(strokeWidth=2).encode(
        y=y,
        strokeDash=kind,
        color=_colour("source", colours, legend=False),
        tooltip=["source:N", "kind:N", alt.Tooltip("rate:Q", format=",.0f", title="rows/s")],
    )
    made: alt.FacetChart = line.properties(width=WIDTH, height=90).facet(
        row=alt.Row("source:N", title=None, header=_header()), data=alt.NamedData("throughput")
    )
    return made


def _over_time(data: str, title: str, colours: dict[str, str], stacked: bool) -> alt.Chart:
    chart = alt.Chart(alt.NamedData(data))
    mark = chart.mark_area(interpolate="step-before") if stacked else chart.mark_line(strokeWidth=2)
    y = alt.Y("rows:Q", title=title, axis=alt.Axis(tickCount=4, format=",~s"), stack="zero" if stacked else None)
    made: alt.Chart = mark.encode(
        x=_time(),
        y=y,
        color=_colour("edge", colours),
        tooltip=["edge:N", alt.Tooltip("rows:Q", format=",.0f")],
    ).properties(width=WIDTH, height=180)
    return made


def _time() -> alt.X:
    clock = "floor(datum.value / 60) + ':' + pad(floor(datum.value % 60), 2, '0', 'left')"
    axis = alt.Axis(title="time since the start, min:s", tickCount=6, labelExpr=clock, grid=False)
    return alt.X("t:Q", axis=axis, scale=alt.Scale(zero=False, nice=False))


def _header() -> alt.Header:
    return alt.Header(labelOrient="top", labelAnchor="start", labelFontWeight="bold", labelPadding=2)


def _colour(field: str, colours: dict[str, str], legend: bool = True) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(orient="top", columns=4, symbolType="square", labelLimit=120) if legend else None
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=shown)


def _themeless(chart: Any) -> Spec:
    """As JSON; colours of text and axes are the browser's, which knows the theme."""
    spec: Spec = chart.to_dict(validate=False)
    for key in ("config", "$schema"):
        spec.pop(key, None)
    return spec
