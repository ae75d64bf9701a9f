"""`%%qod_stream` and `%qod`: parse, call the session, nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope
from traitlets import Bool, Enum, Float, Unicode

from qod_magics.application.options import help_text, max_latency, parse_stream_line, utility, wants_help
from qod_magics.core.policy import StagedPolicy
from qod_magics.errors import QodError, UsageProblem, nearest
from qod_magics.jvm.jit import DEFAULT_JIT, JIT_OPTIONS
from qod_magics.notebook.arguments import FLAGS, FlagsAsked, HelpShown, MagicWords, cores, pairs, restriction, split
from qod_magics.notebook.completion import Completion
from qod_magics.notebook.replies import send_through_stream
from qod_magics.notebook.show import show
from qod_magics.policies import DEFAULT_POLICY, policy_names
from qod_magics.session.displaying import in_kernel
from qod_magics.session.waiting import in_place

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.session.session import Session

_active: QodMagics | None = None


@magics_class
class QodMagics(Magics):
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
    quiet = Bool(False, help="say nothing on success").tag(config=True)

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.session: Session | None = None
        self.completion: Completion | None = None
        self._watching: asyncio.Task[None] | None = None  #: event loops keep only weak references to tasks

    # -- magics ----------------------------------------------------------------------------------------------------

    @needs_local_scope
    @line_cell_magic
    def qod_stream(self, line: str, cell: str = "", local_ns: dict[str, Any] | None = None) -> None:
        """Declare and start a stream: `%%qod_stream NAME [options]`, then a Python or SQL body. `--help` lists all.

        As a line, `%qod_stream NAME [options]`, it has no body: the stream passes its input through.
        """
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
            "report": self._report,
            "policy": self._policy,
            "pause": self._pause,
            "period": self._period,
            "override": self._override,
            "resume": self._resume,
        }

    # -- %qod ... --------------------------------------------------------------------------------------------------

    def _up(self, words: list[str]) -> None:
        parser = MagicWords("up", "Start Kafka, task managers and the controller.")
        parser.add_argument("--task-managers", "-n", type=int, default=None, help="local ones to start, default 1")
        parser.add_argument("--cores", type=int, default=None, help="cores of each local one")
        parser.add_argument("--connect", action="extend", nargs="+", default=[], metavar="URL", help="sc://host:port")
        parser.add_argument(
            "--max-task-managers", type=int, metavar="N", help="budget within which plans add and release task managers"
        )
        parser.add_argument(
            "--spare-connect", action="extend", nargs="+", default=[], metavar="URL", help="servers that plans may add"
        )
        parser.add_argument("--no-standby", action="store_true", help="start none ahead within the budget")
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
        parser.add_argument("--policy", default=self.policy, help=self._policies)
        parser.add_argument("--record", metavar="FILE", help="append the recording to this .jsonl")
        parser.add_argument("--jit", default=self.jit, choices=list(JIT_OPTIONS))
        parser.add_argument("--memory", default="1g", help="Java heap of each local task manager")
        parser.add_argument("--slots", type=int, default=32, help="task slots of each local task manager")
        parser.add_argument("--headroom", type=float, default=self.headroom)
        parser.add_argument("--checkpoints", default=self.checkpoints or None, metavar="URL")
        given = parser.read(words)
        self._refuse_second()
        from qod_magics.session.session import Session

        self._keep(
            Session.up(
                task_managers=given.task_managers if given.task_managers is not None else int(not given.connect),
                cores=given.cores,
                connect=given.connect,
                max_task_managers=given.max_task_managers,
                spare_connect=given.spare_connect,
                standby=not given.no_standby,
                kafka=given.kafka,
                kafka_options=pairs(given.kafka_option),
                kafka_cpus=cores(given.kafka_cpus),
                jit=given.jit,
                memory=given.memory,
                slots=given.slots,
                say=self._say,
                policy_name=given.policy,
                period_s=given.period,
                record=given.record,
                headroom=given.headroom,
                checkpoints=given.checkpoints,
            )
        )

    def _attach(self, words: list[str]) -> None:
        parser = MagicWords("attach", "Use the notebook's own Spark session as the only task manager.")
        parser.add_argument("name", nargs="?", default="spark", help="the variable that holds it")
        parser.add_argument("--kafka", metavar="HOST:PORT")
        parser.add_argument("--kafka-option", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--period", type=float, default=self.period)
        parser.add_argument("--policy", default=self.policy, help=self._policies)
        parser.add_argument("--record", metavar="FILE")
        given = parser.read(words)
        self._refuse_second()
        spark = self.shell.user_ns.get(given.name)
        if spark is None or not hasattr(spark, "readStream"):
            raise UsageProblem(f"%qod attach: {given.name!r} is no Spark session: name the variable that holds one")
        from qod_magics.session.session import Session

        self._keep(
            Session.attach(
                spark,
                kafka=given.kafka,
                kafka_options=pairs(given.kafka_option),
                say=self._say,
                policy_name=given.policy,
                period_s=given.period,
                record=given.record,
                checkpoints=self.checkpoints or None,
            )
        )

    def _down(self, words: list[str]) -> None:
        MagicWords("down", "Stop everything that was started.").read(words)
        session, self.session = self._session(), None
        left = session.down()
        self.shell.user_ns.pop("qod", None)
        self._say(f"down, but {'; '.join(left)}" if left else "down: no query, server or topic of ours is left")

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

    def _set(self, words: list[str]) -> None:
        parser = MagicWords("set", "Change a query's restrictions while it runs.")
        parser.add_argument("name")
        parser.add_argument("--priority", "-p", type=int)
        parser.add_argument("--min-accuracy", "-a", type=float)
        parser.add_argument("--max-latency", metavar="S", help="seconds (2s, 500ms), or none")
        parser.add_argument("--utility", metavar="U", help="0 or more, or none")
        given = parser.read(words)
        latency_s = restriction("--max-latency", given.max_latency, max_latency)
        worth = restriction("--utility", given.utility, utility)
        wanted = (
            ("priority", given.priority, ""),
            ("minimum accuracy", given.min_accuracy, ""),
            ("maximum latency", latency_s, " s"),
            ("utility", worth, ""),
        )
        told = [
            f"no {what}" if value == inf else f"{what} {value:g}{unit}"
            for what, value, unit in wanted
            if value is not None
        ]
        if not told:
            raise UsageProblem(
                f"%qod set {given.name}: nothing to set; say --priority N, --min-accuracy F, --max-latency S, "
                "--utility U, or several of them"
            )
        note = self._session().set(
            given.name,
            priority=given.priority,
            min_accuracy=given.min_accuracy,
            max_latency_s=latency_s,
            utility=worth,
        )
        also = f"; {note}" if note else ""
        self._say(f"{given.name} has {' and '.join(told)} from the next cycle on{also}")

    def _why(self, words: list[str]) -> None:
        parser = MagicWords("why", "Show the last decision about a stream, instance or task manager, and why.")
        parser.add_argument("name", nargs="?", help="without it: the stages of the policy")
        given = parser.read(words)
        session = self._session()
        print(session.stages if given.name is None else session.why(given.name))

    def _add_tm(self, words: list[str]) -> None:
        parser = MagicWords("add-tm", "Add a task manager: a local one, or the server behind a URL.")
        parser.add_argument("url", nargs="?", metavar="URL")
        parser.add_argument("--cores", type=int)
        parser.add_argument("--cpus", metavar="N,N", help="core numbers of a local one")
        parser.add_argument("--ui", metavar="URL", help="address of its Spark UI, for CPU times")
        parser.add_argument("--slots", type=int, help="task slots of a local one; default: as for `up`")
        parser.add_argument("--jit", choices=list(JIT_OPTIONS), help="its JIT compilation; default: as for `up`")
        parser.add_argument("--memory", help="Java heap of a local one; default: as for `up`")
        given = parser.read(words)
        cpus = cores(given.cpus)
        id = self._session().add_task_manager(
            given.url,
            cores=given.cores,
            cpus=sorted(cpus) if cpus else None,
            ui=given.ui,
            jit=given.jit,
            memory=given.memory,
            slots=given.slots,
        )
        self._say(f"{id} is up")

    def _remove_tm(self, words: list[str]) -> None:
        parser = MagicWords(
            "remove-tm", "Move its instances to the others, then end it or, with a budget, let it stand by."
        )
        parser.add_argument("id")
        parser.add_argument("--kill", action="store_true", help="kill a local one that hangs")
        given = parser.read(words)
        stands_by = self._session().remove_task_manager(given.id, kill=given.kill)
        self._say(f"{given.id} stands by: it hosts nothing" if stands_by else f"{given.id} is gone")

    def _move(self, words: list[str]) -> None:
        parser = MagicWords("move", "Move an instance to another task manager.")
        parser.add_argument("instance")
        parser.add_argument("task_manager")
        given = parser.read(words)
        self._session().move(given.instance, given.task_manager)
        self._say(f"{given.instance} runs on {given.task_manager}")

    def _scale(self, words: list[str]) -> None:
        parser = MagicWords("scale", "Run a task without state as more or fewer instances.")
        parser.add_argument("task")
        parser.add_argument("parallelism", type=int, help="instances")
        given = parser.read(words)
        self._session().scale(given.task, given.parallelism)
        self._say(f"{given.task} runs as {given.parallelism} instance{'s' if given.parallelism != 1 else ''}")

    def _report(self, words: list[str]) -> None:
        parser = MagicWords("report", "Write a page with charts of the recording so far.")
        parser.add_argument("path", nargs="?", default="report.html")
        given = parser.read(words)
        self._say(f"written: {os.fspath(self._session().report(given.path))}")

    def _pause(self, words: list[str]) -> None:
        parser = MagicWords("pause", "Recommend only: make plans, apply none; or pause one stage of the policy.")
        parser.add_argument("stage", nargs="?", help="as %%qod policy lists them")
        given = parser.read(words)
        if given.stage is None:
            self._session().pause()
            self._say("paused: plans are recommended, not applied")
        else:
            self._session().pause_stage(given.stage)
            self._say(f"stage {given.stage} is paused: it proposes nothing")

    def _policy(self, words: list[str]) -> None:
        parser = MagicWords("policy", "Have another policy decide from the next cycle on; without a name, show it.")
        parser.add_argument("name", nargs="?", help=self._policies)
        given = parser.read(words)
        if given.name is not None:
            self._session().set_policy(given.name)
        print(self._session().stages)

    def _period(self, words: list[str]) -> None:
        parser = MagicWords("period", "Change the time between decisions.")
        parser.add_argument("seconds", type=float)
        given = parser.read(words)
        self._session().set_period(given.seconds)
        self._say(f"a decision every {given.seconds:g} s")

    def _override(self, words: list[str]) -> None:
        parser = MagicWords("override", "Hold a shedder's non-drop probability by hand, or return it to the plan.")
        parser.add_argument("name", help='a source, or a stream "from>to"')
        parser.add_argument("d", help="a fraction from 0 to 1, or auto")
        given = parser.read(words)
        try:
            d = None if given.d == "auto" else float(given.d)
        except ValueError:
            raise UsageProblem(f"%qod override: {given.d!r} is neither a fraction nor auto") from None
        self._session().override(given.name, d)
        self._say(f"{given.name} follows the plan again" if d is None else f"{given.name} is held at {d:g}")

    def _resume(self, words: list[str]) -> None:
        parser = MagicWords("resume", "Apply plans again; or resume one stage of the policy.")
        parser.add_argument("stage", nargs="?")
        given = parser.read(words)
        if given.stage is None:
            self._session().resume()
            self._say("plans are applied again")
        else:
            self._session().pause_stage(given.stage, False)
            self._say(f"stage {given.stage} proposes actions again")

    def flags(self) -> dict[str, list[str]]:
        """The options of each command, for completion."""
        found: dict[str, list[str]] = {}
        for name, command in self._commands().items():
            try:
                command([FLAGS])
            except FlagsAsked as answer:
                found[name] = answer.args[0]
        return found

    # -- names for completion --------------------------------------------------------------------------------------

    @property
    def streams(self) -> list[str]:
        """Declared streams."""
        return list(session.application.names) if (session := self._there) else []

    @property
    def instances(self) -> list[str]:
        """Ids of the instances."""
        return list(session.runtime.instances) if (session := self._there) else []

    @property
    def task_managers(self) -> list[str]:
        """Ids of the task managers."""
        return list(session.runtime.task_managers) if (session := self._there) else []

    @property
    def shedders(self) -> list[str]:
        """Sources, and streams "from>to"."""
        return list(session.shedders) if (session := self._there) else []

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of policies."""
        return policy_names()

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages of the policy that decides."""
        decides = session.controller.policy if (session := self._there) else None
        return decides.stage_names if isinstance(decides, StagedPolicy) else ()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _session(self) -> Session:
        if self.session is None or not self.session.alive:
            raise UsageProblem("nothing is up: begin with %qod up (or %qod attach, for the notebook's own session)")
        return self.session

    @property
    def _policies(self) -> str:
        return f"one of {', '.join(policy_names())}; default {self.policy}"

    @property
    def _there(self) -> Session | None:
        return self.session if self.session is not None and self.session.alive else None

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
        """Stop the session, if one is up."""
        session, self.session = self.session, None
        if session is not None:
            session.down()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in `shell`."""
    global _active
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    send_through_stream(shell)
    _active = QodMagics(shell)
    shell.register_magics(_active)
    _active.completion = Completion(shell, _active, _active.flags())
    _active.completion.begin()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop everything that was started, and remove the magics."""
    global _active
    if _active is not None:
        _active.close()
        if _active.completion is not None:
            _active.completion.end()
        shell.configurables[:] = [one for one in shell.configurables if not isinstance(one, QodMagics)]
        _active = None
    shell.user_ns.pop("qod", None)
    for kind in shell.magics_manager.magics.values():
        for name in ("qod", "qod_stream"):
            kind.pop(name, None)


__all__ = ["QodError", "QodMagics", "load_ipython_extension", "unload_ipython_extension"]
