"""What a session shows in a notebook: its dashboard, and results of queries. All of it ends with the session."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from qod_magics.errors import UsageProblem
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict
from qod_magics.results.drawing import Wish
from qod_magics.session.show import ShownResults

if TYPE_CHECKING:
    from qod_magics.session.interface import SessionInterface
    from qod_magics.session.live_view import View

#: For what is read and drawn a last time of all results together, seconds.
LAST_S = 10.0


class Views:
    """The views of a session, made on first use."""

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._dashboard: View | None = None
        self._shows: WeakSet[ShownResults] = WeakSet()

    def __repr__(self) -> str:
        results = ", ".join(sorted(show.name for show in self._shows)) or "nothing"
        return f"views of session {self._session.id}: {self._dashboard or 'no dashboard'}; results of {results}"

    @property
    def dashboard(self) -> View:
        """Dashboard and controls."""
        if self._dashboard is None:
            from qod_magics.session.live_view import View

            self._dashboard = View(self._session)
        return self._dashboard

    def show(self, name: str, wish: Wish, save: str | os.PathLike[str] | None) -> ShownResults:
        """The results of a query. Raises ApplicationError: there is no such query, or its sink can't be read."""
        from qod_magics.session.results import QueryResults

        file = None if save is None else Path(save).expanduser().absolute()  # whatever the working directory is later
        shown = ShownResults(name, QueryResults(self._session, name), wish, file)
        self._shows.add(shown)
        return shown

    def close(self) -> None:
        """Leave them as they are now: nothing more is read or sent."""
        if self._dashboard is not None:
            with suppress(Exception):  # all others end, too
                self._dashboard.close()
        until = time.monotonic() + LAST_S
        for shown in sorted(self._shows, key=lambda shown: shown.closed):
            with suppress(Exception):
                shown.end(until)


# --- The report of a session that is still recording ------------------------------------------------------------------


def report_so_far(recording: Path, out: Path, began: datetime) -> Path:
    """Write the report of a session that began then, judged on its cycles so far; the recording may have earlier runs.

    Raises UsageProblem while nothing is recorded, and when the page can't be written; RecordingError.
    """
    from qod_magics.reports.page import write_report

    if not recording.is_file() or not recording.stat().st_size:
        raise UsageProblem("nothing is recorded yet: wait for the first cycle")
    records = load(recording, began)
    try:
        write_report(out, records, None, verdict(records))
    except OSError as error:
        raise UsageProblem(f"{out} can't be written ({error.strerror}): name another file") from None
    return out
