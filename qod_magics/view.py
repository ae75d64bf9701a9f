"""The rich view of a live session: the dashboard, fed cycle by cycle, and the controls, on one command queue."""

from __future__ import annotations

import html
from collections import deque
from typing import TYPE_CHECKING, Any

from qod_magics.controller.cycle import Cycle, line
from qod_magics.controller.log import DecisionLog
from qod_magics.errors import QodError
from qod_magics.playback import narrated
from qod_magics.report_command import load
from qod_widgets.controls import Commands, Panel
from qod_widgets.dashboard import MOST_FRAMES, Dashboard
from qod_widgets.state import Frame, frame

if TYPE_CHECKING:
    from qod_magics.session import Session


class View:
    """One dashboard and one panel for a session, made when somebody first looks, and the frames from then on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._began = session.began
        self.frames: deque[Frame] = deque(self._recorded(), MOST_FRAMES)
        self.dashboard = Dashboard(f"qod session {session.id}", self.frames)
        self._pictures: list[Any] = []
        self._commands = Commands()
        self.panel = Panel(session, self._commands)
        if self.frames:
            self._follow(self.frames[-1])
        self._unsubscribe = session.controller.subscribe(self._take)

    def widget(self) -> Any:
        """The dashboard with the controls under it."""
        import ipywidgets as ipw

        return ipw.VBox([self.dashboard, self.panel.view])

    def show(self) -> None:
        """Show it in the cell that runs, with room for the picture that is left when the session ends."""
        from IPython.display import HTML, display

        display(self._session)
        handle = display(HTML(""), display_id=True)
        if handle is not None:
            self._pictures.append(handle)

    def close(self) -> None:
        """Take no more cycles; the last state stays on show, and where `show` was called a picture that is seen
        without a kernel too."""
        self._unsubscribe()
        if self._pictures:
            picture = self._picture()
            for handle in self._pictures:
                handle.update(picture)
        self._commands.close()
        self.dashboard.end()

    def _take(self, cycle: Cycle) -> None:
        if cycle.decision is None:
            return
        made = self._frame(cycle)
        self.frames.append(made)
        self.dashboard.feed(made)
        self._follow(made)

    def _follow(self, made: Frame) -> None:
        self.panel.update(made, self._session.controller.period_s, self._session.controller.paused)

    def _picture(self) -> Any:
        """Accuracies and CPU of the recording so far, as SVG."""
        from IPython.display import HTML

        from qod_widgets.charts import accuracy_chart, cpu_chart, svg

        try:
            lines = load(self._session.recording_path)[-MOST_FRAMES:]
            drawn = "".join(svg(chart(lines)) for chart in (accuracy_chart, cpu_chart))
        except (OSError, QodError, ValueError) as error:
            return HTML(f"<p>no picture: {html.escape(str(error))}</p>")
        return HTML(f'<div style="background: white; max-width: 1000px">{drawn}</div>')

    def _recorded(self) -> list[Frame]:
        """What happened before somebody looked, from the recording."""
        try:
            lines = load(self._session.recording_path)
        except (OSError, QodError):  # nothing is recorded yet, or elsewhere
            return []
        return [
            frame(each, self._began, [{"at": e.at.isoformat(), "kind": e.kind, "words": e.words} for e in entries])
            for each, entries in narrated(lines[-MOST_FRAMES:], DecisionLog())
        ]

    def _frame(self, cycle: Cycle) -> Frame:
        assert cycle.decision is not None
        log = [{"at": e.at.isoformat(), "kind": e.kind, "words": e.words} for e in cycle.entries]
        return frame(line(cycle, cycle.decision, cycle.events), self._began, log)
