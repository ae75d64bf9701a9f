"""`%%qod_stream` and `%qod`: parse, call the session, nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand
from IPython.utils.text import DollarFormatter
from traitlets import Bool, Enum, Float, Unicode, observe

from qod_magics.application.streams.options import COMMAND as STREAM
from qod_magics.application.streams.options import parse_stream_line
from qod_magics.application.streams.sinks import FUNCTION
from qod_magics.arguments.option import Option
from qod_magics.arguments.parser import Command, continued, joined, wants_help, words_of
from qod_magics.errors import QodError, UsageProblem, nearest
from qod_magics.notebook.commands import AlarmLines, ClusterCommands, DecisionCommands
from qod_magics.notebook.files import options_of, with_file
from qod_magics.notebook.options import CHECKPOINTS, COMMANDS, CONFIGURABLE, HEADROOM, JIT, PERIOD, POLICY
from qod_magics.notebook.replies import send_through_stream
from qod_magics.results.drawing import Wish
from qod_magics.session.decisions import in_place
from qod_magics.session.show import in_kernel, show_sample

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.results.exact import Exact
    from qod_magics.session.session import Session


# --- Completion -------------------------------------------------------------------------------------------------------
# Completion of the magics' lines: commands, options, streams, instances, task managers. All pure but `Completion`.

#: Returns the names of a kind that there are now, by `Option.names`: streams, instances, ...
Names = Callable[[str], Iterable[str]]


def suggestions(line: str, names: Names) -> list[str] | None:
    """Return completions of the last word of `line`, which ends at the cursor; None where the line is not ours."""
    words = line.split(" ")
    magic, typed = words[0], words[-1]
    if len(words) < 2 or magic not in (STREAM.name, "%qod_stream", "%qod"):
        return None
    before = [word for word in words[1:-1] if word]
    if magic != "%qod":
        found = _values(STREAM, before, names) if before else names("streams")
    elif not before:
        found = COMMANDS
    else:
        command = COMMANDS.get(before[0])
        found = () if command is None else _values(command, before[1:], names)
    return [each for each in dict.fromkeys(found) if each.startswith(typed) and each not in before]


def line_to_cursor(text: str, line: int, position: int) -> str:
    """Return a magic line up to the cursor: the lines above that end with a backslash belong to it."""
    lines = text.splitlines()
    if line >= len(lines):
        return ""
    whole = lines[line][:position]
    for above in reversed(lines[:line]):
        begun = continued(above)
        if begun is None:
            break
        whole = f"{begun} {whole}"
    return whole


def _values(command: Command, before: Sequence[str], names: Names) -> Iterable[str]:
    """Return what may follow these words: values of the last option, or the next argument and the options."""
    last = next((word for word in reversed(before) if word.startswith("-")), "")
    row = command.option(last)
    if row is not None and not row.switch and (before[-1] == last or row.several):
        return _of(row, names) if before[-1] == last else [*_of(row, names), *command.flags]
    options = [each for word in before if (each := command.option(word)) is not None and not each.switch]
    given = len([word for word in before if not word.startswith("-")]) - len(options)
    arguments = command.arguments
    if given >= len(arguments) and arguments and arguments[-1].several:
        given = len(arguments) - 1
    found = [name for each in arguments[given : given + 1] for name in _of(each, names)]
    return [*found, *(word for each in arguments[given : given + 1] for word in _after(each, before)), *command.flags]


def _after(row: Option, before: Sequence[str]) -> Iterable[str]:
    return () if row.following is None else row.following(before)


def _of(row: Option, names: Names) -> list[str]:
    listed = row.one_of() if row.one_of else ()
    return [*row.choices, *row.offers, *listed, *(name for kind in row.names for name in names(kind))]


def expanded(line: str, namespace: Mapping[str, Any]) -> str:
    """Return a magic line with the values of the notebook's variables, as IPython does, but for the function that
    `--sink $NAME` names."""
    named = FUNCTION.sub(r"\1function:\2", line)
    try:
        return DollarFormatter().vformat(named, (), namespace)
    except Exception:  # a text in braces that is none of Python's
        return named


class Completion:
    """A completion matcher of a shell, installed from `begin` to `end`."""

    def __init__(self, shell: InteractiveShell, names: Names) -> None:
        from IPython.core.completer import SimpleCompletion, context_matcher

        self._completer = shell.Completer

        @context_matcher(identifier="qod_magics")  # type: ignore[untyped-decorator, unused-ignore]
        def matcher(context: CompletionContext) -> Any:
            line = line_to_cursor(context.full_text, context.cursor_line, context.cursor_position)
            found = suggestions(line, names)
            completions = [SimpleCompletion(text=each, type="option") for each in found or ()]
            return {"completions": completions, "suppress": bool(found)}

        self._matcher = matcher

    def begin(self) -> None:
        """Install the matcher."""
        if self._completer is not None:
            self._completer.custom_matchers.append(self._matcher)

    def end(self) -> None:
        """Remove the matcher; idempotent."""
        if self._completer is not None and self._matcher in self._completer.custom_matchers:
            self._completer.custom_matchers.remove(self._matcher)


_active: QodMagics | None = None

LOGGER = logging.getLogger("qod_magics")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Shown(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error."""


def log_from(level: str) -> None:
    """Write records of this package from a level on to standard error; with "" none.

    A record also goes to the handlers that the user gave the root logger, as any library's does.
    """
    for handler in [each for each in LOGGER.handlers if isinstance(each, _Shown)]:
        LOGGER.removeHandler(handler)
    LOGGER.setLevel(level or logging.NOTSET)
    if level:
        handler = _Shown()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        LOGGER.addHandler(handler)


@magics_class
class QodMagics(ClusterCommands, DecisionCommands, Magics):
    """The magics of one shell. `%config QodMagics` shows and sets the defaults of `%qod up`."""

    shell: InteractiveShell
    period = Float(PERIOD.default, help=PERIOD.help).tag(config=True)
    headroom = Float(HEADROOM.default, help=HEADROOM.help).tag(config=True)
    policy = Unicode(POLICY.default, help=POLICY.help).tag(config=True)
    jit = Enum(JIT.choices, JIT.default, help=JIT.help).tag(config=True)
    checkpoints = Unicode("", help=f"{CHECKPOINTS.help}; empty: {CHECKPOINTS.unless}").tag(config=True)
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
        self.alarm_lines = AlarmLines(shell)
        self._watching: asyncio.Task[None] | None = None  #: event loops keep only weak references to tasks

    @observe("log_level")
    def _set_log_level(self, change: Any) -> None:
        log_from(change["new"])

    # -- magics ----------------------------------------------------------------------------------------------------

    @needs_local_scope
    @no_var_expand
    @line_cell_magic
    def qod_stream(self, line: str, cell: str = "", local_ns: dict[str, Any] | None = None) -> None:
        """Declare and start a stream. As a line magic it has no body: the stream passes its input through."""
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        line, cell = joined(expanded(line, namespace), cell)
        if wants_help(line):
            print(STREAM.help())
            return
        options = parse_stream_line(line)
        handle = self._session().cell(options, cell, namespace)
        if not options.dry_run:
            self.shell.user_ns[options.name] = handle
        self._say(handle.said)

    @line_magic
    def qod(self, line: str) -> Exact | None:
        """Run a command: `%qod` alone lists all; each has -h. Returns what has values of its own: those of `exact`."""
        try:
            words = words_of(line)
        except UsageProblem as error:
            raise UsageProblem(f"%qod: {error}") from None
        if not words or words[0] in ("-h", "--help", "help"):
            print("%qod " + " | ".join(COMMANDS) + "\nEach explains itself: %qod up -h")
            return None
        name = words[0]
        if name not in COMMANDS:
            raise UsageProblem(f"there is no %qod {name!r}.{nearest(name, COMMANDS)} %qod alone lists them all.")
        defaults = self._defaults if name in CONFIGURABLE else {}
        if wants_help(line):
            print(COMMANDS[name].help(defaults, words[1:]))
            return None
        command = COMMANDS[name]
        file = command.given(words[1:])[0].get("config")
        held = {} if file is None else options_of(file, command)
        given = with_file(command.read(words[1:], defaults | held), held, command)
        found: Exact | None = getattr(self, f"_{name.replace('-', '_')}")(given)
        return found

    # -- %qod ... --------------------------------------------------------------------------------------------------

    def _status(self, given: Namespace) -> None:
        print(self._session().status())

    def _watch(self, given: Namespace) -> None:
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

    def _show(self, given: Namespace) -> None:
        wish = Wish(given.kind, given.x, given.y, given.rows)
        if (given.query is None) == (given.sample is None) or (given.sample and given.save):
            raise UsageProblem("%qod show QUERY [--save FILE], or %qod show --from FILE")
        if given.sample is not None:
            shown = show_sample(Path(given.sample).expanduser().absolute(), wish)
        else:
            shown = self._session().views.show(given.query, wish, given.save)
            shown.read()  # what is wrong is one line
        if in_kernel():
            shown.display()
        else:
            print(shown)

    def _exact(self, given: Namespace) -> Exact:
        if given.from_ is None or given.to is None:
            raise UsageProblem("%qod exact QUERY --from TIME --to TIME, of windows of the past", option="--from")
        return self._session().exact(**vars(given), say=self._say)

    def _stop(self, given: Namespace) -> None:
        if given.all == (given.name is not None):
            raise UsageProblem("%qod stop NAME, or %qod stop --all")
        if given.all:
            self._session().stop_all()
        else:
            self._session().stop(given.name)
        self._say("stopped")

    def _report(self, given: Namespace) -> None:
        self._say(f"written: {os.fspath(self._session().report(given.path))}")

    def _metrics(self, given: Namespace) -> None:
        self._say(self._session().metrics(**vars(given)))

    # -- inside ----------------------------------------------------------------------------------------------------

    def before_cell(self, *_: object) -> None:
        """Bind `spark` to another session where that of the last cell has ended, with its task manager or by `stop`;
        alarms go under this cell from now on."""
        self.alarm_lines.cell_begins()
        if self._spark is not None and (session := self._there) is not None:
            self._bind_spark(session)

    def close(self) -> None:
        """Stop the session, if one is up."""
        session, self.session = self.session, None
        if session is not None:
            session.down()
        self._unbind()


#: What `%qod_stream?` and `%qod?` show.
QodMagics.qod_stream.__doc__ = STREAM.help()
QodMagics.qod.__doc__ = "\n".join(
    ["%qod COMMAND", *(f"  {name:<10} {each.summary}" for name, each in COMMANDS.items())]
)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`."""
    global _active
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    send_through_stream(shell)
    _active = QodMagics(shell)
    shell.register_magics(_active)
    _active.completion = Completion(shell, _active.names)
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
