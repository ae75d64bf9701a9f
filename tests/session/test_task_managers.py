"""What is asked of task managers by hand, looked at before anything comes or goes; nothing is started here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from qod_magics.core.snapshot import NodeState
from qod_magics.errors import QodError, SetupError, TaskManagerError, UsageProblem
from qod_magics.machine.cores import planned_cpus
from qod_magics.session.pool import CONNECT, LOCAL, Budget
from qod_magics.session.provisioning import Provisioner
from qod_magics.session.resources import TaskManagers
from qod_magics.session.settings import Settings
from qod_magics.spark.runtime import SparkRuntime
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.session.test_nodes import WAIT_S, Manager

NOTHING: dict[str, Any] = dict.fromkeys(("url", "spark", "cores", "cpus", "ui", "ui_headers", "jit", "memory", "slots"))


class FakeProvisioner(Provisioner):
    """Its servers are up at once."""

    def __init__(self, runtime: SparkRuntime) -> None:
        super().__init__(runtime, 0.1)
        self.made: list[str] = []

    def started(self, id: str, choose: Any) -> Any:
        choose()
        return self._made(id, "local")

    def connected(self, id: str, *_: Any) -> Any:
        return self._made(id, "connect")

    def _made(self, id: str, kind: str) -> Manager:
        self.made.append(id)
        return Manager(id, kind)


class Desk:
    """The task managers of a session with tm1, and a provisioner whose servers are stand-ins."""

    def __init__(self) -> None:
        self.runtime = SparkRuntime(FakeKafka(), "s", "/nowhere")
        self.provisioner = FakeProvisioner(self.runtime)
        self.provisioner.name()
        self.runtime.add_task_manager(Manager("tm1"))  # type: ignore[arg-type]
        self.made = self.provisioner.made
        self.managers = TaskManagers(self.runtime, self.provisioner, Settings())

    def add(self, **given: Any) -> str:
        return self.managers.add(**{**NOTHING, **given})


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.managers.end()
    made.runtime.close()


@pytest.mark.parametrize(
    ("given", "kind", "rule"),
    [
        ({"cores": 1, "cpus": [0]}, UsageProblem, "cores or cpus"),
        ({"url": "sc://a:1", "cores": 0}, UsageProblem, "positive"),
        ({"url": "a:15002"}, UsageProblem, "sc://HOST:PORT"),
        ({"url": "sc://a:1", "ui": "a:4040"}, UsageProblem, "http://HOST:PORT"),
        ({"url": "sc://a:1", "ui_headers": {"a": "b"}}, UsageProblem, "a UI"),
        ({"ui_headers": {"a": "b"}}, UsageProblem, "other kind"),
        ({"cores": -1}, UsageProblem, "positive"),
        ({"cores": 4711}, UsageProblem, "at most"),
        ({"cpus": [4711]}, UsageProblem, "cores of this machine"),
        ({"slots": 0}, SetupError, "positive"),
        ({"jit": "fast"}, SetupError, "exists"),
    ],
)
@pytest.mark.parametrize("budget", [None, 2])
def test_what_is_wrong_is_told_before_a_standby_gives_way(
    desk: Desk, budget: int | None, given: dict[str, Any], kind: type[QodError], rule: str
) -> None:
    if budget is not None:
        desk.managers.use(Budget(budget, 1))
        assert desk.managers.nodes is not None
        desk.managers.nodes.tend()
        assert set(desk.managers.nodes.states()) == {"tm2"}
    with pytest.raises(kind, check=breaks()) as caught:
        desk.add(**given)
    assert caught.value.rule is not None
    assert caught.value.rule.startswith(rule)
    assert list(desk.runtime.task_managers) == ["tm1"]
    if desk.managers.nodes is None:
        assert desk.made == []
    else:
        assert desk.managers.nodes.states() in ({"tm2": NodeState.PREPARING}, {"tm2": NodeState.STANDBY})


def test_a_spare_server_that_is_added_by_hand_is_not_offered(desk: Desk) -> None:
    desk.managers.use(Budget(3, 1, spare_connect=("sc://a:1",), standby=False))
    assert desk.managers.nodes is not None
    assert [spare.kind for spare in desk.managers.nodes.spares()] == [LOCAL, CONNECT]
    assert desk.add(url="sc://a:1") == "tm2"
    assert [spare.kind for spare in desk.managers.nodes.spares()] == [LOCAL]


def test_a_plan_is_offered_the_cores_of_the_budget_whatever_was_added_by_hand(desk: Desk) -> None:
    desk.managers.use(Budget(3, 1, standby=False, cores=1))
    assert desk.managers.nodes is not None
    desk.provisioner.cores_of |= {LOCAL: 7.2}
    (spare,) = desk.managers.nodes.spares()
    assert spare.cores == pytest.approx(planned_cpus(1) * 0.9)


def test_a_standby_that_hangs_can_be_killed(desk: Desk) -> None:
    desk.managers.use(Budget(2, 1))
    nodes = desk.managers.nodes
    assert nodes is not None
    nodes.tend()
    deadline = time.monotonic() + WAIT_S
    while nodes.states() != {"tm2": NodeState.STANDBY}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert desk.managers.remove("tm2", kill=True) is False
    nodes.tend()
    assert nodes.states() == {}
    with pytest.raises(TaskManagerError, check=breaks("exists", name="tm2")):
        desk.managers.remove("tm2", kill=True)
