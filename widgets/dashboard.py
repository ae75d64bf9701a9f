"""The live view: one small widget that draws the cluster in the browser from one frame per cycle.

Frames arrive on the controller's thread; one writer thread sends them, at most four times a second and only while a
view is open.
"""

from __future__ import annotations

import html
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import ipywidgets as ipw

from qod_widgets.charts import specs
from qod_widgets.controls import labelled, row, share
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
        self._over = False  #: whether the thread is to end once it has sent what is queued
        self._lock = threading.Lock()  #: held while the thread is begun or ends
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"dashboard {self.title!r}: {len(self._frames)} cycles, {'ended' if self.ended else 'running'}"

    def feed(self, frame: Frame) -> None:
        """Add a frame, from any thread; never blocks."""
        self._frames.append(frame)
        self._skipped = None
        if self.watched:
            self._tell(frame)

    def skip(self, why: Frame) -> None:
        """Say in `words` why a cycle brings no frame, until the next frame; its `log` are the entries since the last.
        From any thread; never blocks."""
        self._skipped = why
        if self.watched:
            self._tell("skipped")

    def rewind(self, frames: Iterable[Frame]) -> None:
        """Replace all frames by these."""
        self._frames = deque(frames, MOST_FRAMES)
        self._sent_for = self._skipped = None
        if self.watched:
            self._tell("history")

    def end(self) -> None:
        """Say that no more frames follow, and end the thread. A view that opens later still gets the history."""
        self.ended = True
        self._finish()

    def close(self) -> None:
        """End the thread, and remove the widget."""
        self._finish()
        super().close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._tell("history")

    def _tell(self, item: Frame | str) -> None:
        """Have the thread send this; begin one if there is none."""
        with self._lock:
            self._news.put(item)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._write, name="qod-dashboard", daemon=True)
                self._thread.start()

    def _finish(self) -> None:
        with self._lock:
            self._over = True
            if self._thread is not None:
                self._news.put(None)  # it may be waiting

    def _write(self) -> None:
        """Send new frames, batched into one message where they arrive faster than they may be sent."""
        over = False
        while not over:
            items = [self._news.get()]
            if items[0] not in ("history", None):
                time.sleep(LEAST_PAUSE_S)
            while not self._news.empty():
                items.append(self._news.get())
            if "history" in items:
                self._send_frames(self._history(), fresh=True)
            elif fed := [each for each in items if isinstance(each, dict)]:
                self._send_frames(fed, fresh=False)
            why = self._skipped
            if why is not None and self.watched and any(each in ("history", "skipped") for each in items):
                self.send({"kind": "skipped", **why})
            with self._lock:
                over = self._over and self._news.empty()
                if over:
                    self._thread = None

    def _history(self) -> list[Frame]:
        frames = list(self._frames)
        if not frames:
            return []
        return [frame for frame in frames if frame["t"] >= frames[-1]["t"] - HISTORY_S]

    def _send_frames(self, frames: list[Frame], fresh: bool) -> None:
        if not self.watched:
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


# --- Controls of a replay ---------------------------------------------------------------------------------------------
# Controls of a recording: a slider through its time, and what the policy would have planned otherwise.


def replay_controls(replay: Any) -> ipw.VBox:
    """Return the dashboard of a recording, a slider through its time, and the what-if controls."""
    length = len(replay.records) - 1
    slider = ipw.IntSlider(replay.position, min=0, max=max(length, 1), **labelled("cycle", width_px=460))
    play = ipw.ToggleButton(
        False, description="play", icon="play", tooltip="play the recording from here", layout={"width": "90px"}
    )
    moving = threading.local()

    def moved(position: int) -> None:
        moving.on = True
        try:
            slider.value = position
            if position == length:
                play.value = False
        finally:
            moving.on = False

    def seek(change: Mapping[str, Any]) -> None:
        if not getattr(moving, "on", False):
            replay.seek(replay.at[change["new"]])

    def turn(change: Mapping[str, Any]) -> None:
        play.description, play.icon = ("pause", "pause") if change["new"] else ("play", "play")
        if change["new"]:
            replay.play()
        else:
            replay.pause()

    replay.on_move(moved)
    slider.observe(seek, "value")
    play.observe(turn, "value")
    return ipw.VBox([row(play, slider), replay.dashboard(), what_if(replay)])


def what_if(replay: Any) -> ipw.VBox:
    """Controls for other restrictions of a query, and the plan that the policy would have made with them here."""
    queries = {task["id"]: task for task in replay.frames[-1]["tasks"] if task["minimum"] is not None}
    if not queries:
        return ipw.VBox()
    wide = max(len(name) for name in queries) * 8 + 50
    query = ipw.Dropdown(options=list(queries), **labelled("What if", width_px=wide))
    first = queries[query.value]
    minimum = share(first["minimum"], labelled("at least"), continuous_update=True)
    priority = ipw.BoundedIntText(first["priority"], min=-1000, max=1000, **labelled("priority", width_px=80))
    answer = ipw.HTML()

    def ask(_: Any = None) -> None:
        try:
            plan = replay.what_if(query.value, priority=priority.value, min_accuracy=minimum.value)
        except Exception as error:
            answer.value = f"<p>{html.escape(' '.join(str(error).splitlines()))}</p>"
            return
        moves = [(move.instance, move.to) for move in plan.moves]
        answer.value = plan_table(replay.record.plan.desired, plan.desired, moves, plan.starved)

    def other(_: Any) -> None:
        chosen = queries[query.value]
        minimum.value, priority.value = chosen["minimum"], chosen["priority"]
        ask()  # they may be those of the query before

    query.observe(other, "value")
    for each in (minimum, priority):
        each.observe(ask, "value")
    replay.on_move(ask)
    ask()
    return ipw.VBox([row(query, minimum, priority), answer])


def plan_table(
    before: Mapping[str, float], now: Mapping[str, float], moves: Iterable[tuple[str, str]], starved: Iterable[str]
) -> str:
    """Return HTML: the planned accuracies by task in two plans, with the moves (instance, target) and starved task
    managers of the second; differences are marked."""
    rows = "".join(_plan_row(task, before.get(task), accuracy) for task, accuracy in now.items())
    shown = ", ".join(f"{name} to {where}" for name, where in moves) or "none"
    short = ", ".join(starved) or "none"
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("task", "was planned", "what if"))
    return (
        f"<div class='qod-plan' role='status'><table><caption>Desired accuracy</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>moves: {html.escape(shown)}; starved: {html.escape(short)}</p></div>"
    )


def _plan_row(task: str, before: float | None, now: float) -> str:
    was = "-" if before is None else f"{before:.3f}"
    mark = " class='qod-other'" if was != f"{now:.3f}" else ""
    return f"<tr{mark}><th scope='row'>{html.escape(task)}</th><td>{was}</td><td>{now:.3f}</td></tr>"
