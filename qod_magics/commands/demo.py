"""`python -m qod_magics demo`: run the overload notebook end to end, with live text, a verdict and a report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qod_magics.controller.log import DecisionLog, Entry
from qod_magics.controller.record import Record, record_from_json
from qod_magics.core.snapshot import TaskManager
from qod_magics.errors import QodError, SetupError, UsageProblem
from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.recordings.criteria import format_verdict
from qod_magics.recordings.reading import Narrator, Query, load, queries
from qod_magics.recordings.verdict import verdict

# --- The view in a terminal -------------------------------------------------------------------------------------------
# The live view of a run while it is recorded: it updates in place in a terminal; elsewhere, a line per cycle.

#: kinds of entries other than decisions: shown only until there is a decision
ASIDE = frozenset({"warm-up", "warm-up-over", "reaction"})
BAR = 30  #: characters that stand for all cores of a task manager
LONGEST = 160  #: characters of a decision on a line


def show(out: Path, done: threading.Event, length_s: float) -> None:
    """Show the recording run.jsonl in `out` while it is written, until `done`. `length_s`: how long that is expected to
    take, seconds."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    view = View(length_s)
    tail = Tail(out / "run.jsonl")
    if console.is_terminal:
        with Live(view.renderable(), console=console, refresh_per_second=4) as live:
            while not done.wait(0.25):
                for record in tail:
                    view.read(record)
                live.update(view.renderable())
        return
    print(f"running the notebook, about {minutes(length_s)}: {STARTING}", flush=True)
    while not done.wait(0.5):
        for record in tail:
            view.read(record)
            if not record.repeated:
                print(view.line(), flush=True)


STARTING = "starting Kafka and Spark"


class Tail:
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


@dataclass
class View:
    """What is shown: the newest record, and the last decision in words."""

    length_s: float  #: how long the run is expected to take, seconds
    clock: Callable[[], float] = time.monotonic  #: seconds
    last: Record | None = None
    decision: Entry | None = None
    news: tuple[Entry, ...] = ()  #: what the newest record adds to the decision log

    def __post_init__(self) -> None:
        self._narrator = Narrator(DecisionLog())
        self._began = self.clock()
        self._begun = False  #: whether there was a phase with a name

    def read(self, record: Record) -> None:
        """Take in the next record of a recording."""
        self.last = record
        self._begun |= bool(record.phase)
        self.news = self._narrator.entries(record)
        for entry in self.news:
            if entry.kind not in ASIDE or self.decision is None or self.decision.kind in ASIDE:
                self.decision = entry

    @property
    def elapsed_s(self) -> float:
        """Return seconds since the run began."""
        return self.clock() - self._began

    @property
    def phase(self) -> str:
        """Return the phase of the newest record, in words."""
        if self.last is None:
            return STARTING
        name = self.last.phase.replace("-", " ") or ("the load changes" if self._begun else "getting ready")
        if self.last.applied:
            return name
        return f"{name} (controller off)" if self.last.phase or not self._begun else "controller off"

    @property
    def left(self) -> str:
        """Return the time left, in words."""
        left_s = self.length_s - self.elapsed_s
        return f"about {minutes(left_s)} left" if left_s >= 1 else "a moment left"

    def line(self) -> str:
        """Return the newest record in one line, with what was decided in its cycle."""
        record = self.last
        if record is None:
            return STARTING
        told = [
            f"{minutes(self.elapsed_s)} {self.phase}, {self.left}",
            *(
                f"{name} {arriving(record, name):,.0f} rows/s, accuracy {fraction(record.measured.accuracy.get(name))} "
                f"(min {query.min_accuracy:g}), backlog {backlog(record, name):,}"
                for name, query in by_priority(record)
            ),
            ", ".join(map(cpu_text, record.snapshot.task_managers)),
        ]
        if decided := self._decided(record):
            told.append(shortened("; ".join(decided), LONGEST))
        return " | ".join(told)

    def _decided(self, record: Record) -> list[str]:
        """Return what the newest record adds, without its reasons; of shedding what its queries get, not where it
        begins."""
        asked = queries(record)
        told = [entry for entry in self.news if entry.kind not in ASIDE]
        return [
            entry.words.split("; ")[0] for entry in told if entry.kind != "shedding" or set(entry.names) & set(asked)
        ]

    def renderable(self) -> Any:
        """Return all of it for a terminal: phase and time left, queries, task managers, the last decision."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        record = self.last
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self.phase, style="bold"),
            ProgressBar(total=self.length_s, completed=min(self.elapsed_s, self.length_s), width=BAR),
            Text(f"{minutes(self.elapsed_s)}, {self.left}"),
        )
        if record is None:
            return head
        table = Table(expand=False)
        names = (
            "query",
            "priority",
            "on",
            "rows/s",
            "accuracy",
            "planned",
            "minimum",
            "backlog, rows",
            "dropped, rows",
        )
        for name in names:
            table.add_column(name, justify="left" if name in ("query", "on") else "right")
        for name, query in by_priority(record):
            table.add_row(*_row(record, name, query))
        machines = Table.grid(padding=(0, 2))
        for manager in record.snapshot.task_managers:
            full = 100 * manager.cores
            bar = ProgressBar(total=full, completed=min(manager.cpu, full), width=BAR)
            machines.add_row(Text(manager.id), bar, Text(cpu_text(manager).removeprefix(f"{manager.id} ")))
        decided = self.decision
        said = "nothing was decided yet"
        if decided is not None:
            ago = max((record.at - decided.at).total_seconds(), 0)
            said = decided.words + (f" ({ago:.0f} s ago)" if ago >= 1 else "")
        return Group(head, table, machines, Text(f"last decision: {said}"))


def _row(record: Record, name: str, query: Query) -> tuple[str, ...]:
    own = [instance for instance in record.snapshot.instances if instance.task == name]
    feeds = upstream(record, name)
    return (
        name,
        str(query.priority),
        " ".join(instance.task_manager + ("*" if instance.warming_up else "") for instance in own),
        f"{arriving(record, name):,.0f}",
        fraction(record.measured.accuracy.get(name)),
        fraction(record.plan.desired.get(name)),
        fraction(query.min_accuracy),
        f"{backlog(record, name):,}",
        f"{sum(record.measured.dropped.get(feed, 0) for feed in feeds):,}",
    )


def by_priority(record: Record) -> list[tuple[str, Query]]:
    """Return the queries of a record, the most important first."""
    return sorted(queries(record).items(), key=lambda named: (-named[1].priority, named[0]))


def upstream(record: Record, name: str) -> list[str]:
    """Return what a task's rows pass through on their way to it: sources by name, streams as "from>to"."""
    above = {task.id: task.upstream for task in record.snapshot.tasks}
    feeds: dict[str, None] = {}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        task = waiting.pop()
        if task in seen:
            continue
        seen.add(task)
        feeds.update(dict.fromkeys(f"{source}>{task}" for source in above.get(task, ())))
        if not above.get(task):
            feeds[task] = None
        waiting += above.get(task, ())
    return list(feeds)


def backlog(record: Record, name: str) -> int:
    """Return rows that a query has still to read: those before it and before all that it reads from."""
    return sum(record.measured.lag.get(feed, 0) for feed in upstream(record, name))


def arriving(record: Record, name: str) -> float:
    """Return rows/s that come from outside for a query, before any are dropped."""
    rates = record.measured.input_rate
    return sum(rates.get(feed, 0.0) for feed in upstream(record, name) if ">" not in feed)


def cpu_text(manager: TaskManager) -> str:
    """Return the CPU of a task manager, in words."""
    return f"{manager.id} {manager.cpu:.0f} % of {100 * manager.cores:.0f} %"


def fraction(value: float | None) -> str:
    """Return an accuracy with two digits; "-" where there is none."""
    return "-" if value is None else f"{value:.2f}"


def minutes(seconds: float) -> str:
    """Return seconds as minutes:seconds."""
    whole, rest = divmod(max(int(seconds), 0), 60)
    return f"{whole}:{rest:02d}"


def shortened(text: str, most: int) -> str:
    """Return the text, or as much of it as `most` characters have room for."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


NOTEBOOK = "taxi_drives_overload.ipynb"
AUTO_NOTEBOOK = "taxi_drives_auto.ipynb"
#: Seconds that each notebook takes at full length, for the progress bar.
LENGTH_S = {NOTEBOOK: 540.0, AUTO_NOTEBOOK: 480.0}
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


def _judge(out: Path, notebook: str = NOTEBOOK, short: bool = False, write: Callable[..., object] | None = None) -> int:
    from qod_magics.reports.page import write_report

    write = write or write_report
    run = load(out / "run.jsonl")
    off = load(out / "off.jsonl") if (out / "off.jsonl").exists() else None
    settle_s = SHORT_SETTLES * run[0].period_s if short and notebook == NOTEBOOK else None
    criteria = verdict(run, off, settle_s=settle_s)
    write(out / "report.html", run, off, criteria, title=TITLES.get(notebook, notebook))
    print(format_verdict(criteria))
    print(f"report: {out / 'report.html'}\nrecording: {out / 'run.jsonl'}")
    return 0 if all(criterion.passed for criterion in criteria) else 1
