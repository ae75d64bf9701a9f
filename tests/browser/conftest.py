"""One JupyterLab and one Chromium for all of these tests; a page of its own for each."""

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


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook in a page that is so many pixels wide. At the end no console may have an error."""
    notebooks: list[Notebook] = []

    def open_(name: str, width: int = 1400, height: int = 1900) -> Notebook:
        page = browser.new_page(viewport={"width": width, "height": height})
        notebooks.append(Notebook(page, address % name))
        return notebooks[-1]

    yield open_
    for notebook in notebooks:
        notebook.page.close()
    assert [error for notebook in notebooks for error in notebook.errors] == []


@pytest.fixture
def lab3(opened: Callable[..., Notebook]) -> Callable[..., Notebook]:
    """Opens lab 3 and runs its first cell, until all charts are drawn."""

    def open_(width: int = 1400) -> Notebook:
        notebook = opened("lab3_fair_share.ipynb", width)
        notebook.run(REPLAY)
        notebook.until_drawn()
        return notebook

    return open_


@pytest.fixture
def panel(opened: Callable[..., Notebook], address: str, folder: Path) -> Notebook:
    """The controls of a session that does what it is told."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}  # or JupyterLab asks for one
    written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PANEL)], metadata=kernel)
    nbformat.write(written, folder / "notebooks" / "panel.ipynb")
    notebook = opened("panel.ipynb", 1000, 700)
    notebook.run(0)
    return notebook
