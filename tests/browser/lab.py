"""A JupyterLab of its own on a copy of the notebooks, and a page of Chromium that shows it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1

from qod_magics.machine.java import free_ports
from qod_magics.notebook import replies

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "build" / "screens"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
#: Names of Chromium on Debian and elsewhere; the environment variable CHROMIUM comes before them.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UP_S = 120.0
PATIENCE_S = 120.0  #: what is drawn is waited for; no longer than it takes

#: The number of cells that run or wait for their turn.
RUNNING = """[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].filter(
    prompt => prompt.textContent.includes('*')).length"""

#: What is evaluated in a page has no limit of time of its own.
COMMAND = """([name, given, ms]) => new Promise((done, fail) => {
    jupyterapp.commands.execute(name, given).then(() => done(null), fail);
    setTimeout(() => fail(new Error(`${name} has not ended within ${ms / 1000} s`)), ms);
})"""

#: No news, no question about news, and outputs that are not scrolled within the cell.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}


def chromium() -> str | None:
    """The path of a Chromium, if there is one."""
    found = (shutil.which(name) for name in (os.environ.get("CHROMIUM"), *BROWSERS) if name)
    return next((path for path in found if path), None)


@contextmanager
def jupyterlab(work: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve a copy of notebooks/ from below `work`; the address of its files, %s for a file's name.

    `more` goes into the environment of the server and of its kernels.
    """
    shutil.copytree(ROOT / "notebooks", work / "notebooks", symlinks=False)
    for name, values in SETTINGS.items():
        file = work / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), "utf-8")
    profile = work / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(
        f"c.IPKernelApp.extra_extensions = [{replies.__name__!r}]\n", "utf-8"
    )
    (port,), token = free_ports(1), secrets.token_hex(16)
    options = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={work / 'notebooks'}",
        f"--LabApp.user_settings_dir={work / 'settings'}",
        f"--LabApp.workspaces_dir={work / 'workspaces'}",
        "--LabApp.expose_app_in_browser=True",
    ]
    own = {"CONFIG": "config", "DATA": "data", "RUNTIME": "run"}
    environment = {
        **os.environ,
        **{f"JUPYTER_{kind}_DIR": str(work / folder) for kind, folder in own.items()},
        "IPYTHONDIR": str(work / "ipython"),
        "JUPYTER_TOKEN": token,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        **(more or {}),
    }
    with (work / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(server, port, work / "lab.log")
            yield f"http://127.0.0.1:{port}/lab/tree/%s?token={token}&reset"
        finally:
            _end(server)


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not come up:\n{log.read_text('utf-8')[-3000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its kernels, which it would otherwise ask to end and wait for."""
    try:
        kernels = psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        kernels = []
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(15)
    for kernel in kernels:
        with suppress(psutil.NoSuchProcess):
            kernel.kill()
    psutil.wait_procs(kernels, 10)


class Notebook:
    """A notebook that is open in a page: its cells are run, its outputs looked at. `errors` are the console's."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("websocket", lambda websocket: websocket.on("framereceived", self._received))
        page.goto(address, wait_until="domcontentloaded")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=180_000)
        page.wait_for_function("window.jupyterapp && jupyterapp.shell.currentWidget?.sessionContext?.isReady")
        page.evaluate("document.querySelector('#jp-left-stack') && jupyterapp.shell.collapseLeft()")

    def _received(self, frame: bytes | str) -> None:
        """Note a kernel's message that is not in order, part by part: the console only says that there is one."""
        if isinstance(frame, bytes):
            _, parts = deserialize_msg_from_ws_v1(frame)
            try:
                for part in parts[:4]:
                    json.loads(part)
            except ValueError:
                self.errors.append(f"not in order: {[bytes(part[:300]) for part in parts]}")

    def command(self, name: str, **arguments: Any) -> None:
        """Carry out one of JupyterLab's commands, and wait for it."""
        self.page.evaluate(COMMAND, [name, arguments, 1000 * PATIENCE_S])

    def run(self, cell: int, wait: bool = True) -> None:
        """Run the code cell at this position, counted among all cells."""
        self.page.evaluate("i => { jupyterapp.shell.currentWidget.content.activeCellIndex = i }", cell)
        if wait:
            self.command("notebook:run-cell")
        else:
            self.page.evaluate("() => { jupyterapp.commands.execute('notebook:run-cell') }")

    def run_all(self) -> None:
        """Begin to run all cells."""
        self.page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells') }")

    def look_at(self, part: str) -> None:
        """Scroll to a part of the page, once it is there."""
        self.page.wait_for_selector(part, state="attached", timeout=180_000)
        self.page.evaluate("part => document.querySelector(part).scrollIntoView()", part)

    def restart(self) -> None:
        """Begin anew with another kernel: what the button does, and what it asks answered with yes."""
        restart = "jupyterapp.commands.execute('notebook:restart-kernel').then(() => null)"
        self.page.evaluate(f"() => {{ window.restarted = {restart} }}")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.evaluate("window.restarted")
        idle = "jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
        self.page.wait_for_function(idle, timeout=180_000)

    def until_drawn(self, charts: int = 5) -> None:
        """Wait until so many charts are on show."""
        count = f"document.querySelectorAll('.qod-chart canvas').length >= {charts}"
        assert self.until_in_sight(lambda: self.page.evaluate(count)), f"no {charts} charts are drawn; {self.shown()}"

    def shown(self) -> str:
        """What the dashboard says instead, for a message: its words, the cells' errors and the console's."""
        parts = ".qod-dashboard header, .qod-waiting, .qod-notice, .jp-OutputArea-output[data-mime-type$=error]"
        said = self.page.evaluate(f"[...document.querySelectorAll({parts!r})].map(part => part.innerText.slice(-300))")
        drawn = self.page.locator(".qod-chart canvas").count()
        return f"{drawn} are, {[words for words in said if words]}, {self.errors}"

    def until_in_sight(self, true: Callable[[], object]) -> bool:
        """Whether it becomes true while the dashboard is looked at: charts are drawn where they can be seen, and
        JupyterLab scrolls to each cell that it runs."""

        def looked_at() -> object:
            self.page.evaluate("document.querySelector('.qod-dashboard')?.scrollIntoView()")
            return true()

        return self.until(looked_at)

    def until(self, true: Callable[[], object]) -> bool:
        """Whether it becomes true; the page goes on meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                return False
            self.page.wait_for_timeout(200)
        return True

    def pixels(self) -> list[str]:
        """What each chart looks like."""
        each = "[...document.querySelectorAll('.qod-chart canvas')].map(canvas => canvas.toDataURL())"
        found: list[str] = self.page.evaluate(each)
        return found

    def theme(self, name: str) -> None:
        """Switch to "light" or "dark"."""
        self.command("apputils:change-theme", theme=THEMES[name])
        self.page.wait_for_selector(f'body[data-jp-theme-light="{str(name == "light").lower()}"]', state="attached")

    def screenshot(self, name: str, of: Any = None) -> Path:
        """Save a picture of the page or of a part of it."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        path = SCREENS / f"{name}.png"
        path.write_bytes((of or self.page).screenshot())  # given a path, Playwright leaves threads behind
        return path
