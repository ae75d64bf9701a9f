"""Task managers that start no server, behind the methods that the runtime calls. For servers and queries by hand, with
gates in the place of what freezes: stand_ins.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import Instructions, State
from qod_magics.lifecycle.query import QueryLife
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.inspection import Checked
from qod_magics.spark.queries.instance import Instance


class FakeTaskManager:
    """Is up while it is `alive_now`, answers polls unless it is `mute`, and keeps in `turned` what its dials were."""

    cores = 1.0
    slots: float | None = None
    share = 1.0
    silent_since: float | None = None
    reading = DialReading.ROW
    own_meter: Any = None
    python_meter: Any = None
    sheds_on_read = False
    dials: Mapping[str, float] = {}

    def __init__(self, id: str = "tm1", kind: str = "local", cpu_meter: Any = None) -> None:
        self.id, self.kind, self.cpu_meter = id, kind, cpu_meter
        self.alive_now, self.mute = True, False
        self.turned: list[dict[str, float]] = []
        self.polling = threading.Lock()

    def sample_cpu(self) -> None:
        return None

    def alive(self) -> bool:
        return self.alive_now

    def turn(self, dials: Mapping[str, float]) -> None:
        self.turned.append({**dials})

    def workbench(self) -> None:
        """No session: no plan is built on it."""

    def active_runs(self) -> set[str]:
        if self.mute:
            raise TaskManagerError(f"{self.id} has not answered the last poll yet.")
        return set()

    def task_times(self) -> None:
        return None

    def close(self) -> None:
        return None


class FakeMover:
    """Moves at once, but those to a task manager in `slow` when `go` is set; `moved` has what was asked."""

    def __init__(self, *slow: str, waits: Callable[[threading.Event], bool] = lambda go: go.wait(10.0)) -> None:
        self.slow, self.go, self._waits = slow, threading.Event(), waits
        self.moved: list[tuple[str, str, str]] = []
        self._targets: dict[str, Any] = {}

    def ask(self, instance: Instance, target: Any, why: str, *, only_running: bool = False) -> Instructions:
        """As the real one, which does nothing yet."""
        asked = Mover.ask(instance, target, why, only_running=only_running)
        self._targets[instance.id] = target
        return asked

    def carry_out(self, instance: Instance, asked: Instructions) -> str:
        assert asked
        assert instance.move is not None
        target = self._targets[instance.id]
        self.moved.append((instance.id, target.id, instance.move.why))
        assert target.id not in self.slow or self._waits(self.go)
        instance.task_manager, instance.life = target, QueryLife(State.RUNNING)
        return ""

    def restart_outdated(self) -> None:
        """None is."""


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
