"""Widgets that know whether a view of them is open, and send nothing while none is.

Their code is self-contained: the browser loads nothing else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from platformdirs import user_cache_dir

STATIC = Path(__file__).parent / "static"


@cache
def bundle(name: str) -> str:
    """The code of a widget, a file of static/, with what all of them share and Vega in it; made once and kept in the
    user's cache."""
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


class Watched(anywidget.AnyWidget):
    """A widget whose views say when they open and close."""

    _css = STATIC / "dashboard.css"

    title = traitlets.Unicode("").tag(sync=True)
    ended = traitlets.Bool(False).tag(sync=True)

    def __init__(self, code: str, title: str = "") -> None:
        super().__init__(_esm=bundle(code), title=title)
        self._views: set[str] = set()
        self._closed: set[str] = set()  #: a view says more than once that it is open, and may be heard after its close
        self.on_msg(self._heard)

    @property
    def watched(self) -> bool:
        """Whether a view of it is open."""
        return bool(self._views)

    def _heard(self, _: Any, message: Mapping[str, Any], __: Any) -> None:
        view = str(message.get("view"))
        if message.get("kind") == "open":
            if view not in self._views | self._closed:
                self._views.add(view)
                self._opened()
        elif message.get("kind") == "close":
            self._closed.add(view)
            self._views.discard(view)
            if not self._views:
                self._left()

    def _opened(self) -> None:
        """A view opened, which shows nothing yet."""

    def _left(self) -> None:
        """The last view closed; another one may open."""
