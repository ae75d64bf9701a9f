"""What a notebook holds: an application, a cluster and a controller. Every magic is one of these methods."""

from __future__ import annotations

import atexit
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics import watching
from qod_magics.application.application import Application
from qod_magics.application.cell import declaration_of, find_inputs
from qod_magics.application.options import StreamOptions
from qod_magics.application.recipe import Recipe, as_recipe
from qod_magics.application.sink import Memory, Sink, as_sink
from qod_magics.application.stream import Mode, Starting, StreamDeclaration, TopicInput
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.controller import Controller, ControllerThread, Cycle, Recording, read
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.cores import check_cores, core_sets, free_cores
from qod_magics.directory import Directory
from qod_magics.errors import ApplicationError, KafkaError, QodError, TaskManagerError, UsageProblem
from qod_magics.fleet import Fleet
from qod_magics.handle import StreamHandle
from qod_magics.kafka.access import access
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.scenario import Scenario
from qod_magics.placement import placed
from qod_magics.player import Player, Start
from qod_magics.policies import DEFAULT_POLICY, policy
from qod_magics.spark.bounded import begin
from qod_magics.spark.checkpoints import checkpoint_root, local_path
from qod_magics.spark.results import read_results
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.server import ServerOptions
from qod_magics.spark.task_manager import TaskManager, leave_connect_mode
from qod_magics.status import status_text
from qod_magics.watching import Show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qod_magics.core.policy import Policy
    from qod_magics.view import View

Say = Callable[[str], None]
Cores = set[int]  #: numbers of the machine's cores

#: Part of each task manager's cores that plans leave free: what drains a backlog, and what a busy JVM needs.
HEADROOM = 0.1


class Session:
    """A cluster with its controller, and the streams declared on it. Made by `up` or `attach`, ended by `down`.

    Attributes:
        id: names its topics, dials and checkpoints.
        application: the declared streams.
        kafka: the broker, embedded or the user's.
        runtime: the task managers and the queries on them.
        controller: decides every period.

    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        policy_name: str = DEFAULT_POLICY,
        period_s: float = 5.0,
        record: str | os.PathLike[str] | None = None,
        checkpoints: str | None = None,
        headroom: float = HEADROOM,
        warm_up_timeout_s: float = 60.0,
    ) -> None:
        _check_options(policy_name, period_s, record, headroom)
        decide = policy(policy_name)
        self.id = secrets.token_hex(3)
        self.began = datetime.now(UTC)
        self.kafka = kafka
        self.application = Application()
        self._owner = os.getpid()
        self._own_kafka = False
        self._ended = False
        self._injectors: list[Injector] = []
        self._players: list[Player] = []
        self._view: View | None = None
        self._directory = Directory("qod-session-")
        try:
            where = checkpoint_root(checkpoints or self._directory.path / "checkpoints")
            self.runtime = SparkRuntime(kafka, self.id, f"{where.rstrip('/')}/{self.id}", placed, period_s)
            self._fleet = Fleet(self.runtime, headroom)
            self.recording_path = Path(record) if record is not None else self._directory.path / "run.jsonl"
            self.controller = Controller(
                self.runtime,
                decide,
                period_s=period_s,
                recording=Recording(self.recording_path),
                warm_up_timeout_s=warm_up_timeout_s,
            )
            self.thread = ControllerThread(self.controller)
        except BaseException:
            self.down()
            raise
        atexit.register(self.down)

    # -- up and down -----------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        *,
        task_managers: int = 1,
        cores: int | None = None,
        connect: Sequence[str] = (),
        kafka: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_cpus: Cores | None = None,
        jit: str = "c1",
        memory: str = "1g",
        say: Say = lambda _: None,
        **options: Any,
    ) -> Session:
        """Start (or reach) Kafka, then local task managers and the ones behind URLs, then the controller.

        Args:
            task_managers: local ones to start; 0 where `connect` names others.
            cores: each local task manager's own cores; default the machine's, divided among them.
            connect: URLs `sc://host:port` of Connect servers.
            kafka: `host:port` of the user's broker; None starts one.
            kafka_options: options of that broker's clients, as librdkafka names them.
            kafka_cpus: cores for the broker that is started; default all.
            jit: how local task managers compile: "c1" (soon at speed) or "full" (faster in the long run).
            memory: their Java heap.
            say: told what is going on, a line at a time.
            options: `policy_name`, `period_s`, `record`, `checkpoints`, `headroom`, `warm_up_timeout_s`.

        Raises:
            SetupError, KafkaError, TaskManagerError, UsageProblem: nothing is left running then.

        """
        if task_managers < 0 or (task_managers == 0 and not connect):
            raise UsageProblem(f"{task_managers} task managers can't run anything: take 1 or more, or --connect URL")
        shares = core_sets(task_managers, cores)
        check_cores(kafka_cpus)
        _check_options(**options)
        begun = time.monotonic()
        broker = access(kafka, kafka_options, kafka_cpus)
        session: Session | None = None
        starting: list[Future[TaskManager]] = []
        try:
            session = cls(broker, **options)
            session._own_kafka = kafka is None
            say(f"Kafka at {broker.bootstrap} ({time.monotonic() - begun:.1f} s)")
            fleet = session._fleet
            starting += [
                begin(partial(fleet.start, ServerOptions(cpus=share, jit=jit, memory=memory)), "up") for share in shares
            ]
            starting += [begin(partial(fleet.connect, url), "connect") for url in connect]
            for future in as_completed(starting):  # the first that fails ends the others' start
                manager = future.result()
                say(f"{manager.describe} ({time.monotonic() - begun:.1f} s)")
            session.thread.start()
            return session
        except BaseException:
            if session is not None:
                session.down()
                wait(starting, 30.0)  # those that were still starting end themselves
            elif isinstance(broker, EmbeddedBroker):
                broker.stop()
            raise

    @classmethod
    def attach(
        cls,
        spark: SparkSession,
        *,
        kafka: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        say: Say = lambda _: None,
        **options: Any,
    ) -> Session:
        """Take the notebook's own Spark session as the only task manager. It needs the Kafka connector on its class
        path, and goes on when the Quality-of-Data session ends.

        Raises:
            KafkaError, TaskManagerError.

        """
        _check_options(**options)
        broker = access(kafka, kafka_options)
        session: Session | None = None
        try:
            session = cls(broker, **options)
            session._own_kafka = kafka is None
            say(session._fleet.attach(spark).describe)
            session.thread.start()
            return session
        except BaseException:
            if session is not None:
                session.down()
            elif isinstance(broker, EmbeddedBroker):
                broker.stop()
            raise

    def down(self) -> None:
        """Stop the controller, all queries, all servers of ours and the embedded broker. Safe to call twice, and in a
        fork of its owner, where it does nothing."""
        if self._ended or self._owner != os.getpid():
            return
        self._ended = True
        atexit.unregister(self.down)
        for player in self._players:
            with suppress(Exception):
                player.stop()
        for injector in self._injectors:
            with suppress(Exception):
                injector.stop()
        with suppress(Exception):
            self.thread.stop()
        if self._view is not None:
            with suppress(Exception):
                self._view.close()
        with suppress(Exception):
            self.runtime.close()
        with suppress(Exception):
            self._fleet.end()
        leave_connect_mode()
        if self._own_kafka:
            with suppress(Exception):
                self.kafka.stop()  # type: ignore[attr-defined]
        with suppress(Exception):  # its name is this session's alone: nobody could go on from it
            if (checkpoints := local_path(self.runtime.checkpoints)) is not None:
                shutil.rmtree(checkpoints, ignore_errors=True)
        self._directory.remove()

    def __repr__(self) -> str:
        if self._ended:
            return f"qod session {self.id}: it has ended"
        managers, streams = list(self.runtime.task_managers), self.application.names
        cycle = self.controller.last
        return (
            f"qod session {self.id}: Kafka at {self.kafka.bootstrap}; "
            f"{_counted(managers, 'task manager')}; {_counted(streams, 'stream')}; "
            f"{'recommends' if self.controller.paused else 'decides'} every {self.controller.period_s:g} s, "
            f"{f'last in cycle {cycle.number}' if cycle is not None else 'not yet'}; recording {self.recording_path}"
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def alive(self) -> bool:
        """Whether it was not ended yet."""
        return not self._ended

    # -- task managers ---------------------------------------------------------------------------------------------

    def add_task_manager(
        self,
        url: str | None = None,
        *,
        cores: int | None = None,
        cpus: Sequence[int] | None = None,
        ui: str | None = None,
        jit: str = "c1",
        memory: str = "1g",
    ) -> str:
        """Start one more local task manager, or connect to the server behind `url`; returns its id once it is warm.

        Raises:
            SetupError, TaskManagerError.

        """
        if url is not None:
            return self._fleet.connect(url, ui, cores).id
        check_cores(cpus)
        own = frozenset(cpus) if cpus is not None else free_cores(cores, self._fleet.taken_cores)
        return self._fleet.start(ServerOptions(cpus=own, jit=jit, memory=memory)).id

    def remove_task_manager(self, id: str) -> None:
        """Move its instances to the others, then end it."""
        self.runtime.remove_task_manager(id)

    def move(self, instance: str, task_manager: str) -> None:
        """Move an instance by hand, and wait until it runs there. The policy may move it again."""
        self.runtime.move(instance, task_manager, "moved by hand").result()

    # -- streams ---------------------------------------------------------------------------------------------------

    def stream(
        self,
        name: str,
        recipe: Recipe | Callable[..., Any] | str | None = None,
        *,
        topic: str | None = None,
        schema: str | None = None,
        from_: str | Sequence[str] = (),
        priority: int | None = None,
        min_accuracy: float | None = None,
        parallelism: int = 1,
        key: str | None = None,
        sink: Sink | str | Callable[..., Any] | None = None,
        mode: Mode = "auto",
        trigger_s: float | None = None,
        starting: Starting = "latest",
        fuse: bool = True,
    ) -> StreamHandle:
        """Declare a stream: what a `%%qod_stream` cell does.

        Args:
            name: a Python identifier.
            recipe: a function of its inputs (and of `spark`, if it asks for it), or an SQL text; None passes a lone
                input through.
            topic: the Kafka topic that it reads.
            schema: of the topic's JSON rows, as DDL; None: the records as they are.
            from_: the streams that it reads; by default those that the recipe names.
            priority: of a query; higher wins.
            min_accuracy: of a query, fraction of 1.
            parallelism: instances.
            key: column by which its input's rows are spread over the instances.
            sink: "memory", "kafka:TOPIC", "parquet:PATH", "console", or a function for foreachBatch.
            mode: "auto", "realtime" or "microbatch".
            trigger_s: seconds between batches.
            starting: where a topic is read from at first, "latest" or "earliest".
            fuse: whether it may share a Spark query with its neighbour.

        Raises:
            ApplicationError, KafkaError, TaskManagerError: all goes on as it was.

        """
        made = as_recipe(recipe)
        stated = (from_,) if isinstance(from_, str) else tuple(from_)
        inputs = find_inputs(
            name,
            made,
            self.application,
            topic=None if topic is None else TopicInput(topic, schema, starting),
            stated=stated,
        )
        return self._declare(
            StreamDeclaration(
                name, made, inputs, priority, min_accuracy, parallelism, key, as_sink(sink), mode, trigger_s, fuse
            )
        )

    def cell(self, options: StreamOptions, body: str, namespace: Mapping[str, Any]) -> StreamHandle:
        """Declare what a `%%qod_stream` cell says; with `--dry-run` only check it."""
        declaration = declaration_of(options, body, namespace, self.application)
        return self._declare(declaration, dry_run=options.dry_run)

    def stop(self, name: str) -> None:
        """Stop a stream and forget it.

        Raises:
            ApplicationError: there is none of this name, or others read it.

        """
        self._run(self.application.remove(name))

    def stop_all(self) -> None:
        """Stop all streams and forget them."""
        self._run(Application())

    def set(self, name: str, *, priority: int | None = None, min_accuracy: float | None = None) -> None:
        """Change the restrictions of a query, from the next cycle on.

        Raises:
            ApplicationError: there is no such query, or the value is out of range.

        """
        application = self.application.restrict(name, priority=priority, min_accuracy=min_accuracy)
        self.runtime.restrict(self._tasks(application))
        self.application = application

    # -- looking and deciding --------------------------------------------------------------------------------------

    def status(self) -> str:
        """What runs where, how it keeps up, and what was decided last."""
        return status_text(self)

    def why(self, name: str) -> str:
        """What was last decided about a stream, an instance or a task manager, and why, with the numbers."""
        return self.controller.why(name)

    def pause(self, *, open_shedders: bool = False) -> None:
        """Recommend only: plans are made, logged and recorded, not applied. `open_shedders` also sets every non-drop
        probability to 1, so that the engine runs alone."""
        self.thread.pause()
        if open_shedders:
            self.thread.submit(self._open).result(30.0)

    def resume(self) -> None:
        """Apply plans again."""
        self.thread.resume()

    def set_period(self, seconds: float) -> None:
        """Decide so often from now on. Raises UsageProblem unless it is above 0."""
        self.thread.period_s = seconds
        self.runtime.period_s = seconds

    def override(self, name: str, d: float | None) -> None:
        """Hold the non-drop probability of a source or a stream ("from>to") by hand; None gives it back to the plan.

        Raises:
            UsageProblem: there is no such source or stream, or the probability lies outside 0..1.

        """
        watching.known(self.shedders, name)
        source, _, target = name.rpartition(">")
        self.controller.override((source or None, target), d)

    @property
    def shedders(self) -> list[str]:
        """The names of what sheds: sources, and streams "from>to"."""
        specs = self.runtime.deployment.specs.values()
        return [n for s in specs for n in ([s.id] if s.is_source else [f"{u}>{s.id}" for u in s.upstream])]

    def annotate(self, **annotations: Any) -> None:
        """Add keys (`phase="overload"`) to the recording's lines from now on; None takes one away."""
        self.controller.annotate(**annotations)

    @property
    def last(self) -> Cycle | None:
        """The last cycle that is finished."""
        return self.controller.last

    @property
    def view(self) -> View:
        """The live view: dashboard and controls. Made when it is first asked for."""
        if self._view is None:
            from qod_magics.view import View

            self._view = View(self)
        return self._view

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if self._ended or not watching.in_kernel():
            return {"text/plain": repr(self)}
        bundle = self.view.widget()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/plain": repr(self)}, metadata

    async def watch(self, seconds: float = 30.0, show: Show | None = None) -> None:
        """Show the status once a period for so many seconds, in place, while the kernel stays free."""
        await watching.watch(self, seconds, show)

    async def during(self, injector: Injector, phase: str, show: Show | None = None) -> None:
        """Wait until the injector's scenario comes to `phase`, name the recording's lines after it, and show the
        status once a period until the phase is over.

        Raises:
            UsageProblem: the scenario has no such phase.
            KafkaError: the injector ended early.

        """
        await watching.during(self, injector, phase, show)

    async def until_settled(
        self, at_least_s: float = 0.0, quiet_s: float = 30.0, at_most_s: float = 300.0, show: Show | None = None
    ) -> bool:
        """Show the status once a period until nothing has disturbed the cluster for `quiet_s` seconds: no move, no
        task manager that came or went, no query that started again, no instance that warms up.

        It takes `at_least_s` seconds at least and `at_most_s` at most. Whether the cluster settled.
        """
        return await watching.until_settled(self, at_least_s, quiet_s, at_most_s, show)

    def inject(
        self,
        scenario: Scenario | Mapping[str, Any] | str | os.PathLike[str],
        *,
        cpus: Cores | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> Injector:
        """Send a scenario to the session's broker from a process of its own; it ends with the session.

        Args:
            scenario: what to send: a scenario, its JSON form, or the path of a file with that.
            cpus: cores for the injector, default all.
            record: a file for the achieved rates, a JSON line a second and topic.

        Raises:
            ScenarioError, KafkaError.

        """
        made = Scenario.from_json(scenario) if isinstance(scenario, Mapping) else scenario
        injector = Injector(
            made if isinstance(made, Scenario) else Path(made),
            self.kafka.bootstrap,
            self.kafka.client_config(),
            record=None if record is None else Path(record),
            cpus=cpus,
        )
        injector.start()
        self._injectors.append(injector)
        return injector

    @property
    def injectors(self) -> tuple[Injector, ...]:
        """Those that `inject` started, the oldest first; some may have ended."""
        return tuple(self._injectors)

    def play(self, injector: Injector, applications: Mapping[str, Start] | None = None) -> Player:
        """Do what the injector's scenario says beside its rates, when it says so: name phases, add and remove task
        managers, start and stop applications (functions that declare streams on the session they are given).

        Raises:
            ScenarioError: the scenario starts an application that is not given.

        """
        player = Player(self, injector, applications or {})
        self._players.append(player)
        return player

    def record(self, path: str | os.PathLike[str]) -> None:
        """Append the recording to another file, from the next cycle on."""
        recording = Recording(path)
        self.thread.submit(lambda: self.controller.record(recording)).result(30.0)
        self.recording_path = recording.path

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write a page with the charts of the recording so far."""
        from qod_magics.verdict import verdict
        from qod_widgets.report import write_report

        lines = tuple(read(self.recording_path))
        if not lines:
            raise UsageProblem("nothing is recorded yet: wait for the first cycle")
        try:
            write_report(path, lines, None, verdict(lines))
        except OSError as error:
            raise UsageProblem(f"{path} can't be written ({error.strerror}): name another file") from None
        return Path(path)

    def results(self, name: str) -> DataFrame:
        """The rows that a query with a memory sink has given so far, as a DataFrame (not a streaming one).

        Raises:
            ApplicationError: there is no such query, or it has another sink.

        """
        topic = self.runtime.deployment.results.get(name)
        if topic is None:
            self.application[name]
            memory = ", ".join(self.runtime.deployment.results) or "none"
            raise ApplicationError(f"{name!r} keeps no rows in memory; streams with --sink memory: {memory}")
        return read_results(self.runtime.workshop(), topic, self.runtime.deployment.schemas[name])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _declare(self, declaration: StreamDeclaration, dry_run: bool = False) -> StreamHandle:
        application = self.application.declare(declaration)
        replaced = declaration.name in self.application
        with suppress(KafkaError, TaskManagerError):  # what waits may be declared before its topic is there
            awaited = tasks(application.awaited(declaration.name))
            if awaited:
                self.runtime.deployment.check(awaited, self.runtime.workshop())
        if dry_run:
            self.runtime.deployment.check(self._tasks(application), self.runtime.workshop())
        else:
            self._run(application)
        return StreamHandle(self, declaration.name, replaced, dry_run)

    def _run(self, application: Application) -> None:
        self.runtime.deploy(self._tasks(application))
        self.application = application

    def _tasks(self, application: Application) -> tuple[TaskSpec, ...]:
        """The application's tasks; streams that run apart stay so, with the rows that wait between them."""
        return tasks(application, apart={pipe.source for pipe in self.runtime.deployment.pipes.values()})

    def _open(self) -> None:
        last = self.controller.last
        if last is None or last.plan is None:
            return
        everything = dict.fromkeys(last.plan.desired, 1.0)
        keep = dict.fromkeys(last.plan.non_drop, 1.0)
        self.runtime.apply(Plan(last.plan.current_accuracy, everything, keep), Dials(keep, everything))


def _check_options(
    policy_name: str = DEFAULT_POLICY,
    period_s: float = 5.0,
    record: str | os.PathLike[str] | None = None,
    headroom: float = HEADROOM,
    **_: Any,
) -> None:
    """Refuse wrong values before anything is started for them."""
    policy(policy_name)
    if not (math.isfinite(period_s) and period_s > 0):
        raise UsageProblem(f"a period of {period_s!r} s makes no loop: take a number of seconds above 0")
    if not 0 <= headroom < 1:
        raise UsageProblem(f"headroom is a fraction from 0 and below 1, not {headroom!r}")
    if record is not None and Path(record).is_dir():
        raise UsageProblem(f"the recording needs a file, and {os.fspath(record)!r} is a directory: add a name to it")


def _counted(names: Sequence[str], noun: str) -> str:
    """`names`, with how many there are: "2 task managers (tm1, tm2)"."""
    return f"{len(names) or 'no'} {noun}{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names)})" if names else "")


__all__ = ["ApplicationError", "Memory", "Policy", "QodError", "Session", "StreamHandle", "TaskManagerError"]
