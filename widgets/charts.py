"""Charts of metrics and of results, their colours and encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# --- Colours: one per task --------------------------------------------------------------------------------------------

#: Distinguishable with any colour vision, and dark enough for lines on white (after Okabe and Ito).
PALETTE = ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#b08d00", "#6a51a3", "#8c564b", "#17becf", "#7f7f00")
GREY = "#b8bdc4"  #: other processes
INK = "#30343b"  #: text, and lines that are not a task's
MUTED = "#6b7280"  #: axes, rules, secondary text
ALARM = "#b3261e"  #: limits, and the run without the controller
PHASE_BAND = "#1f2a44"  #: every other phase, at a low opacity so that the grid shows


def task_colours(tasks: Sequence[str]) -> dict[str, str]:
    """Return a colour for each task by its position; beyond ten tasks they repeat, lighter."""
    return {
        task: tint(PALETTE[index % len(PALETTE)], min(0.35 * (index // len(PALETTE)), 0.7))
        for index, task in enumerate(tasks)
    }


def edge_colours(edges: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """Return a source has the colour of its task, a stream "from>to" a tint of its consumer's: lighter for each
    producer."""
    colours = task_colours(tasks)
    producers: dict[str, int] = {}
    found = {}
    for edge in edges:
        consumer = edge.rpartition(">")[2]
        colour = colours.get(consumer, GREY)
        if ">" in edge:
            nth = producers[consumer] = producers.get(consumer, -1) + 1
            colour = tint(colour, min(0.3 * nth, 0.75))
        found[edge] = colour
    return found


def tint(colour: str, share: float) -> str:
    """`colour` ("#rrggbb") mixed with white: 0 leaves it, 1 is white."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


# --- Encodings of Vega-Lite -------------------------------------------------------------------------------------------

LABEL_LIMIT = 150  #: px of a name in a legend
MOST_NAMES = 24  #: in a legend

Spec = dict[str, Any]


def words(field: str) -> Spec:
    """Return names."""
    return {"field": field, "type": "nominal"}


def number(field: str, title: str | None, **more: Any) -> Spec:
    """Numbers; `more` are further properties of the encoding."""
    return {"field": field, "type": "quantitative", **({"title": title} if title else {}), **more}


def colour(field: str, colours: Mapping[str, str], width: str | None = None, symbol: str = "square") -> Spec:
    """With a legend of as many columns as fit into the signal `width`, if that is given."""
    scale = {"domain": list(colours), "range": list(colours.values())}
    legend: Spec | None = None
    if width is not None:
        longest = max((len(name) for name in colours), default=0)
        column = min(LABEL_LIMIT, 7 * longest) + 34
        legend = {
            "orient": "top",
            "columns": {"expr": f"max(1, floor(({width} + 40) / {column}))"},
            "symbolType": symbol,
            "symbolStrokeWidth": 2,
            "labelLimit": LABEL_LIMIT,
            "symbolLimit": MOST_NAMES,
        }
    return {**words(field), "title": None, "scale": scale, "legend": legend}


# --- Live charts ------------------------------------------------------------------------------------------------------
# The charts of the dashboard: Vega-Lite specifications over named data that the browser fills as cycles come in.
#
# They are written as JSON, not with Altair: importing it takes longer than all else before the first chart is drawn.

WIDTH = 400  #: of a plotting area, px; the browser sets the width that fits
OTHER = "other processes"  #: their name in the frames
OTHERS = "rgba(140, 148, 158, 0.5)"  #: other processes: visible on any background, but subdued
LIMIT = "#d1373b"
ACCURACIES = {"measured": [1, 0], "planned": [6, 3], "minimum": [2, 2]}
LATENCIES = {"95 % of the rows": [1, 0], "target": [6, 3]}
RATES = {"arriving": [6, 3], "processed": [1, 0]}


def specs(tasks: Sequence[str], edges: Sequence[str]) -> dict[str, Spec]:
    """By name: cpu, accuracy, latency, throughput, lag, dropped, slices. Each has one data set of its own name.

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
        "slices": _slices(task_colours(tasks)),
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


def _slices(colours: Mapping[str, str]) -> Spec:
    area = {
        "mark": {"type": "area", "interpolate": "step-before"},
        "encoding": {
            "x": _time(),
            "y": number("mb", "MB in memory", axis={"tickCount": 4}, stack="zero"),
            "color": colour("query", colours, "child_width"),
            "tooltip": [words("manager"), words("query"), number("copies", "copies"), number("mb", "MB", format=".2f")],
        },
        "height": 70,
    }
    return _rows("slices", "manager", area)


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
    """Return seconds, labelled as minutes and seconds at round times."""
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


# --- Charts of results ------------------------------------------------------------------------------------------------
# Charts of a query's results: Vega-Lite specifications over the data set "results", which the browser fills. Pure.

DATA = "results"
HEIGHT = 260
INTERVAL_OPACITY = 0.22  #: opacity of an interval beside a line
CAP = 9  #: width of the ends of a whisker, px
TO_HIGH = {"y2": {"field": "high"}}
WHOLE = {"filter": "isValid(datum.low) && isValid(datum.high)"}
BARS = {"cornerRadiusEnd": 2, "opacity": 0.75}


def result_chart(page: Mapping[str, Any]) -> Spec:
    """Return the chart of a page whose `form` is "line" or "bar".

    An interval is a band around a line, and a whisker on a bar; where an end is not known there is none.
    """
    colours = task_colours(page["groups"])
    y = {"axis": {"tickCount": 6, "format": ",~s"}}
    value = {"y": number("value", page["y"], stack=None, **y)}
    x = _place(page)
    shown = {"tooltip": _tooltip(page)}
    if page["form"] == "line":
        named = _named(page, colours, "stroke")
        low = {"y": number("low", page["y"], **y), **TO_HIGH}
        band = {
            "mark": {"type": "area", "opacity": INTERVAL_OPACITY},
            "transform": [WHOLE],
            "encoding": {**x, **low, **named},
        }
        mark = {"type": "line", "strokeWidth": 2, "point": {"size": 28, "filled": True}}
        layers = [band, {"mark": mark, "encoding": {**x, **value, **named, **shown}}]
    else:
        named = _named(page, colours, "square")
        beside = {"xOffset": words("group")} if page["group"] else {}
        bar = {"mark": {"type": "bar", **BARS}, "encoding": {**x, **value, **named, **beside, **shown}}
        layers = [bar, *_whiskers({**x, **beside}, page["y"], y)]
    ink = {"name": "ink", "value": INK}  # the browser sets it, which knows the theme
    return {"data": {"name": DATA}, "params": [ink], "layer": layers, "width": WIDTH, "height": HEIGHT}


def static_chart(page: Mapping[str, Any]) -> str:
    """Return the same as SVG, with its data."""
    import vl_convert

    picture: str = vl_convert.vegalite_to_svg(
        {**result_chart(page), "data": {"name": DATA, "values": list(page["items"].values())}, "background": "white"}
    )
    return picture


def _whiskers(place: Spec, title: str, y: Spec) -> list[Spec]:
    look = {"color": {"expr": "ink"}}
    ends = {"low": {"y": number("low", title, **y)}, "high": {"y": number("high", title, **y)}}
    rule = {"mark": {"type": "rule", "strokeWidth": 1.5, **look}, "encoding": {**place, **ends["low"], **TO_HIGH}}
    cap = {"type": "tick", "size": CAP, "thickness": 1.5, **look}
    caps = [{"mark": cap, "encoding": {**place, **end}} for end in ends.values()]
    return [{**layer, "transform": [WHOLE]} for layer in (rule, *caps)]


def _place(page: Mapping[str, Any]) -> Spec:
    """Times are as the clock of Spark's session shows them, not the browser's; names are in the data's order."""
    if page["scale"] == "time":
        scale = {"type": "utc", "nice": False}
        axis = {"title": page["x"], "grid": False, "labelOverlap": "greedy", "tickCount": 8}
        return {"x": {"field": "x", "type": "temporal", "scale": scale, "axis": axis}}
    if page["scale"] == "number":
        return {"x": number("x", page["x"], scale={"zero": False, "nice": False}, axis={"grid": False})}
    axis = {"title": page["x"], "labelAngle": -40, "labelLimit": 110}
    return {"x": {"field": "x", "type": "nominal", "sort": None, "axis": axis}}


def _named(page: Mapping[str, Any], colours: Mapping[str, str], symbol: str) -> Spec:
    """Colours by group, or one for all."""
    if not page["group"]:
        return {"color": {"value": next(iter(task_colours(["all"]).values()))}}
    named = colour("group", colours, "width", symbol)
    legend = {**named["legend"], "symbolOpacity": 1}  # not the band's
    return {"color": {**named, "title": page["group"], "legend": legend}}


def _tooltip(page: Mapping[str, Any]) -> Sequence[Spec]:
    parts = (("value", page["y"]), ("low", "from"), ("high", "to"))
    figures = [number(part, title, format=",.6~g") for part, title in parts]
    named = [{**words("name"), "title": page["x"]}]
    return [*named, *([{**words("group"), "title": page["group"]}] if page["group"] else []), *figures]
