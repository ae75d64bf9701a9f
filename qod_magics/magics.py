"""`%%qod_stream` and `%qod`: parse, call the session, nothing else."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, needs_local_scope
from traitlets import Bool, Float, Unicode

from qod_magics.application.options import help_text, parse_stream_line, wants_help
from qod_magics.errors import QodError, UsageProblem, nearest
from qod_magics.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.session import Session

_active: QodMagics | None = None


class _Words(argparse.ArgumentParser):
    """An argument parser that raises one line instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"%{self.prog}: {message} ({self.format_usage().strip()})")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageProblem(self.format_help().strip())


@magics_class
class QodMagics(Magics):
    """The magics of one shell. `%config QodMagics` shows and sets the defaults of `%qod up`."""

    shell: InteractiveShell
    period = Float(5.0, help="seconds between two decisions of the controller").tag(config=True)
    headroom = Float(0.1, help="part of each task manager's cores that plans leave free, 0..1").tag(config=True)
    policy = Unicode(DEFAULT_POLICY, help="the policy that decides").tag(config=True)
    jit = Unicode("c1", help="how local task managers compile: c1 (soon at speed) or full").tag(config=True)
    checkpoints = Unicode(
        "", help="where checkpoints lie: any URL that Spark writes; empty: a temporary directory"
    ).tag(config=True)
    quiet = Bool(False, help="say nothing on success").tag(config=True)

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.session: Session | None = None

    # -- magics ----------------------------------------------------------------------------------------------------

    @needs_local_scope
    @cell_magic
    def qod_stream(self, line: str, cell: str, local_ns: dict[str, Any] | None = None) -> None:
        """Declare and start a stream: `%%qod_stream NAME [options]`, then a Python or SQL body. `--help` lists all."""
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
        """`%qod up|attach|down|status|watch|stop|set|why|add-tm|remove-tm|move|report|pause|resume`; each has -h."""
        words = _split(line)
        commands = self._commands()
        if not words or words[0] in ("-h", "--help", "help"):
            print("%qod " + " | ".join(commands) + "\nEach explains itself: %qod up -h")
            return None
        if words[0] not in commands:
            raise UsageProblem(f"there is no %qod {words[0]!r}.{nearest(words[0], commands)}")
        return commands[words[0]](words[1:])

    def _commands(self) -> dict[str, Callable[[list[str]], Any]]:
        return {
            "up": self._up,
            "attach": self._attach,
            "down": self._down,
            "status": self._status,
            "watch": self._watch,
            "stop": self._stop,
            "set": self._set,
            "why": self._why,
            "add-tm": self._add_tm,
            "remove-tm": self._remove_tm,
            "move": self._move,
            "report": self._report,
            "pause": self._pause,
            "resume": self._resume,
        }

    # -- %qod ... --------------------------------------------------------------------------------------------------

    def _up(self, words: list[str]) -> None:
        parser = _Words("qod up", description="Start Kafka, task managers and the controller.")
        parser.add_argument("--task-managers", "-n", type=int, default=None, help="local ones to start, default 1")
        parser.add_argument("--cores", type=int, default=None, help="cores of each local one")
        parser.add_argument("--connect", action="extend", nargs="+", default=[], metavar="URL", help="sc://host:port")
        parser.add_argument("--kafka", metavar="HOST:PORT", help="your own broker")
        parser.add_argument(
            "--kafka-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="an option of its clients (SASL, TLS), as librdkafka names it",
        )
        parser.add_argument("--kafka-cpus", metavar="N,N", help="cores for the embedded broker")
        parser.add_argument("--period", type=float, default=self.period, help="seconds between decisions")
        parser.add_argument("--policy", default=self.policy)
        parser.add_argument("--record", metavar="FILE", help="append the recording to this .jsonl")
        parser.add_argument("--jit", default=self.jit, choices=["c1", "full"])
        parser.add_argument("--memory", default="1g", help="Java heap of each local task manager")
        parser.add_argument("--headroom", type=float, default=self.headroom)
        parser.add_argument("--checkpoints", default=self.checkpoints or None, metavar="URL")
        given = parser.parse_args(words)
        self._refuse_second()
        from qod_magics.session import Session

        self._keep(
            Session.up(
                task_managers=given.task_managers if given.task_managers is not None else int(not given.connect),
                cores=given.cores,
                connect=given.connect,
                kafka=given.kafka,
                kafka_options=_pairs(given.kafka_option),
                kafka_cpus=_cores(given.kafka_cpus),
                jit=given.jit,
                memory=given.memory,
                say=self._say,
                policy_name=given.policy,
                period_s=given.period,
                record=given.record,
                headroom=given.headroom,
                checkpoints=given.checkpoints,
            )
        )

    def _attach(self, words: list[str]) -> None:
        parser = _Words("qod attach", description="Use the notebook's own Spark session as the only task manager.")
        parser.add_argument("name", nargs="?", default="spark", help="the variable that holds it")
        parser.add_argument("--kafka", metavar="HOST:PORT")
        parser.add_argument("--kafka-option", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--period", type=float, default=self.period)
        parser.add_argument("--policy", default=self.policy)
        parser.add_argument("--record", metavar="FILE")
        given = parser.parse_args(words)
        self._refuse_second()
        spark = self.shell.user_ns.get(given.name)
        if spark is None or not hasattr(spark, "readStream"):
            raise UsageProblem(f"%qod attach: {given.name!r} is no Spark session: name the variable that holds one")
        from qod_magics.session import Session

        self._keep(
            Session.attach(
                spark,
                kafka=given.kafka,
                kafka_options=_pairs(given.kafka_option),
                say=self._say,
                policy_name=given.policy,
                period_s=given.period,
                record=given.record,
                checkpoints=self.checkpoints or None,
            )
        )

    def _down(self, words: list[str]) -> None:
        _Words("qod down", description="Stop everything that was started.").parse_args(words)
        session, self.session = self._session(), None
        session.down()
        self.shell.user_ns.pop("qod", None)
        self._say("down: no query, server or topic of ours is left")

    def _status(self, words: list[str]) -> None:
        _Words("qod status", description="What runs where, and how it keeps up.").parse_args(words)
        print(self._session().status())

    def _watch(self, words: list[str]) -> Any:
        parser = _Words(
            "qod watch", description="Show the status once a period; cells wait with `await qod.watch(30)`."
        )
        parser.add_argument("seconds", nargs="?", type=float, default=None)
        given = parser.parse_args(words)
        session = self._session()
        if given.seconds is None:
            print(session.status())
            return None
        return session.watch(given.seconds)

    def _stop(self, words: list[str]) -> None:
        parser = _Words("qod stop", description="Stop a stream and forget it.")
        parser.add_argument("name", nargs="?")
        parser.add_argument("--all", action="store_true")
        given = parser.parse_args(words)
        if given.all == (given.name is not None):
            raise UsageProblem("%qod stop NAME, or %qod stop --all")
        if given.all:
            self._session().stop_all()
        else:
            self._session().stop(given.name)
        self._say("stopped")

    def _set(self, words: list[str]) -> None:
        parser = _Words("qod set", description="Change a query's restrictions while it runs.")
        parser.add_argument("name")
        parser.add_argument("--priority", "-p", type=int)
        parser.add_argument("--min-accuracy", "-a", type=float)
        given = parser.parse_args(words)
        self._session().set(given.name, priority=given.priority, min_accuracy=given.min_accuracy)

    def _why(self, words: list[str]) -> None:
        parser = _Words(
            "qod why", description="What was last decided about a stream, instance or task manager, and why."
        )
        parser.add_argument("name")
        print(self._session().why(parser.parse_args(words).name))

    def _add_tm(self, words: list[str]) -> None:
        parser = _Words("qod add-tm", description="Add a task manager: a local one, or the server behind a URL.")
        parser.add_argument("url", nargs="?", metavar="URL")
        parser.add_argument("--cores", type=int)
        parser.add_argument("--cpus", metavar="N,N", help="the very cores of a local one")
        parser.add_argument("--ui", metavar="URL", help="address of its Spark UI, for CPU times")
        given = parser.parse_args(words)
        cpus = _cores(given.cpus)
        id = self._session().add_task_manager(
            given.url, cores=given.cores, cpus=sorted(cpus) if cpus else None, ui=given.ui, jit=self.jit
        )
        self._say(f"{id} is up")

    def _remove_tm(self, words: list[str]) -> None:
        parser = _Words("qod remove-tm", description="Move its instances to the others, then end it.")
        parser.add_argument("id")
        given = parser.parse_args(words)
        self._session().remove_task_manager(given.id)
        self._say(f"{given.id} is gone")

    def _move(self, words: list[str]) -> None:
        parser = _Words("qod move", description="Move an instance to another task manager.")
        parser.add_argument("instance")
        parser.add_argument("task_manager")
        given = parser.parse_args(words)
        self._session().move(given.instance, given.task_manager)
        self._say(f"{given.instance} runs on {given.task_manager}")

    def _report(self, words: list[str]) -> None:
        parser = _Words("qod report", description="Write a page with charts of the recording so far.")
        parser.add_argument("path", nargs="?", default="report.html")
        given = parser.parse_args(words)
        self._say(f"written: {os.fspath(self._session().report(given.path))}")

    def _pause(self, words: list[str]) -> None:
        _Words("qod pause", description="Recommend only: make plans, apply none.").parse_args(words)
        self._session().pause()
        self._say("paused: plans are recommended, not applied")

    def _resume(self, words: list[str]) -> None:
        _Words("qod resume", description="Apply plans again.").parse_args(words)
        self._session().resume()
        self._say("plans are applied again")

    # -- inside ----------------------------------------------------------------------------------------------------

    def _session(self) -> Session:
        if self.session is None or not self.session.alive:
            raise UsageProblem("nothing is up: begin with %qod up (or %qod attach, for the notebook's own session)")
        return self.session

    def _refuse_second(self) -> None:
        if self.session is not None and self.session.alive:
            raise UsageProblem("a session is up already: %qod down ends it, %qod add-tm adds a task manager to it")

    def _keep(self, session: Session) -> None:
        self.session = session
        self.shell.user_ns["qod"] = session

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, flush=True)

    def close(self) -> None:
        """Stop whatever is up."""
        session, self.session = self.session, None
        if session is not None:
            session.down()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`."""
    global _active
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    _active = QodMagics(shell)
    shell.register_magics(_active)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop all that was started, and take the magics away."""
    global _active
    if _active is not None:
        _active.close()
        _active = None
    shell.user_ns.pop("qod", None)
    shell.magics_manager.magics["line"].pop("qod", None)
    shell.magics_manager.magics["cell"].pop("qod_stream", None)


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageProblem(f"%qod: {error} in {line!r}") from None


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageProblem(f"an option is NAME=VALUE, not {word!r}")
        pairs[name] = value
    return pairs


def _cores(text: str | None) -> set[int] | None:
    if text is None:
        return None
    try:
        return {int(word) for word in text.split(",")}
    except ValueError:
        raise UsageProblem(f"cores are numbers with commas between, such as 0,1, not {text!r}") from None


__all__ = ["QodError", "QodMagics", "load_ipython_extension", "unload_ipython_extension"]
