"""What all commands of `%qod` share, alarms under the last cell, and the commands about decisions: each calls a method
of the session."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from qod_magics.arguments.option import Option, pairs
from qod_magics.core.policy import StagedPolicy
from qod_magics.errors import KafkaError, TaskManagerError, UsageProblem, counted
from qod_magics.notebook.files import kafka_of
from qod_magics.notebook.options import COMMANDS, CONFIGURED, RESTRICTIONS, parameters_text
from qod_magics.policies.parameters import assigned
from qod_magics.spark.servers.connection import hidden
from qod_magics.spark.servers.remote import asked_for

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.monitoring.alarms import Alarm
    from qod_magics.session.session import Session


# --- Alarms ----------------------------------------------------------------------------------------------------------
# They come on a thread of their own, often while no cell runs. What a thread prints goes, by the version of ipykernel,
# under the cell that started the thread or under another one. So a line is sent as the output of a certain cell, on the
# standard error stream: it is no part of what the cell has computed.


class AlarmLines:
    """Writes alarms under the cell that ran last, or to a terminal. A shell that is neither, such as that of a run
    without a notebook, has its own way to report them: there, these lines are not `shown`.

    Args:
        shell: of the notebook.

    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._cell: dict[str, Any] = {}  #: the request that asked for the cell that ran last
        self.cell_begins()  # the one that loads the extension

    def __repr__(self) -> str:
        return "alarms under the last cell"

    @property
    def shown(self) -> bool:
        """Return whether the shell has a place for these lines: it is that of a kernel, or of a terminal."""
        return self._kernel is not None or hasattr(self._shell, "mainloop")

    @property
    def _kernel(self) -> Any:
        return getattr(self._shell, "kernel", None)

    def cell_begins(self) -> None:
        """Note the cell that is about to run, on its thread."""
        parent = getattr(self._shell, "get_parent", None)
        self._cell = dict(parent() or {}) if parent is not None else {}  # none while a kernel starts

    def __call__(self, alarm: Alarm) -> None:
        """Write one line."""
        line, kernel = f"{alarm}\n", self._kernel
        if kernel is not None:
            content = {"name": "stderr", "text": line}
            kernel.session.send(kernel.iopub_socket, "stream", content, parent=self._cell, ident=b"stream.stderr")
        else:
            sys.stderr.write(line)


# --- Commands ---------------------------------------------------------------------------------------------------------


class Commands:
    """The session that commands are about; the traits are those of `magics.QodMagics`."""

    session: Session | None
    alarm_lines: AlarmLines  #: shows alarms of sessions that commands begin
    sessions: Any = None  #: what begins sessions in place of the class `Session`
    shell: Any
    quiet: Any  #: whether nothing is said on success

    def names(self, kind: str) -> Iterable[str]:
        """Return the names of a kind that there are now, as `Option.names` has them."""
        if (session := self._there) is None:
            return ()
        if kind == "stages":
            policy = session.controller.policy
            return policy.stage_names if isinstance(policy, StagedPolicy) else ()
        if kind == "topics":
            with suppress(KafkaError):  # a broker that does not answer completes nothing
                return session.topics()
            return ()
        if kind == "streams":
            return session.application.names
        found: Iterable[str] = session.shedders if kind == "shedders" else getattr(session.runtime, kind)
        return found

    def _sessions(self) -> Any:
        from qod_magics.session.session import Session  # loads what a notebook without a session does not need

        return self.sessions or Session

    def _session(self) -> Session:
        if self.session is not None and self.session.taken_by:
            raise UsageProblem(
                f"the session must be held by this kernel, and {self.session.taken_by} has taken it over: %qod up with "
                "--take-over takes it back",
                rule="held",
            )
        if self.session is None or not self.session.alive:
            raise UsageProblem("nothing is up: begin with %qod up (or %qod attach, for the notebook's own session)")
        return self.session

    @property
    def _defaults(self) -> dict[str, Any]:
        """Return those that `%config` holds, by the names of their options."""
        values = {row.name: getattr(self, row.flag.lstrip("-")) for row in CONFIGURED}
        return {name: None if value == "" else value for name, value in values.items()}

    @property
    def _there(self) -> Session | None:
        return self.session if self.session is not None and self.session.alive else None

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, flush=True)


class DecisionCommands(Commands):
    """`set`, `why`, `policy`, `pause`, `resume`, `period`, `override`, `cpu`."""

    def _set(self, given: Namespace) -> None:
        wanted = (
            ("priority", given.priority, ""),
            ("minimum accuracy", given.min_accuracy, ""),
            ("maximum latency", given.max_latency_s, " s"),
            ("utility", given.utility, ""),
            ("minimum juice", given.min_juice, ""),
        )
        told = [
            f"no {what}" if value == inf else f"{what} {value:g}{unit}"
            for what, value, unit in wanted
            if value is not None
        ]
        if not told:
            ways = ", ".join(f"{row.flag} {row.metavar}" for row in RESTRICTIONS)
            raise UsageProblem(f"%qod set {given.name}: nothing to set; say {ways}, or several of them")
        note = self._session().set(**vars(given))
        also = f"; {note}" if note else ""
        self._say(f"{given.name} has {' and '.join(told)} from the next cycle on{also}")

    def _why(self, given: Namespace) -> None:
        session = self._session()
        print(session.stages if given.name is None else session.why(given.name))

    def _pause(self, given: Namespace) -> None:
        if given.stage is None:
            self._session().pause()
            self._say("paused: plans are recommended, not applied")
        else:
            self._session().pause_stage(given.stage)
            self._say(f"stage {given.stage} is paused: it proposes nothing")

    def _policy(self, given: Namespace) -> None:
        of_this = given.name is not None and "=" in given.name
        parameters = assigned([given.name, *given.parameters] if of_this else given.parameters)
        session = self._session()
        if given.name is not None:
            session.set_policy(session.controller.policy.name if of_this else given.name, **parameters)
        print(session.stages)
        if given.name is None:
            print(parameters_text(session.controller.policy.name))

    def _period(self, given: Namespace) -> None:
        self._session().set_period(given.seconds)
        self._say(f"a decision every {given.seconds:g} s")

    def _override(self, given: Namespace) -> None:
        try:
            d = None if given.d == "auto" else float(given.d)
        except ValueError:
            raise UsageProblem(f"%qod override: {given.d!r} is neither a fraction nor auto") from None
        note = self._session().override(given.name, d)
        done = "follows the plan again" if d is None else f"is held at {d:g}"
        self._say(f"{given.name} {done}{f'; {note}' if note else ''}")

    def _cpu(self, given: Namespace) -> None:
        self._session().limit_cpu(given.task_manager, given.share)
        self._say(f"plans use at most {given.share:.0%} of the cores of {given.task_manager} from the next cycle on")

    def _resume(self, given: Namespace) -> None:
        if given.stage is None:
            self._session().resume()
            self._say("plans are applied again")
        else:
            self._session().pause_stage(given.stage, False)
            self._say(f"stage {given.stage} proposes actions again")


# --- Commands about the cluster ---------------------------------------------------------------------------------------

#: What changes an option of a session that has no way of its own.
_AGAIN = "%qod down, then this again"


@dataclass(frozen=True, slots=True)
class Begun:
    """A command that begins a session, with its options by their names."""

    command: str  #: "up" or "attach"
    options: Mapping[str, Any]
    defaults: Mapping[str, Any]  #: the options where none is given

    def of(self, row: Option) -> Any:
        """Return the value of an option; None if the command lacks it."""
        return self.options.get(row.name)


def already_up(before: Begun | None, now: Begun) -> str:
    """Return the line for a command that asks for what is up already: also which options that were given before it
    leaves out. Raises UsageProblem: it asks for other options; the line says which, and what changes them."""
    if before is None or before.command != now.command:
        how = "" if before is None else f" by %qod {before.command}"
        raise UsageProblem(
            f"a session is up already{how}: %qod {now.command} needs %qod down first", rule="one session"
        )
    differs = [row for row in COMMANDS[now.command].options if before.of(row) != now.of(row)]
    asked = [row for row in differs if now.of(row) != now.defaults[row.name]]
    if asked:
        changes = "; ".join(
            f"{_flag(row)} is {_shown(row, before)}, not {_shown(row, now)} ({row.running or _AGAIN})" for row in asked
        )
        raise UsageProblem(f"a session is up already, with other options: {changes}")
    kept = ", ".join(f"{_flag(row)} {_shown(row, before)}" for row in differs)
    return f"already up, with {kept}" if kept else "already up"


def _kafka(given: Namespace) -> dict[str, Any]:
    """Return the options of a line, with those of the files that it names for its Kafka clusters."""
    options = dict(vars(given))
    for kafka in ("kafka", "internal_kafka"):
        options |= kafka_of(options, pairs(options[f"{kafka}_options"]), kafka)
        del options[f"{kafka}_config"]
    return options


def _flag(row: Option) -> str:
    return "the name" if row.positional else row.flag


def _shown(row: Option, begun: Begun) -> str:
    value = begun.of(row)
    if row.switch:
        return "off" if value == row.default else "on"
    if row.secret:
        value = [each.partition("=")[0] for each in value]
    if isinstance(value, list | set):
        return " ".join(hidden(str(each)) for each in value) or "none"
    return "none" if value is None else str(value)


class ClusterCommands(Commands):
    """`up`, `attach`, `down`, `topic`, `peek`, `add-tm`, `remove-tm`, `move`, `scale`, `fuse`, `unfuse`."""

    _spark: object
    _begun: Begun | None = None  #: how the session was begun

    def _up(self, given: Namespace) -> None:
        self._connect_as_asked(given)
        local = int(not given.connect)
        given.task_managers = local if given.task_managers is None else given.task_managers
        begun = self._begins("up", given, task_managers=local)
        if self._is_up(begun):
            return
        named = {name: pairs(vars(given)[name]) for name in ("conf", "ui_headers")}
        options = {**_kafka(given), **named}
        del options["config"]
        self._keep(begun, self._sessions().up(say=self._say, **options))

    def _connect_as_asked(self, given: Namespace) -> None:
        """Use the server that the environment names, where the line says nothing of task managers."""
        url = asked_for() if given.task_managers is None and not given.connect else None
        if url is not None:
            given.connect = [url]
            if self.session is None or not self.session.alive:
                self._say(f"SPARK_REMOTE names {hidden(url)}: it is the task manager (-n 1 starts a local one instead)")

    def _attach(self, given: Namespace) -> None:
        begun = self._begins("attach", given)
        if self._is_up(begun):
            return
        options = _kafka(given)
        name = options.pop("name")
        spark = self.shell.user_ns.get(name)
        if spark is None or not hasattr(spark, "readStream"):
            raise UsageProblem(f"%qod attach: {name!r} is no Spark session: name the variable that holds one")
        self._keep(begun, self._sessions().attach(spark, say=self._say, headroom=self._defaults["headroom"], **options))

    def _down(self, given: Namespace) -> None:
        session, self.session = self._session(), None
        left = session.down()
        self._unbind()
        if session.keeper is not None and not left:
            self._say(f"down: no query or server of ours is left; {session.keeper.stays}")
            return
        self._say(f"down, but {'; '.join(left)}" if left else "down: no query, server or topic of ours is left")

    def _peek(self, given: Namespace) -> None:
        print(self._session().peek(given.name))

    def _topic(self, given: Namespace) -> None:
        if given.name is not None:
            self._say(self._session().topic(given.name, given.partitions))
            return
        if given.partitions is not None:
            raise UsageProblem(f"--partitions {given.partitions} is of a topic: name it, %qod topic NAME")
        found = self._session().topics()
        print("\n".join(f"{name}  {counted(n, 'partition')}" for name, n in found.items()) or "no topic yet")

    def _add_tm(self, given: Namespace) -> None:
        options = {**vars(given), "cpus": sorted(given.cpus) if given.cpus else None}
        options["ui_headers"] = pairs(given.ui_headers) or None
        id = self._session().add_task_manager(**options)
        self._say(f"{id} is up")

    def _remove_tm(self, given: Namespace) -> None:
        if (given.id is None) == (given.count is None) or (given.count is not None and given.kill):
            raise UsageProblem("%qod remove-tm ID [--kill], or %qod remove-tm --count N")
        if given.count is not None:
            gone = self._session().remove_task_managers(given.count)
            self._bind_spark(self._session())
            self._say("; ".join(gone))
            return
        stands_by = self._session().remove_task_manager(given.id, kill=given.kill)
        self._bind_spark(self._session())  # it may have been on that one
        self._say(f"{given.id} stands by: it hosts nothing" if stands_by else f"{given.id} is gone")

    def _move(self, given: Namespace) -> None:
        self._session().move(given.instance, given.task_manager)
        self._say(f"{given.instance} runs on {given.task_manager}")

    def _scale(self, given: Namespace) -> None:
        self._session().scale(given.task, given.parallelism)
        self._say(f"{given.task} runs as {counted(given.parallelism, 'instance')}")

    def _fuse(self, given: Namespace) -> None:
        self._session().fuse(given.first, given.second)
        self._say(f"{given.first} and {given.second} run as one query")

    def _unfuse(self, given: Namespace) -> None:
        self._session().unfuse(given.first, given.second)
        self._say(f"{given.first} and {given.second} run as two queries")

    def _begins(self, command: str, given: Namespace, **defaults: Any) -> Begun:
        unstated = COMMANDS[command].read([], self._defaults)
        return Begun(command, vars(given), {**vars(unstated), **defaults})

    def _is_up(self, begun: Begun) -> bool:
        """Tell, and say, whether a session with these options is up already. Raises UsageProblem: it has others."""
        if self.session is None or not self.session.alive:
            return False
        self._say(already_up(self._begun, begun))
        return True

    def _keep(self, begun: Begun, session: Session) -> None:
        self._begun, self.session = begun, session
        self.shell.user_ns["qod"] = session
        if self.alarm_lines.shown:
            session.on_event(self.alarm_lines)
        self._bind_spark(session)

    def _bind_spark(self, session: Session) -> None:
        """Have `spark` in the notebook be the session's, if the name is free or was bound here."""
        if self.shell.user_ns.get("spark", self._spark) is self._spark:
            with suppress(TaskManagerError):  # none is up: `%qod up --task-managers 0`
                self.shell.user_ns["spark"] = self._spark = session.spark

    def _unbind(self) -> None:
        """Remove `qod` from the notebook, and `spark` if it was bound here."""
        self.shell.user_ns.pop("qod", None)
        if self._spark is not None and self.shell.user_ns.get("spark") is self._spark:
            del self.shell.user_ns["spark"]
        self._spark = None
