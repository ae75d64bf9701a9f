"""One JupyterLab and one Chromium for all of these tests, and one page for each notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.lab import Notebook, chromium, jupyterlab

NEEDED = "QOD_NEEDS_BROWSER"  #: set to 1, a missing browser is an error
REPLAY = 1  #: the cell of lab 3 that shows the recording

PANEL = """\
import qod_magics
from qod_widgets.controls import Commands, Panel

class Obliging:
    def __getattr__(self, name):
        return lambda *given, **named: "so it is"

panel = Panel(Obliging(), Commands())
panel.update(qod_magics.replay("data/taxi_drives.jsonl").frames[-1], 5.0, False)
panel.view
"""


def lacking() -> str | None:
    """What these tests need and do not find."""
    if find_spec("playwright") is None:
        return "the package playwright is not installed: pip install -e '.[test]'"
    if chromium() is None:
        return "there is no Chromium: apt-get install chromium, or name one in the environment variable CHROMIUM"
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if reason := lacking():
        if os.environ.get(NEEDED) == "1":
            pytest.fail(f"{reason} ({NEEDED} is 1)", pytrace=False)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def address(browser: Any, folder: Path) -> Iterator[str]:
    with jupyterlab(folder) as served:
        yield served


@pytest.fixture(scope="module")
def replayed(browser: Any, address: str) -> Iterator[Notebook]:
    """Lab 3 in one page for all tests, for most of what a page takes is JupyterLab's own start."""
    notebook = Notebook(browser.new_page(), address % "lab3_fair_share.ipynb")
    yield notebook
    notebook.page.close()


@pytest.fixture
def lab3(replayed: Notebook) -> Iterator[Callable[..., Notebook]]:
    """Runs lab 3's first cell (anew) in a page that is so many pixels wide, until all charts are drawn. At the end the
    console may have no error."""

    def run(width: int = 1400) -> Notebook:
        replayed.page.set_viewport_size({"width": width, "height": 1900})
        replayed.run(REPLAY)
        replayed.until_drawn()
        return replayed

    yield run
    errors = list(replayed.errors)
    replayed.errors.clear()
    assert errors == []


@pytest.fixture
def panel(browser: Any, address: str, folder: Path) -> Iterator[Notebook]:
    """The controls of a session that does what it is told. At the end the console may have no error."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}  # or JupyterLab asks for one
    written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PANEL)], metadata=kernel)
    nbformat.write(written, folder / "notebooks" / "panel.ipynb")
    notebook = Notebook(browser.new_page(viewport={"width": 1000, "height": 700}), address % "panel.ipynb")
    notebook.run(0)
    yield notebook
    notebook.page.close()
    assert notebook.errors == []
