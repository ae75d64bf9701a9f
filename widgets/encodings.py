"""Encodings of Vega-Lite specifications, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABEL_LIMIT = 150  #: px of a name in a legend
MOST_NAMES = 24  #: in a legend

Spec = dict[str, Any]


def words(field: str) -> Spec:
    """Names."""
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
