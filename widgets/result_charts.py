"""Charts of a query's results: Vega-Lite specifications over the data set "results", which the browser fills. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qod_widgets.colours import INK, task_colours
from qod_widgets.encodings import Spec, colour, number, words

DATA = "results"
WIDTH = 400  #: of the plotting area, px; the browser sets the width that fits
HEIGHT = 260
BAND = 0.22  #: opacity of an interval beside a line
CAP = 9  #: width of the ends of a whisker, px
TO_HIGH = {"y2": {"field": "high"}}
WHOLE = {"filter": "isValid(datum.low) && isValid(datum.high)"}
BARS = {"cornerRadiusEnd": 2, "opacity": 0.75}


def result_chart(page: Mapping[str, Any]) -> Spec:
    """The chart of a page whose `form` is "line" or "bar".

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
        band = {"mark": {"type": "area", "opacity": BAND}, "transform": [WHOLE], "encoding": {**x, **low, **named}}
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
    """The same as SVG, with its data."""
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
