"""A task manager: one Spark session with its own cores, on which task instances run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qod_magics.errors import LostError, TaskManagerError
from qod_magics.machine.cores import every_core
from qod_magics.machine.releases import without_realtime
from qod_magics.sources.registry import Sources
from qod_magics.spark.plans import dial
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.servers.conf import OWN_SESSION_CONF, SESSION_CONF, SHUFFLE, SHUFFLE_DEFAULT, stated_shuffle
from qod_magics.spark.servers.connection import (
    begin,
    beside,
    call_within,
    clone,
    is_connect,
    let_go,
    share_views,
)
from qod_magics.spark.servers.cpu import (
    CoreMeter,
    CpuMeter,
    ProcessMeter,
    PythonMeter,
    TaskTime,
    adopt,
    core_seconds,
    cpu_seconds,
    endpoint,
    refuses,
    setting,
    tasks_at_once,
)
from qod_magics.spark.servers.own_jars import STATE_CLASS
from qod_magics.spark.servers.rest import Rest, applications, rest_of, times_by_batch
from qod_magics.spark.servers.server import LocalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Interval of asking how many cores executors have, seconds.
RECOUNT_S = 45.0
#: How long state may take to be assigned to one instance, seconds.
ASSIGNING_S = 60.0
#: Timeout for what is asked of a session once it has answered: settings, cores, dials; seconds.
INQUIRY_S = 60.0
#: How long the start of a query waits for others that shuffle into another number of partitions, seconds.
STARTS_S = 60.0


class TaskManager:
    """One session, how to reach its metrics, and the dials it holds.

    Attributes:
        id: its name in snapshots and plans.
        spark: a session of our own on it, where the queries run.
        kind: "local" (a server of ours), "connect" (a URL of the user's) or "attached" (the notebook's own session).
        cores: what its tasks may use, in cores.
        slots: tasks that it runs at the same time; None: unknown.
        capacity: its cores, with those that plans leave free.
        no_realtime: why no query may run in real-time mode on it; "": one may.
        reading: how the plans on it read their dials.

    """

    def __init__(
        self,
        id: str,
        spark: SparkSession,
        *,
        kind: str,
        cores: float,
        board: dial.DialBoard,
        ui: str | None = None,
        server: LocalServer | None = None,
        notebooks: SparkSession | None = None,
        slots: float | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        capacity: float | None = None,
        headroom: float | None = None,
        shuffle: int | None = None,
        kept: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        self.id = id
        self.spark = spark
        self.kind = kind
        self.cores = cores
        self.slots = slots
        self.capacity = cores if capacity is None else capacity
        #: of its cores, where executors come and go; None: its cores stay as they are
        self._headroom, self._counted_at = headroom, time.monotonic()
        self._counting = threading.Lock()  #: held while they are counted: without executors, there is no answer
        self.share = 1.0  #: of its cores for tasks, that the user allows
        self.ui, self.headers = ui, headers  #: of its Spark UI
        self.server = server
        self.no_realtime = without_realtime() or ("" if server is None else server.no_realtime)
        #: whether rows that are shed can be dropped by the reader of a topic
        self.sheds_on_read = server is not None and not server.no_shedding_source
        #: why it can't assign state to other instances, as a clause; "": it can
        self.no_state_jar = f"{id} was not started here" if server is None else server.no_state_jar
        self.notebooks = notebooks  #: of one that is attached: the notebook's own session
        self.silent_since: float | None = None  #: monotonic seconds; None: it answered last time
        self.tells_times = False  #: whether its REST API told the times of tasks, when it was last asked
        self.polling = threading.Lock()  #: held while a poll of its queries is under way
        self.dials: dict[str, float] = {}  #: those whose values are known
        self._turning = threading.Lock()
        self._stated_shuffle = shuffle  #: shuffle partitions by the user's setting; None: there is none
        self._shuffles: int | None = None  #: into how many partitions its session shuffles; None: not set here yet
        self._fixed_shuffle: int | None = None  #: the same where it refuses to change that
        self.kept = kept  #: settings of ours that it refuses, with the values that it keeps
        self._starts = 0  #: queries that start with that number
        self._starting = threading.Condition()  #: held while either of them changes
        self._topic: dial.DialStore | None = None  #: of its dials, where SQL can't set them
        self._stages: Future[dict[tuple[str, int], TaskTime]] | None = None  #: a call of its REST API under way
        self.endpoint = None if server is not None else endpoint(spark)
        master = setting(spark, "spark.master") or ""
        local = master.startswith("local") and not master.startswith("local-cluster")
        if dial.reflection_allowed(spark, f"qod.{board.session}.probe"):
            self.reading = dial.DialReading.ROW if local else dial.DialReading.BATCH
        else:
            self.reading = dial.DialReading.RESTART
        self.application: str | None = setting(spark, "spark.app.id")
        if self.application is None and ui is not None:
            with suppress(OSError):
                self.application = next(iter(applications(ui, headers)), None)
        #: CPU of its cores, or of its processes where it is not pinned to cores; None: unknown.
        self.cpu_meter: CpuMeter | None = None if server is None else local_meter(server)
        #: CPU of its processes, where `cpu_meter` counts all that runs on its cores.
        self.own_meter: CpuMeter | None = None
        if server is not None and isinstance(self.cpu_meter, CoreMeter):
            self.own_meter = ProcessMeter(server.child.pid, self.cpu_meter.cores)
        self.python_meter = PythonMeter(server.child.pid) if server is not None else None

    @property
    def rest(self) -> Rest | None:
        """Return its REST API; None: unknown."""
        return rest_of(self.ui, self.application, self.headers)

    def __repr__(self) -> str:
        return self.describe

    @property
    def describe(self) -> str:
        """Return one line for `status`."""
        where = ""
        if self.server is not None and self.server.options.cpus is not None:
            cpus = self.server.options.cpus
            where = f" on core{'s' if len(cpus) > 1 else ''} {','.join(map(str, sorted(cpus)))}"
            if not self.server.options.pinned:
                where = " on any core (a quota limits CPU here, not cores)"
            elif not self.server.child.pinned:
                where = " on any core (this system can't pin it)"
            elif shared := self.server.claim.shared:
                where += f" (another task manager has {','.join(map(str, sorted(shared)))}, too)"
        limit = "" if self.share == 1.0 else f" (limited to {self.share:.0%} of them)"
        line = f"{self.id}: {self.kind}{where}, {self.cores:g} cores for tasks{limit}, dials per {self.reading.value}"
        if self.signal:
            line += f", utilization by {self.signal}"
        if self.server is not None and self.server.no_shedding_source:
            line += f"; drops rows behind Spark's Kafka source, since {self.server.no_shedding_source}"
        if self.kept:
            kept = [key if value is None else f"{key}={value}" for key, value in self.kept.items()]
            line += f"; refuses settings of ours, and keeps {', '.join(kept)}"
        return f"{line}; no real-time mode, since {self.no_realtime}" if self.no_realtime else line

    @property
    def signal(self) -> str:
        """Return what tells how busy it is, in words; "" where its CPU is measured."""
        if self.cpu_meter is not None:
            return ""
        if not self.tells_times:
            return "slot time of batches"
        return "slot time of batches, which task times of its Spark UI divide"

    @property
    def prefers_batches(self) -> str:
        """Return why queries run in micro-batches on it; "": they may run in real-time mode."""
        if self.cpu_meter is not None or self.ui is not None:
            return ""
        return "only micro-batches tell how busy a task manager is of which no Spark UI is known"

    @property
    def output(self) -> str:
        """Where a console sink prints: a file, if the server was started here."""
        return "its Spark driver's standard output" if self.server is None else str(self.server.child.log_path)

    def alive(self) -> bool:
        """False once its process has ended. One not started here is judged by its answers (`silent_since`)."""
        return self.server is None or self.server.child.alive()

    @property
    def ending(self) -> str:
        """Return how its process ended, as a clause; "" if it runs, or was not started here."""
        return "" if self.server is None else self.server.child.ending

    def gone(self) -> bool:
        """Whether its process or session has ended, and its queries with it. Silence alone is no proof: the queries of
        one that does not answer may run on."""
        if self.server is not None:
            return not self.alive()
        if self.endpoint is not None:
            return refuses(self.endpoint)
        context = getattr(self.spark, "sparkContext", None)
        return context is not None and context._jsc is None

    def busy(self, over_s: float) -> float | None:
        """Utilization of its cores over the last `over_s` seconds, a fraction of 1: by all processes or, where it is
        not pinned, by its own. None: unknown, or too few samples were taken."""
        if self.cpu_meter is None:
            return None
        now = time.monotonic()
        used = self.cpu_meter.mean(now - over_s, now)
        return None if used is None else used / (100.0 * self.cpu_meter.cores)

    def limit(self, share: float) -> float:
        """Let plans use this share of its cores for tasks, 0..1; returns the cores that these are."""
        self.share = share
        return self.cores * share

    @property
    def shuffle(self) -> int:
        """Return into how many partitions a query shuffles whose first batch runs here in micro-batches: as many as the
        user's setting says, or one for each of its cores, so that an aggregation can use them all. One where nothing
        tells that it does: slot time counts the readers of a batch alone then."""
        if self._fixed_shuffle is not None:
            return self._fixed_shuffle
        if self._stated_shuffle is None and self.cpu_meter is None and self.rest is None:
            return 1
        return self._stated_shuffle or min(max(int(self.capacity), 1), SHUFFLE_DEFAULT)

    @contextmanager
    def shuffling(self, partitions: int, wait_s: float = STARTS_S) -> Iterator[int]:
        """Set the number of shuffle partitions of the queries that start within this block. It is a setting of the
        session, which a query copies when it starts, so starts with another number wait. A query that has run a batch
        keeps the number of its checkpoint. Yields the number: where the server refuses to change it, its own.

        Args:
            partitions: the number.
            wait_s: for starts with another number, seconds.

        Raises:
            TaskManagerError: others still start after `wait_s`. Or whatever Spark raises.

        """
        with self._starting:
            if not self._starting.wait_for(lambda: not self._starts or self._shuffles_into(partitions), wait_s):
                raise TaskManagerError(
                    f"{self.id} still starts queries that shuffle into {self._shuffles} partitions.",
                    name=self.id,
                    rule="answers",
                )
            if not self._starts or not self._shuffles_into(partitions):  # a recipe may have changed it since
                self._shuffles = None
                self._shuffle_into(partitions)
            self._starts += 1
        try:
            yield self._fixed_shuffle or partitions
        finally:
            with self._starting:
                self._starts -= 1
                self._starting.notify_all()

    def _shuffles_into(self, partitions: int) -> bool:
        return self._shuffles == partitions or self._fixed_shuffle is not None

    def _shuffle_into(self, partitions: int) -> None:
        try:
            self.spark.conf.set(SHUFFLE, str(partitions))
        except Exception:  # it refuses that, or does not answer: then this raises, too
            self._fixed_shuffle = stated_shuffle(self.spark.conf.get(SHUFFLE)) or SHUFFLE_DEFAULT
        else:
            self._shuffles, self._fixed_shuffle = partitions, None

    def recount(self, every_s: float = RECOUNT_S) -> None:
        """Ask how many cores its executors have by now, if that is due and not what the user has said. Executors come
        and go; without an answer, or without any, the last number holds."""
        now = time.monotonic()
        if self._headroom is None or now - self._counted_at < every_s or not self._counting.acquire(blocking=False):
            return
        self._counted_at = now
        rest = self.rest
        try:
            found = tasks_at_once(self.spark) if rest is None else rest.cores()
        finally:
            self._counting.release()
        if found is not None:
            self.slots, self.capacity = (None if rest is None else found), found
            self.cores = found * (1 - self._headroom)

    def sample_cpu(self) -> None:
        """Take a sample of its CPU."""
        for meter in (self.cpu_meter, self.own_meter):
            if meter is not None:
                meter.sample()

    def used_s(self) -> float | None:
        """CPU seconds so far of its processes; None if it was not started here."""
        return None if self.server is None else cpu_seconds(self.server.child.pid)

    def kill(self) -> None:
        """Kill its processes; its instances restart elsewhere. Raises TaskManagerError: it was not started here."""
        if self.server is None:
            raise TaskManagerError(f"{self.id} was not started here ({self.kind}): only a local one can be killed.")
        self.server.child.kill()

    def workbench(self) -> SparkSession:
        """The session on which plans are built, with the temporary views that the notebook's own has by now."""
        if self.notebooks is not None:
            with suppress(Exception):  # without one of these, the recipe's error names it
                share_views(self.notebooks, self.spark)
        return self.spark

    def workshop(self, board: DialBoard, kafka: Mapping[str, str], sources: Sources | None) -> Workshop:
        """Return what builds plans on it, with these names of dials, options of Spark's Kafka source, and sources."""
        return Workshop(self.workbench(), board, self.reading, self.dials, kafka, self.sheds_on_read, sources)

    def for_notebook(self) -> SparkSession:
        """A session for the notebook's batch work: its own, or another one beside ours, which makes no call here."""
        return self.notebooks if self.notebooks is not None else beside(self.spark)

    def for_batch(self) -> SparkSession:
        """A session for a batch of ours beside the queries, with the settings and views of theirs: `release` it then.
        Raises whatever Spark raises if it does not answer."""
        if self.notebooks is None:
            spark = beside(self.spark)
            adopt(spark, OWN_SESSION_CONF)
            return spark
        spark = clone(self.workbench())
        adopt(spark, SESSION_CONF)
        return spark

    def tagged_cpu(self, tag: str) -> float | None:
        """Return the CPU time, seconds, of the tasks of all jobs with a tag that have ended; None where its REST API is
        unknown or silent, or has no such job."""
        rest = self.rest
        if rest is None:
            return None
        with suppress(OSError, ValueError):
            return rest.tagged_seconds(tag)
        return None

    def active_runs(self) -> frozenset[str]:
        """Ids of the runs of this session's queries that are active on it, asked for in one call. Raises whatever
        Spark raises if it does not answer."""
        return frozenset(str(query.runId) for query in self.spark.streams.active)

    def ask(self, call: Any, what: str, timeout_s: float = 10.0) -> Any:
        """Make a call to it with a timeout.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time.

        """
        self._refuse_if_gone()
        return call_within(call, timeout_s, f"{self.id}: {what}")

    def _refuse_if_gone(self) -> None:
        if not self.alive():
            raise LostError(f"Task manager {self.id} is gone: {self.ending}.")

    def turn(self, values: Mapping[str, float], timeout_s: float = 10.0) -> None:
        """Set the dials that differ from the values it holds, in one call.

        A call that timed out may still reach it, but never after a later one, which waits for its end.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time.

        """
        self._refuse_if_gone()
        if not self._turning.acquire(timeout=timeout_s):
            raise TaskManagerError(
                f"{self.id} has not answered the last update of its dials yet.", name=self.id, rule="answers"
            )
        changed = {key: value for key, value in values.items() if self.dials.get(key) != value}
        if not changed or self.reading is dial.DialReading.RESTART:
            self.dials.update(changed)
            self._turning.release()
            return
        for key in changed:  # unknown until it answers
            self.dials.pop(key, None)

        def turn() -> None:
            try:
                if self._topic is not None:
                    self._topic.write(changed)
                else:
                    dial.turn(self.spark, changed)
                self.dials.update(changed)
            finally:
                self._turning.release()

        call_within(turn, timeout_s, f"{self.id}: turning dials")

    def assign_state(
        self, target: str, sources: Sequence[str], column: str, partitions: int, own: Sequence[int]
    ) -> str:
        """Write the groups that an instance reads from now on, of all sources, into its checkpoint; return how many it
        has kept, taken over and left out.

        Args:
            target: the checkpoint, a copy of the first source.
            sources: the number of the last ended batch and the location of each, separated by a space.
            column: the one by which the sender chooses a row's partition.
            partitions: how many there are.
            own: those that the instance reads.

        Raises:
            LostError: its process is gone.
            TaskManagerError: no answer in time. Or whatever Spark raises.

        """
        sql = f"SELECT reflect('{STATE_CLASS}', 'assign', :target, :sources, :column, {partitions}, :own)"
        values = {"target": target, "sources": "\n".join(sources), "column": column, "own": ",".join(map(str, own))}

        def assign() -> str:
            return str(self.spark.sql(sql, args=values).collect()[0][0])

        found: str = self.ask(assign, "assigning state", ASSIGNING_S)
        return found

    def take_topic(self, topic: dial.DialStore) -> None:
        """Keep its dials in this topic from now on, which ends with it: no plan may have read one before."""
        self._topic, self.reading = topic, dial.DialReading.TOPIC

    def task_times(self, timeout_s: float = 1.5) -> dict[tuple[str, int], TaskTime] | None:
        """CPU and run time of tasks by (run id, batch id); None where its REST API is unknown, silent, or slow: the
        next call has a late answer. One thread at a time may call it."""
        rest = self.rest
        if rest is None:
            return None
        if self._stages is None:
            self._stages = begin(lambda: times_by_batch(rest.completed_stages()), f"stages-{self.id}")
        wait((self._stages,), timeout_s)
        if not self._stages.done():
            return None
        ended, self._stages = self._stages, None  # first, so that the next call asks again whatever this one raises
        with suppress(OSError, ValueError):
            times = ended.result()
            self.tells_times = True
            return times
        self.tells_times = False
        return None

    def works_on(self, run_id: str) -> bool | None:
        """Return whether a streaming query has active stages; None where its REST API is unknown or silent."""
        rest = self.rest
        if rest is None:
            return None
        try:
            return run_id in rest.active_runs()
        except (OSError, ValueError):
            return None

    def close(self, timeout_s: float = 8.0) -> None:
        """Release the session and stop our own server, also if interrupted while the session is released. The
        notebook's session stays as it is; a classic clone of it holds nothing."""
        try:
            if self.kind != "attached" or is_connect(self.spark):
                let_go(self.spark, timeout_s if self.alive() else 0.5)
        finally:
            if self._topic is not None:
                self._topic.close()
            if self.server is not None:
                self.server.stop()


def local_meter(server: LocalServer) -> CpuMeter:
    """A meter of its cores if it is pinned to them and they are counted by the same numbers, else of its processes:
    others share the cores."""
    cores = tuple(sorted(server.options.cpus or every_core()))
    if server.child.pinned and core_seconds().keys() >= set(every_core()):
        return CoreMeter(cores)
    return ProcessMeter(server.child.pid, len(cores))
