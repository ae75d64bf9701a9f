"""A query's results as they are shown: live in a notebook, as a table elsewhere."""

from __future__ import annotations

import html
import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qod_magics.errors import ApplicationError, QodError, UsageProblem
from qod_magics.results.drawing import ANY, Drawing, Layout, Page, Wish, drawing_of, layout_of, page_of, text_of
from qod_magics.results.result import Result, Row, from_json, to_json

if TYPE_CHECKING:
    from qod_widgets.results import ResultsView


# --- Displays ---------------------------------------------------------------------------------------------------------


def in_kernel() -> bool:
    """Return whether this Python is the kernel of a notebook, which can show widgets: a terminal can't."""
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def mime_bundle(widget: Any, words: str, **options: Any) -> Any:
    """Return what `_repr_mimebundle_` returns for an object that is shown as a widget, and where that can't be as
    text."""
    bundle = widget._repr_mimebundle_(**options)
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return {**data, "text/plain": words}, metadata


class Picture:
    """Static output left in a saved notebook, where the live widget is not shown: HTML with a text fallback."""

    def __init__(self, html: str = "", words: str = "a picture of the run is shown here when the session ends") -> None:
        self._html, self._words = html, words

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        return self._html


# --- Samples ----------------------------------------------------------------------------------------------------------
# Files of results: what `%qod show --save FILE` shows, as JSON lines, to be shown again without Spark.


def write_sample(path: Path, result: Result, rows: Sequence[Row]) -> None:
    """Write a result with only these rows: its query, columns and accuracy first, then a line for each row. A file that
    is there is replaced at once, so that readers never see a part. Raises UsageProblem: it can't be written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        lines = (json.dumps(line, ensure_ascii=False) for line in to_json(result, rows))
        beside.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageProblem(f"--save {path}: it can't be written: {error.strerror or error}", rule="writable") from error


def read_sample(path: Path) -> Result:
    """Return the result in a file. Raises UsageProblem: the file can't be read, or is of another kind."""
    try:
        return from_json([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    except OSError as error:
        raise UsageProblem(f"--from {path}: it can't be read: {error.strerror or error}", rule="readable") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageProblem(
            f"--from {path}: it holds no results; `%qod show QUERY --save FILE` writes such a file",
            rule="saved results",
        ) from error


class Followed(Protocol):
    """Results that can be read again and again."""

    def read(self, last: bool = False) -> Result:
        """Return the result now; `last`: also while its session ends. Raises ApplicationError or UsageProblem where
        none will follow, and KafkaError or TaskManagerError where it can't be read for the moment."""
        ...

    def leave(self) -> None:
        """Give back what reading needs between two looks, and the rows; it may be read again."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """A result from a file."""

    path: Path

    def read(self, last: bool = False) -> Result:
        """Raises UsageProblem: it can't be read."""
        return read_sample(self.path)

    def leave(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is on show."""

    result: Result
    layout: Layout
    drawing: Drawing
    words: str | None = None  #: the result as text, once its rows are dropped


class ShownResults:
    """The results of a query on show; as the last expression of a cell a live view.

    Args:
        name: of the query.
        followed: where its results come from.
        wish: how they are to be shown.
        save: a file that always has what is on show.
        final: why nothing follows what is read first; None: it is read again each second.

    """

    def __init__(
        self,
        name: str,
        followed: Followed,
        wish: Wish = ANY,
        save: Path | None = None,
        final: str | None = None,
    ) -> None:
        self.name, self.wish = name, wish
        self._followed, self._save, self._final = followed, save, final
        self._shown: _Shown | None = None
        self._replacing = threading.Lock()  #: held while what is on show is replaced
        self._groups: tuple[str, ...] = ()  #: drawn last: they stay
        self._view: ResultsView | None = None
        self._pictures: list[Any] = []  #: handles of displays that are filled at the end
        self._ending = False

    def read(self, last: bool = False) -> Result:
        """Return the results now; `last`: also while the session ends. Raises UsageProblem, ApplicationError,
        KafkaError, TaskManagerError."""
        result = self._followed.read(last)
        layout = layout_of(result.columns, result.keys, self.wish)
        before = self._shown
        if before is not None and before.result.rows is result.rows and before.layout == layout:
            drawing = before.drawing
        else:
            drawing = drawing_of(result, layout, self._groups)
        if self._save is not None and (before is None or before.drawing.rows != drawing.rows):
            write_sample(self._save, result, drawing.rows)
        self._groups = drawing.groups
        with self._replacing:
            self._shown = _Shown(result, layout, drawing)
        return result

    def look(self) -> Page:
        """Return what a view shows now; `state` says why nothing follows for the moment or, with `ended`, for good."""
        state, ended = "", False
        try:
            state = self.read().state
        except (ApplicationError, UsageProblem) as error:
            state, ended = f"ended: {error}", True
        except Exception as error:  # of the broker or a task manager: it may come back
            state = f"no news: {' '.join(str(error).split())[:200]}"
        if self._final is not None and not ended:
            state, ended = self._final, True
        shown = self._shown
        page = page_of(shown.result, shown.layout, shown.drawing) if shown is not None else NOTHING
        return {**page, "state": state, "ended": ended}

    @property
    def view(self) -> ResultsView:
        """Return the live view, made on first use; it reads while it is open."""
        if self._view is None:
            from qod_widgets.results import ResultsView

            self._view = ResultsView(self.name, self.look, self._left)
        return self._view

    @property
    def closed(self) -> bool:
        """Return whether its views were open, and all have closed."""
        return self._view is not None and self._view.closed

    def display(self) -> None:
        """Show it in the running cell, with a placeholder for the picture that is left at the end."""
        from IPython.display import display

        display(self)
        if self._final is not None:
            return
        handle = display(Picture(words="a picture of the results is shown here when the session ends"), display_id=True)
        if handle is not None:
            self._pictures.append(handle)

    def end(self, until: float = inf) -> None:
        """Read the results a last time, unless all views of them have closed, and stop following them. Cells that
        displayed them keep a static picture, which needs no kernel.

        Args:
            until: time of the monotonic clock. After it nothing is read or waited for, and what has closed not drawn.

        """
        self._ending, closed = True, self.closed
        if self._view is not None:
            self._view.end(max(until - time.monotonic(), 0.0))
        try:
            in_time = time.monotonic() < until
            if self._pictures and in_time and not closed:
                with suppress(Exception):  # what was read before is left
                    self.read(last=True)
            if self._pictures and (in_time or not closed):
                picture = self._picture()
                for handle in self._pictures:
                    handle.update(picture)
        finally:
            self._leave()

    def _left(self) -> None:
        """Nobody looks any more, or nothing follows. What is open when its session ends is kept: `end` would have to
        read all rows again."""
        if not self._ending and not self.view.watched:
            self._leave()

    def _leave(self) -> None:
        """Keep only what is on show."""
        self._followed.leave()
        with self._replacing:
            shown = self._shown
            if shown is not None and shown.words is None:
                words = text_of(shown.result, self.wish)
                self._shown = replace(shown, result=replace(shown.result, rows={}), words=words)

    def _text(self, shown: _Shown) -> str:
        return text_of(shown.result, self.wish) if shown.words is None else shown.words

    def _picture(self) -> Picture:
        shown = self._shown
        if shown is None:
            return Picture(words=f"no results of {self.name} could be read")
        from qod_widgets.charts import static_chart

        words = self._text(shown)
        table = Picture(f"<pre>{html.escape(words)}</pre>", words)
        if shown.layout.form == "table":
            return table
        page = page_of(shown.result, shown.layout, shown.drawing)
        try:
            chart = static_chart(page)
        except ValueError:  # a number beyond those of the drawing library, such as a DECIMAL of 30 digits
            return table
        told = "".join(f"<p>{html.escape(fact)}</p>" for fact in page["facts"])
        return Picture(f'<div style="background: white; color: black">{chart}{told}</div>', words)

    def __repr__(self) -> str:
        """Return a table, of what was read last where nothing can be read now."""
        try:
            note = self.read().state
        except QodError as error:
            note = f"{self.name}: {error}"
        shown = self._shown
        text = self._text(shown) if shown is not None else ""
        return "\n".join(filter(None, (text, note, self._final)))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        words = repr(self)
        return mime_bundle(self.view, words, **options) if in_kernel() else {"text/plain": words}


#: Before anything could be read.
NOTHING: Page = {
    **{"form": "table", "x": "", "y": None, "group": "", "scale": "name"},
    **{"groups": [], "columns": [], "items": {}, "facts": []},
}


def show_sample(path: Path, wish: Wish) -> ShownResults:
    """Return what `%qod show --save` wrote. Raises UsageProblem: the file is of another kind, or can't be shown so."""
    sample = Sample(path)
    result = sample.read()
    final = f"from {path.name}, saved at {result.at:%Y-%m-%d %H:%M:%S} UTC"
    shown = ShownResults(result.query, sample, wish, final=final)
    shown.read()
    return shown
