"""The time axis that all charts of a recording share: its unit, shaded phases, and the strip that labels events."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Literal

import altair as alt
import pandas as pd

from qod_magics.controller.record import Records
from qod_magics.recordings.phases import seconds
from qod_magics.reports import tables
from qod_widgets.colours import ALARM, BAND, INK, MUTED

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
        """Time axis of a panel, unlabelled: the labels appear once, below all panels."""
        axis = alt.Axis(title=None, labels=False, ticks=False, grid=False)
        return alt.X(f"{field}:Q", axis=axis, scale=self._scale())

    def axis(self) -> alt.Chart:
        """The labelled time axis that goes below the panels."""
        axis = alt.Axis(title=f"time since the start ({self.unit})", grid=False, tickCount=12)
        ends = alt.Chart(pd.DataFrame({"t": [0.0, self.end]}), width=self.width, height=1).mark_point(opacity=0)
        chart: alt.Chart = ends.encode(x=alt.X("t:Q", axis=axis, scale=self._scale()))
        return chart

    def bands(self) -> list[alt.Chart]:
        """Return every other phase shaded; [] for a recording without phases."""
        shaded = self._bands.iloc[::2]
        if shaded.empty:
            return []
        return [alt.Chart(shaded).mark_rect(color=BAND, opacity=0.05).encode(x=self.x("start"), x2="end:Q")]

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
                .mark_rect(color=BAND, opacity=0.05)
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
