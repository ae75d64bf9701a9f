"""Charts of a recording as SVG, beside the figures that were read from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from qod_magics.controller import read
from qod_widgets import charts
from qod_widgets.colours import GREY, task_colours

#: What the thesis' figures 5.2 to 5.4 show.
SHOWN = {"accuracy": charts.accuracy_chart, "cpu": charts.cpu_chart, "lag": charts.lag_chart}


def draw(recording: Path, where: Path, name: str) -> None:
    """Write `name`-accuracy.svg and the like into a directory; nothing where there is no recording."""
    if not recording.exists():
        return
    lines = tuple(read(recording))
    for what, chart in SHOWN.items():
        (where / f"{name}-{what}.svg").write_text(charts.svg(chart(lines)), "utf-8")


def draw_goodput(figures: Mapping[str, Any], path: Path) -> None:
    """Rows/s that each query processed over the load that was offered, a panel for each policy."""
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
            x=alt.X("times:Q", title="offered load, times what the core carries", scale=alt.Scale(type="log")),
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
