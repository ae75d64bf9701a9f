"""The session of a notebook: application, cluster and controller. Every magic calls one of its methods."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from qod_magics.application.application import Application
from qod_magics.application.cell import declaration_of, declared
from qod_magics.application.recipes.recipe import Recipe, as_recipe
from qod_magics.application.streams.keywords import (
    RestrictionKeywords,
    StreamKeywords,
    stream_options,
    taken,
    takes,
)
from qod_magics.application.streams.options import IN_PYTHON, RESTRICTIONS, StreamOptions
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.controller import Controller, ControllerThread, Recording
from qod_magics.errors import QodError, UsageProblem
from qod_magics.kafka.clusters import Clusters
from qod_magics.kafka.injector import Injector, ScenarioForm
from qod_magics.kafka.rows import RowSender
from qod_magics.machine.child import at_exit
from qod_magics.machine.cores import can_pin, check_cores, is_limited
from qod_magics.monitoring.monitor import Monitor
from qod_magics.policies import latency_note, policy
from qod_magics.results.drawing import Wish
from qod_magics.results.exact import CPU, Exact
from qod_magics.session import decisions
from qod_magics.session.by_hand import ByHand
from qod_magics.session.decisions import Decisions
from qod_magics.session.deployed_streams import Streams
from qod_magics.session.exact import exact
from qod_magics.session.handle import StreamHandle
from qod_magics.session.injectors import Injectors, ScenarioRunner, Start
from qod_magics.session.keeping import Keeper
from qod_magics.session.outside import Outlets, Outside
from qod_magics.session.own_data import NotebookSpark, OwnData
from qod_magics.session.pool import Budget
from qod_magics.session.provisioning import abandon, launch
from qod_magics.session.resources import Resources
from qod_magics.session.results import Views, report_so_far
from qod_magics.session.settings import SettingKeywords, Settings
from qod_magics.session.show import ShownResults, in_kernel, mime_bundle
from qod_magics.session.slices import Slices
from qod_magics.session.status import session_text, status_text, why_text
from qod_magics.spark.servers.remote import remotes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qod_magics.session.live_view import View

LOG = logging.getLogger(__name__)
Say = Callable[[str], None]
Cores = set[int]  #: numbers of the machine's cores


class Session(ByHand, Decisions, Outside, OwnData):
    """A cluster with its controller, and the streams declared on it. Made by `up` or `attach`, ended by `down`.

    Attributes:
        id: names its topics, dials and checkpoints.
        kafka: the broker, embedded or the user's.
        runtime: the task managers and the queries on them.
        controller: makes a decision every period.
        thread: runs the controller.
        monitor: counts cycles and finds alarms, for metrics and hooks.
        recording_path: the file that cycles are recorded in.
        views: what it shows in notebooks.

    """

    keeper: Keeper | None = None  #: of a session with a name
    taken_by = ""  #: the kernel that has taken this session over; "": none has

    def __init__(self, resources: Resources, settings: Settings) -> None:
        self._clusters = resources.clusters
        self.id, self.kafka, self.runtime = resources.id, self._clusters.users, resources.runtime
        self._settings = settings
        self._rows, self._spark = RowSender(self.runtime.kafka), NotebookSpark(self.runtime)
        self.began = datetime.now(UTC)
        recording = Recording(settings.record or resources.directory.path / "run.jsonl")
        self.recording_path = recording.path
        self.controller = Controller(
            self.runtime,
            policy(settings.policy_name),
            period_s=settings.period_s,
            recording=recording,
            warm_up_timeout_s=settings.warm_up_timeout_s,
        )
        self.thread = ControllerThread(self.controller)
        self.monitor = Monitor(self.controller.note)
        self.controller.subscribe(self.monitor.take)
        self._outlets = Outlets(self.monitor, self._told, self.health)
        self.controller.subscribe(self._outlets.cycle)
        self._managers, self._left = resources.managers, resources.left
        self._streams = Streams(self.runtime)
        self.views = Views(self)
        self._slices = Slices(self)
        self.controller.subscribe(self._slices.cycle)
        self.keeper = resources.keeper
        self._owner = os.getpid()
        self._ended = False
        self._endings = ExitStack()  #: cleanup callbacks, last in first out
        self._injectors = Injectors(self.kafka, self._endings)
        for end in (
            resources.end,
            self._rows.close,
            self._spark.close,
            self._slices.close,
            self._outlets.close,
            self.views.close,
            self.monitor.close,
            self.thread.stop,
        ):  # last first: views and hooks get the last cycle
            self._endings.callback(end)
        self._no_exit = at_exit(self.down)
        if self.keeper is not None:
            self.keeper.begin(self.runtime, self.controller, lambda: self.application, self._taken_over)
        self.thread.start()

    # -- up and down -----------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        *,
        task_managers: int = 1,
        cores: int | Sequence[int] | None = None,
        connect: Sequence[str] = (),
        ui: Sequence[str] = (),
        ui_headers: Mapping[str, str] | None = None,
        max_task_managers: int | None = None,
        spare_connect: Sequence[str] = (),
        standby: bool = True,
        kafka: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_prefix: str = "",
        kafka_cpus: Cores | None = None,
        internal_kafka: str | None = None,
        internal_kafka_options: Mapping[str, str] | None = None,
        warm: bool = False,
        name: str | None = None,
        take_over: bool = False,
        say: Say = lambda _: None,
        **options: Unpack[SettingKeywords],
    ) -> Session:
        """Start (or connect to) Kafka and task managers, local ones and remote ones by URL, then the controller.
        Raises SetupError, KafkaError, TaskManagerError, UsageProblem, and leaves nothing running.

        Args:
            task_managers: number of local ones to start; may be 0 if `connect` names others.
            cores: cores of each local task manager, by default the machine's, divided among all that may be up; or, if
                none is started, of each server in `connect`, by default as its Spark UI tells. Several numbers are of
                the local ones, if any, and then of one server after the other.
            connect: URLs `sc://host:port` of Connect servers.
            ui: addresses of their Spark UIs, one for each server ("none": it has none); by default they are looked for.
            ui_headers: headers that are sent to these UIs.
            max_task_managers: budget within which plans add and release task managers; None: they don't.
            spare_connect: URLs of servers that plans may add.
            standby: whether one local task manager is started ahead while the budget allows it.
            kafka: `host:port` of the user's broker; None starts one.
            kafka_options: options of that broker's clients, as librdkafka names them.
            kafka_prefix: begins the names of the session's own topics and consumer groups on that broker, and on a
                second one.
            kafka_cpus: cores of the started broker; default all. `say` reports if it can't be pinned to them.
            internal_kafka: `host:port` of a second broker, or "own", one that the session starts: the topics that the
                session makes, and those of rejects, are there. The user's broker is read, and sinks write to it.
            internal_kafka_options: as `kafka_options`, of the second broker.
            warm: whether all task managers are warm when this returns; by default only local ones on the user's broker
                are, and the others warm up until a query starts there.
            name: of a session that a later kernel goes on with; needs `checkpoints`, a local directory.
            take_over: whether to go on with it though another kernel holds it, whose queries then end.
            say: receives progress messages, a line at a time.
            options: `policy_name`, `period_s` and the rest of `Settings`.

        """
        of_local, servers = remotes(connect, task_managers, cores, ui, ui_headers or {})
        budget = Budget(max_task_managers, task_managers, connect, spare_connect, standby, of_local)
        check_cores(kafka_cpus)
        if take_over and name is None:
            raise UsageProblem("--take-over must come with --name, got none; name the session", option="--name")
        settings = Settings(**options)
        second = internal_kafka, internal_kafka_options
        clusters = Clusters.of(kafka, kafka_options, *second, kafka_cpus, kafka_prefix)
        settings.check_local(task_managers > 0)
        begun = time.monotonic()
        keeper = None if name is None else Keeper.open(name, settings.checkpoints, take_over)
        if keeper is not None and clusters.embedded is not None:
            clusters.embedded.data = keeper.kafka_data
        launched: Sequence[Any] = ()
        try:
            launched = launch(lambda: [settings.server(share, not is_limited()) for share in budget.core_sets()])
            resources = Resources(clusters.access(), settings, keeper=keeper)
        except BaseException:
            if keeper is not None:
                keeper.close()
            if clusters.embedded is not None:
                clusters.embedded.stop()
            abandon(launched)
            raise
        try:
            where = "" if kafka_cpus is None or can_pin() else " on any core (this system can't pin it)"
            say(f"Kafka at {clusters.users.bootstrap}{where} ({time.monotonic() - begun:.1f} s)")
            if clusters.internal is not None:
                say(f"topics of this session, and of rejects, are at {clusters.internal.bootstrap}")
            for note in filter(None, (*resources.notes, budget.sharing)):
                say(note)
            for manager in resources.provisioner.assemble(launched, servers, warm):
                say(f"{manager.describe} ({time.monotonic() - begun:.1f} s)")
            resources.managers.use(budget)
            return cls(resources, settings)
        except BaseException:
            resources.end()
            abandon(launched)
            raise

    @classmethod
    def attach(
        cls,
        spark: SparkSession,
        *,
        kafka: str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_prefix: str = "",
        internal_kafka: str | None = None,
        internal_kafka_options: Mapping[str, str] | None = None,
        say: Say = lambda _: None,
        **options: Unpack[SettingKeywords],
    ) -> Session:
        """Use the notebook's own Spark session as the only task manager. It needs the Kafka connector on its class
        path, and stays up when this session ends. Raises KafkaError, TaskManagerError, UsageProblem."""
        settings = Settings(**options)
        settings.check_local(False)
        second = internal_kafka, internal_kafka_options
        clusters = Clusters.of(kafka, kafka_options, *second, prefix=kafka_prefix)
        resources = Resources(clusters.access(), settings)
        try:
            for note in resources.notes:
                say(note)
            say(resources.provisioner.attach(spark).describe)
            return cls(resources, settings)
        except BaseException:
            resources.end()
            raise

    def down(self, *, finish_s: float = 0.0) -> Sequence[str]:
        """Stop the controller, all queries, our servers and the embedded broker; returns what could not be stopped or
        deleted, one line each. Idempotent; does nothing in a fork of the owning process.

        Args:
            finish_s: seconds within which batches under way may end; by default they are interrupted, and a run that
                begins at their checkpoint reads them again.

        """
        if self._ended or self._owner != os.getpid():
            return ()
        self._ended = True
        self.runtime.finish_s = finish_s
        self._no_exit()
        with suppress(Exception):  # all callbacks run, even if one raises
            self._endings.close()
        return self._left()

    def _taken_over(self, who: str) -> None:
        """End: another kernel has taken this session over."""
        self.taken_by = who
        LOG.warning("session %s ends: %s has taken it over", self.id, who)
        self.down()

    def __repr__(self) -> str:
        return session_text(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def alive(self) -> bool:
        """Return whether it has not ended."""
        return not self._ended

    # -- streams ---------------------------------------------------------------------------------------------------

    @property
    def application(self) -> Application:
        """Return the declared streams."""
        return self._streams.application

    @property
    def waiting_streams(self) -> Mapping[str, tuple[str, ...]]:
        """Return the declared streams that wait for streams of an earlier kernel, with the names of these."""
        return self._streams.waiting_streams

    @takes(IN_PYTHON)
    def stream(
        self,
        name: str,
        recipe: Recipe | Callable[..., Any] | str | None = None,
        *,
        args: Mapping[str, Any] = MappingProxyType({}),
        **options: Unpack[StreamKeywords],
    ) -> StreamHandle:
        """Declare a stream, as a `%%qod_stream` cell does. Raises ApplicationError, KafkaError, TaskManagerError, and
        changes nothing then; TypeError for an option that there is not.

        Args:
            name: a Python identifier.
            recipe: a function of its inputs (and of `spark`, if it has that parameter), or an SQL text; None passes a
                single input through.
            args: the value of each `:name` in an SQL text, as of `spark.sql`; a list behind IN is that of the IN.
            options: those of a cell, by their names: `min_accuracy=0.4`, `from_=("a", "b")`, `fuse=False`.

        """
        stated = stream_options(name, options)
        return self._declare(declared(stated, as_recipe(recipe, args), self.application, self._spark.views))

    def cell(self, options: StreamOptions, body: str, namespace: Mapping[str, Any]) -> StreamHandle:
        """Declare the stream of a `%%qod_stream` cell; with `--dry-run` only check it."""
        declaration = declaration_of(options, body, namespace, self.application, self._spark.views)
        return self._declare(declaration, options.dry_run)

    def _declare(self, declaration: StreamDeclaration, dry_run: bool = False) -> StreamHandle:
        declared = self._streams.declare(declaration, dry_run)
        unmet = latency_note(self.controller.policy.name, declaration.max_latency_s)
        notes = declared.notes if unmet is None else (*declared.notes, unmet)
        if self.keeper is not None and not dry_run:
            notes = (*notes, *self.keeper.compared(declaration))
            learned = self.keeper.learned
            if learned is not None and self.runtime.deployer.returned:
                self.thread.submit(lambda: self.controller.recall(learned))
        self._keep()
        return StreamHandle(
            self, declaration.name, declared.replaced, declared.unchanged, dry_run, declared.restarted, notes
        )

    def stop(self, name: str) -> None:
        """Stop and remove a stream. Raises ApplicationError: there is none of this name, or others read it."""
        self._streams.remove(name)
        self._changed()

    def stop_all(self) -> None:
        """Stop and remove all streams."""
        self._streams.clear()
        self._changed()

    def _changed(self) -> None:
        """Release what was set by hand for streams that are gone, and keep what is declared now."""
        self.controller.release(self.application.names)
        self._keep()

    def _keep(self) -> None:
        """Write the manifest of a named session now. A failure is reported by the next cycle, which tries again."""
        if self.keeper is not None:
            with suppress(QodError):
                self.keeper.save()

    @takes(RESTRICTIONS)
    def set(self, name: str, **restrictions: Unpack[RestrictionKeywords]) -> str:
        """Change the restrictions of a query, from the next cycle on, without a restart. A maximum latency (seconds), a
        utility or a minimum juice of infinity removes it. Returns what its author should know: what a new maximum
        latency does not change, the mode of a query that keeps state, and what dropping rows does to the columns of a
        query of which none were dropped so far; "" otherwise. Raises ApplicationError: there is no such query, or the
        value is out of range; KafkaError, TaskManagerError: it waited for a query, and can't start."""
        changed = taken("set", restrictions, RESTRICTIONS)
        told = self._streams.restrict(name, **changed)
        unmet = latency_note(self.controller.policy.name, changed.get("max_latency_s"))
        return "; ".join(note for note in (told, unmet) if note)

    def results(self, name: str) -> DataFrame:
        """Return a memory sink's rows so far, a batch DataFrame of `spark`. Raises ApplicationError: no such query, or
        another sink."""
        return self._streams.results(name, self.spark)

    def exact(
        self,
        name: str,
        from_: str | datetime,
        to: str | datetime,
        *,
        margin_s: float | None = None,
        cpu: float = CPU,
        merge: bool = False,
        say: Say = lambda _: None,
    ) -> Exact:
        """Read the offsets behind a span of a query's windows from Kafka once more, without shedding, and compare: a
        slow batch beside the running queries, with the same recipes. Blocks until it ends.

        Args:
            name: a query with windows among its columns.
            from_: begin of the span: "10:00", "2026-01-31T10:00", "-15m" or a datetime; UTC without a zone. A time of
                day is the last one that has passed.
            to: its end; windows count that lie in [from_, to).
            margin_s: how much earlier and later than the span its rows may have been sent, seconds; by default 60, or
                for what its watermark waits if that is more.
            cpu: share of a core that the batch takes, above 0 and at most 1.
            merge: whether the exact figures are written to the sink, in the place of the estimates.
            say: receives a line before the batch begins.

        Raises:
            ApplicationError: there is no such query, or none whose windows can be computed again.
            UsageProblem: the span, the share or the sink is wrong.
            KafkaError, TaskManagerError: the broker or a task manager does not answer.

        """
        began = self._streams.began.get(name)
        return exact(
            self,
            name,
            from_,
            to,
            margin_s=margin_s,
            cpu=cpu,
            merge=merge,
            began=began,
            send=self._rows.send,
            say=say,
        )

    def show(self, name: str, *, save: str | os.PathLike[str] | None = None, **wish: Any) -> ShownResults:
        """A query's newest results, to be displayed: live in a notebook, as a table elsewhere. `kind`, `rows`, `x`, `y`
        and `save` are as the options of `%qod show`. Raises ApplicationError: there is no such query, or its sink can't
        be read."""
        return self.views.show(name, Wish(**wish), save)

    # -- looking and deciding --------------------------------------------------------------------------------------

    def status(self) -> str:
        """Return what runs where, how it keeps up, and the last decision."""
        return status_text(self)

    def why(self, name: str) -> str:
        """Return the last decision about a stream, an instance or a task manager, and why, with the numbers. For a
        stream fused into tasks of other names, the decisions about those tasks."""
        return why_text(self, name)

    @property
    def view(self) -> View:
        """Return the live view, made on first use: dashboard and controls."""
        return self.views.dashboard

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if self._ended or not in_kernel():
            return {"text/plain": repr(self)}
        return mime_bundle(self.view.widget(), repr(self), **options)

    async def watch(self, seconds: float = 30.0, show: decisions.Show | None = None) -> None:
        """Update the status in place once a period, for this many seconds, without blocking the kernel."""
        await decisions.watch(self, seconds, show)

    async def during(self, injector: Injector, phase: str, show: decisions.Show | None = None) -> None:
        """Wait until the injector's scenario reaches `phase`, annotate the recording with it, and show the status once
        a period until the phase or the injector ends. Raises UsageProblem: the scenario has no such phase, it is over,
        or the injector ended before it."""
        await decisions.during(self, injector, phase, show)

    async def until_settled(
        self,
        at_least_s: float = 0.0,
        quiet_s: float = 30.0,
        at_most_s: float = 300.0,
        show: decisions.Show | None = None,
    ) -> bool:
        """Show the status once a period until nothing has disturbed the cluster for `quiet_s` seconds: no move, no
        task manager joined or lost, no query restarted, no instance warming up.

        Takes from `at_least_s` to `at_most_s` seconds. Returns whether the cluster settled.
        """
        return await decisions.until_settled(self, at_least_s, quiet_s, at_most_s, show)

    def inject(
        self, scenario: ScenarioForm, *, cpus: Cores | None = None, record: str | os.PathLike[str] | None = None
    ) -> Injector:
        """Send a scenario (an object, its JSON form or a file's path) to the session's broker from a separate process,
        which ends with the session. It is pinned to the cores `cpus` (default, and where the system can't pin: all).
        `record`: a file for the achieved rates, one JSON line per second and topic; that of an earlier injector is
        replaced. Raises ScenarioError, KafkaError, UsageProblem.
        """
        self._check_writes("qod.inject")
        return self._injectors.start(scenario, record, cpus)

    @property
    def injectors(self) -> tuple[Injector, ...]:
        """Return the injectors started by `inject`, oldest first; some may have ended."""
        return tuple(self._injectors.started)

    def play(self, injector: Injector, applications: Mapping[str, Start] | None = None) -> ScenarioRunner:
        """Play the events of the injector's scenario when they are due: name phases, add and remove task managers,
        start and stop applications (functions that declare streams on the given session). Raises ScenarioError: the
        scenario starts an application that is not given."""
        runner = ScenarioRunner(self, injector, applications or {})
        self._endings.callback(runner.stop)
        return runner

    def record(self, path: str | os.PathLike[str]) -> None:
        """Append the recording to another file, from the next cycle on."""
        recording = Recording(path)
        self.thread.ask(lambda: self.controller.record(recording), "the recording is not changed")
        self.recording_path = recording.path

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write a page with the charts of the session so far, from its recording."""
        return report_so_far(self.recording_path, Path(path).expanduser(), self.began)
