"""A run without a notebook server: cells in an IPython shell, lines of JSON in place of outputs, and signals."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import IO, Any

from qod_magics.controller.journal import describe
from qod_magics.controller.log import Entry
from qod_magics.core.runtime import FeedRows
from qod_magics.errors import UsageProblem

# --- Cells ------------------------------------------------------------------------------------------------------------

#: Begins a cell in a script, as in editors that run scripts cell by cell.
_CELL = re.compile(r"^# ?%%.*$", re.MULTILINE)


def cells_of(path: Path) -> list[str]:
    """Return the code cells of a notebook, or those of a script: the parts between lines "# %%".

    Raises UsageProblem: there is no such file, it is neither, or is no notebook.
    """
    if path.suffix not in (".ipynb", ".py", ".ipy"):
        raise UsageProblem(
            f"an application must be a notebook or a script (.ipynb, .py, .ipy), got {path.name!r}; rename it",
            value=path.name,
            rule="suffix",
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(
            f"the application must be a readable file, got {str(path)!r} ({describe(error)}); name another",
            value=str(path),
            rule="readable",
        ) from error
    if path.suffix != ".ipynb":
        return [part for part in _CELL.split(text) if part.strip()]
    import nbformat

    try:
        book = nbformat.reads(text, 4)
        return [cell.source for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]
    except Exception as error:
        raise UsageProblem(
            f"the application must be a notebook, got {path.name!r} ({describe(error)[:200]}); save it again",
            value=path.name,
            rule="notebook",
        ) from error


# --- Lines of JSON ----------------------------------------------------------------------------------------------------


class JsonLines(logging.Handler):
    """Writes what happens as lines of JSON: decisions and events, warnings, and what cells print.

    Each line has `at` (UTC) and `kind`. All methods are safe from any thread.
    """

    def __init__(self, to: IO[str]) -> None:
        super().__init__(logging.INFO)
        self._to = to

    def write(self, kind: str, **fields: Any) -> None:
        """Write a line."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "kind": kind, **fields}, default=str)
        with self.lock or threading.RLock():
            self._to.write(f"{line}\n")
            self._to.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write an entry of a decision log, or a warning of any library."""
        entry = getattr(record, "entry", None)
        try:
            if isinstance(entry, Entry):
                numbers = dict(entry.numbers)
                self.write(entry.kind, cycle=entry.cycle, words=entry.words, names=list(entry.names), numbers=numbers)
            elif record.levelno >= logging.WARNING:
                self.write("log", level=record.levelname, logger=record.name, words=record.getMessage())
        except Exception:
            self.handleError(record)

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """Have all that is printed and logged be lines."""
        root, ours = logging.getLogger(), logging.getLogger("qod_magics")
        before, level = (sys.stdout, sys.stderr), ours.level
        sys.stdout, sys.stderr = _Printed(self, "stdout"), _Printed(self, "stderr")
        taken = sys.stdout, sys.stderr
        root.addHandler(self)
        ours.setLevel(logging.INFO)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for stream in taken:
                stream.write("\n")  # what was no whole line yet
            root.removeHandler(self)
            ours.setLevel(level)


class _Printed(io.TextIOBase):
    """A stream whose lines become lines of JSON; progress bars, which write a line again and again, leave the last."""

    def __init__(self, lines: JsonLines, name: str) -> None:
        self._lines, self._name, self._begun = lines, name, ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return what libraries ask for."""
        return "utf-8"

    def writable(self) -> bool:
        """Return True: it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Tell the lines that are whole now."""
        with self._lock:
            *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._tell(line)
        return len(text)

    def _tell(self, line: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        if shown.strip():
            self._lines.write("printed", stream=self._name, words=shown)


# --- Signals ----------------------------------------------------------------------------------------------------------


class Asked(BaseException):
    """Raised in a cell when the run is asked to end."""

    def _render_traceback_(self) -> list[str]:
        return []


class Signals:
    """Notes that the process is asked to end (SIGTERM, SIGINT), and ends the cell under way.

    Attributes:
        asked: the signal's name; None: there was none.

    """

    def __init__(self) -> None:
        self.asked: str | None = None
        self._event = threading.Event()
        self._in_cell = False

    def __repr__(self) -> str:
        return f"signals: {self.asked or 'none'}"

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear them; a second one is none more than the first."""
        before = {each: signal.signal(each, self._hear) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def ending_cell(self) -> Iterator[None]:
        """Raise `Asked` in what runs here."""
        self._in_cell = True
        try:
            yield
        finally:
            self._in_cell = False

    def wait(self, seconds: float) -> None:
        """Wait, or until there is one."""
        self._event.wait(max(seconds, 0.0))

    def _hear(self, number: int, frame: FrameType | None) -> None:
        first = self.asked is None
        self.asked = self.asked or signal.Signals(number).name
        self._event.set()
        if first and self._in_cell:
            raise Asked


# --- The shell --------------------------------------------------------------------------------------------------------


def new_shell() -> Any:
    """Return an IPython shell without history, whose outputs are plain text."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.cache_size = 0
    warnings.filterwarnings("ignore", "To exit")  # what it says of `sys.exit()`, which ends a run
    InteractiveShell.clear_instance()
    return InteractiveShell.instance(config=config)


def run_cells(
    shell: Any, cells: Sequence[str], signals: Signals, lines: JsonLines, after: Callable[[], None]
) -> BaseException | None:
    """Run cells one after the other, until one fails or a signal comes; returns what was raised.

    Args:
        shell: an IPython shell.
        cells: their sources.
        signals: end a cell.
        lines: gets a line for each cell.
        after: called after each cell.

    """
    for number, cell in enumerate(cells, 1):
        begun = time.monotonic()
        try:
            with signals.ending_cell():
                found = shell.run_cell(cell)
            error: BaseException | None = found.error_before_exec or found.error_in_exec
        except Asked as asked:  # outside of the cell's own code
            error = asked
        after()
        if signals.asked is not None:
            return Asked()
        if error is not None:
            lines.write("cell-failed", cell=number, words=describe(error), error=type(error).__name__)
            return error
        lines.write("cell", cell=number, of=len(cells), took_s=round(time.monotonic() - begun, 3))
    return None


def summary(cycle: Any) -> Mapping[str, Any]:
    """Return what a status line has of the last cycle with a decision: accuracies and lag by query."""
    decision = None if cycle is None else cycle.decision
    if decision is None:
        return {}
    measured, plan = decision.measured, decision.plan
    queries = {
        task.id: {
            "measured": measured.accuracy.get(task.id),
            "planned": plan.desired.get(task.id),
            "minimum": task.min_accuracy,
            "latency_p95_s": task.latency_p95_s,
        }
        for task in decision.snapshot.tasks
        if task.min_accuracy is not None or task.priority is not None
    }
    rows = {name: {"lag": measured.lag.get(name), "dropped": n} for name, n in measured.dropped.items()}
    return {"cycle": cycle.number, "queries": queries, "rows": rows, "starved": list(plan.starved)}


# --- Until now --------------------------------------------------------------------------------------------------------


#: Of three samples of offsets, the first may be old, and the second may have been asked for before the first look.
NEW_SAMPLES = 3


class CatchUp:
    """Finds out when all rows that were there at first have been read, by every task that they lead to.

    A round notes what has arrived at each input, and is over once all of that is read. A row is one task further with
    each round, so it takes as many as the longest path has tasks. What has arrived is noted by offsets that the broker
    was asked for after the round before was over: older ones lack what its last batches wrote. Pure.
    """

    def __init__(self) -> None:
        self._rounds = 0  #: that are over
        self._due: Mapping[str, int] | None = None  #: rows that each input is to have read in this round; None: unknown
        self._samples: list[float | None] = []  #: times of the samples since the last round was over, and the one then

    def __repr__(self) -> str:
        return f"catching up: {self._rounds} rounds are over"

    def done(self, rows: Sequence[FeedRows], sampled_at: float | None) -> bool:
        """Return whether they have been read, given the rows now, and when the broker was last asked for offsets."""
        read = {each.feed: each.count.arrived - each.count.waiting for each in rows}
        arrived = {each.feed: each.count.arrived for each in rows}
        if any(each.topic and not each.waiting for each in rows):
            return False  # nobody has asked the broker yet
        if self._due is not None and self._due.keys() != arrived.keys():  # the application has changed
            self._rounds, self._due, self._samples = 0, None, []
        if self._due is None:
            if sampled_at not in self._samples:
                self._samples.append(sampled_at)
            if len(self._samples) < NEW_SAMPLES and any(each.topic for each in rows):
                return False
            self._due = arrived
        if any(read[feed] < due for feed, due in self._due.items()):
            return False
        self._rounds, self._due, self._samples = self._rounds + 1, None, [sampled_at]
        return self._rounds >= _longest(rows)


def _longest(rows: Sequence[FeedRows]) -> int:
    """Return the number of tasks on the longest path, by the names of their inputs; one at least."""
    above: dict[str, set[str]] = {each.task: set() for each in rows}
    for each in rows:
        source, _, reader = each.feed.rpartition(">")
        if source in above:
            above[reader].add(source)
    depth: dict[str, int] = {}
    for task in TopologicalSorter(above).static_order():
        depth[task] = 1 + max((depth[each] for each in above[task]), default=0)
    return max(depth.values(), default=1)
