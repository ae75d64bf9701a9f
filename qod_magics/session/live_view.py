"""The widget view of a live session: a dashboard fed cycle by cycle, and controls on one command queue."""

from __future__ import annotations

import html
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from qod_magics.controller.log import Cycle, DecisionLog, Entry
from qod_magics.controller.record import record_of
from qod_magics.controller.runtime_calls import STOPPING
from qod_magics.core.plan import edge_name
from qod_magics.errors import QodError
from qod_magics.policies import policy_names
from qod_magics.recordings.frame import Frame, frame, frames, skipped
from qod_magics.recordings.reading import newest_records, policy_notes
from qod_magics.results.slices import Kept
from qod_magics.session.show import Picture
from qod_magics.session.status import labels_in_short
from qod_widgets.controls import Commands, Panel
from qod_widgets.dashboard import LOG_LENGTH, MOST_FRAMES, Dashboard

if TYPE_CHECKING:
    from qod_magics.session.interface import SessionInterface


def _told(kept: Kept) -> Frame:
    """Return a slice with copies as a frame has it."""
    at = datetime.fromtimestamp(kept.written_s).astimezone()
    sizes = {manager: None if size is None else round(size / 1e6, 4) for manager, size in kept.bytes.items()}
    return {"query": kept.query, "written": f"{at:%H:%M:%S}", "mb": sizes}


class View:
    """The dashboard and control panel of a session, made on first use, and the frames that they show."""

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._began = session.began
        self.frames: deque[Frame] = deque(self._recorded(), MOST_FRAMES)
        self.dashboard = Dashboard(f"qod session {session.id}", self.frames)
        self._had_copies = False  #: whether slices of results were kept in memory so far
        self._since: deque[Entry] = deque(maxlen=LOG_LENGTH)  #: in the decision log since the last frame
        self._pictures: list[Any] = []
        self._commands = Commands()
        self._policies = policy_names()
        self.panel = Panel(session, self._commands)
        if self.frames:
            self._follow(self.frames[-1])
        last = session.last
        if last is not None and last.decision is None:
            shown = self.frames[-1]["cycle"] if self.frames else 0
            self._skip(last, [entry for entry in session.controller.log.entries() if entry.cycle > shown])
        self._unsubscribe = session.controller.subscribe(self._take)

    def __repr__(self) -> str:
        return f"dashboard and controls of session {self._session.id}: {len(self.frames)} cycles"

    def widget(self) -> Any:
        """Return the dashboard with the controls under it."""
        import ipywidgets as ipw

        return ipw.VBox([self.dashboard, self.panel.view])

    def show(self) -> None:
        """Show it in the running cell, with a placeholder for the picture left when the session ends."""
        from IPython.display import display

        display(self._session)
        handle = display(Picture(), display_id=True)
        if handle is not None:
            self._pictures.append(handle)

    def close(self) -> None:
        """Stop following cycles. The last state stays visible; each cell that called `show` gets a picture that is
        visible without a kernel, too."""
        self._unsubscribe()
        self.dashboard.end()
        self._commands.close()
        self.panel.end()
        if self._pictures:  # last: what was recorded for days takes a while
            picture = self._picture()
            for handle in self._pictures:
                handle.update(picture)

    def _take(self, cycle: Cycle) -> None:
        if cycle.decision is None:
            self._skip(cycle, cycle.entries)
            return
        made = self._frame(cycle)
        self._since.clear()
        self.frames.append(made)
        self.dashboard.feed(made)
        self._follow(made)

    def _skip(self, cycle: Cycle, entries: Iterable[Entry]) -> None:
        """Show why a cycle has no decision; the next frame has its entries, too."""
        if cycle.skipped != STOPPING:  # the last picture stays
            self._since.extend(entries)
            self.dashboard.skip(skipped(cycle, self._began, self._since))

    def _follow(self, made: Frame) -> None:
        controller = self._session.controller
        by_hand = {edge_name(edge): d for edge, d in controller.overrides.items()}
        self.panel.update(made, controller.period_s, controller.paused, by_hand, controller.policy.name, self._policies)

    def _picture(self) -> Picture:
        """Accuracies and CPU of the session so far, from its recording, as SVG."""
        from qod_magics.reports.charts import accuracy_chart, cpu_chart, svg

        try:
            records, _ = newest_records(self._session.recording_path, self._began, MOST_FRAMES)
            drawn = "".join(svg(chart(records)) for chart in (accuracy_chart, cpu_chart))
        except (OSError, QodError, ValueError) as error:
            return Picture(f"<p>no picture: {html.escape(str(error))}</p>", f"no picture: {error}")
        words = f"accuracies and CPU in the last {len(records)} cycles of qod session {self._session.id}, as a picture"
        return Picture(f'<div style="background: white; max-width: 1000px">{drawn}</div>', words)

    def _recorded(self) -> list[Frame]:
        """Frames of the cycles before the view was made, from the recording."""
        try:
            records, paused = newest_records(self._session.recording_path, self._began, MOST_FRAMES)
        except (OSError, QodError):  # nothing is recorded yet, or only in another file
            return []
        return list(frames(records, self._began, DecisionLog(), labels_in_short(self._session), paused))

    def _frame(self, cycle: Cycle) -> Frame:
        assert cycle.decision is not None
        record = record_of(cycle, cycle.decision, cycle.events)
        notes = policy_notes(self._session.controller.policy, record.snapshot, record.plan)
        kept = [_told(each) for each in self._session.slices.kept()]
        self._had_copies = self._had_copies or bool(kept)
        entries, labels = (*self._since, *cycle.entries), labels_in_short(self._session)
        return frame(record, self._began, entries, labels, notes, kept if self._had_copies else None)
