"""Charts of a recording as SVG, beside the figures that were read from it."""

from __future__ import annotations

from pathlib import Path

from qod_magics.controller import read
from qod_widgets import charts

#: What the thesis' figures 5.2 to 5.4 show.
SHOWN = {"accuracy": charts.accuracy_chart, "cpu": charts.cpu_chart, "lag": charts.lag_chart}


def draw(recording: Path, where: Path, name: str) -> None:
    """Write `name`-accuracy.svg and the like into a directory; nothing where there is no recording."""
    if not recording.exists():
        return
    lines = tuple(read(recording))
    for what, chart in SHOWN.items():
        (where / f"{name}-{what}.svg").write_text(charts.svg(chart(lines)), "utf-8")
