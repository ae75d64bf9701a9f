"""`python -m qod_magics run APP`: run a notebook's cells or a script, keep its queries going, and end in order."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics.arguments.option import duration
from qod_magics.arguments.parser import Parser
from qod_magics.commands.headless import Asked, CatchUp, JsonLines, Signals, cells_of, new_shell, run_cells, summary
from qod_magics.controller.journal import describe
from qod_magics.errors import QodError, QueryError, UsageProblem, counted
from qod_magics.monitoring.alarms import GIVEN_UP, SILENT, STARVED, Alarm
from qod_magics.monitoring.door import Door, check_textfile, default_token, token_in
from qod_magics.session.outside import TOLERATE_S, Outside

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

#: Exit codes; 2 is that of wrong arguments, for all commands.
ENDED, FAILED, UNUSABLE, CELL_FAILED = 0, 1, 2, 3
#: Exit codes by the kind of alarm that ends a run.
CODES = {GIVEN_UP: 4, STARVED: 5, SILENT: 6}

_EXIT_CODES = """exit codes:
  0  ended as asked: by SIGTERM or SIGINT, after --for or --until, or by the application
  1  an error of the system, such as a full disk
  2  wrong arguments, or no such application
  3  a cell raised an error
  4  a query was given up
  5  minimum accuracies did not fit on a task manager for longer than --tolerate
  6  the controller decided nothing for longer than --tolerate

Standard output has a line of JSON for each cell, decision, event, alarm and line that is printed, and a status once a
minute; the last one has the exit code and why."""

#: Seconds within which batches under way may end, once the run is to end.
FINISH_S = 10.0
#: Seconds between two looks at the sessions, and between two lines with a status.
LOOK_S, STATUS_S = 0.2, 60.0


def seconds_of(text: str) -> float:
    """Return a duration in seconds, as options of streams are read: "90s", "1h30m", or a number of seconds."""
    try:
        return duration(text)
    except UsageProblem as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def port_of(text: str) -> int:
    """Return a port, which may have a colon before it: "9400", ":9400"; 0 is a free one."""
    if not re.fullmatch(r":?\d{1,5}", text) or int(text.removeprefix(":")) > 65_535:
        raise argparse.ArgumentTypeError(f"a port must be a number from 0 to 65535, got {text!r}")
    return int(text.removeprefix(":"))


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Run a notebook's code cells, or a script's, in an IPython shell; then keep its session going.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("application", metavar="APP", type=Path, help="a notebook, or a script: .ipynb, .py or .ipy")
    parser.add_argument("--for", dest="for_s", metavar="TIME", type=seconds_of, help="end after this: 90s, 5m, 1h30m")
    parser.add_argument(
        "--until", choices=("now",), help="end once all rows are processed that are there when the cells have run"
    )
    parser.add_argument(
        "--tolerate",
        dest="tolerate_s",
        metavar="TIME",
        type=seconds_of,
        default=TOLERATE_S,
        help="end the run once minimum accuracies have not fitted, or the controller has decided nothing, for this "
        "long (default 5m)",
    )
    parser.add_argument(
        "--health",
        metavar="PORT",
        type=port_of,
        help="serve /healthz and /metrics on this port of the loopback interface",
    )
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="holds the token that /metrics asks for")
    parser.add_argument(
        "--metrics-file", metavar="FILE", type=Path, help="write metrics there for node-exporter: NAME.prom"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Raises UsageProblem for what can't be run at all."""
    given = _parser().parse_args(argv)
    if given.token_file is not None and given.health is None:
        raise UsageProblem("--token-file must go with a port, got none; add --health PORT", option="--health")
    path = given.application.expanduser().absolute()
    cells = cells_of(path)
    if given.metrics_file is not None:
        given.metrics_file = given.metrics_file.expanduser().absolute()
        check_textfile(given.metrics_file)
    with ExitStack() as stack:
        run = Run(JsonLines(sys.stdout), Signals(), given.tolerate_s, given.metrics_file)
        if given.health is not None:
            token = token_in(given.token_file or default_token())
            door = Door(given.health, run, run.health, token)
            stack.callback(door.close)
            run.lines.write("serving", metrics=door.url, health=door.url.replace("/metrics", "/healthz"))
        stack.enter_context(run.signals.heard())
        stack.enter_context(run.lines.taking_over())
        return run.whole(path, cells, given.for_s, given.until == "now")


class Run:
    """One run, from the first cell to the end of its sessions.

    Args:
        lines: what happens.
        signals: end it.
        tolerate_s: for how long minimums may not fit, and the controller may be silent.
        metrics_file: where each session's metrics go; None: to no file.
        status_s: seconds between two lines with a status.

    """

    def __init__(
        self,
        lines: JsonLines,
        signals: Signals,
        tolerate_s: float,
        metrics_file: Path | None = None,
        status_s: float = STATUS_S,
    ) -> None:
        self.lines, self.signals = lines, signals
        self._tolerate_s, self._metrics_file, self._status_s = tolerate_s, metrics_file, status_s
        self._known: list[Outside] = []
        self._goes_on = False

    def __repr__(self) -> str:
        return f"run of {counted(len(self._known), 'session')}"

    def collect(self) -> Iterator[Family]:
        """Yield the metrics of the newest session that is up, as a collector of `prometheus_client` does."""
        up = [session for session in self._known if session.alive]
        return up[-1].collector.collect() if up else iter(())

    def health(self) -> str:
        """Return why the run is not healthy; "" if it is."""
        if not self._goes_on:
            return "starting"
        return "; ".join(filter(None, (session.health() for session in self._known if session.alive)))

    def whole(self, path: Path, cells: Sequence[str], for_s: float | None, until_now: bool = False) -> int:
        """Run the cells, keep their sessions going, end them; returns the exit code."""
        shell = new_shell()
        here, argv = os.getcwd(), sys.argv
        sys.argv = [str(path)]
        sys.path.insert(0, str(path.parent))
        if path.suffix == ".ipynb":
            os.chdir(path.parent)  # as a notebook server does
        else:
            shell.user_ns["__file__"] = str(path)
        code, why = ENDED, ""
        try:
            self.lines.write("begun", application=str(path), cells=len(cells), pid=os.getpid())
            error = run_cells(shell, cells, self.signals, self.lines, lambda: self.look(shell.user_ns))
            code, why = self.keep_going(for_s, until_now) if error is None else self._failed(error)
        except Exception as error:
            code, why = UNUSABLE if isinstance(error, QodError) else FAILED, describe(error)
            raise
        finally:
            try:
                self.look(shell.user_ns)
            finally:
                left = self.end(code)
                self.lines.write("ended", code=code, why=why, left=left)
            sys.argv = argv
            os.chdir(here)
            with suppress(ValueError):
                sys.path.remove(str(path.parent))
            shell.clear_instance()
        return code

    def _failed(self, error: BaseException) -> tuple[int, str]:
        """Return the exit code for what a cell raised, and why."""
        if isinstance(error, Asked):
            return ENDED, f"{self.signals.asked} came while cells ran"
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return ENDED, "the application has ended itself"
        if isinstance(error, QueryError) and error.rule in CODES:  # of `await session.run()`
            return CODES[error.rule], str(error)
        return CELL_FAILED, f"a cell raised {type(error).__name__}: {describe(error)}"

    def look(self, names: dict[str, Any]) -> None:
        """Find the sessions that cells have begun and named, and follow each."""
        for value in list(names.values()):
            if isinstance(value, Outside) and value.alive and all(value is not known for known in self._known):
                self._known.append(value)
                value.on_event(self._alarm)
                if self._metrics_file is not None:
                    value.metrics(file=self._metrics_file)
                self.lines.write("session", session=value.id)

    def keep_going(self, for_s: float | None, until_now: bool = False) -> tuple[int, str]:
        """Wait until the run is to end; returns the exit code, and why."""
        self._goes_on = True
        now = time.monotonic()
        reading = {session.id: CatchUp() for session in self._known} if until_now else {}
        deadline, status_at = None if for_s is None else now + for_s, now + min(self._status_s, 5.0)
        while True:
            now = time.monotonic()
            up = [session for session in self._known if session.alive]
            if self.signals.asked is not None:
                return ENDED, f"{self.signals.asked} asked for it"
            if not up:
                return ENDED, "no session is up: the application has ended it, or began none"
            if deadline is not None and now >= deadline:
                return ENDED, "--for is over"
            for session in up:
                session.monitor.tick()
                problem = session.problem(self._tolerate_s)
                if problem is not None:
                    return CODES[problem.rule or ""], str(problem)
            read = [reading[session.id].done(session.rows(), session.sampled_at) for session in up if reading]
            if read and all(read):
                return ENDED, "all rows are processed that were there"
            if now >= status_at:
                status_at = now + self._status_s
                for session in up:
                    self.lines.write("status", session=session.id, **summary(session.monitor.tally.last))
            self.signals.wait(LOOK_S if deadline is None else min(LOOK_S, deadline - now))

    def end(self, code: int) -> list[str]:
        """End all sessions, batches under way first if nothing is wrong; returns what is left."""
        left: list[str] = []
        for session in self._known:
            if session.alive:
                left += session.down(finish_s=FINISH_S if code == ENDED else 0.0)
        return left

    def _alarm(self, alarm: Alarm) -> None:
        fields = alarm.to_json()
        self.lines.write("alarm", alarm=fields.pop("kind"), alarm_at=fields.pop("at"), **fields)
