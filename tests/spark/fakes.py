"""Spark in tests, without a server: sessions, queries, task managers, instances and rows by hand, with gates where
something freezes, and clusters of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import Instructions, StartAsked, Started, State
from qod_magics.lifecycle.query import QueryLife
from qod_magics.machine.releases import SPARK_VERSION
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.changes.recovery import Recovery
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.plans import dial
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.job import Job
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.kafka.fakes import FakeKafka

BOARD = dial.DialBoard("s")


class Spark:
    """Answers as a local session would, but only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.conf = self.streams = self
        self.queries: list[Query] = []

    @property
    def version(self) -> str:
        self.gate.wait(30)
        return SPARK_VERSION

    @property
    def active(self) -> list[Query]:
        self.gate.wait(30)
        return self.queries

    def get(self, key: str) -> str | None:
        return {"spark.master": "local[4]", "spark.driver.host": "localhost"}.get(key)

    def set(self, key: str, value: str) -> None:
        """Settings stay as they are."""

    def sql(self, text: str) -> Spark:
        self.gate.wait(30)
        self.asked.append(text)
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"value": 0.25}]


class Query:
    """A streaming query that runs; `stop` waits for the gate."""

    runId = "r"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.isActive = True
        self.lastProgress = None
        self.why: Exception | None = None

    def exception(self) -> Exception | None:
        return self.why

    def stop(self) -> None:
        self.gate.wait(30)


class Home(TaskManager):
    """A task manager on such a session, of which a test says whether its process lives, and what CPU that has used."""

    lives = True
    ended: bool | None = None
    spent_s: Callable[[], float | None] | None = None

    def alive(self) -> bool:
        return self.lives and super().alive()

    @property
    def ending(self) -> str:
        return super().ending if self.lives else "its process ended with exit code 1"

    def gone(self) -> bool:
        return super().gone() if self.ended is None else self.ended

    def used_s(self) -> float | None:
        return super().used_s() if self.spent_s is None else self.spent_s()

    def kill(self) -> None:
        """It has no process."""


def manager(id: str = "tm1") -> Home:
    return Home(id, Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]


def instance(
    home: TaskManager | None = None, query: Query | None = None, make: Callable[..., Instance] = Instance
) -> Instance:
    job = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
    one = make(job, "/nowhere", task_manager=home, query=query)
    if query is not None:
        runs(one, query)
    return one


def runs(one: Instance, query: Query, run_id: str = "r", realtime: bool = False) -> None:
    """Have an instance run this query, since the clock began."""
    for event in (StartAsked(), Started(one.life.run + 1, realtime)):
        one.life.handle(event, 0.0)
    one.query, one.run_id = query, run_id  # type: ignore[assignment]


class Parts:
    """What of the runtime looks after the instances of a cluster."""

    def __init__(self, made: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = made
        self.lifecycle = Lifecycle(made)
        self.mover = Mover(made, self.lifecycle)
        self.collector = Collector(made)
        self.recovery = Recovery(made, self.lifecycle, clock)

    def move(self, one: Instance, target: TaskManager, why: str) -> str:
        """Move an instance, and wait until it runs there or not; return why it does not."""
        return self.mover.carry_out(one, self.mover.ask(one, target, why))


def cluster(
    *managers: TaskManager, instances: tuple[Instance, ...] = (), kind: Callable[..., Cluster] = Cluster
) -> Cluster:
    def place(unplaced: Any, there: Any, running: Any) -> Mapping[str, str]:
        return {one.instance: there[0].id for one in unplaced}

    made = kind(Deployment(FakeKafka(), "s"), BOARD, {}, place, 5.0)
    made.patience = Patience(batch_s=0.0, late_s=0.0)  # no report is waited for
    made.task_managers.update({m.id: m for m in managers})
    made.instances.update({i.id: i for i in instances})
    return made


def kinds(made: Cluster) -> list[str]:
    return [event.kind for event in made.events]


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class FakeTaskManager:
    """Is up while it is `alive_now`, and answers polls unless it is `mute`. It keeps in `turned` what its dials were,
    and refuses them while it is `mute_dials`."""

    cores = 1.0
    slots: float | None = None
    share = 1.0
    silent_since: float | None = None
    reading = DialReading.ROW
    own_meter: Any = None
    python_meter: Any = None
    sheds_on_read = False
    no_state_jar = ""
    shuffle = 1
    dials: Mapping[str, float] = {}

    def __init__(self, id: str = "tm1", kind: str = "local", cpu_meter: Any = None) -> None:
        self.id, self.kind, self.cpu_meter = id, kind, cpu_meter
        self.alive_now, self.mute, self.mute_dials = True, False, False
        self.turned: list[dict[str, float]] = []
        self.assigned: list[tuple[str, list[str], str, int, tuple[int, ...]]] = []
        self.polling = threading.Lock()

    def recount(self) -> None:
        """Its cores stay as they are."""

    def sample_cpu(self) -> None:
        return None

    def alive(self) -> bool:
        return self.alive_now

    @property
    def ending(self) -> str:
        return "" if self.alive_now else "its process ended with exit code 1"

    def turn(self, dials: Mapping[str, float]) -> None:
        if self.mute_dials:
            raise TaskManagerError("it does not answer.", name=self.id, rule="answers")
        self.turned.append({**dials})

    def assign_state(
        self, target: str, sources: Sequence[str], column: str, partitions: int, own: Sequence[int]
    ) -> str:
        self.assigned.append((target, list(sources), column, partitions, tuple(own)))
        return "0 0 0"

    def workshop(self, *_: Any) -> None:
        """No session: no plan is built on it."""

    def active_runs(self) -> set[str]:
        if self.mute:
            raise TaskManagerError(f"{self.id} has not answered the last poll yet.")
        return set()

    def task_times(self) -> None:
        return None

    def close(self) -> None:
        return None


class FakeMover(Mover):
    """Moves at once, but those to a task manager in `slow` when `go` is set; `moved` has what was asked."""

    def __init__(self, made: Cluster, *slow: str) -> None:
        super().__init__(made, Lifecycle(made))
        self.slow, self.go = slow, threading.Event()
        self.moved: list[tuple[str, str, str]] = []

    def carry_out(self, instance: Instance, asked: Instructions) -> str:
        assert asked
        assert instance.move is not None
        target = self.cluster.manager(instance.move.target)
        self.moved.append((instance.id, target.id, instance.move.why))
        assert target.id not in self.slow or self.go.wait(10.0)
        instance.task_manager, instance.life = target, QueryLife(State.RUNNING)
        return ""


class Script:
    """What fake instances do, where not what real ones do; `make` makes them, in the place of `Cluster.make`."""

    def __init__(
        self,
        start: Callable[[Instance, Any], None] | None = None,
        poll: Callable[[Instance], bool] | None = None,
    ) -> None:
        self.start, self.poll = start, poll

    def make(self, *given: Any, **more: Any) -> FakeInstance:
        made = FakeInstance(*given, **more)
        made.script = self
        return made


class FakeInstance(Instance):
    """Starts and is polled as its script says."""

    script: Script

    def start(self, task_manager: Any, *others: Any) -> None:
        if self.script.start is None:
            super().start(task_manager, *others)
        else:
            self.script.start(self, task_manager)

    def poll(self) -> bool:
        return super().poll() if self.script.poll is None else self.script.poll(self)


def fake_inspection(
    check: Callable[[Sequence[Any]], Checked] = lambda specs: Checked({}),
    keys: Callable[[], tuple[str, ...] | None] = lambda: None,
) -> Any:
    """In the place of a deployment's `Inspection`: facts about tasks, and the keys of results, without plans."""
    return SimpleNamespace(check=lambda specs, *_: check(specs), result_keys=lambda *_: keys())


class AnalysisException(Exception):
    """By name what Spark raises for what it can't plan."""


class FakeSession:
    """A session of Spark Connect that has settings and temporary views."""

    def __init__(self) -> None:
        self.conf = self.catalog = self.readStream = self
        self._settings, self.views = dict[str, str](), dict[str, Any]()

    def tableExists(self, name: str) -> bool:
        return name in self.views

    def dropTempView(self, name: str) -> None:
        self.views.pop(name, None)

    def table(self, name: str) -> Any:
        return self.views[name]

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self._settings[key] = value

    def unset(self, key: str) -> None:
        self._settings.pop(key, None)


class FakeRows:
    """A DataFrame whose plans are known; Spark can't explain those that are None."""

    def __init__(self, physical: str | None = None, analyzed: str | None = None, schema: Any = None) -> None:
        self.sparkSession, self.schema = FakeSession(), schema
        self._plans = {False: physical, True: analyzed}

    def select(self, *_: Any) -> FakeRows:
        return self

    def createOrReplaceTempView(self, name: str) -> None:
        self.sparkSession.views[name] = self

    def _explain_string(self, *, extended: bool) -> str:
        plan = self._plans[extended]
        if plan is None:
            raise AnalysisException
        return f"== Analyzed Logical Plan ==\n{plan}\n== Optimized Logical Plan ==" if extended else plan
