"""The commands of `%qod` about task managers and instances: parse, call the session, nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from qod_magics.core.wording import counted
from qod_magics.errors import TaskManagerError, UsageProblem
from qod_magics.jvm.java import JIT_OPTIONS
from qod_magics.notebook.arguments import MagicWords, cores, pairs
from qod_magics.notebook.begun import Begun, already_up
from qod_magics.notebook.commands import Commands

if TYPE_CHECKING:
    from qod_magics.session.session import Session


class ClusterCommands(Commands):
    """`up`, `attach`, `down`, `topic`, `add-tm`, `remove-tm`, `move`, `scale`, `fuse`, `unfuse`."""

    _spark: object
    period: Any
    headroom: Any
    jit: Any
    checkpoints: Any
    _begun: Begun | None = None  #: how the session was begun

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
        some = int(not given.connect)
        given.task_managers = some if given.task_managers is None else given.task_managers
        begun = Begun("up", vars(given), {**vars(parser.read([])), "task_managers": some})
        if self._is_up(begun):
            return
        from qod_magics.session.session import Session

        self._keep(
            begun,
            Session.up(
                task_managers=given.task_managers,
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
            ),
        )

    def _attach(self, words: list[str]) -> None:
        parser = MagicWords("attach", "Use the notebook's own Spark session as the only task manager.")
        parser.add_argument("name", nargs="?", default="spark", help="the variable that holds it")
        parser.add_argument("--kafka", metavar="HOST:PORT")
        parser.add_argument("--kafka-option", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--period", type=float, default=self.period)
        parser.add_argument("--policy", default=self.policy, help=self._policies)
        parser.add_argument("--record", metavar="FILE")
        parser.add_argument("--checkpoints", default=self.checkpoints or None, metavar="URL")
        given = parser.read(words)
        begun = Begun("attach", vars(given), vars(parser.read([])))
        if self._is_up(begun):
            return
        spark = self.shell.user_ns.get(given.name)
        if spark is None or not hasattr(spark, "readStream"):
            raise UsageProblem(f"%qod attach: {given.name!r} is no Spark session: name the variable that holds one")
        from qod_magics.session.session import Session

        self._keep(
            begun,
            Session.attach(
                spark,
                kafka=given.kafka,
                kafka_options=pairs(given.kafka_option),
                say=self._say,
                policy_name=given.policy,
                period_s=given.period,
                record=given.record,
                headroom=self.headroom,
                checkpoints=given.checkpoints,
            ),
        )

    def _down(self, words: list[str]) -> None:
        MagicWords("down", "Stop everything that was started.").read(words)
        session, self.session = self._session(), None
        left = session.down()
        self._unbind()
        self._say(f"down, but {'; '.join(left)}" if left else "down: no query, server or topic of ours is left")

    def _topic(self, words: list[str]) -> None:
        parser = MagicWords("topic", "Create a Kafka topic, for rows of your own; without a NAME, list the topics.")
        parser.add_argument("name", nargs="?", metavar="NAME")
        parser.add_argument("--partitions", type=int, metavar="N", help="default 1")
        given = parser.read(words)
        if given.name is not None:
            self._say(self._session().topic(given.name, given.partitions))
            return
        if given.partitions is not None:
            raise UsageProblem(f"--partitions {given.partitions} is of a topic: name it, %qod topic NAME")
        found = self._session().topics()
        print("\n".join(f"{name}  {counted(n, 'partition')}" for name, n in found.items()) or "no topic yet")

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
        self._bind_spark(self._session())  # it may have been on that one
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
        self._say(f"{given.task} runs as {counted(given.parallelism, 'instance')}")

    def _fuse(self, words: list[str]) -> None:
        parser = MagicWords("fuse", "Run two neighbouring tasks as one query, without Kafka between them.")
        parser.add_argument("first", help="a task")
        parser.add_argument("second", help="the task that reads it")
        given = parser.read(words)
        self._session().fuse(given.first, given.second)
        self._say(f"{given.first} and {given.second} run as one query")

    def _unfuse(self, words: list[str]) -> None:
        parser = MagicWords("unfuse", "Run a task as two queries, with a Kafka topic between two of its streams.")
        parser.add_argument("first", help="a stream within the task")
        parser.add_argument("second", help="the stream that reads it")
        given = parser.read(words)
        self._session().unfuse(given.first, given.second)
        self._say(f"{given.first} and {given.second} run as two queries")

    def _is_up(self, begun: Begun) -> bool:
        """Tell, and say, whether a session with these options is up already. Raises UsageProblem: it has others."""
        if self.session is None or not self.session.alive:
            return False
        self._say(already_up(self._begun, begun))
        return True

    def _keep(self, begun: Begun, session: Session) -> None:
        self._begun, self.session = begun, session
        self.shell.user_ns["qod"] = session
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
