"""`%%qod_stream` and `%qod`: parse, call the session, nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope
from traitlets import Bool, Enum, Float, Unicode, observe

from qod_magics.application.streams.options import help_text, parse_stream_line, wants_help
from qod_magics.application.streams.words import joined
from qod_magics.errors import QodError, UsageProblem, nearest
from qod_magics.jvm.java import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.notebook.arguments import FLAGS, FlagsAsked, HelpShown, MagicWords, split
from qod_magics.notebook.cluster_commands import ClusterCommands
from qod_magics.notebook.completion import Completion
from qod_magics.notebook.decision_commands import DecisionCommands
from qod_magics.notebook.logs import log_from
from qod_magics.notebook.replies import send_through_stream
from qod_magics.notebook.show import show
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.session.displaying import in_kernel
from qod_magics.session.waiting import in_place

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.session.session import Session

_active: QodMagics | None = None


@magics_class
class QodMagics(ClusterCommands, DecisionCommands, Magics):
    """The magics of one shell. `%config QodMagics` shows and sets the defaults of `%qod up`."""

    shell: InteractiveShell
    period = Float(5.0, help="seconds between two decisions of the controller").tag(config=True)
    headroom = Float(0.1, help="part of each task manager's cores that plans leave free, 0..1").tag(config=True)
    policy = Unicode(DEFAULT_POLICY, help="the policy that decides (stream-economics: the paper's)").tag(config=True)
    jit = Enum(
        list(JIT_OPTIONS),
        DEFAULT_JIT,
        help="JIT compilation of local task managers: full; jvm, the JVM's defaults; or c1 for runs of a few minutes",
    ).tag(config=True)
    checkpoints = Unicode(
        "", help="where checkpoints go: any URL that Spark writes to; empty: a temporary directory"
    ).tag(config=True)
    log_level = Enum(
        ["DEBUG", "INFO", "WARNING", "ERROR", ""],
        "",
        help="write what happens from this level on to the notebook's standard error; DEBUG has whole tracebacks",
    ).tag(config=True)
    quiet = Bool(False, help="say nothing on success").tag(config=True)

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.session: Session | None = None
        self._spark: object = None  #: the session that `spark` was bound to in the notebook
        self.completion: Completion | None = None
        self._watching: asyncio.Task[None] | None = None  #: event loops keep only weak references to tasks

    @observe("log_level")
    def _set_log_level(self, change: Any) -> None:
        log_from(change["new"])

    # -- magics ----------------------------------------------------------------------------------------------------

    @needs_local_scope
    @line_cell_magic
    def qod_stream(self, line: str, cell: str = "", local_ns: dict[str, Any] | None = None) -> None:
        """Declare and start a stream: `%%qod_stream NAME [options]`, then a Python or SQL body. `--help` lists all.

        As a line, `%qod_stream NAME [options]`, it has no body: the stream passes its input through.
        """
        line, cell = joined(line, cell)
        if wants_help(line):
            print(help_text())
            return
        options = parse_stream_line(line)
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        handle = self._session().cell(options, cell, namespace)
        if not options.dry_run:
            self.shell.user_ns[options.name] = handle
        self._say(handle.said)

    @line_magic
    def qod(self, line: str) -> Any:
        """`%qod up | attach | down | status | watch | set | why ...`: `%qod` alone lists all; each has -h."""
        words = split(line)
        commands = self._commands()
        if not words or words[0] in ("-h", "--help", "help"):
            print("%qod " + " | ".join(commands) + "\nEach explains itself: %qod up -h")
            return None
        if words[0] not in commands:
            raise UsageProblem(
                f"there is no %qod {words[0]!r}.{nearest(words[0], commands)} %qod alone lists them all."
            )
        try:
            return commands[words[0]](words[1:])
        except HelpShown:
            return None

    def _commands(self) -> dict[str, Callable[[list[str]], Any]]:
        return {
            "up": self._up,
            "attach": self._attach,
            "down": self._down,
            "topic": self._topic,
            "status": self._status,
            "watch": self._watch,
            "show": self._show,
            "stop": self._stop,
            "set": self._set,
            "why": self._why,
            "add-tm": self._add_tm,
            "remove-tm": self._remove_tm,
            "move": self._move,
            "scale": self._scale,
            "fuse": self._fuse,
            "unfuse": self._unfuse,
            "report": self._report,
            "policy": self._policy,
            "pause": self._pause,
            "period": self._period,
            "override": self._override,
            "resume": self._resume,
        }

    # -- %qod ... --------------------------------------------------------------------------------------------------

    def _status(self, words: list[str]) -> None:
        MagicWords("status", "What runs where, and how it keeps up.").read(words)
        print(self._session().status())

    def _watch(self, words: list[str]) -> None:
        parser = MagicWords(
            "watch",
            "Show the dashboard here; in a terminal, the status once a period. `await qod.watch(30)` waits as well.",
        )
        parser.add_argument("seconds", nargs="?", type=float, help="show the status for this long, in a notebook too")
        given = parser.read(words)
        if given.seconds is not None and not given.seconds > 0:
            raise UsageProblem(f"%qod watch {given.seconds:g} shows nothing: take a number of seconds above 0")
        session = self._session()
        if given.seconds is None and in_kernel():
            session.view.show()
            return
        seconds = 30.0 if given.seconds is None else given.seconds
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a terminal has no loop of its own
            asyncio.run(session.watch(seconds))
        else:
            self._watching = loop.create_task(session.watch(seconds, in_place()))

    def _show(self, words: list[str]) -> None:
        show(words, self._session)

    def _stop(self, words: list[str]) -> None:
        parser = MagicWords("stop", "Stop and remove a stream.")
        parser.add_argument("name", nargs="?")
        parser.add_argument("--all", action="store_true")
        given = parser.read(words)
        if given.all == (given.name is not None):
            raise UsageProblem("%qod stop NAME, or %qod stop --all")
        if given.all:
            self._session().stop_all()
        else:
            self._session().stop(given.name)
        self._say("stopped")

    def _report(self, words: list[str]) -> None:
        parser = MagicWords("report", "Write a page with charts of the recording so far.")
        parser.add_argument("path", nargs="?", default="report.html")
        given = parser.read(words)
        self._say(f"written: {os.fspath(self._session().report(given.path))}")

    def flags(self) -> dict[str, list[str]]:
        """The options of each command, for completion."""
        found: dict[str, list[str]] = {}
        for name, command in self._commands().items():
            try:
                command([FLAGS])
            except FlagsAsked as answer:
                found[name] = answer.args[0]
        return found

    # -- inside ----------------------------------------------------------------------------------------------------

    def before_cell(self, *_: object) -> None:
        """Bind `spark` to another session where that of the last cell has ended, with its task manager or by `stop`."""
        if self._spark is not None and (session := self._there) is not None:
            self._bind_spark(session)

    def close(self) -> None:
        """Stop the session, if one is up."""
        session, self.session = self.session, None
        if session is not None:
            session.down()
        self._unbind()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`."""
    global _active
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    send_through_stream(shell)
    _active = QodMagics(shell)
    shell.register_magics(_active)
    _active.completion = Completion(shell, _active, _active.flags())
    _active.completion.begin()
    shell.events.register("pre_run_cell", _active.before_cell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop everything that was started, and remove the magics."""
    global _active
    if _active is not None:
        _active.close()
        shell.events.unregister("pre_run_cell", _active.before_cell)
        if _active.completion is not None:
            _active.completion.end()
        shell.configurables[:] = [one for one in shell.configurables if not isinstance(one, QodMagics)]
        _active = None
    for kind in shell.magics_manager.magics.values():
        for name in ("qod", "qod_stream"):
            kind.pop(name, None)


__all__ = ["QodError", "QodMagics", "load_ipython_extension", "unload_ipython_extension"]
