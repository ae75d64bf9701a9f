"""The results of a query as somebody sees them who displays them in a notebook: they follow, pause and end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.lab import Notebook
from tests.texts import tells

THEMES = ("light", "dark")
VIEW = ".qod-results"
PIXELS = "document.querySelector('.qod-results canvas')?.toDataURL() ?? ''"
OVERFLOW = """[...document.querySelectorAll('.qod-results, .qod-results header, .qod-result')].filter(
    part => part.scrollWidth > part.clientWidth + 1).map(part => part.className)"""

#: A query in whose result a window is written each time that it is read, and from time to time one anew.
GROWS = """\
import threading
from qod_magics.results.drawing import Wish
from qod_magics.session.show import ShownResults
from tests.results.rows import PER_ZONE, per_zone, result

LABELS = {"w": "exact", "zone": "exact", "trips": "estimated, with an interval", "fares": "of the rows kept only"}

class Growing:
    rows = []

    def read(self, last=False):
        number = len(self.rows) // 3
        self.rows += [per_zone(number, zone, 100.0 * zone + number % 7, 9.0 * zone) for zone in (1, 2, 3)]
        return result(PER_ZONE, ("w", "zone"), self.rows, labels=LABELS, missing="groups of no row kept are missing")

    def leave(self):
        pass

growing = Growing()
for _ in range(12):
    growing.read()
"""
CELLS = (
    GROWS,
    'ShownResults("per_zone", growing).view',
    'ShownResults("per_zone", growing, Wish("bar")).view',
    'ShownResults("per_zone", growing, Wish("table")).view',
    "print([thread.name for thread in threading.enumerate() if thread.name == 'qod-results'])",
    'shown = ShownResults("per_zone", growing, save=__import__("pathlib").Path("kept.jsonl")).read()',
    "%load_ext qod_magics\n%qod show --from kept.jsonl",
)
PREPARE, LINE, BAR, TABLE, THREADS, SAVE, SAVED = range(len(CELLS))


@pytest.fixture
def book(opened: Callable[..., Notebook]) -> Notebook:
    """These cells, of which the first has run."""
    notebook = opened(*CELLS, height=1200)
    notebook.run(PREPARE)
    return notebook


def canvas(notebook: Notebook) -> str:
    notebook.look_at(f"{VIEW} canvas")
    pixels: str = notebook.page.evaluate(PIXELS)
    return pixels


def test_a_chart_follows_pauses_and_goes_on(book: Notebook) -> None:
    page = book.page
    book.run(LINE)
    book.look_at(f"{VIEW} canvas")
    state = page.locator(f"{VIEW} [role=status]")
    assert state.inner_text() == "live"
    told = page.locator(".qod-told li").all_inner_texts()
    assert tells(told[0], "accuracy", "62.0%", "60.0%", "40.0%")
    assert tells(told[1], "trips estimated", "groups")
    before = canvas(book)
    assert book.until(lambda: canvas(book) != before)
    page.get_by_role("button", name="pause").click()
    page.get_by_role("button", name="resume").wait_for()
    assert state.inner_text() == "paused"
    page.wait_for_timeout(1500)  # what was under way is drawn
    still = canvas(book)
    page.wait_for_timeout(3000)
    assert canvas(book) == still
    page.get_by_role("button", name="resume").click()
    assert book.until(lambda: canvas(book) != still)


@pytest.mark.parametrize("cell", [LINE, BAR, TABLE], ids=["line", "bar", "table"])
def test_each_form_fits_its_page_in_either_theme(book: Notebook, cell: int) -> None:
    book.run(cell)
    book.look_at(f"{VIEW} table" if cell == TABLE else f"{VIEW} canvas")
    for theme in THEMES:
        book.theme(theme)
        book.page.wait_for_timeout(2500)  # for the pictures
        book.look_at(VIEW)
        book.screenshot(f"results-{('', 'line', 'bar', 'table')[cell]}-{theme}")
        assert book.page.evaluate(OVERFLOW) == []
    book.theme("light")


def test_a_table_has_intervals_and_its_newest_window_first(book: Notebook) -> None:
    book.run(TABLE)
    rows = book.page.locator(f"{VIEW} tbody tr")
    rows.first.wait_for()
    first = rows.first.inner_text()
    assert "[" in first
    assert book.until(lambda: rows.first.inner_text() != first)
    starts = [text.partition(" to ")[0] for text in rows.all_inner_texts()]
    assert starts == sorted(starts, reverse=True)


def test_nothing_is_left_of_a_view_that_is_cleared(book: Notebook) -> None:
    book.run(BAR)
    book.look_at(f"{VIEW} canvas")
    book.run(THREADS)
    printed = book.page.locator(".jp-OutputArea-output pre")
    assert printed.last.inner_text().strip() == "['qod-results']"
    book.page.evaluate("i => { jupyterapp.shell.currentWidget.content.activeCellIndex = i }", BAR)
    book.command("notebook:clear-cell-output")
    assert book.until(lambda: book.page.locator(VIEW).count() == 0)

    def gone() -> bool:
        book.run(THREADS)
        return bool(printed.last.inner_text().strip() == "[]")

    assert book.until(gone)


def test_what_was_saved_is_shown_again_and_has_ended(book: Notebook) -> None:
    book.run(SAVE)
    book.run(SAVED)
    book.look_at(f"{VIEW} canvas")
    assert book.page.locator(f"{VIEW} [role=status]").inner_text().startswith("from kept.jsonl, saved at 2026-11-21")
    assert book.page.get_by_role("button", name="pause").count() == 0
