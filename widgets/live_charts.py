"""The charts of the dashboard: Vega-Lite specifications over named data that the browser fills as cycles come in.

They are written as JSON, not with Altair: importing it takes longer than all else before the first chart is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_widgets.colours import edge_colours, task_colours
from qod_widgets.encodings import Spec, colour, number, words

WIDTH = 400  #: of a plotting area, px; the browser sets the width that fits
OTHER = "other processes"  #: their name in the frames
OTHERS = "rgba(140, 148, 158, 0.5)"  #: other processes: visible on any background, but subdued
LIMIT = "#d1373b"
ACCURACIES = {"measured": [1, 0], "planned": [6, 3], "minimum": [2, 2]}
LATENCIES = {"95 % of the rows": [1, 0], "target": [6, 3]}
RATES = {"arriving": [6, 3], "processed": [1, 0]}


def specs(tasks: Sequence[str], edges: Sequence[str]) -> dict[str, Spec]:
    """By name: cpu, accuracy, latency, throughput, lag, dropped. Each has one data set of its own name.

    Colours of text and axes are the browser's, which knows the theme.
    """
    colours = {**task_colours(tasks), OTHER: OTHERS}
    arrows = {edge.replace(">", " → "): colour for edge, colour in edge_colours(edges, tasks).items()}
    return {
        "cpu": _cpu(colours),
        "accuracy": _accuracy(colours),
        "latency": _latency(colours),
        "throughput": _throughput(colours),
        "lag": _over_time("lag", "rows waiting", arrows, stacked=False),
        "dropped": _over_time("dropped", "rows dropped", arrows, stacked=True),
    }


def _cpu(colours: Mapping[str, str]) -> Spec:
    area = {
        "mark": {"type": "area", "interpolate": "step-before"},
        "encoding": {
            "x": _time(),
            "y": number("cpu", "CPU, % of one core", axis={"tickCount": 4}, stack="zero"),
            "color": colour("task", colours, "child_width"),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [words("manager"), words("task"), number("cpu", "CPU, %", format=".1f")],
        },
    }
    limit = {
        "mark": {"type": "line", "strokeDash": [6, 3], "strokeWidth": 1.5},
        "encoding": {
            "x": _time(),
            "y": {"aggregate": "max", "field": "capacity", "type": "quantitative"},
            "color": {"value": LIMIT},
        },
    }
    return _rows("cpu", "manager", {"layer": [area, limit], "height": 100})


def _accuracy(colours: Mapping[str, str]) -> Spec:
    y = number("accuracy", "accuracy", axis={"tickCount": 5}, scale={"domain": [0, 1.02]})
    line = {
        "mark": {"type": "line", "interpolate": "step-before", "strokeWidth": 2, "clip": True},
        "encoding": {
            "x": _time(),
            "y": y,
            "strokeDash": _dashes(ACCURACIES),
            "color": colour("query", colours),
            "tooltip": [words("query"), words("kind"), number("accuracy", "accuracy", format=".3f")],
        },
        "height": 110,
    }
    return _rows("accuracy", "query", line)


def _latency(colours: Mapping[str, str]) -> Spec:
    line = {
        "mark": {"type": "line", "interpolate": "step-before", "strokeWidth": 2},
        "encoding": {
            "x": _time(),
            "y": number("seconds", "seconds", axis={"tickCount": 4}),
            "strokeDash": _dashes(LATENCIES),
            "color": colour("query", colours),
            "tooltip": [words("query"), words("kind"), number("seconds", "seconds", format=".3f")],
        },
        "height": 110,
    }
    return _rows("latency", "query", line)


def _throughput(colours: Mapping[str, str]) -> Spec:
    line = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": _time(),
            "y": number("rate", "rows/s", axis={"tickCount": 4, "format": ",~s"}),
            "strokeDash": _dashes(RATES),
            "color": colour("source", colours),
            "tooltip": [words("source"), words("kind"), number("rate", "rows/s", format=",.0f")],
        },
        "height": 110,
    }
    return _rows("throughput", "source", line)


def _over_time(data: str, title: str, colours: Mapping[str, str], stacked: bool) -> Spec:
    area, line = {"type": "area", "interpolate": "step-before"}, {"type": "line", "strokeWidth": 2}
    stack = "zero" if stacked else None
    return {
        "data": {"name": data},
        "mark": area if stacked else line,
        "encoding": {
            "x": _time(),
            "y": number("rows", title, axis={"tickCount": 4, "format": ",~s"}, stack=stack),
            "color": colour("edge", colours, "width", "square" if stacked else "stroke"),
            "tooltip": [words("edge"), number("rows", "rows", format=",.0f")],
        },
        "width": WIDTH,
        "height": 170,
    }


def _rows(data: str, field: str, spec: Spec) -> Spec:
    """One plot below the other for each value of `field`."""
    header = {"labelOrient": "top", "labelAnchor": "start", "labelFontWeight": "bold", "labelPadding": 2}
    row = {**words(field), "title": None, "header": header}
    return {"data": {"name": data}, "facet": {"row": row}, "spec": {**spec, "width": WIDTH}}


def _time() -> Spec:
    """Seconds, labelled as minutes and seconds at round times."""
    clock = "floor(datum.value / 60) + ':' + pad(floor(datum.value % 60), 2, '0', 'left')"
    span = "(domain('x')[1] - domain('x')[0])"
    step = f"({span} > 1500 ? 600 : {span} > 420 ? 120 : {span} > 150 ? 60 : {span} > 60 ? 30 : 10)"
    values = {"expr": f"sequence(ceil(domain('x')[0] / {step}) * {step}, domain('x')[1] + 1, {step})"}
    axis = {"title": "since the start, min:s", "values": values, "labelExpr": clock, "grid": False}
    return number("t", None, axis=axis, scale={"zero": False, "nice": False})


def _dashes(kinds: Mapping[str, Sequence[int]]) -> Spec:
    scale = {"domain": list(kinds), "range": list(kinds.values())}
    legend = {"orient": "top", "symbolType": "stroke", "symbolSize": 300, "symbolStrokeWidth": 2}
    return {**words("kind"), "title": None, "scale": scale, "legend": legend}
