"""`python -m qod_magics demo`: run the overload notebook end to end, with live text, a verdict and a report."""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

from qod_magics.commands.demo_view import show
from qod_magics.errors import QodError, SetupError, UsageProblem
from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.recordings.criteria import format_verdict
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict

NOTEBOOK = "taxi_drives_overload.ipynb"
AUTO_NOTEBOOK = "taxi_drives_auto.ipynb"
#: Seconds that each notebook takes at full length, for the progress bar.
LENGTH_S = {NOTEBOOK: 480.0, AUTO_NOTEBOOK: 480.0}
#: Periods by which a phase of the short overload has settled: it begins once what waited is read.
SHORT_SETTLES = 2.0
#: The title of each one's report.
TITLES = {NOTEBOOK: "Taxi Drives, overloaded", AUTO_NOTEBOOK: "Taxi Drives, with task managers that follow the load"}
#: Scale of `--short`, by notebook: phases this short still have a settled part.
SHORT = {NOTEBOOK: 0.5, AUTO_NOTEBOOK: 0.8}


def main(argv: list[str]) -> int:
    """Run the demo; 0 if every criterion holds, 1 if one fails, 2 if it could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m qod_magics demo", description="Overloaded Taxi Drives, end to end, with a report."
    )
    parser.add_argument("--short", action="store_true", help="shorter phases, the same criteria")
    parser.add_argument("--auto", action="store_true", help="policy auto: task managers join and leave with the load")
    parser.add_argument("--out", type=Path, default=None, help="where the report goes; default build/demo")
    parser.add_argument("--notebook", type=Path, default=None, help="another notebook of the same shape")
    given = parser.parse_args(argv)
    out: Path = (given.out or Path("build/demo-auto" if given.auto else "build/demo")).resolve()
    try:
        notebook = given.notebook or Path("notebooks") / (AUTO_NOTEBOOK if given.auto else NOTEBOOK)
        _check(notebook)
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"--out {out} can't be written: {error.strerror}. Name another directory.") from error
        problem = _play(notebook, out, SHORT.get(notebook.name, SHORT[NOTEBOOK]) if given.short else 1.0)
        if problem is not None:
            print(f"demo: {problem}")
            return 2
        return _judge(out, notebook.name, given.short)
    except QodError as error:
        print(f"demo: {error}")
        return 2
    except KeyboardInterrupt:
        print("demo: interrupted; everything it started has ended")
        return 2


def _check(path: Path) -> None:
    if not path.is_file():
        raise SetupError(f"No {path} here: run the demo from the top of the repository, or name one with --notebook.")


def _play(notebook: Path, out: Path, scale: float) -> str | None:
    """Execute the notebook in its own kernel while showing the recording. Returns None, or the error as text."""
    import nbformat
    from jupyter_core.utils import ensure_async
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    try:
        book = nbformat.read(notebook, 4)
    except Exception as error:
        return f"{notebook} can't be read as a notebook: {' '.join(str(error).split())[:200]}"
    environment = {**os.environ, "QOD_DEMO_BUILD": str(out), "QOD_DEMO_SCALE": repr(scale)}
    where = {"metadata": {"path": str(notebook.resolve().parent)}}
    client = NotebookClient(book, timeout=900, resources=where, extra_arguments=[FROM_THE_START])
    said: list[str | None] = [None]
    done = threading.Event()

    def run() -> None:
        try:
            with (out / "kernel.log").open("wb") as log:  # what libraries print is no part of the view
                client.execute(env=environment, stderr=log)
        except CellExecutionError as error:
            said[0] = f"a cell of {notebook.name} failed: {error.ename}: {error.evalue}"
        except Exception as error:
            said[0] = f"{notebook.name} could not be run: {type(error).__name__}: {error}"
        finally:
            done.set()

    for name in ("run.jsonl", "off.jsonl"):
        (out / name).unlink(missing_ok=True)
    thread = threading.Thread(target=run, name="notebook", daemon=True)
    thread.start()
    try:
        show(out, done, LENGTH_S.get(notebook.name, LENGTH_S[NOTEBOOK]) * scale)
    except KeyboardInterrupt:
        kernel = client.km  # the client forgets it once the notebook has ended
        if kernel is not None:
            with suppress(RuntimeError):  # it has not started yet
                asyncio.run(ensure_async(kernel.interrupt_kernel()))
            if not done.wait(5.0):
                asyncio.run(ensure_async(kernel.shutdown_kernel(now=True)))
        raise
    thread.join(30.0)
    nbformat.write(book, out / notebook.name)
    return said[0]


def _judge(out: Path, notebook: str = NOTEBOOK, short: bool = False) -> int:
    from qod_magics.reports.page import write_report

    run = load(out / "run.jsonl")
    off = load(out / "off.jsonl") if (out / "off.jsonl").exists() else None
    settle_s = SHORT_SETTLES * run[0].period_s if short and notebook == NOTEBOOK else None
    criteria = verdict(run, off, settle_s=settle_s)
    write_report(out / "report.html", run, off, criteria, title=TITLES.get(notebook, notebook))
    print(format_verdict(criteria))
    print(f"report: {out / 'report.html'}\nrecording: {out / 'run.jsonl'}")
    return 0 if all(criterion.passed for criterion in criteria) else 1
