"""A query's results as they are shown: live in a notebook, as a table elsewhere."""

from __future__ import annotations

import html
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qod_magics.errors import ApplicationError, QodError, UsageProblem
from qod_magics.results.drawing import Drawing, drawing_of
from qod_magics.results.layout import ANY, Layout, Wish, layout_of
from qod_magics.results.page import Page, page_of, text_of
from qod_magics.results.result import Result
from qod_magics.session.displaying import Picture, in_kernel, mime_bundle
from qod_magics.session.samples import read_sample, write_sample

if TYPE_CHECKING:
    from qod_widgets.results import ResultsView


class Followed(Protocol):
    """Results that can be read again and again."""

    def read(self, last: bool = False) -> Result:
        """The result now; `last`: also while its session ends. Raises ApplicationError or UsageProblem where none will
        follow, and KafkaError or TaskManagerError where it can't be read for the moment."""
        ...

    def leave(self) -> None:
        """Give back what reading needs between two looks; it may be read again."""
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
        self._shown: tuple[Result, Layout, Drawing] | None = None
        self._groups: tuple[str, ...] = ()  #: drawn last: they stay
        self._view: ResultsView | None = None
        self._pictures: list[Any] = []  #: handles of displays that are filled at the end

    def read(self, last: bool = False) -> Result:
        """The results now; `last`: also while the session ends. Raises UsageProblem, ApplicationError, KafkaError,
        TaskManagerError."""
        result = self._followed.read(last)
        layout = layout_of(result.columns, result.keys, self.wish)
        before = self._shown
        if before is not None and before[0].rows is result.rows and before[1] == layout:
            drawing = before[2]
        else:
            drawing = drawing_of(result, layout, self._groups)
        if self._save is not None and (self._shown is None or self._shown[2].rows != drawing.rows):
            write_sample(self._save, result, drawing.rows)
        self._groups = drawing.groups
        self._shown = result, layout, drawing
        return result

    def look(self) -> Page:
        """What a view shows now; `state` says in words whether more follows, and `ended` whether none does."""
        state, ended = "", False
        try:
            self.read()
        except (ApplicationError, UsageProblem) as error:
            state, ended = f"ended: {error}", True
        except Exception as error:  # of the broker or a task manager: it may come back
            state = f"no news: {' '.join(str(error).split())[:200]}"
        if self._final is not None and not ended:
            state, ended = self._final, True
        page = page_of(*self._shown) if self._shown is not None else NOTHING
        return {**page, "state": state, "ended": ended}

    @property
    def view(self) -> ResultsView:
        """The live view, made on first use; it reads while it is open."""
        if self._view is None:
            from qod_widgets.results import ResultsView

            self._view = ResultsView(self.name, self.look, self._followed.leave)
        return self._view

    def display(self) -> None:
        """Show it in the running cell, with a placeholder for the picture that is left at the end."""
        from IPython.display import display

        display(self)
        if self._final is not None:
            return
        handle = display(Picture(words="a picture of the results is shown here when the session ends"), display_id=True)
        if handle is not None:
            self._pictures.append(handle)

    def end(self) -> None:
        """Read the results a last time and stop following them. Cells that displayed them keep a static picture, which
        needs no kernel."""
        if self._view is not None:
            self._view.end()
        if self._pictures:
            with suppress(Exception):  # what was read before is left
                self.read(last=True)
            picture = self._picture()
            for handle in self._pictures:
                handle.update(picture)
        self._followed.leave()

    def _picture(self) -> Picture:
        if self._shown is None:
            return Picture(words=f"no results of {self.name} could be read")
        from qod_widgets.result_charts import static_chart

        result, layout, drawing = self._shown
        words = text_of(result, self.wish)
        if layout.form == "table":
            return Picture(f"<pre>{html.escape(words)}</pre>", words)
        page = page_of(result, layout, drawing)
        told = "".join(f"<p>{html.escape(fact)}</p>" for fact in page["facts"])
        return Picture(f'<div style="background: white; color: black">{static_chart(page)}{told}</div>', words)

    def __repr__(self) -> str:
        """A table, of what was read last where nothing can be read now."""
        note = ""
        try:
            self.read()
        except QodError as error:
            note = f"{self.name}: {error}"
        text = text_of(self._shown[0], self.wish) if self._shown is not None else ""
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
    """What `%qod show --save` wrote. Raises UsageProblem: it is no such file, or can't be shown so."""
    sample = Sample(path)
    result = sample.read()
    final = f"from {path.name}, saved at {result.at:%Y-%m-%d %H:%M:%S} UTC"
    shown = ShownResults(result.query, sample, wish, final=final)
    shown.read()
    return shown
