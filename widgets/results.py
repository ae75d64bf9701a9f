"""A query's results in the browser, read again each second while somebody looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from qod_widgets.charts import result_chart
from qod_widgets.watched import Watched

EVERY_S = 1.0  #: seconds between two looks
REST = 9.0  #: times as long as a look took, no other one begins
LAST_S = 10.0  #: for the last look

#: What is on show, as JSON: form, x, y, group, scale, groups, columns, items by id, facts, state, ended.
Page = Mapping[str, Any]
#: What another chart or table is needed for.
FRAME = ("form", "x", "y", "group", "scale", "groups", "columns")


def news(before: Page | None, now: Page) -> dict[str, Any] | None:
    """Return the message that makes a view of `before` one of `now`: only what has changed. None where nothing has."""
    fresh = before is None or any(before[part] != now[part] for part in FRAME)
    old: Mapping[str, Any] = {} if before is None or fresh else before["items"]
    items = {id: item for id, item in now["items"].items() if old.get(id) != item}
    gone = [id for id in old if id not in now["items"]]
    said = {part: now[part] for part in ("facts", "state")}
    if not fresh and not items and not gone and before is not None and all(before[p] == said[p] for p in said):
        return None
    message: dict[str, Any] = {"kind": "results", "fresh": fresh, "items": items, "gone": gone, **said}
    if fresh:
        message |= {"form": now["form"], "columns": now["columns"]}
        message["spec"] = result_chart(now) if now["form"] != "table" else None
    return message


class ResultsView(Watched):
    """Shows what `look` returns. It looks from a thread, which ends with the last view, or once nothing more follows.

    Args:
        title: above the chart.
        look: makes the page of now; must not raise.
        left: called when the thread has ended, and when the last view closes after that.
        every_s: seconds between two looks.

    """

    paused = traitlets.Bool(False).tag(sync=True)  #: what is on show stays as it is

    def __init__(
        self, title: str, look: Callable[[], Page], left: Callable[[], object], every_s: float = EVERY_S
    ) -> None:
        self._look, self._after, self._every_s = look, left, every_s
        self._page: Page | None = None  #: sent last
        self._fresh = False  #: whether a view has opened that shows nothing yet
        self._over = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        super().__init__("results", title)
        self.observe(lambda _: self._wake.set(), "paused")

    def __repr__(self) -> str:
        count = len(self._page["items"]) if self._page is not None else 0
        state = "ended" if self.ended else "paused" if self.paused else "open" if self.watched else "closed"
        return f"view of results {self.title!r}: {count} items, {state}"

    def end(self, at_most_s: float = LAST_S) -> None:
        """Look a last time if a view is open. Waits for the thread to end, `at_most_s` seconds at most."""
        with self._lock:
            self._over = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(min(at_most_s, LAST_S))
        self.ended = True

    def close(self) -> None:
        """End the thread, and remove the widget."""
        self._views.clear()
        self.end()
        super().close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        with self._lock:
            self._fresh = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="qod-results", daemon=True)
                self._thread.start()
        self._wake.set()

    def _left(self) -> None:
        if self._thread is None:
            self._after()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # first: an event during this look starts the next one
            began = time.monotonic()
            if self.watched:
                self._show()
            with self._lock:
                if not self.watched or ((self.ended or self._over) and not self._fresh):
                    self._thread = None
                    break
            self._wake.wait(max(self._every_s, REST * (time.monotonic() - began)))
        self._after()

    def _show(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, False
        page = self._page
        if page is None or not (self.paused or self.ended):
            page = self._look()
        message = news(None if fresh else self._page, page)
        self._page = page
        if message is not None:
            self.send(message)
        self.ended = self.ended or bool(page["ended"])
