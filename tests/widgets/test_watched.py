"""Views that are no longer heard: their browser vanished without a word, or the kernel could not listen."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qod_widgets.watched import SILENT_S, Cells, Watched
from tests.texts import tells

MINUTE_S = 60.0


class Heard(Watched):
    """A widget that counts how often a view opened that shows nothing, and how often the last one left."""

    def __init__(self) -> None:
        super().__init__("dashboard")
        self.time = 1000.0
        self._cells = Cells(lambda: self.time)
        self.opened = self.left = 0

    def _opened(self) -> None:
        self.opened += 1

    def _left(self) -> None:
        self.left += 1

    def tell(self, kind: str, view: str = "a") -> None:
        self._heard(self, {"kind": kind, "view": view}, [])

    def passes(self, seconds: float, *telling: str) -> None:
        """Time passes; these views say each minute that they are open."""
        end = self.time + seconds
        while self.time < end:
            self.time += MINUTE_S
            for view in telling:
                self.tell("open", view)


@pytest.fixture
def widget() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.close()


def test_a_view_that_goes_on_to_say_that_it_is_open_is_watched(widget: Heard) -> None:
    widget.tell("open")
    widget.passes(100 * SILENT_S, "a")
    assert widget.watched
    assert (widget.opened, widget.left) == (1, 0)


def test_a_view_that_is_silent_is_forgotten_and_is_a_new_one_once_it_is_heard_again(widget: Heard) -> None:
    widget.tell("open")
    widget.tell("open", "b")
    widget.passes(SILENT_S + MINUTE_S, "b")
    assert widget.watched
    assert widget.left == 0, "another one is open"
    widget.passes(SILENT_S + MINUTE_S)
    assert not widget.watched
    assert widget.left == 1
    assert not widget.closed, "it may come back"
    widget.tell("open")
    assert widget.watched
    assert widget.opened == 3


def test_what_a_view_says_may_wait_for_the_end_of_a_cell(widget: Heard) -> None:
    widget.tell("open")
    widget._cells.begins()
    widget.passes(20 * SILENT_S)
    assert widget.watched
    widget._cells.begins()  # a cell that runs a notebook runs its cells
    widget._cells.ends()
    widget.passes(SILENT_S + MINUTE_S)
    assert widget.watched
    widget._cells.ends()
    widget.passes(SILENT_S - MINUTE_S)
    assert widget.watched, "it is heard soon"
    widget.tell("open")
    widget.passes(SILENT_S)
    assert widget.watched
    assert widget.opened == 1


def test_after_its_end_no_view_is_forgotten(widget: Heard) -> None:
    widget.tell("open")
    widget.ended = True
    widget.passes(2 * SILENT_S)
    assert widget.watched


def test_a_view_is_not_heard_any_more_once_it_has_closed(widget: Heard) -> None:
    widget.tell("open")
    widget.tell("close")
    widget.tell("open")
    assert not widget.watched
    assert widget.closed
    assert (widget.opened, widget.left) == (1, 1)


def test_cells_are_followed_where_there_is_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: dict[str, Any] = {}
    shell = SimpleNamespace(events=SimpleNamespace(register=hooks.__setitem__))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    cells = Cells(lambda: 7.0).follow()
    hooks["pre_execute"]()
    assert cells.idle_since(1.0) == 0.0
    hooks["post_execute"]()
    hooks["post_execute"]()  # of the cell that made it
    assert cells.idle_since(9.0) == -2.0
    assert tells(repr(cells), "0 s")
