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


#: A recording whose query TDSnk1 has labels, as a session's has, and whose tm3 joins while tm4 stands by.
LABELLED = """\
import qod_magics
from qod_widgets.dashboard import Dashboard

frames = qod_magics.replay("data/taxi_drives.jsonl").frames[-3:]
words = "zone exact; trips of the rows kept only; groups of which no row is kept are missing"
changing = {"tm3": "starting", "tm4": "standby"}
frames = [
    {
        **frame,
        "nodes": changing,
        "tasks": [{**task, "labels": words if task["id"] == "TDSnk1" else None} for task in frame["tasks"]],
    }
    for frame in frames
]
Dashboard("labelled", frames)
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


def write_book(folder: Path, name: str, *cells: str) -> str:
    """A notebook of these cells, where it is served; its name."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}  # or JupyterLab asks for one
    written = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)), metadata=kernel)
    nbformat.write(written, folder / "notebooks" / name)
    return name


@pytest.fixture
def opened(browser: Any, address: str, folder: Path) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook of these cells in a page of its own. At the end no console may have an error."""
    notebooks: list[Notebook] = []

    def open_(*cells: str, height: int = 700) -> Notebook:
        name = write_book(folder, f"book{len(list(folder.glob('notebooks/book*')))}.ipynb", *cells)
        notebooks.append(Notebook(browser.new_page(viewport={"width": 1000, "height": height}), address % name))
        return notebooks[-1]

    yield open_
    for notebook in notebooks:
        notebook.page.close()
    assert [error for notebook in notebooks for error in notebook.errors] == []


@pytest.fixture
def panel(opened: Callable[..., Notebook]) -> Notebook:
    """The controls of a session that does what it is told."""
    notebook = opened(PANEL)
    notebook.run(0)
    return notebook


@pytest.fixture
def labelled(opened: Callable[..., Notebook]) -> Notebook:
    """The dashboard of a query that may be shed."""
    notebook = opened(LABELLED, height=1200)
    notebook.run(0)
    return notebook
