"""Widgets that know whether a view of them is open, and send nothing while none is.

Their code is self-contained: the browser loads nothing else.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from platformdirs import user_cache_dir

# --- Cells ------------------------------------------------------------------------------------------------------------
# For how long the kernel could have heard a view: while a cell runs, what views say may wait for its end.


class Cells:
    """Follows the cells of a kernel as they begin and end.

    Args:
        now: the clock, seconds.

    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._running = 0  #: how many: one may run others
        self._ended = now()  #: when the last one did

    def __repr__(self) -> str:
        return "a cell runs" if self._running else f"no cell for {self.now() - self._ended:.0f} s"

    def begins(self) -> None:
        """A cell begins."""
        self._running += 1

    def ends(self) -> None:
        """A cell has ended, perhaps one that had begun before this was made."""
        self._running, self._ended = max(self._running - 1, 0), self.now()

    def idle_since(self, then: float) -> float:
        """For how many seconds there has been no cell, counted from `then` at the earliest."""
        return 0.0 if self._running else self.now() - max(then, self._ended)

    def follow(self) -> Cells:
        """Follow the cells of this process, if it is a kernel."""
        from IPython import get_ipython

        if (shell := get_ipython()) is not None:
            shell.events.register("pre_execute", self.begins)
            shell.events.register("post_execute", self.ends)
        return self


SILENT_S = 300.0  #: views say each minute that they are open
STATIC = Path(__file__).parent / "static"


@cache
def bundle(name: str) -> str:
    """Return the code of a widget, a file of static/, with what all of them share and Vega in it; made once and kept in
    the user's cache."""
    source = "\n".join((STATIC / part).read_text("utf-8") for part in ("common.js", f"{name}.js"))
    digest = hashlib.sha256(f"{version('vl-convert-python')}\n{source}".encode()).hexdigest()[:16]
    cache_dir = os.environ.get("QOD_CACHE") or user_cache_dir("qod_magics", appauthor=False)
    path = Path(cache_dir).expanduser() / "widgets" / f"{name}-{digest}.js"
    try:
        return path.read_text("utf-8")
    except OSError:
        pass
    import vl_convert

    made: str = vl_convert.javascript_bundle(source)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, "utf-8")
    except OSError:  # works without a cache
        pass
    return made


@cache
def cells() -> Cells:
    """Return the cells of this process."""
    return Cells().follow()


class Watched(anywidget.AnyWidget):
    """A widget whose views say when they open and close.

    A view that has been silent for `SILENT_S` seconds in which it could have been heard is forgotten: its browser is
    gone, or sleeps. Once it is heard again it is a new one, which shows nothing yet.
    """

    _css = STATIC / "dashboard.css"

    title = traitlets.Unicode("").tag(sync=True)
    ended = traitlets.Bool(False).tag(sync=True)

    def __init__(self, code: str, title: str = "") -> None:
        super().__init__(_esm=bundle(code), title=title)
        self._cells = cells()
        self._hearing = threading.Lock()
        self._views: dict[str, float] = {}  #: when each was heard last
        self._closed: set[str] = set()  #: a view says more than once that it is open, and may be heard after its close
        self.on_msg(self._heard)

    @property
    def watched(self) -> bool:
        """Return whether a view of it is open."""
        if self.ended:  # nothing is sent any more, except to a view that opens
            return bool(self._views)
        with self._hearing:
            silent = [view for view, heard in self._views.items() if self._cells.idle_since(heard) > SILENT_S]
            for view in silent:
                del self._views[view]
            left = bool(silent) and not self._views
        if left:
            self._left()
        return bool(self._views)

    @property
    def closed(self) -> bool:
        """Return whether views of it were open, and all have closed."""
        return bool(self._closed) and not self._views

    def _heard(self, _: Any, message: Mapping[str, Any], __: Any) -> None:
        view = str(message.get("view"))
        if message.get("kind") == "open":
            with self._hearing:
                is_new = view not in self._views and view not in self._closed
                if view not in self._closed:
                    self._views[view] = self._cells.now()
            if is_new:
                self._opened()
        elif message.get("kind") == "close":
            with self._hearing:
                self._closed.add(view)
                self._views.pop(view, None)
            if not self._views:
                self._left()

    def _opened(self) -> None:
        """A view opened, which shows nothing yet."""

    def _left(self) -> None:
        """The last view closed; another one may open."""
