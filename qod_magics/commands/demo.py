"""`python -m qod_magics demo`: run the overload notebook end to end, with live text, a verdict and a report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from qod_magics.controller.record import Record
from qod_magics.controller.record_json import record_from_json
from qod_magics.core.runtime import Event
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import QodError, SetupError, UsageProblem
from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.recordings.criterion import format_verdict
from qod_magics.recordings.names import queries
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict

NOTEBOOK = "taxi_drives_overload.ipynb"
AUTO_NOTEBOOK = "taxi_drives_auto.ipynb"
#: Seconds that each notebook takes at full length, for the progress bar.
LENGTH_S = {NOTEBOOK: 460.0, AUTO_NOTEBOOK: 480.0}
#: The title of each one's report.
TITLES = {NOTEBOOK: "Taxi Drives, overloaded", AUTO_NOTEBOOK: "Taxi Drives, with task managers that follow the load"}
#: Scale of `--short`: phases this short still have a settled part.
SHORT = 0.8


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
        problem = _play(notebook, out, SHORT if given.short else 1.0)
        if problem is not None:
            print(f"demo: {problem}")
            return 2
        return _judge(out, notebook.name)
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
            client.execute(env=environment)
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
        _show(out, done, LENGTH_S.get(notebook.name, LENGTH_S[NOTEBOOK]) * scale)
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


def _show(out: Path, done: threading.Event, length_s: float) -> None:
    """The live view: redrawn in a terminal, one line per cycle elsewhere."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    progress = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("of about {task.fields[full]}"),
        console=console,
    )
    minutes, seconds = divmod(int(length_s), 60)
    bar = progress.add_task("Taxi Drives", total=length_s, full=f"{minutes}:{seconds:02d}")
    begun = time.monotonic()
    tails = [_Tail(out / "run.jsonl"), _Tail(out / "off.jsonl")]
    last: Record | None = None
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            while not done.wait(0.25):
                for tail in tails:
                    last = next(iter(list(tail)[-1:]), last)
                progress.update(bar, completed=min(time.monotonic() - begun, length_s), description=_phase(last))
                live.update(Group(*([_table(last)] if last else []), progress))
        return
    print(f"running the notebook, about {minutes}:{seconds:02d}", flush=True)
    while not done.wait(0.5):
        for tail in tails:
            for record in tail:
                print(_one_line(record, time.monotonic() - begun, length_s), flush=True)


class _Tail:
    """Iterates over the records added to a recording since the last iteration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def __iter__(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                self.offset += len(raw)
                yield record_from_json(json.loads(raw))


def _phase(record: Record | None) -> str:
    if record is None:
        return "starting Kafka and Spark"
    return (record.phase or "starting") + ("" if record.applied else " (controller off)")


def _table(record: Record) -> Any:
    from rich.table import Table

    snapshot, measured = record.snapshot, record.measured
    table = Table(title=_machines(snapshot), title_justify="left", expand=False)
    for name in ("task", "on", "rows/s in", "CPU %", "accuracy", "planned", "minimum", "lag, rows", "dropped, rows"):
        table.add_column(name, justify="left" if name in ("task", "on") else "right")
    for task in snapshot.tasks:
        own = [instance for instance in snapshot.instances if instance.task == task.id]
        feeds = [f"{upstream}>{task.id}" for upstream in task.upstream] or [task.id]
        table.add_row(
            task.id,
            " ".join(instance.task_manager + ("*" if instance.warming_up else "") for instance in own),
            f"{sum(instance.in_rate for instance in own):,.0f}",
            f"{sum(instance.cpu for instance in own):.1f}",
            _fraction(measured.accuracy.get(task.id)),
            _fraction(record.plan.desired.get(task.id)),
            _fraction(task.min_accuracy),
            f"{sum(measured.lag.get(feed, 0) for feed in feeds):,}",
            f"{sum(measured.dropped.get(feed, 0) for feed in feeds):,}",
        )
    news = [_words(event) for event in record.events]
    table.caption = "; ".join(news) if news else None
    return table


def _one_line(record: Record, elapsed_s: float, length_s: float) -> str:
    measured = record.measured
    shares = "  ".join(
        f"{name} {_fraction(measured.accuracy.get(name))} (min {query.min_accuracy:g})"
        for name, query in queries(record).items()
    )
    lag = sum(measured.lag.values())
    arriving = sum(rate for name, rate in measured.input_rate.items() if ">" not in name)
    news = "".join(f"\n      {_words(event)}" for event in record.events)
    return (
        f"[{100 * min(elapsed_s / length_s, 1):3.0f} %] {_phase(record):<22} {_machines(record.snapshot)}  "
        f"in {arriving:,.0f}/s  {shares}  lag {lag:,}{news}"
    )


def _machines(snapshot: Snapshot) -> str:
    return "  ".join(f"{tm.id} {tm.cpu:.0f} % of {100 * tm.cores:.0f} %" for tm in snapshot.task_managers)


def _words(event: Event) -> str:
    return f"{event.kind}: {', '.join(f'{key} {value}' for key, value in event.detail.items())}"


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _judge(out: Path, notebook: str = NOTEBOOK) -> int:
    from qod_magics.reports.page import write_report

    run = load(out / "run.jsonl")
    off = load(out / "off.jsonl") if (out / "off.jsonl").exists() else None
    criteria = verdict(run, off)
    write_report(out / "report.html", run, off, criteria, title=TITLES.get(notebook, notebook))
    print(format_verdict(criteria))
    print(f"report: {out / 'report.html'}\nrecording: {out / 'run.jsonl'}")
    return 0 if all(criterion.passed for criterion in criteria) else 1
