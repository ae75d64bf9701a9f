"""The live view: one small widget that draws the cluster in the browser from one frame per cycle.

Frames arrive on the controller's thread; one writer thread sends them, at most four times a second and only while a
view is open.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from qod_widgets.live_charts import specs
from qod_widgets.watched import Watched

HISTORY_S = 600.0  #: how far back the charts reach
MOST_FRAMES = 3000
LEAST_PAUSE_S = 0.25  #: between two messages
LOG_LENGTH = 60

Frame = dict[str, Any]  #: one cycle, as JSON


class Dashboard(Watched):
    """Shows cycles as they are fed, each as one JSON object. Close it to end its thread."""

    def __init__(self, title: str = "", frames: Iterable[Frame] = ()) -> None:
        super().__init__("dashboard", title)
        self._frames: deque[Frame] = deque(frames, MOST_FRAMES)
        self._skipped: Frame | None = None  #: why there has been no frame since the last
        self._sent_for: tuple[Any, Any] | None = None
        self._news: queue.SimpleQueue[Frame | str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"dashboard {self.title!r}: {len(self._frames)} cycles, {'ended' if self.ended else 'running'}"

    def feed(self, frame: Frame) -> None:
        """Add a frame, from any thread; never blocks."""
        self._frames.append(frame)
        self._skipped = None
        if self._views:
            self._news.put(frame)

    def skip(self, why: Frame) -> None:
        """Say in `words` why a cycle brings no frame, until the next frame; its `log` are the entries since the last.
        From any thread; never blocks."""
        self._skipped = why
        if self._views:
            self._news.put("skipped")

    def rewind(self, frames: Iterable[Frame]) -> None:
        """Replace all frames by these."""
        self._frames = deque(frames, MOST_FRAMES)
        self._sent_for = self._skipped = None
        if self._views:
            self._news.put("history")

    def end(self) -> None:
        """Say that no more frames follow, and end the thread."""
        self.ended = True
        self._news.put(None)

    def close(self) -> None:
        """End the thread, and remove the widget."""
        self._news.put(None)
        super().close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._begin()
        self._news.put("history")

    def _begin(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._write, name="qod-dashboard", daemon=True)
            self._thread.start()

    def _write(self) -> None:
        """Send new frames, batched into one message where they arrive faster than they may be sent."""
        while (item := self._news.get()) is not None:
            items: list[Frame | str | None] = [item]
            if item != "history":
                time.sleep(LEAST_PAUSE_S)
            while not self._news.empty():
                items.append(self._news.get())
            if "history" in items:
                self._send_frames(self._history(), fresh=True)
            elif fed := [each for each in items if isinstance(each, dict)]:
                self._send_frames(fed, fresh=False)
            why = self._skipped
            if why is not None and self._views and any(each in ("history", "skipped") for each in items):
                self.send({"kind": "skipped", **why})
            if None in items:
                return

    def _history(self) -> list[Frame]:
        frames = list(self._frames)
        if not frames:
            return []
        return [frame for frame in frames if frame["t"] >= frames[-1]["t"] - HISTORY_S]

    def _send_frames(self, frames: list[Frame], fresh: bool) -> None:
        if not self._views:
            return
        message: dict[str, Any] = {"kind": "frames", "fresh": fresh, "frames": frames, "history_s": HISTORY_S}
        if frames:
            known = tuple(task["id"] for task in frames[-1]["tasks"]), tuple(e["name"] for e in frames[-1]["edges"])
            if fresh or known != self._sent_for:
                self._sent_for = known
                message["specs"] = specs(*known)
                if not fresh:
                    message |= {"fresh": True, "frames": self._history()}
        self.send(message)
