"""Whatever way a session ends, no process, no port and no file of it stays. (`%qod down` and `%unload_ext`:
test_magics.py.)"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from qod_magics.errors import QodError, TaskManagerError, UsageProblem
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.clusters import Clusters
from qod_magics.machine.java import free_ports
from qod_magics.session.resources import Resources
from qod_magics.session.session import Session
from qod_magics.session.settings import Settings
from qod_magics.spark.servers import connection
from tests.live.conftest import PATIENCE_S, kafka_of, server_of
from tests.live.kernel import GONE_S, Kernel, Traces, lingering, look

LOAD = "import os\n%load_ext qod_magics"
SCENARIO = """{
    "seed": 1, "duration_s": 600,
    "topics": [{"topic": "trips", "partitions": 1, "rate": 100, "data": {"generator": "taxi-trips"}}],
}"""


@dataclass(frozen=True)
class Busy:
    """A kernel with a session in full swing."""

    kernel: Kernel
    before: Traces  #: what there was without the session
    during: Traces


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Busy]]:
    """Two kernels that came up at the same time, one for each abrupt end."""
    kernels = [Kernel(tmp_path_factory.mktemp("kernel")) for _ in range(2)]
    try:
        with ThreadPoolExecutor() as threads:
            ready = list(threads.map(busy, kernels))
        yield ready
    finally:
        for kernel in kernels:
            kernel.close()


def busy(kernel: Kernel) -> Busy:
    kernel.run(LOAD)
    before = kernel.look()
    work(kernel)
    return Busy(kernel, before, kernel.look())


def work(kernel: Kernel) -> None:
    """A session in full swing: broker, task manager, standby, injector, a stream that sends and a query with state."""
    kernel.run("%qod up --task-managers 1 --max-task-managers 3 --period 2 --jit c1")
    kernel.run(f"from qod_magics.data import trip_schema\nTRIPS = trip_schema()\ninjector = qod.inject({SCENARIO})")
    kernel.run('%%qod_stream Trips --topic trips --schema "$TRIPS" --no-fuse\nsource')
    kernel.run(
        "%%qod_stream Zones --priority 1 --min-accuracy 0.2 --sink memory --no-fuse\n"
        "Trips.groupBy('PULocationID').agg(F.count('*').alias('n'))"
    )
    deadline = time.monotonic() + PATIENCE_S
    while kernel.run("print(len(Zones.to_pandas()) > 0)").strip() != "True":
        assert time.monotonic() < deadline, kernel.run("%qod status")
        time.sleep(0.5)
    while "tm2 standing by" not in kernel.run("%qod status"):
        assert time.monotonic() < deadline, kernel.run("%qod status")
        time.sleep(0.5)


def start_another(kernel: Kernel) -> Traces:
    """The standby joins, and the next one is starting; what is there then."""
    there = len(kernel.look().processes)
    assert kernel.run("%qod add-tm").strip() == "tm2 is up"
    deadline = time.monotonic() + PATIENCE_S
    while len((during := kernel.look()).processes) < there + 2:  # the server and its watchdog
        assert time.monotonic() < deadline, kernel.run("%qod status")
        time.sleep(0.1)
    return during


def test_a_kernel_that_is_restarted(two: list[Busy], handing_on: Callable[[], AbstractContextManager[None]]) -> None:
    kernel, before, during = two[0].kernel, two[0].before, two[0].during
    with handing_on():  # the new process is the fixture's
        kernel.restart()
    kernel.run(LOAD)
    assert len(during.left(before)) > 5  # the look sees what there is
    assert lingering(kernel.look, before | Traces.of(kernel.pid), during) == []


def test_a_kernel_that_is_killed(two: list[Busy]) -> None:
    kernel, before, during = two[1].kernel, two[1].before, two[1].during | start_another(two[1].kernel)
    kernel.kill()
    assert len(during.left(before)) > 5
    assert lingering(kernel.look, before, during) == []


# -- what never came up ------------------------------------------------------------------------------------------------


def beside_the_cluster(before: Traces) -> list[str]:
    """What is left and does not go: a process that was killed may take a moment. Ports do not count: the shared cluster
    opens one now and then, and those of the dead are gone."""

    def left() -> list[str]:
        return [line for line in look().left(before) if not line.startswith("port")]

    deadline = time.monotonic() + GONE_S
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    return left()


def refused(up: Callable[[], Session], kind: type[QodError], match: str) -> None:
    """`up` fails so, and all is as before: the leak check of every live test looks at processes and directories."""
    before, mode = look(), os.environ.get(connection.CONNECT_MODE)
    with pytest.raises(kind, match=match) as caught:
        up()
    assert "\n" not in str(caught.value)
    assert beside_the_cluster(before) == []
    assert os.environ.get(connection.CONNECT_MODE) == mode


def test_up_with_a_server_that_is_not_there(cluster: Session) -> None:
    (port,) = free_ports(1)
    url = f"sc://127.0.0.1:{port}"
    refused(
        lambda: Session.up(task_managers=0, connect=[url], **kafka_of(cluster)),
        TaskManagerError,
        f"127.0.0.1:{port}.* can't be used",
    )


def test_up_that_fails_while_a_local_task_manager_starts(cluster: Session) -> None:
    """One fails at once, the other would take seconds: it does not come up behind our back."""
    server = server_of(cluster)
    wrong = server.url.replace(server.token, "not-the-token")
    refused(lambda: Session.up(task_managers=1, connect=[wrong]), TaskManagerError, "can't be used")


def test_up_with_more_cores_than_there_are(cluster: Session) -> None:
    refused(lambda: Session.up(cores=10_000), UsageProblem, "10000 cores")


def test_a_session_that_can_not_be_made(cluster: Session) -> None:
    before = look()
    with pytest.raises(TypeError):
        Resources(Clusters(ExternalKafka(cluster.kafka.bootstrap)), Settings(checkpoints=5))  # type: ignore[arg-type]
    assert beside_the_cluster(before) == []


def test_two_sessions_end_by_themselves(cluster: Session) -> None:
    """The end of one leaves the other as it is."""
    before = look()
    other = Session.up(task_managers=1, **kafka_of(cluster))
    (manager,) = other.runtime.task_managers.values()
    other.down()
    assert beside_the_cluster(before) == []
    assert not manager.alive()
    assert os.environ.get(connection.CONNECT_MODE) is not None
    first = cluster.runtime.task_managers["tm1"]
    assert first.spark.sql("SELECT 1 AS one").collect()[0]["one"] == 1
