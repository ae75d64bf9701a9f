"""Static charts of a recording (the thesis' figure 5.2, and what it left out): records of a run -> Altair charts.

All charts share the time axis, the colour of each task, a strip on top that names phases and events, and 1,000 px of
width. `svg` renders them on this machine, without a browser or a network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import altair as alt
import pandas as pd
import vl_convert

from qod_magics.controller.record import Records
from qod_magics.recordings.frame import OTHER
from qod_magics.recordings.reading import seconds
from qod_magics.reports import tables
from qod_widgets.charts import ALARM, GREY, INK, MUTED, PHASE_BAND, edge_colours, task_colours

# --- Timeline ---------------------------------------------------------------------------------------------------------
# The time axis that all charts of a recording share: its unit, shaded phases, and the strip that labels events.

CHARACTER = 6.0  #: mean width of a character of 11 px, px
ROW = 15  #: height of a line of text in the strip, px
IN_SECONDS = 900  #: up to this length the axis counts seconds, beyond it minutes


Panel = alt.LayerChart | alt.FacetChart  #: what `alt.layer` makes; ours are always layers


class Timeline:
    """Scales seconds to the unit of the axis and draws what every panel has in common."""

    def __init__(self, records: Records, width: int) -> None:
        end = max(seconds(records)[-1], 1.0)
        self.width = width
        self.unit, self.factor = ("s", 1.0) if end <= IN_SECONDS else ("min", 1 / 60)
        self.end = end * self.factor
        self._bands = self.scaled(tables.phase_bands(records), "start", "end")
        self._events = self.scaled(tables.events(records))

    def __repr__(self) -> str:
        return f"time axis of {self.end:.1f} {self.unit}"

    def scaled(self, frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """Return the frame with its times (column `t`, or those named) in the unit of the axis."""
        return frame.assign(**{column: frame[column] * self.factor for column in columns or ("t",)})

    def x(self, field: str = "t") -> alt.X:
        """Return the time axis of a panel, unlabelled: the labels appear once, below all panels."""
        axis = alt.Axis(title=None, labels=False, ticks=False, grid=False)
        return alt.X(f"{field}:Q", axis=axis, scale=self._scale())

    def axis(self) -> alt.Chart:
        """Return the labelled time axis that goes below the panels."""
        axis = alt.Axis(title=f"time since the start ({self.unit})", grid=False, tickCount=12)
        ends = alt.Chart(pd.DataFrame({"t": [0.0, self.end]}), width=self.width, height=1).mark_point(opacity=0)
        chart: alt.Chart = ends.encode(x=alt.X("t:Q", axis=axis, scale=self._scale()))
        return chart

    def bands(self) -> list[alt.Chart]:
        """Return every other phase shaded; [] for a recording without phases."""
        shaded = self._bands.iloc[::2]
        if shaded.empty:
            return []
        return [alt.Chart(shaded).mark_rect(color=PHASE_BAND, opacity=0.05).encode(x=self.x("start"), x2="end:Q")]

    def rules(self) -> list[alt.Chart]:
        """Return a vertical line at each event."""
        if self._events.empty:
            return []
        rule = alt.Chart(self._events.drop_duplicates("t")).mark_rule(color=MUTED, strokeDash=[2, 3], strokeWidth=0.8)
        return [rule.encode(x=self.x())]

    def strip(self) -> Panel | None:
        """Return the names of the phases, with event labels below them; None when there are neither."""
        labels = self._labels()
        if self._bands.empty and labels.empty:
            return None
        rows = 1 + (int(labels["row"].max()) if len(labels) else 0)
        y = alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[-0.5, rows - 0.5], reverse=True))
        x = alt.X("t:Q", axis=None, scale=self._scale())
        layers: list[alt.Chart] = []
        if len(self._bands):
            names = self._phase_names()
            layers += [
                alt.Chart(self._bands.iloc[::2])
                .mark_rect(color=PHASE_BAND, opacity=0.05)
                .encode(x=alt.X("start:Q", axis=None, scale=self._scale()), x2="end:Q"),
                alt.Chart(names).mark_text(color=INK, fontSize=11, fontStyle="italic").encode(x=x, y=y, text="text:N"),
            ]
        if len(labels):
            rule = alt.Chart(labels).mark_rule(color=MUTED, strokeDash=[2, 3], strokeWidth=0.8)
            layers.append(rule.encode(x=x, y=y, y2=alt.value(rows * ROW)))
            sides: tuple[Literal["left", "right"], ...] = ("left", "right")
            for side, bad in product(sides, (False, True)):
                group = labels[(labels["align"] == side) & (labels["bad"] == bad)]
                if len(group):
                    text = alt.Chart(group).mark_text(
                        align=side, dx=3 if side == "left" else -3, fontSize=11, color=ALARM if bad else INK
                    )
                    layers.append(text.encode(x=x, y=y, text="label:N"))
        return alt.layer(*layers, width=self.width, height=rows * ROW)

    def _scale(self) -> alt.Scale:
        return alt.Scale(domain=[0, self.end], nice=False, zero=False)

    def _phase_names(self) -> pd.DataFrame:
        per_unit = self.width / self.end
        middle = (self._bands["start"] + self._bands["end"]) / 2
        room = (self._bands["end"] - self._bands["start"]) * per_unit
        text = [fitted(name, px) for name, px in zip(self._bands["phase"], room, strict=True)]
        return pd.DataFrame({"t": middle, "row": 0, "text": text})

    def _labels(self) -> pd.DataFrame:
        """Return the events, each with the strip row of its label and the label's side of the rule."""
        per_unit = self.width / self.end
        spans, aligned = [], []
        for t, label in zip(self._events["t"], self._events["label"], strict=True):
            left, length = t * per_unit, (len(label) + 1) * CHARACTER
            aligned.append("left" if left + length <= self.width else "right")
            spans.append((left, left + length) if aligned[-1] == "left" else (left - length, left))
        bad = self._events["kind"].isin(tables.ALARMING)
        first = 1 if len(self._bands) else 0
        rows = [first + lane for lane in lanes(spans)]
        return self._events.assign(row=rows, align=aligned, bad=bad)


def lanes(spans: Iterable[tuple[float, float]]) -> list[int]:
    """Return the lowest lane for each (left, right) so that no two of a lane overlap, in the order given."""
    taken: list[list[tuple[float, float]]] = []
    found = []
    for left, right in spans:
        lane = next(
            (n for n, others in enumerate(taken) if all(right <= a or left >= b for a, b in others)), len(taken)
        )
        if lane == len(taken):
            taken.append([])
        taken[lane].append((left, right))
        found.append(lane)
    return found


def fitted(text: str, room: float) -> str:
    """`text`, shortened with an ellipsis to `room` px; nothing where not even three characters fit."""
    characters = int(room / CHARACTER)
    if len(text) <= characters:
        return text
    return text[: characters - 1] + "…" if characters >= 4 else ""


Series = Sequence[tuple[float, float]]  #: (second, value)

#: Of the Vega-Lite that Altair writes, as vl-convert names it.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
WIDTH = 900  #: of the plotting area, px
AXIS = 52  #: room for the labels and the title of the y axis, px
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
#: Theme of all charts, passed at construction: `configure_...` and `properties` each copy the whole chart.
THEME = alt.Config(
    font=FONT,
    background="white",
    padding=6,
    view=alt.ViewConfig(stroke=None),
    axis=alt.AxisConfig(
        labelColor=MUTED,
        titleColor=INK,
        titleFontWeight="normal",
        gridColor="#e5e7eb",
        domainColor=MUTED,
        tickColor=MUTED,
        labelFontSize=10,
        titleFontSize=11,
    ),
    legend=alt.LegendConfig(orient="top", titleFontWeight="normal", titleColor=INK, labelColor=INK, labelFontSize=11),
    title=alt.TitleConfig(color=INK, fontWeight="bold"),
)

DASHES = {"solid": [1, 0], "dashed": [6, 3], "dotted": [2, 2]}


def cpu_chart(records: Records) -> alt.VConcatChart:
    """(a) CPU of each task manager over time, stacked by task, with its capacity."""
    timeline, names = Timeline(records, WIDTH), tables.tasks(records)
    used, capacity = timeline.scaled(tables.cpu(records)), timeline.scaled(tables.capacity(records))
    colours = {**task_colours(names), OTHER: GREY}
    panels = []
    for manager in dict.fromkeys(capacity["task_manager"]):
        stack, limit = used[used["task_manager"] == manager], capacity[capacity["task_manager"] == manager]
        stack = stack.assign(order=[list(colours).index(task) for task in stack["task"]])
        top = max(float(stack.groupby("t")["cpu"].sum().max()), float(limit["capacity"].max())) * 1.12
        area = (
            alt.Chart(stack)
            .mark_area(interpolate="step-before", opacity=0.9)
            .encode(
                x=timeline.x(),
                y=_y("cpu", "CPU (% of one core)", domain=[0, top], stack="zero"),
                color=_colour("task", colours),
                order="order:Q",
            )
        )
        line = alt.Chart(limit).mark_line(color=ALARM, strokeDash=DASHES["dashed"]).encode(timeline.x(), y="capacity:Q")
        label = (
            alt.Chart(limit.head(1))
            .mark_text(color=ALARM, align="left", baseline="bottom", dx=4, dy=-2, fontSize=10)
            .encode(x=timeline.x(), y="capacity:Q", text=alt.value(f"capacity {limit['capacity'].iloc[0]:g} %"))
        )
        panels.append(_panel(timeline, [area, line, label], str(manager), 120))
    return _stack(timeline, panels)


def accuracy_chart(records: Records) -> alt.VConcatChart:
    """(b) Accuracy of each query: measured, planned and minimum."""
    timeline = Timeline(records, WIDTH)
    values, colours = timeline.scaled(tables.accuracy(records)), task_colours(tables.tasks(records))
    kinds = {tables.MEASURED: "solid", tables.PLANNED: "dashed", tables.MINIMUM: "dotted"}
    panels = []
    for query in dict.fromkeys(values["query"]):
        paint = {tables.MEASURED: colours[query], tables.PLANNED: INK, tables.MINIMUM: ALARM}
        y = _y("accuracy", "accuracy", domain=[0, 1.05], ticks=6)
        layers = _kinds(timeline, values[values["query"] == query], y, kinds, paint, steps=(tables.PLANNED,))
        panels.append(_panel(timeline, layers, str(query), 110))
    return _stack(timeline, panels)


def latency_chart(records: Records) -> alt.VConcatChart:
    """Latency of each query: the 95th percentile, and the target."""
    timeline = Timeline(records, WIDTH)
    values, colours = timeline.scaled(tables.latency(records)), task_colours(tables.tasks(records))
    kinds = {tables.LATENCY: "solid", tables.TARGET: "dashed"}
    panels = []
    for query in dict.fromkeys(values["query"]):
        mine = values[values["query"] == query]
        paint = {tables.LATENCY: colours[query], tables.TARGET: ALARM}
        y = _y("seconds", "seconds", domain=[0, max(float(mine["seconds"].max()) * 1.08, 0.1)])
        panels.append(_panel(timeline, _kinds(timeline, mine, y, kinds, paint, steps=(tables.TARGET,)), str(query), 90))
    return _stack(timeline, panels)


def throughput_chart(records: Records) -> alt.VConcatChart:
    """(c) Rows arriving at, read from and processed by each source; what is read and not processed was dropped."""
    timeline = Timeline(records, WIDTH)
    values, colours = timeline.scaled(tables.throughput(records)), task_colours(tables.tasks(records))
    kinds = {tables.ARRIVING: "dashed", tables.READ: "dotted", tables.PROCESSED: "solid"}
    panels = []
    for source in dict.fromkeys(values["source"]):
        mine = values[values["source"] == source]
        paint = {tables.ARRIVING: INK, tables.READ: MUTED, tables.PROCESSED: colours[source]}
        y = _y("rate", "rows/s", domain=[0, max(float(mine["rate"].max()) * 1.08, 1.0)])
        area = (
            alt.Chart(mine[mine["kind"] == tables.PROCESSED])
            .mark_area(color=colours[source], opacity=0.25)
            .encode(x=timeline.x(), y=y)
        )
        panels.append(_panel(timeline, [area, *_kinds(timeline, mine, y, kinds, paint)], str(source), 110))
    return _stack(timeline, panels)


def lag_chart(records: Records) -> alt.VConcatChart:
    """(d) Lag of each source and stream, with the bound of 2 periods of its input."""
    timeline = Timeline(records, WIDTH)
    names, values = tables.edges(records), timeline.scaled(tables.lag(records))
    colours = edge_colours(names, tables.tasks(records))
    bound = "2 periods of input"
    panels = []
    for edge in names:
        mine = values[values["edge"] == edge]
        if mine.empty:
            continue
        tidy = mine.melt(id_vars=["t", "edge"], value_vars=["lag", "bound"], var_name="kind", value_name="rows")
        tidy = tidy.replace({"kind": {"bound": bound}}).dropna()
        y = _y("rows", "rows", domain=[0, max(float(tidy["rows"].max()) * 1.08, 1.0)], ticks=3)
        area = alt.Chart(mine).mark_area(color=colours[edge], opacity=0.25).encode(x=timeline.x(), y=alt.Y("lag:Q"))
        kinds, paint = {"lag": "solid", bound: "dashed"}, {"lag": colours[edge], bound: ALARM}
        layers = [*_kinds(timeline, tidy, y, kinds, paint), area]
        panels.append(_panel(timeline, layers, arrow(edge), 64))
    return _stack(timeline, panels)


def dropped_chart(records: Records) -> alt.VConcatChart:
    """(e) Rows dropped since the start, stacked by source and stream."""
    timeline, names = Timeline(records, WIDTH), tables.edges(records)
    values = timeline.scaled(tables.dropped(records))
    colours = {arrow(edge): colour for edge, colour in edge_colours(names, tables.tasks(records)).items()}
    values = values.assign(edge=[arrow(edge) for edge in values["edge"]])
    values = values.assign(order=[list(colours).index(edge) for edge in values["edge"]])
    area = (
        alt.Chart(values)
        .mark_area(opacity=0.9)
        .encode(
            x=timeline.x(),
            y=_y("rows", "rows dropped", stack="zero"),
            color=_colour("edge", colours),
            order="order:Q",
        )
    )
    return _stack(timeline, [_panel(timeline, [area], "", 200)])


def comparison_chart(run: Records, off: Records) -> alt.LayerChart:
    """Lag of the same overload with the controller on and off, on the same axes."""
    values = tables.comparison(run, off)
    ends = values.sort_values("t").groupby("controller", as_index=False).tail(1)
    paint = alt.Scale(domain=["off", "on"], range=[ALARM, task_colours(["on"])["on"]])
    x = alt.X("t:Q", title="time since the overload began (s)", axis=alt.Axis(grid=False), scale=alt.Scale(nice=False))
    y = _y("lag", "lag, all sources and streams (rows)")
    colour = alt.Color("controller:N", title="controller", scale=paint)
    line = alt.Chart(values).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    label = (
        alt.Chart(ends.assign(text=[f"{lag:,} rows" for lag in ends["lag"]]))
        .mark_text(align="right", baseline="bottom", dy=-5, fontSize=11, fontWeight="bold")
        .encode(x=x, y=y, color=colour, text="text:N")
    )
    return alt.LayerChart(layer=[line, label], width=WIDTH, height=260, config=THEME)


def overlay_chart(
    records: Records, panels: Mapping[str, Mapping[str, Series]], title: str, top: float | None = None
) -> alt.VConcatChart:
    """Two runs overlaid. `panels`: (second, value) pairs by panel and kind of line ("live", "simulated", ...), in
    seconds since the first of `records`, whose phases and events are shown. `top`: upper end of the y axis."""
    timeline = Timeline(records, WIDTH)
    shown = []
    for name, kinds in panels.items():
        rows = [(t, kind, value) for kind, series in kinds.items() for t, value in series]
        values = timeline.scaled(pd.DataFrame(rows, columns=["t", "kind", "value"]))
        values = values[(values["t"] >= 0) & (values["t"] <= timeline.end)]
        highest = top if top is not None else max(float(values["value"].max()) * 1.08, 1.0) if len(values) else 1.0
        y = _y("value", title, domain=[0, highest])
        styles = dict(zip(kinds, DASHES, strict=False))
        paint = dict(zip(kinds, (INK, ALARM, MUTED), strict=False))
        shown.append(_panel(timeline, _kinds(timeline, values, y, styles, paint), arrow(name), 90))
    return _stack(timeline, shown)


def svg(chart: alt.TopLevelMixin) -> str:
    """Return the chart as SVG text."""
    text: str = vl_convert.vegalite_to_svg(_spec(chart), vl_version=VEGA_LITE)
    return text


def arrow(edge: str) -> str:
    """Display name of a source or stream: "from → to"."""
    return edge.replace(">", " → ")


def _spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the chart as Vega-Lite, with all of its rows: Altair's limit is 5,000, and an hour of recording has more.
    Not validated once more: that takes longer than drawing, and Altair validates each part when it is made."""
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def _kinds(
    timeline: Timeline,
    values: pd.DataFrame,
    y: alt.Y,
    kinds: Mapping[str, str],
    paint: Mapping[str, str],
    steps: Collection[str] = (),
) -> list[alt.Chart]:
    """Return a line for each kind of value: dashes tell the kinds apart (and make the legend), colours the tasks."""
    dash = alt.StrokeDash(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=list(kinds), range=[DASHES[style] for style in kinds.values()]),
        legend=alt.Legend(symbolStrokeColor=INK, symbolSize=500, symbolStrokeWidth=1.6),
    )
    return [
        alt.Chart(values[values["kind"] == kind])
        .mark_line(
            color=paint[kind],
            strokeWidth=2 if style == "solid" else 1.3,
            interpolate="step-after" if kind in steps else "linear",
        )
        .encode(x=timeline.x(), y=y, strokeDash=dash)
        for kind, style in kinds.items()
        if (values["kind"] == kind).any()
    ]


def _y(field: str, title: str, domain: list[float] | None = None, ticks: int = 4, **options: Any) -> alt.Y:
    axis = alt.Axis(title=title, tickCount=ticks, minExtent=AXIS, maxExtent=AXIS, format=",~f")
    scale = alt.Scale(domain=domain, nice=False) if domain else alt.Scale(zero=True)
    return alt.Y(f"{field}:Q", axis=axis, scale=scale, **options)


def _colour(field: str, colours: Mapping[str, str]) -> alt.Color:
    return alt.Color(f"{field}:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values())))


def _panel(timeline: Timeline, layers: Sequence[alt.Chart], title: str, height: int) -> Panel:
    text = {"title": alt.Title(title, anchor="start", frame="group", fontSize=12, offset=4)} if title else {}
    return alt.layer(*timeline.bands(), *layers, *timeline.rules(), width=WIDTH, height=height, **text)


def _stack(timeline: Timeline, panels: Sequence[Panel]) -> alt.VConcatChart:
    """Return the strip of phases and events, the panels, and the time axis."""
    strip = timeline.strip()
    return alt.vconcat(*([strip] if strip is not None else []), *panels, timeline.axis(), spacing=8, config=THEME)
